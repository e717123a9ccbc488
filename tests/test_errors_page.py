"""docs/errors.md names every error, and quotes what the program really says."""

import re
from functools import cache
from pathlib import Path

import pytest

from codedfl import errors
from codedfl.errors import CodedflError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
KINDS, SENTENCES = PAGE.split("## Kinds")[1].split("## Sentences")
_JOINED = re.compile(r"[\"']\s*\n\s*f?[\"']")


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


@cache
def source() -> str:
    """Return all code, where texts that go over several lines are joined."""
    return "\n".join(
        _JOINED.sub("", path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src/codedfl").rglob("*.py"))
    )


def test_every_class_is_there() -> None:
    classes = [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, CodedflError) and each is not CodedflError
    ]
    assert first_column(KINDS) == classes


@pytest.mark.parametrize("sentence", first_column(SENTENCES))
def test_the_program_says_so(sentence: str) -> None:
    assert sentence in source()
