"""Tables: escaped, numbers in short."""

import html
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.report.pages import number, table_html, table_markdown

NASTY = "<script>alert(1)</script> & \"quotes\" 'single' <b>"


class Reader(HTMLParser):
    """Collects tags, and the text of cells and headings."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open = tag
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1 / 3, "0.3333"),
        (5.0, "5"),
        (1.33e-5, "1.33e-05"),
        (123456.0, "1.235e+05"),
        (np.float64(2 / 3), "0.6667"),
        (123456, "123456"),
        ("reproduced", "reproduced"),
        (0.0, "0"),
    ],
)
def test_numbers(value: Any, text: str) -> None:
    assert number(value) == text


CELLS = st.one_of(st.none(), st.integers(), st.text(st.characters(exclude_categories=["C"])), st.just(NASTY))


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=4), st.lists(CELLS.map(str), min_size=2, max_size=2))
def test_whatever_is_in_a_table_is_text(rows: list[list[Any]], header: list[str]) -> None:
    """A parser that knows nothing of how it was written finds the same words, and no tags but those of tables."""
    found = read(table_html(header, rows))
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    assert found.texts.get("th", []) == [*header, *(row[0] for row in texts)]
    assert found.texts.get("td", []) == [cell for row in texts for cell in row[1:]]
    assert set(found.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert found.tags.count("tr") == len(rows) + 1
    assert {name for name, _ in found.attributes} <= {"class", "tabindex", "role", "aria-label", "scope"}


def test_markdown_by_hand() -> None:
    found = table_markdown(["name", "value"], [["a", 1 / 3], ["b|c", None]])
    assert found == "| name | value |\n| --- | --- |\n| a | 0.3333 |\n| b/c | - |\n"


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=4))
def test_markdown_has_as_many_cells_as_the_header(rows: list[list[Any]]) -> None:
    lines = table_markdown(["a", "b", "c"], rows).removesuffix("\n").split("\n")
    assert len(lines) == 2 + len(rows)
    assert all(line.count("|") == 4 for line in lines)


def test_the_text_of_a_cell_survives_html_in_and_out() -> None:
    assert html.escape(NASTY) in table_html(["a"], [[NASTY]])
