"""Accuracy against epsilon of real private runs: the paper's fleet and data, real noise shares, seals, masks and codes.

For each of five seeds of features and noise, ``one-shot`` and ``sealed-coded`` train MNIST at several epsilons and
without noise. Runs that are finished are read again, so that the benchmark may be interrupted, and several processes
may divide the seeds: ``python -m benchmarks.private 0 1`` beside ``python -m benchmarks.private 2 3 4``.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.runs import execute
from codedfl.scenario import Scenario, load
from codedfl.task import Problem

EPSILONS = (1.0, 3.0, 8.0)
WANTED = {
    "one-shot": {1.0: 91.0, 3.0: 93.0, 8.0: 94.0},
    "sealed-coded": {1.0: 89.5, 3.0: 92.0, 8.0: 93.3},
}
"""Percent."""
SEEDS = range(5)
FOLDER = Path("out/bench/private")
EPOCHS = 25
"""Of conjugate gradients: the condition is at most the ratio of the largest eigenvalue to the weight from the noise."""


def main(seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """Run what is missing, and show the mean over the seeds."""
    found = [row for seed in seeds for row in _rows(seed)]
    for scheme, wanted in WANTED.items():
        for epsilon in (*EPSILONS, None):
            scores = [100 * row["accuracy"] for row in found if (row["scheme"], row["epsilon"]) == (scheme, epsilon)]
            what = "without noise" if epsilon is None else f"epsilon {epsilon:g}"
            show(
                f"{scheme}, {what}, mean of {len(scores)} (from {min(scores):.2f} to {max(scores):.2f})",
                float(np.mean(scores)),
                None if epsilon is None else wanted[epsilon],
                "%",
                at_least=True,
            )
    return found


def _rows(seed: int) -> list[dict[str, Any]]:
    """Run both schemes with one seed of features and noise."""
    rows = []
    for epsilon in (*EPSILONS, None):
        for scheme in WANTED:
            wanted, noise = _scenario(scheme, epsilon, seed), "clear" if epsilon is None else f"{epsilon:g}"
            run = execute(wanted, FOLDER / f"{scheme}-{noise}-{seed}", problem=partial(_problem, wanted))
            rows.append(
                {
                    "scheme": scheme,
                    "epsilon": epsilon,
                    "seed": seed,
                    "accuracy": run.summary["final_accuracy"],
                    "wall_seconds": run.summary["wall_seconds"],
                    "privacy": run.summary["privacy"],
                }
            )
            print(f"   {scheme}, epsilon {epsilon}, seed {seed}: {rows[-1]['accuracy']:.4f}", flush=True)
    return rows


_KEPT: dict[tuple[int, str], Problem] = {}


def _problem(wanted: Scenario) -> Problem:
    """Build the data of a seed once for all epsilons; those without noise are in float32."""
    key = wanted.features.seed, wanted.precision
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = Problem.build(wanted)
    return _KEPT[key]


def _scenario(scheme: str, epsilon: float | None, seed: int) -> Scenario:
    changes: dict[str, Any] = {"scheme": scheme, "features.seed": seed, "timing.draws": 100}
    if scheme == "sealed-coded":
        changes |= {"training.solver": "conjugate-gradients", "training.epochs": EPOCHS}
    if epsilon is not None:
        changes |= {"privacy.epsilon": epsilon, "privacy.seed": seed}
    return load("paper").with_settings(changes)


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or SEEDS)
