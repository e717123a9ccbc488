"""A grid of scenarios, on all cores: one process a core, one run directory a cell."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl import schemes
from codedfl.errors import MissingExtraError, UsageError
from codedfl.progress import Progress
from codedfl.report import figures
from codedfl.runs import execute, target_name
from codedfl.scenario import Scenario
from codedfl.storage import refuse_file, write_json, write_text
from codedfl.studies.compare import SharedProblem, to_csv
from codedfl.studies.parallel import in_processes

__all__ = ["sweep"]

Cell = Mapping[str, Any]


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    progress: Progress,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Run every combination of the values; write ``sweep.json``, ``.csv`` and, for one numeric key, a figure."""
    if any(len(values) == 0 for values in grid.values()):
        raise UsageError("--over needs at least one value for each key, for example --over links.loss=0,0.1")
    cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    wanted = [scenario.with_settings(cell) for cell in cells]  # a wrong value is refused before anything runs
    for entry in wanted:
        schemes.check(entry)
    summaries = _run_all(wanted, out, progress, workers)
    rows = [{"settings": cell, **summary} for cell, summary in zip(cells, summaries, strict=True)]
    write_json(out / "sweep.json", rows)
    write_text(out / "sweep.csv", to_csv(rows))
    _draw(scenario, grid, rows, out)
    return rows


def _run_all(wanted: Sequence[Scenario], out: Path, progress: Progress, workers: int | None) -> list[dict[str, Any]]:
    """Run each experiment once, however many cells it fills."""
    places = [out / "runs" / f"{entry.scheme}-{entry.id()}" for entry in wanted]
    distinct = dict(zip(places, wanted, strict=True))
    refuse_file(out)
    jobs = [(entry.to_toml(), str(place)) for place, entry in distinct.items()]
    results = in_processes(_cell, jobs, lambda done: progress("sweep", done, len(jobs)), workers)
    summaries = dict(zip(distinct, results, strict=True))
    return [summaries[place] for place in places]


_shared = SharedProblem(lambda stage, done, total: None)


def _cell(scenario: str, place: str) -> dict[str, Any]:
    chosen = Scenario.from_toml(scenario)
    run = execute(chosen, Path(place), problem=_shared.get(chosen))
    return run.summary


def _draw(scenario: Scenario, grid: Mapping[str, Sequence[Any]], rows: Sequence[dict[str, Any]], out: Path) -> None:
    (key, values), *others = grid.items()
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if others or not numeric or not scenario.training.targets:
        return
    target = scenario.training.targets[-1]
    name = target_name(target)
    bands = []
    for entry in rows:
        mean, limits = entry["time_to_accuracy"].get(name), entry["time_to_accuracy_band"].get(name)
        low, high = limits if limits and None not in limits else (mean, mean)
        bands.append(None if mean is None else (mean, low, high))
    try:
        figures.save(figures.time_against_setting(key, values, bands, target), out / "sweep.png")
    except MissingExtraError:
        return
