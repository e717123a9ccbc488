"""The paper's experiment: the learning curves of its figure, and each of its claims beside what is measured here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codedfl import figures
from codedfl.compare import SharedProblem, to_csv
from codedfl.files import write_json, write_text
from codedfl.progress import Progress
from codedfl.runs import Run, execute, target_name
from codedfl.scenario import Scenario, load
from codedfl.task import Evaluator, Problem
from codedfl.timing import band, first_epoch

__all__ = ["BASELINES", "reproduce"]

BASELINES = ("minibatch", "conventional", "drop-slowest")

# what the paper claims, in its own numbers (abstract, Table I and section VI)
_CLAIMED = {
    "speedup-92": 4.7,
    "speedup-128": 4.0,
    "best-delta-92": 3.0,
    "best-delta-128": 1.0,
    "security-level-92": 92,
    "security-level-128": 128,
    "frame-error-rate": 1.33e-5,
}


def reproduce(out: Path, *, quick: bool, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Run the baselines for every feature seed; write ``summary.json``, ``claims.csv`` and the figure."""
    scenario = load("paper-quick" if quick else "paper")
    runs: dict[str, list[Run]] = {name: [] for name in BASELINES}
    shared = SharedProblem(progress)
    limits = []
    for number, seed in enumerate(seeds):
        progress("feature seeds", number, len(seeds))
        base = scenario.with_settings({"features.seed": seed, "training.stop_at_last_target": True})
        for name in BASELINES:
            # each seed lives in a timing draw of its own, so that one training a seed is enough for a band
            chosen = base.with_settings({"scheme": name, "timing.draw": seed, "timing.repeats": 1})
            place = out / "runs" / f"{name}-{chosen.id()}"
            runs[name].append(execute(chosen, place, problem=shared.get(chosen), progress=progress))
        limits.append(_ridge_limit(shared.get(base)()))
    progress("feature seeds", len(seeds), len(seeds))
    summary = {
        "scenario": scenario.name,
        "feature_seeds": list(seeds),
        "timing_draws": scenario.timing.draws,
        "ridge_accuracy": limits,
        "schemes": {name: _measured(entries, runs["minibatch"], scenario) for name, entries in runs.items()},
        "claims": _claims(),
    }
    _write(out, summary, runs, scenario)
    return summary


def _ridge_limit(problem: Problem) -> float:
    model = problem.ridge_solution().astype(problem.dtype)
    return float(Evaluator(problem).score(model[None]).accuracy[0])


def _measured(entries: Sequence[Run], benchmark: Sequence[Run], scenario: Scenario) -> dict[str, Any]:
    targets = scenario.training.targets
    found = {target_name(target): _time(entries, target) for target in targets}
    base = {target_name(target): _time(benchmark, target) for target in targets}
    return {
        "epochs_to_accuracy": {
            target_name(target): [first_epoch(run.epochs["accuracy"], target) for run in entries] for target in targets
        },
        "time_to_accuracy": {name: item and item["mean"] for name, item in found.items()},
        "time_to_accuracy_band": {name: item and [item["low"], item["high"]] for name, item in found.items()},
        "speedup": {
            name: base[name]["mean"] / item["mean"] if item and base[name] else None for name, item in found.items()
        },
        "seconds_per_epoch": float(np.mean([run.summary["seconds_per_epoch"] for run in entries])),
        "gradient_error": max((run.summary["gradient_error"] or 0.0) for run in entries) or None,
        "final_accuracy": float(np.mean([run.summary["final_accuracy"] for run in entries])),
    }


def _time(entries: Sequence[Run], target: float) -> Any:
    """Return mean and 95% band of the time to a target over seeds and draws; None if a seed never gets there."""
    times = [run.seconds_to(target) for run in entries]
    reached = [seconds for seconds in times if seconds is not None]
    if len(reached) < len(times):
        return None
    found = band(np.concatenate(reached).astype(np.float64))
    return {"mean": found.mean, "low": found.low, "high": found.high}


def _claims() -> list[dict[str, Any]]:
    reason = "this version runs the paper's benchmark only"
    empty = {"measured": None, "low": None, "high": None, "verdict": "not evaluated", "reason": reason}
    return [{"name": name, "claimed": value, **empty} for name, value in _CLAIMED.items()]


def _write(out: Path, summary: dict[str, Any], runs: dict[str, list[Run]], scenario: Scenario) -> None:
    curves = [figures.Curve(name, entries) for name, entries in runs.items()]
    figures.save(figures.accuracy_against_time(curves, targets=scenario.training.targets), out / "figure1.png")
    write_text(out / "claims.csv", to_csv(summary["claims"]))
    write_json(out / "summary.json", summary)
