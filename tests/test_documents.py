"""Pages that come from code are what the code says now."""

import pytest
from docs import messages
from typer.testing import CliRunner

import documents
from codedfl.cli import app


@pytest.mark.parametrize("name", documents.PAGES)
def test_parts_are_those_of_the_code(name: str) -> None:
    text = (documents.ROOT / name).read_text(encoding="utf-8")
    assert "<!-- from: " in text
    assert documents.rewritten(text) == text, "run make docs"


def test_the_page_of_all_verdicts() -> None:
    page = (documents.ROOT / "docs" / "secrecy.md").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["security", "--markdown"]).output == page, "run make docs"


@pytest.mark.parametrize("name", messages.DRAWINGS)
def test_drawings_are_those_of_the_code(name: str) -> None:
    drawing = (documents.ROOT / "docs" / "messages" / f"{name}.svg").read_text(encoding="utf-8")
    assert messages.draw(name) == drawing, "run make docs"
    assert f"(messages/{name}.svg)" in (documents.ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")


def test_a_part_that_was_typed_is_replaced() -> None:
    typed = "a\n<!-- from: parties -->\nold words\n<!-- end -->\nb\n"
    made = documents.rewritten(typed)
    assert "old words" not in made
    assert made.startswith("a\n<!-- from: parties -->\n")
    assert made.endswith("<!-- end -->\nb\n")
    assert documents.rewritten(made) == made
