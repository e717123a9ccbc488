"""Memory of real sites on one machine: FLARE's clients and their jobs, with and without the libraries of studies.

    CODEDFL_SITES=50 python -m benchmarks small_sites

The server and all sites run as processes of this machine, with mutual TLS, and train on a table of each site's own.
Memory is the proportional set size (PSS), so that pages that processes share count once. Small sites find no numba,
scipy, pyarrow or scikit-learn, as if they were not installed. What takes how long is printed as well: on one machine
all sites start, and exchange their parcels, on the same processors. Without FLARE nothing is measured.
"""

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.measure import possible, show
from codedfl.deploy.flare.jobs import Admin
from codedfl.deploy.flare.kits import Kits
from codedfl.deploy.flare.names import need_flare, site_names
from codedfl.deploy.flare.processes import start, status, stop
from codedfl.deploy.server.deployment import STATUS
from codedfl.deploy.server.fleet import make_fleet, submit
from codedfl.errors import EngineError
from codedfl.scenario import Scenario

SITES = int(os.environ.get("CODEDFL_SITES", "4"))
SCHEME = os.environ.get("CODEDFL_SCHEME", "sealed-coded")
ROWS, COLUMNS, FEATURES, EPOCHS = 200, 20, 300, 30
LIMIT = 12.0 * SITES / 50
"""Gigabytes: fifty sites take at most 12."""
CONNECTING = 900.0
"""Seconds in which all sites must be connected."""
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numba", "llvmlite", "scipy", "pyarrow", "sklearn", "pandas", "rich", "typer"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
sys.meta_path.insert(0, Blocker())
"""


def main() -> dict[str, Any]:
    """Measure small sites, then the same with all libraries, unless there are so many that memory would not do."""
    if not possible(need_flare):
        return {}
    kinds = ["small", "whole"] if SITES <= 10 else ["small"]
    return {kind: measured(small=kind == "small") for kind in kinds}


def measured(*, small: bool) -> dict[str, Any]:
    """Deploy, train, and take everything down again."""
    sites = site_names(SITES)
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as name:
        folder = Path(name)
        scenario, kits = _prepared(folder, sites)
        (folder / "blocked").mkdir()
        (folder / "blocked/sitecustomize.py").write_text(BLOCKER)
        devices, steps = [kits.device(site) for site in sites], _Steps(kits.server / STATUS)
        try:
            start(kits.server, 1)
            with _path(folder / "blocked" if small else None):
                for kit in devices:
                    start(kit, 1)
            _await_all(kits)
            steps.note("all sites are connected")
            idle = _memory(devices)
            with _watched(kits, steps) as seen:
                outcome = submit(kits, scenario, patience=300.0, tries=1, report=steps.note)
        finally:
            stop([*devices, kits.server])
    most = max(seen, key=lambda each: sum(each.values()))
    found = {
        "idle": idle,
        "most": most,
        "seconds": outcome["summary"]["real_seconds"],
        "steps": steps.seen,
        "looks": len(seen),
    }
    about = f"{SITES} {'small sites' if small else 'sites with all libraries'}, {SCHEME}"
    for kind in ("parents", "jobs"):
        show(f"{about}: {kind} of a site, MB", most[kind] / SITES / 1e6, unit="MB")
    show(f"{about}: both processes of the server, MB", most["server"] / 1e6, unit="MB")
    total = sum(most.values()) / 1e9
    show(f"{about}: all processes", total, LIMIT if small else None, unit="GB")
    return found | {"gigabytes": total}


def _await_all(kits: Kits) -> None:
    """Wait until all sites are connected."""
    until = time.monotonic() + CONNECTING
    with Admin(kits, patience=CONNECTING) as admin:  # all start at once on one machine
        while missing := set(kits.sites) - admin.sites():
            if time.monotonic() > until:
                raise EngineError(f"{', '.join(sorted(missing))} did not connect in {CONNECTING:g} s; see their logs")
            time.sleep(0.2)


@final
class _Steps:
    """Prints when each step of a deployment began: those of the command, and those on the server's board."""

    def __init__(self, board: Path) -> None:
        self.seen: dict[str, float] = {}
        self._board = board
        self._began = time.monotonic()

    def note(self, step: str) -> None:
        """Note a step when it is first seen."""
        if step not in self.seen:
            self.seen[step] = time.monotonic() - self._began
            print(f"  {self.seen[step]:5.0f} s: {step}", flush=True)

    def look(self) -> None:
        """Note what the board shows."""
        with contextlib.suppress(OSError, ValueError):
            board = json.loads(self._board.read_text(encoding="utf-8"))
            self.note(f"{board['stage']}{'' if board.get('epoch', 0) < 1 else ', in epochs'}")


def _prepared(folder: Path, sites: tuple[str, ...]) -> tuple[Scenario, Kits]:
    """Write a table for each site, and make kits that agree to the scenario."""
    table = {
        "scheme": SCHEME,
        "data": {"source": "sites"},
        "features": {"kind": "rbf", "dimension": FEATURES, "gamma": 0.02, "scale": "none", "intercept": False},
        "task": {"precision": "float64", "accuracy": 0.05},
        "fleet": {"devices": [{"count": len(sites), "mac_rate": 25e6}]},
        "training": {"epochs": EPOCHS, "learning_rate": 1.0, "solver": "gradient-descent"},
    }
    scenario = Scenario.from_table(table)
    kits, rng = make_fleet(folder / "kits", scenario, sites=sites), np.random.default_rng(0)
    for site in sites:
        x = rng.standard_normal((ROWS, COLUMNS))
        rows = [",".join([*(f"x{place}" for place in range(COLUMNS)), "y"])]
        rows += [",".join([*(f"{value:.6f}" for value in row), "ab"[int(row[0] > 0)]]) for row in x]
        (kits.device(site) / "data.csv").write_text("\n".join(rows) + "\n")
    return scenario, kits


@contextlib.contextmanager
def _path(first: Path | None) -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    if first is not None:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(first), *([before] if before else [])])
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _memory(devices: list[Path]) -> dict[str, float]:
    """Return the bytes of FLARE's clients and of their jobs."""
    import psutil

    totals = {"parents": 0.0, "jobs": 0.0}
    for each in status(devices):
        for kind, pids in (("parents", [each.pid] if each.pid else []), ("jobs", each.jobs)):
            for pid in pids:
                with contextlib.suppress(psutil.Error):
                    totals[kind] += psutil.Process(pid).memory_full_info().pss
    return totals


@contextlib.contextmanager
def _watched(kits: Kits, steps: _Steps) -> Iterator[list[dict[str, float]]]:
    """Look at the memory of sites and server twice a second, and at the board."""
    devices, over = [kits.device(site) for site in kits.sites], threading.Event()
    seen: list[dict[str, float]] = []

    def watch() -> None:
        while not over.wait(0.5):
            steps.look()
            seen.append(_memory(devices) | {"server": sum(_memory([kits.server]).values())})

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
