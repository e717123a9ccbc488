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
_SQUARES = 4
"""How often a matrix is squared before its power is applied again and again."""
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
    distances = np.stack([(1 - rate * values)[:, None] ** int(count) * start for count in epochs])
    return np.asarray(limit + _multiplied(vectors, distances))


def _multiplied(matrix: Float[np.ndarray, "d d"], models: Float[np.ndarray, "b d c"]) -> Float[np.ndarray, "b d c"]:
    """Multiply many models from the left, in one product."""
    b, d, c = models.shape
    return np.asarray((matrix @ side_by_side(models)).reshape(d, b, c).transpose(1, 0, 2))


def _repeated(
    matrix: Float[np.ndarray, "d d"], start: Float[np.ndarray, "d c"], counts: Int[np.ndarray, "p"]
) -> Float[np.ndarray, "p d c"]:
    """Multiply from the left so many times: by a power of the matrix as often as it fits, then by smaller powers.

    A square costs as much as a product with d/c models, so that few squares and many products with one model are
    cheaper than squares only.
    """
    powers = [matrix]
    for _ in range(_SQUARES):
        powers.append(powers[-1] @ powers[-1])
    largest = powers.pop()
    whole, rest = np.divmod(counts, 2**_SQUARES)
    reached = [start]
    for _ in range(int(whole.max())):
        reached.append(largest @ reached[-1])
    found = np.stack([reached[number] for number in whole])
    for bit, power in enumerate(powers):
        chosen = (rest >> bit) & 1 == 1
        found[chosen] = _multiplied(power, found[chosen])
    return found


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
    one = np.eye(len(model))
    step, offset = None, np.zeros(model.shape)
    for number in range(epoch + 1, epoch + 1 + parts):
        sums = problem.batch_sums(parts, number)
        slope = one - rate * (sums.gram.astype(np.float64) / sums.samples + problem.ridge * one)
        offset = slope @ offset + rate * sums.moments / sums.samples
        step = slope if step is None else slope @ step
    assert step is not None  # noqa: S101 - there is at least one part
    limit = scipy.linalg.solve(one - step, offset)  # what a cycle leaves as it is
    return np.asarray(limit + _repeated(step, model - limit, cycles))


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
