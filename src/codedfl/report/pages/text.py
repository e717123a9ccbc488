"""Numbers, times and tables as text, HTML and Markdown."""

import html
from collections.abc import Sequence
from typing import Any

from codedfl.runs.markup import number


def escaped(value: Any) -> str:
    """Return a value as text of an HTML element or attribute."""
    return html.escape(str(value))


def table_html(header: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = "") -> str:
    """Write a table that scrolls sideways where it is too wide; the first cell of a row is its header."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in header)
    lines = "".join(_row(row) for row in rows)
    title = f"<caption>{escaped(caption)}</caption>" if caption else ""
    label = caption or f"table: {', '.join(header)}"
    return wide(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>", label)


def wide(content: str, label: str) -> str:
    """Let content scroll sideways, with the keyboard, too."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escaped(label)}">{content}</div>'


def _row(row: Sequence[Any]) -> str:
    first, *others = row
    cells = (f'<td class="{_kind(cell)}">{escaped(number(cell))}</td>' for cell in others)
    return f'<tr><th scope="row">{escaped(number(first))}</th>{"".join(cells)}</tr>'


def _kind(cell: Any) -> str:
    return "number" if isinstance(cell, (int, float)) and not isinstance(cell, bool) else "text"


def table_markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table for Markdown pages."""
    lines = [header, ["---"] * len(header), *([number(cell).replace("|", "/") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
