"""Numbers, times and tables for people, as text and as HTML in which every text is escaped."""

import html
from collections.abc import Mapping, Sequence
from typing import Any


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


def bits_text(bits: float) -> str:
    """Write a size for people, in bytes.

    >>> bits_text(4_320), bits_text(8e6), bits_text(3.2e10)
    ('0.5 kB', '1.0 MB', '4,000.0 MB')
    """
    return f"{bits / 8e6:,.1f} MB" if bits >= 8e5 or bits == 0 else f"{bits / 8e3:,.1f} kB"


def seconds_and_band(seconds: float | None, limits: Sequence[float | None] | None) -> str:
    """Write a time and its 95% band, if there is one.

    >>> seconds_and_band(1.42, [1.3, 1.7])
    '1.4 s (95%: 1.3 s to 1.7 s)'
    """
    if seconds is None or not limits or None in limits:
        return seconds_text(seconds)
    return f"{seconds_text(seconds)} (95%: {' to '.join(map(seconds_text, limits))})"


def table_html(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    lines = ("<tr>" + "".join(f"<td>{html.escape(number(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def facts_html(facts: Mapping[str, str]) -> str:
    """Write a table of names and values.

    >>> facts_html({"scheme": "<b>"})
    '<table><tr><th>scheme</th><td>&lt;b&gt;</td></tr></table>'
    """
    lines = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(lines)}</table>"
