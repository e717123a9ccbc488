"""Self-contained HTML pages: texts, tables and charts in one file, nothing loaded from elsewhere."""

from codedfl.report.pages.document import Document, Section, page_policy, safe_json
from codedfl.report.pages.text import (
    escaped,
    table_html,
    table_markdown,
)
from codedfl.runs.markup import number, seconds_text

__all__ = [
    "Document",
    "Section",
    "escaped",
    "number",
    "page_policy",
    "safe_json",
    "seconds_text",
    "table_html",
    "table_markdown",
]
