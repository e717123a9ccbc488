"""Beyond the paper, on its experiment: the sealed schemes beside the paper's, under the same delays and links.

Conjugate gradients are trained for real for every feature seed. With gradient descent the sealed schemes learn the
model of the paper's scheme up to rounding, so their times are put on its accuracy curve; costs come from the arrays of
a real set-up and first epochs. ``python -m benchmarks sealed_schemes`` trains all of them for all seeds.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.progress import Progress
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load
from codedfl.studies import claims
from codedfl.studies.plan import predict, probe
from codedfl.task import Problem
from codedfl.training.timing import Band, band, first_epoch

__all__ = ["Beyond", "Entry", "speedup", "wanted"]


@dataclass(frozen=True)
class Entry:
    """One scheme and solver: the name of its claim, its name in figures, its scenario, and whether it is trained."""

    claim: str
    label: str
    scenario: Scenario
    trained: bool


def wanted(small: Scenario | None = None) -> tuple[Entry, ...]:
    """Return what is measured: at the paper's size, or on a small scenario."""
    cg = {"training.solver": "conjugate-gradients"}
    if small is None:
        sealed, coded = load("sealed"), load("sealed-coded")
    else:
        sealed = small.with_settings({"scheme": "sealed", "schemes.sealed.delta": 0.025})
        coded = small.with_settings({"scheme": "sealed-coded"})
    return (
        Entry("speedup-sealed", "sealed", sealed, trained=False),
        Entry("speedup-sealed-coded", "sealed-coded", coded, trained=False),
        Entry("speedup-sealed-coded-cg", "sealed-coded, CG", coded.with_settings(cg), trained=True),
    )


class Beyond:
    """Collects runs and times while the feature seeds pass by."""

    def __init__(self, entries: Sequence[Entry], draws: int) -> None:
        self._entries = entries
        self._draws = draws
        self._runs: dict[str, list[Run]] = {entry.claim: [] for entry in entries}
        self._times: dict[str, Float[np.ndarray, "draws epochs"]] = {}

    def train(self, changes: Mapping[str, Any], out: Path, problem: Callable[[], Problem], progress: Progress) -> None:
        """Train what is trained, for one feature seed."""
        for entry in self._entries:
            if entry.trained:
                scenario = entry.scenario.with_settings(changes)
                place = out / "runs" / f"{scenario.scheme}-{scenario.id()}"
                self._runs[entry.claim].append(execute(scenario, place, problem=problem, progress=progress))

    def time(self, problem: Problem, epochs: int) -> None:
        """Measure costs on a problem, and draw when epochs end; solvers differ in nothing but the model they send."""
        known: dict[str, Float[np.ndarray, "draws epochs"]] = {}
        for entry in self._entries:
            name = entry.scenario.scheme
            if name not in known:
                costs = probe(entry.scenario, problem)
                known[name] = predict(costs, entry.scenario, epochs=epochs, draws=self._draws)
            self._times[entry.claim] = known[name]

    def results(
        self, benchmark: Sequence[Run], curve: Sequence[Run], paper: Band | None
    ) -> tuple[list[claims.Claim], dict[str, list[Run]]]:
        """Return the speed-ups, and runs for the figure; ``curve`` holds the accuracies of gradient descent."""
        found, figure = [], {}
        for entry in self._entries:
            times = self._times[entry.claim]
            runs = self._runs[entry.claim] if entry.trained else list(curve)
            how = "trained for every seed" if entry.trained else "timed on the accuracy curve of the paper's scheme"
            found.append(claims.beyond(entry.claim, speedup(benchmark, runs, times), paper, how))
            figure[entry.label] = [dataclasses.replace(run, timings=times[:, : run.summary["epochs"]]) for run in runs]
        return found, figure


def speedup(benchmark: Sequence[Run], own: Sequence[Run], times: Float[np.ndarray, "draws epochs"]) -> Band | None:
    """Return the ratio of mean times to the last target, and the range of the ratio in 95% of seeds and draws."""
    target = benchmark[0].scenario.training.targets[-1]
    ratios, base_times, own_times = [], [], []
    for base, run in zip(benchmark, own, strict=True):
        base_epoch, epoch = (first_epoch(entry.epochs["accuracy"], target) for entry in (base, run))
        if base_epoch is None or epoch is None:
            return None
        base_times.append(base.timings[: len(times), base_epoch - 1])
        own_times.append(times[:, epoch - 1])
        ratios.append(base_times[-1] / own_times[-1])
    spread = band(np.concatenate(ratios).astype(np.float64))
    return Band(
        float(np.mean(base_times, dtype=np.float64) / np.mean(own_times, dtype=np.float64)), spread.low, spread.high
    )
