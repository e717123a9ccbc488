"""Numbers that were measured carry their command: in their section, or at the top of a page that says so for all."""

import re
from pathlib import Path

import pytest

from documents import ROOT

MADE = {"commands.md", "settings.md", "secrecy.md", "CHANGELOG.md"}
PAGES = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path.name not in MADE]
UNITS = r"(?:s|ms|min|h|hours?|minutes?|seconds?|kB|MB|GB|times)\b"
MEASURED = re.compile(rf"(?<![\w.`-])\d[\d,.]*(?:e[+-]?\d+)?\s?{UNITS}|(?<!95)%")
COMMAND = r"(?:codedfl |python -m |python docs/|python tests/|make |pytest |tests/|\.venv/bin/)"
SOURCE = re.compile(rf"`[^`]*{COMMAND}[^`]*`|^```(?:sh|{{code-cell}})|^    (?:python|codedfl|make) ", re.MULTILINE)
FOR_ALL = re.compile(r"every (?:number|figure)|all (?:numbers|figures)|tables? below|measured by", re.IGNORECASE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def without_source(text: str) -> list[str]:
    """Return the headings of sections with measured numbers and no command."""
    first, *others = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if FOR_ALL.search(first) and SOURCE.search(first):
        return []
    found = []
    for section in (first, *others):
        prose = re.sub(r"`[^`]*`", "", _FENCED.sub("", section))
        if MEASURED.search(prose) and not SOURCE.search(section):
            found.append(section.splitlines()[0])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_measured_number_has_its_command(page: Path) -> None:
    assert without_source(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A\n\n## B\n\nIt takes 3.5 s.\n", ["## B"]),
        ("# A\n\n## B\n\nIt takes 3.5 s (`python -m benchmarks b`).\n", []),
        ("# A\n\nEvery number below: `make bench`.\n\n## B\n\nIt takes 3.5 s.\n", []),
        ("# A\n\n| x | 12 MB |\n", ["# A"]),
        ("# A\n\nThe mean and the 95% band; `key = 3 s`.\n", []),
    ],
)
def test_the_check_itself(text: str, found: list[str]) -> None:
    assert without_source(text) == found
