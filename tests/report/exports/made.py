"""A finished run for all tests of exports, and copies of it that are changed."""

import atexit
import copy
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from codedfl.runs import Run, load
from codedfl.storage import write_json, write_parquet
from rundirs import small_run, summary

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror='alert(2)'>"
"""A name that would run in a page that does not escape it."""
TIMELINE = ("epoch", "device", "activity", "peer", "begin", "end", "bits")
REQUESTS = ("epoch", "question", "device", "seconds", "working_seconds", "down_bits", "up_bits", "macs")


def scratch() -> Path:
    """A folder for results that several tests share; it is removed when the tests end."""
    folder = Path(mkdtemp(prefix="codedfl-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def made() -> Path:
    """A finished run of the small scenario; do not change it."""
    place = scratch() / "run"
    small_run(place, {"training.epochs": 6, "timing.draws": 3, "timing.repeats": 1})
    return place


def copied(place: Path, **changes: Any) -> Run:
    """A copy of the run, with changes of its summary."""
    shutil.copytree(made(), place)
    if changes:
        write_json(place / "summary.json", summary(place) | changes)
    return load(place)


def renamed(run: Run) -> Run:
    """The run of a scenario with a hostile name, which no scenario file can have."""
    scenario = copy.copy(run.scenario)
    object.__setattr__(scenario, "name", HOSTILE)
    return replace(run, scenario=scenario)


def with_rows(run: Run, rows: list[tuple[Any, ...]], *, deployed: bool = False) -> Run:
    """The run with another timeline, or with the requests of a deployment."""
    (run.path / "timeline.parquet").unlink()
    names = REQUESTS if deployed else TIMELINE
    columns: Mapping[str, Any] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    write_parquet(run.path / ("devices.parquet" if deployed else "timeline.parquet"), columns)
    return run
