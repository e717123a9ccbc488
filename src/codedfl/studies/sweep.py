"""A grid of scenarios, on all cores or on a cluster: one run directory a cell."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from codedfl import schemes
from codedfl.errors import UsageError
from codedfl.progress import Progress
from codedfl.runs import execute
from codedfl.scenario import Scenario
from codedfl.storage import refuse_file
from codedfl.studies.cluster import Cluster
from codedfl.studies.processes import in_processes
from codedfl.studies.tables import write_rows
from codedfl.studies.tasks import StudyPart
from codedfl.task.shared import SharedProblem


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    progress: Progress,
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> list[dict[str, Any]]:
    """Run every combination of the values; write ``sweep.json`` and ``sweep.csv``."""
    if any(len(values) == 0 for values in grid.values()):
        raise UsageError("--over needs at least one value for each key, for example --over links.loss=0,0.1")
    cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    wanted = [scenario.with_settings(cell) for cell in cells]  # a wrong value is refused before anything runs
    for entry in wanted:
        schemes.check(entry)
    refuse_file(out)
    summaries = _run_all(wanted, out, progress, workers, cluster)
    rows = [{"settings": cell, **summary} for cell, summary in zip(cells, summaries, strict=True)]
    write_rows(out, "sweep", rows)
    return rows


def _run_all(
    wanted: Sequence[Scenario], out: Path, progress: Progress, workers: int | None, cluster: Cluster | None
) -> list[dict[str, Any]]:
    """Run each experiment once, however many cells it fills; the first failure ends all."""
    places = [f"runs/{entry.scheme}-{entry.id()}" for entry in wanted]
    distinct = dict(zip(places, wanted, strict=True))
    tasks = [StudyPart(run_cell, (entry.to_toml(), place), out, (place,)) for place, entry in distinct.items()]
    report = partial(progress, "sweep")
    results = in_processes(tasks, workers, report) if cluster is None else cluster.run(tasks, report)
    found = dict(zip(distinct, results, strict=True))
    return [found[place] for place in places]


_shared = SharedProblem()


def run_cell(out: str, scenario: str, place: str) -> dict[str, Any]:
    """Run one experiment, given as TOML, at a place of the folder; return its summary."""
    chosen = Scenario.from_toml(scenario)
    return execute(chosen, Path(out) / place, shared=_shared).summary
