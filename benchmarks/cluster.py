"""A sweep in one process, on all cores, on a Dask cluster, and on one whose worker is killed midway: times and bits."""

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import possible, show
from codedfl.errors import MissingExtraError
from codedfl.progress import silent
from codedfl.scenario import load
from codedfl.studies.cluster import Cluster, connected
from codedfl.studies.sweep import sweep

CELLS = 8
WORKERS = 2


def main() -> dict[str, Any]:
    """Print speed-ups, and whether all files are equal."""
    if not possible(_dask):
        return {}
    # each cell takes some seconds, so that the start of processes (some more) does not decide
    scenario = load("paper-quick").with_settings(
        {"scheme": "conventional", "features.dimension": 600, "training.epochs": 4000, "training.targets": []}
    )
    grid = {"timing.seed": list(range(CELLS))}
    seconds: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:

        def run(name: str, **where: Any) -> None:
            began = time.perf_counter()
            sweep(scenario, grid, Path(scratch) / name, silent, **where)
            seconds[name], found[name] = time.perf_counter() - began, _contents(Path(scratch) / name)

        run("one process", workers=1)
        run("one process a core", workers=WORKERS)
        with connected(processes=WORKERS) as cluster:
            run("cluster", cluster=cluster)
        with connected(processes=WORKERS) as cluster, _killed(cluster, after=seconds["cluster"] / 2):
            run("cluster, worker killed", cluster=cluster)
    base = found["one process"]
    for name, each in seconds.items():
        show(f"{name}: seconds for {CELLS} runs", each)
    for name in list(seconds)[1:]:
        show(f"{name}: speed-up over one process", seconds["one process"] / seconds[name])
        show(f"{name}: files that differ from those of one process", _differing(base, found[name]), 0)
    show("files compared", len(base))
    return {"seconds": seconds, "differing": {name: _differing(base, each) for name, each in found.items()}}


def _dask() -> None:
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("needs Dask; install it with: pip install 'codedfl[cluster]'") from None


@contextmanager
def _killed(cluster: Cluster, after: float) -> Iterator[None]:
    """Kill one worker after some seconds."""
    number = next(iter(cluster.process_numbers()))
    killer = threading.Timer(after, os.kill, (number, signal.SIGKILL))
    killer.start()
    try:
        yield
        killer.join()
        print(f"  worker {number} was killed after {after:.1f} s")
    finally:
        killer.cancel()


def _contents(folder: Path) -> dict[str, Any]:
    """Return all files of the runs; of summaries all but the seconds that the run took."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "runs").rglob("*")):
        if path.is_file() and path.name == "summary.json":
            found[str(path.relative_to(folder))] = json.loads(path.read_text()) | {"wall_seconds": None}
        elif path.is_file() and not path.name.startswith("."):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _differing(base: dict[str, Any], other: dict[str, Any]) -> int:
    return sum(base.get(name) != other.get(name) for name in base.keys() | other.keys())
