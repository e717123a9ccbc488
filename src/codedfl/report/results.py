"""Results on disk: run directories, or the output folder of ``sweep``, ``compare`` or ``reproduce``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codedfl.errors import RunDirectoryError, UsageError
from codedfl.report.comparison import compared_runs
from codedfl.runs import Run, load
from codedfl.storage import DAMAGED
from codedfl.studies.tables import Row

_NEEDED = {"time_to_accuracy", "time_to_accuracy_band", "metric", "bits_per_device"}
_COMPARED = {"fleet", "devices", "scheme", "scenario_id", "refused", "predicted", "verdict"}
"""What figures need of a row of a study."""
RUNS, SWEEP, COMPARE, REPRODUCE = "runs", "sweep", "compare", "reproduce"


@dataclass(frozen=True, eq=False)
class Results:
    """What was found: the kind of folder, its rows if it has any, and runs by label."""

    kind: str
    path: Path
    rows: Sequence[Row] = ()
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    metric: str = "accuracy"

    @property
    def fleets(self) -> list[str]:
        """The fleets of a comparison."""
        return list(dict.fromkeys(row["fleet"] for row in self.rows if "fleet" in row))

    def targets(self) -> list[float]:
        """Return the target accuracies of all rows or runs."""
        if self.runs:
            return sorted(
                {target for runs in self.runs.values() for run in runs for target in run.scenario.training.targets}
            )
        return sorted({float(target) for row in self.rows for target in row["time_to_accuracy"] or ()})


def open_results(paths: Sequence[Path]) -> Results:
    """Read one or more run directories, or one output folder."""
    found = {path: _folder_kind(path) for path in paths}
    folders = [path for path, kind in found.items() if kind != RUNS]
    if folders and len(paths) > 1:
        raise UsageError(
            f"'{folders[0]}' is an output folder of {found[folders[0]]} and must be named alone; name run directories, "
            "or this folder only"
        )
    if not folders:
        return _runs(paths)
    (path,) = folders
    if found[path] == REPRODUCE:
        return Results(REPRODUCE, path)
    rows = _rows(path / f"{found[path]}.json")
    if found[path] == SWEEP:
        return Results(SWEEP, path, rows)
    runs, metric = compared_runs(rows, path)
    return Results(COMPARE, path, rows, runs, metric)


def _folder_kind(path: Path) -> str:
    try:
        for kind in (SWEEP, COMPARE):
            if (path / f"{kind}.json").is_file():
                return kind
        if (path / "scenario.toml").is_file():
            return RUNS
        if (path / "summary.json").is_file() and "claims" in _json(path / "summary.json"):
            return REPRODUCE
        reason = (
            "it does not exist"
            if not path.exists()
            else "it is a file"
            if not path.is_dir()
            else "its files are others"
        )
    except OSError as error:
        reason = str(error.strerror)
    raise RunDirectoryError(
        f"'{path}' is neither a run directory nor a finished output folder of sweep, compare or reproduce ({reason}); "
        "name one, for example runs/mine"
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except DAMAGED:
        raise RunDirectoryError(f"'{path}' is damaged; run the same command again") from None


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a study; refuse a file that has none."""
    rows = _json(path)
    needed = _NEEDED | ({"settings"} if path.stem == SWEEP else _COMPARED)
    whole = isinstance(rows, list) and rows and all(isinstance(row, dict) and needed <= row.keys() for row in rows)
    if not whole or (
        path.stem == SWEEP and not all(isinstance(row["settings"], dict) and row["settings"] for row in rows)
    ):
        raise RunDirectoryError(f"'{path}' is damaged; run the same command again")
    return list(rows)


def _runs(paths: Sequence[Path]) -> Results:
    runs = [load(path) for path in dict.fromkeys(paths)]
    metrics = {run.summary["metric"] for run in runs}
    if len(metrics) > 1:
        raise UsageError("runs of a classification and of a regression have no common axis; name runs of one kind")
    return Results(
        RUNS, paths[0], runs=dict(zip(run_labels(runs), ([run] for run in runs), strict=True)), metric=metrics.pop()
    )


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Name runs by their scheme; where that does not tell them apart, by scenario and scheme, or by their folder."""
    schemes = [run.scenario.scheme for run in runs]
    both = [f"{run.scenario.name}, {run.scenario.scheme}" for run in runs]
    folders = [run.path.resolve().name for run in runs]
    for names in (schemes, both, folders):
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in runs]
