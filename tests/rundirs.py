"""A scenario that trains in a fraction of a second, and ways to look into and compare run directories."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

import codedfl
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.task import Problem

SMALL = """
name = "small"
scheme = "minibatch"

[data]
source = "digits"

[features]
dimension = 30
gamma = 0.15

[training]
epochs = 24
learning_rate = 4.0
decay_epochs = [10]
targets = [0.5, 0.7, 0.99]

[[fleet.devices]]
count = 3
mac_rate = 25e6

[[fleet.devices]]
count = 2
mac_rate = 2.5e6

[timing]
draws = 50
repeats = 3

[schemes.minibatch]
parts = 3

[schemes.drop-slowest]
wait_for = 4
"""
SCHEMES = ("conventional", "minibatch", "drop-slowest")
FINISHED = {
    *("scenario.toml", "epochs.parquet", "summary.json", "costs.parquet", "timeline.parquet", "timings.npy"),
    *("model.npz", "model/model.json", "model/model.npz"),
}


def small(changes: Mapping[str, Any] | None = None) -> Scenario:
    """The small scenario; ``changes`` are dotted keys."""
    return Scenario.from_toml(SMALL).with_settings(changes or {})


@cache
def small_problem() -> Problem:
    """The data of the small scenario, for all tests that change neither data nor features nor devices."""
    return Problem.build(small())


def small_run(path: Path, changes: Mapping[str, Any] | None = None, **options: Any) -> runs.Run:
    """Run the small scenario in a directory."""
    return runs.execute(small(changes), path, problem=small_problem, **options)


class Stopped(BaseException):
    """Stands for whatever ends a process in the middle of its work."""


def stop_at(report: int) -> Any:
    """A progress callback that stops at the n-th report of training."""
    seen = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal seen
        seen += stage.startswith("training")
        if seen == report:
            raise Stopped

    return progress


def files(folder: Path) -> set[str]:
    """The names of all files below a folder, without the locks of run directories."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return {name for name in found if Path(name).name != ".lock"}


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: contents of files, None for folders."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def epochs(path: Path) -> dict[str, np.ndarray]:
    """The columns of epochs.parquet."""
    table = pyarrow.parquet.read_table(path / "epochs.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def summary(path: Path) -> dict[str, Any]:
    """The contents of summary.json."""
    return strict_json((path / "summary.json").read_text())


def strict_json(text: str) -> Any:
    """Read JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """An array as something that is equal only if every bit is."""
    return array.dtype.str, array.shape, array.tobytes()


def results(path: Path) -> dict[str, Any]:
    """All that a run found, repetitions included, but for the time it took."""
    found: dict[str, Any] = {}
    for place in (path, *sorted((path / "repeats").glob("*"))):
        name = place.relative_to(path).as_posix()
        found[f"{name}: summary"] = {key: value for key, value in summary(place).items() if key != "wall_seconds"}
        found |= {f"{name}: {column}": bits(values) for column, values in epochs(place).items()}
        found[f"{name}: timings"] = bits(np.load(place / "timings.npy"))
        with np.load(place / "model.npz") as arrays:
            found |= {f"{name}: model {key}": bits(array) for key, array in arrays.items()}
        found[f"{name}: model.json"] = strict_json((place / "model/model.json").read_text())
    return found


_START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
from codedfl.cli import main
main(sys.argv[1:])
"""


def environment() -> dict[str, str]:
    """An environment in which a new process imports the same sources as this one."""
    return {**os.environ, "PYTHONPATH": str(Path(codedfl.__file__).parents[1])}


class Processes:
    """Starts ``codedfl`` as processes of their own, in a folder; at the end none of them is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        """Run ``codedfl ARGUMENTS``."""
        command = [sys.executable, "-c", _START, *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=self._folder, env=environment(), stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()


def stamp(path: Path) -> tuple[int, int] | None:
    """Something that changes whenever a file is replaced; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def await_new(path: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until a process has written a file anew; the process must be alive then, or the test shows nothing."""
    before = stamp(path)
    give_up = time.monotonic() + 120
    while stamp(path) in (None, before):
        assert process.poll() is None, f"ended before it wrote {path.name}: {process.communicate()[1]}"
        assert time.monotonic() < give_up, f"{path.name} was not written"
        time.sleep(0.002)


class InlinePool:
    """Stands for a process pool and works in this process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.shutdown = lambda **options: None

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def submit(self, work: Any, *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
