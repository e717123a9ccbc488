"""Accuracy past the trained epochs, up to the ridge limit: gradient descent continued by linear algebra.

With a constant learning rate, full-batch gradient descent multiplies the distance to the ridge solution by the same
matrix in every epoch, and mini-batch descent in every cycle through the parts. So the models of tens of thousands of
epochs follow from the last trained one by powers of that matrix, without rounding that grows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from codedfl import schemes
from codedfl.runs import Run
from codedfl.task import Problem, learning_rate
from codedfl.task.objective import side_by_side
from codedfl.training.timing import first_epoch

STEP = 0.001
"""Accuracies above the target are compared at this distance."""
_DOUBLINGS = 11
"""Cycles through the parts are continued up to two to this power."""
_POINTS = 120


@dataclass(frozen=True, eq=False)
class LongCurve:
    """Test accuracy after epochs: every trained one, then ever sparser ones."""

    epochs: Int[np.ndarray, "points"]
    accuracy: Float[np.ndarray, "points"]

    @classmethod
    def of(
        cls, run: Run, later: Int[np.ndarray, "p"], models: Float[np.ndarray, "p d c"], problem: Problem
    ) -> "LongCurve":
        """Join a run and what follows it."""
        assert problem.test is not None  # noqa: S101 - the paper's data sets have one
        scores = problem.test.score(side_by_side(models.astype(problem.dtype)), len(models))
        trained = run.summary["epochs"]
        epochs = np.concatenate([np.arange(1, trained + 1), trained + later])
        return cls(epochs, np.concatenate([run.epochs["accuracy"], scores]))

    def first(self, level: float) -> int | None:
        """Return the first of its epochs that reaches an accuracy."""
        place = first_epoch(self.accuracy, level)
        return None if place is None else int(self.epochs[place - 1])


def continue_full_batch(
    problem: Problem, model: Float[np.ndarray, "d c"], rate: float, epochs: Int[np.ndarray, "p"]
) -> Float[np.ndarray, "p d c"]:
    """Return the models so many epochs after the given one."""
    system = problem.total_gram / problem.samples + problem.ridge * np.eye(len(model))
    values, vectors = scipy.linalg.eigh(system)
    limit = problem.ridge_solution()
    start = vectors.T @ (model - limit)
    return np.stack([limit + vectors @ ((1 - rate * values)[:, None] ** int(count) * start) for count in epochs])


def continue_minibatch(
    problem: Problem,
    model: Float[np.ndarray, "d c"],
    rate: float,
    *,
    parts: int,
    epoch: int,
    cycles: Int[np.ndarray, "p"],
) -> Float[np.ndarray, "p d c"]:
    """Return the models so many cycles after the given one, which belongs to an epoch."""
    d, one = len(model), np.eye(len(model))
    step, offset = one, np.zeros(model.shape)
    for number in range(epoch + 1, epoch + 1 + parts):
        sums = problem.batch_sums(parts, number)
        slope = one - rate * (sums.gram.astype(np.float64) / sums.samples + problem.ridge * one)
        offset = slope @ offset + rate * sums.moments / sums.samples
        step = slope @ step
    limit = scipy.linalg.solve(one - step, offset)  # what a cycle leaves as it is
    distances = np.repeat((model - limit)[None], len(cycles), axis=0)
    power = step
    for bit in range(_DOUBLINGS + 1):
        chosen = (cycles >> bit) & 1 == 1
        product = power @ side_by_side(distances[chosen])
        distances[chosen] = product.reshape(d, -1, model.shape[1]).transpose(1, 0, 2)
        if bit < _DOUBLINGS:
            power = power @ power
    return np.asarray(limit + distances)


def long_curves(problem: Problem, minibatch: Run, others: Mapping[str, Run]) -> dict[str, LongCurve]:
    """Continue a mini-batch run, under the name ``minibatch``, and runs of full-batch gradient descent."""
    parts: int = schemes.nominal(minibatch.scenario).options.parts
    cycles = np.unique(np.geomspace(1, 2**_DOUBLINGS, _POINTS).round().astype(np.int64))
    rate, epoch = _last_rate(minibatch), minibatch.summary["epochs"]
    models = continue_minibatch(problem, minibatch.model, rate, parts=parts, epoch=epoch, cycles=cycles)
    found = {"minibatch": LongCurve.of(minibatch, parts * cycles, models, problem)}
    later = parts * cycles
    for name, run in others.items():
        models = continue_full_batch(problem, run.model, _last_rate(run), later)
        found[name] = LongCurve.of(run, later, models, problem)
    return found


def _last_rate(run: Run) -> float:
    return learning_rate(run.scenario.training, run.summary["epochs"] + 1)


def seconds_to(run: Run, curve: LongCurve, level: float) -> float:
    """Return the mean time to an accuracy; epochs after the trained ones take as long as the last hundred."""
    means, epoch = run.timings.mean(axis=0, dtype=np.float64), curve.first(level)
    if epoch is None:
        return math.inf
    if epoch <= len(means):
        return float(means[epoch - 1])
    last = min(100, len(means) - 1)
    return float(means[-1] + (epoch - len(means)) * (means[-1] - means[-1 - last]) / last)


def gains(
    curves: Sequence[Mapping[str, LongCurve]], base: Sequence[Run], own: Sequence[Run], name: str, target: float
) -> list[dict[str, Any]]:
    """Return the speed-up at accuracies above the target, up to the highest that every seed reaches."""
    top = min(min(curve["minibatch"].accuracy.max(), curve[name].accuracy.max()) for curve in curves)
    rows = []
    for number in range(1, int(np.floor((top - target) / STEP + 1e-9)) + 1):
        level = target + number * STEP
        times = [
            (seconds_to(mini, curve["minibatch"], level), seconds_to(run, curve[name], level))
            for curve, mini, run in zip(curves, base, own, strict=True)
        ]
        ratios = [slow / fast for slow, fast in times]
        slow, fast = np.mean(times, axis=0)
        rows.append({"accuracy": level, "speedup": float(slow / fast), "low": min(ratios), "high": max(ratios)})
    return rows
