"""Bars are for terminals only: in notebooks, which force colours on processes they start, there are lines."""

import io

import pytest
from rich.console import Console

from codedfl.cli import common


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("file", "told"), [(Terminal(), True), (io.StringIO(), False)])
def test_forced_colours_make_no_terminal(file: io.StringIO, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "errors", Console(file=file, force_terminal=True))
    assert common.on_terminal() is told
    with common.bars() as report:
        report("training", 0, 2)
        report("training", 2, 2)
    assert ("\x1b[?25l" in file.getvalue()) is told  # hides the cursor
