"""Pages and tables: escaped, self-contained, numbers in short."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from codedfl.report import figures
from codedfl.report.pages import figure_html, number, page, table_html, table_markdown

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
    assert found.texts.get("th", []) == header
    assert found.texts.get("td", []) == ["-" if cell is None else str(cell) for row in rows for cell in row]
    assert set(found.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert found.tags.count("tr") == len(rows) + 1
    assert found.attributes == []


def test_title_and_headings_are_escaped_and_contents_are_not() -> None:
    text = page(NASTY, [(NASTY, table_html(["a"], [[NASTY]])), ("second", "<p>words</p>")])
    found = read(text)
    assert found.texts["title"] == found.texts["h1"] == [NASTY]
    assert found.texts["h2"] == [NASTY, "second"]
    assert found.texts["td"] == [NASTY]
    assert found.texts["p"] == ["words"]
    assert "script" not in found.tags
    assert "b" not in found.tags


def test_a_page_stands_alone() -> None:
    text = page("t", [("h", table_html(["a"], [[1.0]]))])
    found = read(text)
    assert text.startswith("<!doctype html>")
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(found.tags)
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert ("charset", "utf-8") in found.attributes
    assert ("lang", "en") in found.attributes


@pytest.fixture
def drawing(tmp_path: Path) -> Path:
    """A figure as the package saves it."""
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1], label="a < b")
    figures.save(figure, tmp_path / "drawn.png")
    return tmp_path / "drawn.svg"


def test_a_drawing_is_embedded_and_loads_nothing(drawing: Path) -> None:
    text = page("t", [("Figure", figure_html(drawing, NASTY))])
    found = read(text)
    assert found.tags.count("svg") == 1
    assert found.tags.count("figure") == 1
    assert found.texts["figcaption"] == [NASTY]
    assert "<?xml" not in text
    assert text.lower().count("<!doctype") == 1, "that of the page"
    assert not {"script", "link", "img", "iframe", "object", "embed", "image"} & set(found.tags)
    loading = [value or "" for name, value in found.attributes if name in ("src", "href", "xlink:href", "data")]
    assert loading, "glyphs are referred to"
    assert all(value.startswith("#") for value in loading)
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text


def test_the_drawing_is_the_one_in_the_file(drawing: Path) -> None:
    inside = drawing.read_text(encoding="utf-8")
    assert inside[inside.index("<svg") :].strip() in figure_html(drawing, "c")


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
