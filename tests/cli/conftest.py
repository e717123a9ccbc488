"""The command line in this process, in a folder of its own, with no data but what the test puts there.

Nothing of codedfl is imported at the top: pytest may read this file before the shape checks are installed.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with small.toml; named data sets come from empty folders, never from a network."""
    from codedfl.data.sources import known as sources
    from codedfl.data.sources import tables
    from codedfl.data.sources.origins import EnvironmentFolder
    from rundirs import SMALL

    for name in ("work", "cache", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("CODEDFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path / "data"))
    offline = {
        name: replace(source, origins=(EnvironmentFolder(name),) if source.files else ())
        for name, source in sources.SOURCES.items()
    }
    monkeypatch.setattr(sources, "SOURCES", MappingProxyType(offline))
    without = {
        name: replace(table, source=replace(table.source, origins=(EnvironmentFolder(name),)))
        for name, table in tables.TABLES.items()
    }
    monkeypatch.setattr(tables, "TABLES", MappingProxyType(without))
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work/small.toml").write_text(SMALL)
    return tmp_path / "work"


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out, as without matplotlib, where no test looks at them: they take most of a short command."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@pytest.fixture
def codedfl(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command; an exception that escapes is what a person would see as a traceback, and fails the test."""
    from codedfl.cli import common, main

    # on a slow machine a command may take so long that it reports its progress
    monkeypatch.setattr(common, "dated_lines", partial(common.dated_lines, after=math.inf))

    def run(*arguments: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return run
