"""Schemes side by side: the same data, fleet and links; time to accuracy, bits, multiplications, what leaks."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl import schemes
from codedfl.errors import MissingExtraError, UsageError
from codedfl.progress import Progress
from codedfl.report import figures
from codedfl.runs import Run, execute, target_name
from codedfl.scenario import Scenario
from codedfl.storage import refuse_file, write_json, write_text
from codedfl.task import Problem

__all__ = ["BENCHMARK", "SharedProblem", "compare", "row", "row_of", "served", "to_csv", "wanted_schemes"]

BENCHMARK = "minibatch"
"""Speed-ups are against this scheme, as in the paper."""


class SharedProblem:
    """Prepares the data of a scenario once for all runs that need the same."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._key: Any = None
        self._problem: Problem | None = None

    def get(self, scenario: Scenario) -> Callable[[], Problem]:
        """Return a function that prepares the data, or hands out what is prepared already."""
        key = (scenario.data, scenario.partition, scenario.features, scenario.task, scenario.fleet.size)

        def prepare() -> Problem:
            if self._problem is None or key != self._key:
                self._problem = None  # let the old one go before the new one needs the memory
                self._problem = Problem.build(scenario, self._progress)
                self._key = key
            return self._problem

        return prepare


def compare(scenario: Scenario, names: Sequence[str], out: Path, progress: Progress) -> list[dict[str, Any]]:
    """Run the named schemes (and the benchmark) and write ``compare.json``, ``.csv``, ``.png`` and ``.svg``."""
    wanted = wanted_schemes(names)
    refuse_file(out)
    shared = SharedProblem(progress)
    runs: dict[str, Run] = {}
    for name in wanted:
        chosen = served(scenario.with_settings({"scheme": name}))
        place = out / "runs" / f"{name}-{chosen.id()}"
        runs[name] = execute(chosen, place, problem=shared.get(chosen), progress=progress)
    rows = [row(run, runs[BENCHMARK]) for run in runs.values()]
    write_json(out / "compare.json", rows)
    write_text(out / "compare.csv", to_csv(rows))
    curves = [figures.Curve(name, [run]) for name, run in runs.items()]
    metric = runs[BENCHMARK].summary["metric"]
    try:
        figure = figures.accuracy_against_time(curves, targets=scenario.training.targets, metric=metric)
        figures.save(figure, out / "compare.png")
    except MissingExtraError:
        progress("figure left out: install codedfl[plots]", 1, 1)
    return rows


def wanted_schemes(names: Sequence[str]) -> list[str]:
    """Return the benchmark and the named schemes, each once; refuse a name that no scheme has."""
    unknown = [name for name in names if name not in schemes.SCHEMES]
    if unknown:
        raise UsageError(f"no scheme is called '{unknown[0]}'; schemes are {', '.join(schemes.SCHEMES)}")
    return list(dict.fromkeys([BENCHMARK, *names]))


def served(scenario: Scenario) -> Scenario:
    """Return the scenario with the solver that its scheme is made for, or gradient descent if it cannot serve it."""
    solver, own = scenario.training.solver, schemes.kind(scenario).solver
    if solver == "gradient-descent" and own is not None:
        return scenario.with_settings({"training.solver": own})
    if schemes.serves(scenario, solver):
        return scenario
    return scenario.with_settings({"training.solver": "gradient-descent"})


def row(run: Run, benchmark: Run) -> dict[str, Any]:
    """Return what the comparison says of a run."""
    return row_of(run.scenario, run.summary, benchmark.summary["time_to_accuracy"])


def row_of(scenario: Scenario, summary: Mapping[str, Any], base: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the same from a summary, and from the times of the benchmark."""
    own, targets = summary["time_to_accuracy"], scenario.training.targets
    speedups = {target: _ratio(base.get(target), own[target]) for target in own}
    return {
        "scheme": scenario.scheme,
        "solver": scenario.training.solver,
        "epochs": summary["epochs"],
        "final_accuracy": summary["final_accuracy"],
        "time_to_accuracy": own,
        "time_to_accuracy_band": summary["time_to_accuracy_band"],
        "speedup": speedups[target_name(targets[-1])] if targets else None,
        "speedups": speedups,
        "seconds_per_epoch": summary["seconds_per_epoch"],
        "bits_sent": summary["bits_sent"],
        "device_macs": summary["device_macs"],
        "survives_losses": summary["survives_losses"],
        "leakage": summary["leakage"],
        "verdict": summary["verdict"],
        "scenario_id": summary["scenario_id"],
    }


def _ratio(base: float | None, own: float | None) -> float | None:
    return None if base is None or own is None else base / own


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Write rows of nested tables as CSV: nested keys become columns with dots."""
    flat = [_flat(entry) for entry in rows]
    columns = list(dict.fromkeys(key for entry in flat for key in entry))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            flat |= _flat(item, f"{prefix}{key}.")
        elif isinstance(item, list):
            flat |= _flat({str(number): entry for number, entry in enumerate(item)}, f"{prefix}{key}.")
        else:
            flat[prefix + key] = item
    return flat
