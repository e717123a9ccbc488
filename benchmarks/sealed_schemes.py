"""Sealed sharing at the paper's size, trained for real: speed-ups to 95% over mini-batch FL, and accuracy.

Five feature seeds, 250 timing draws; finished runs are kept in out/bench/sealed-runs and not run again.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.progress import silent
from codedfl.runs import Run, execute
from codedfl.scenario import load
from codedfl.task.shared import SharedProblem
from codedfl.training.timing import band, first_epoch

SEEDS = range(5)
TARGET = 0.95
DRAWS = 250
CG = {"training.solver": "conjugate-gradients", "training.epochs": 20, "training.stop_at_last_target": False}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "minibatch": ("paper", {"scheme": "minibatch"}),
    "conventional": ("paper", {"scheme": "conventional"}),
    "sealed": ("sealed", {}),
    "sealed-coded": ("sealed-coded", {}),
    "sealed-coded, conjugate gradients": ("sealed-coded", CG),
    "conventional, conjugate gradients": ("paper", {"scheme": "conventional", **CG}),
}
WANTED = {"sealed": 10, "sealed-coded": 45, "sealed-coded, conjugate gradients": 150}
PLAIN = {
    "sealed": "conventional",
    "sealed-coded": "conventional",
    "sealed-coded, conjugate gradients": "conventional, conjugate gradients",
}


def main() -> dict[str, Any]:
    """Train every variant for every seed, and hold times and accuracies against each other."""
    runs: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    shared = SharedProblem(silent)
    for seed in SEEDS:
        for name, (preset, changes) in VARIANTS.items():
            runs[name].append(trained(preset, changes, seed, shared))
    return {name: _compared(name, runs) for name in VARIANTS}


def trained(preset: str, changes: dict[str, Any], seed: int, shared: SharedProblem) -> Run:
    """Train a preset to 95% with the features of a seed, unless that was done before."""
    common = {"features.seed": seed, "training.stop_at_last_target": True, "timing.draws": DRAWS}
    scenario = load(preset).with_settings(common | changes)
    place = Path("out/bench/sealed-runs") / f"{scenario.scheme}-{scenario.id()}"
    return execute(scenario, place, problem=shared.get(scenario))


def _compared(name: str, runs: dict[str, list[Run]]) -> dict[str, Any]:
    own, base = runs[name], runs["minibatch"]
    epochs = [first_epoch(run.epochs["accuracy"], TARGET) for run in own]
    times, base_times = ([seconds_to_target(run) for run in entries] for entries in (own, base))
    result: dict[str, Any] = {
        "epochs": epochs,
        "seconds": [float(seconds.mean()) for seconds in times],
        "speedup": float(np.mean(base_times) / np.mean(times)),
        "gradient_error": [run.summary["gradient_error"] for run in own],
        "wall_seconds": [run.summary["wall_seconds"] for run in own],
    }
    ratios = band(np.concatenate([one / other for one, other in zip(base_times, times, strict=True)]))
    result |= {"low": ratios.low, "high": ratios.high}
    show(f"{name}: speed-up to 95% against mini-batch FL", result["speedup"], WANTED.get(name), at_least=True)
    if name in PLAIN:
        gaps = [accuracy_gap(run, plain) for run, plain in zip(own, runs[PLAIN[name]], strict=True)]
        result["accuracy_gaps"] = gaps
        show(f"{name}: largest gap to plaintext accuracy at the end, in points", 100 * max(gaps), 0.1)
    return result


def seconds_to_target(run: Run) -> Any:
    """Return when the target is reached in each draw."""
    seconds = run.seconds_to(TARGET)
    if seconds is None:
        raise RuntimeError(f"{run.path} never reaches {TARGET}")
    return seconds.astype(np.float64)


def accuracy_gap(run: Run, plain: Run) -> float:
    """Return the difference of accuracy at the last epoch of both."""
    last = min(run.summary["epochs"], plain.summary["epochs"]) - 1
    return float(abs(run.epochs["accuracy"][last] - plain.epochs["accuracy"][last]))


if __name__ == "__main__":
    main()
