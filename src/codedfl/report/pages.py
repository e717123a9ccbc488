"""Self-contained HTML pages: tables and figures in one file, no scripts, nothing loaded from elsewhere."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { border: 1px solid #bbb; padding: .3rem .6rem; }
th { background: #eee; text-align: left; } td { vertical-align: top; } figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; } figcaption { color: #444; }
"""


def number(value: Any) -> str:
    """Write a number with four significant digits; nothing for None."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_text(seconds: float | None) -> str:
    """Write a time for people."""
    if seconds is None:
        return "never"
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def table_html(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    lines = ("<tr>" + "".join(f"<td>{html.escape(number(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def table_markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table for Markdown pages."""
    lines = [header, ["---"] * len(header), *([number(cell).replace("|", "/") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figure_html(svg: Path, caption: str) -> str:
    """Embed an SVG file."""
    drawing = svg.read_text(encoding="utf-8")
    return f"<figure>{drawing[drawing.index('<svg') :]}<figcaption>{html.escape(caption)}</figcaption></figure>"


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """Put sections (heading, HTML) on a page."""
    body = "".join(f"<h2>{html.escape(heading)}</h2>{content}" for heading, content in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )
