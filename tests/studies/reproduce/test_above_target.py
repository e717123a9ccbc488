"""Continued gradient descent against the same steps one by one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.runs import Run
from codedfl.scenario import load
from codedfl.studies.reproduce.above_target import (
    LongCurve,
    continue_full_batch,
    continue_minibatch,
    gains,
    seconds_to,
)
from tiny import problem

RATE, PARTS = 0.4, 3
STEPS = np.array([1, 2, 5, 17])


def started(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape)


def test_full_batch_models_are_those_of_single_steps() -> None:
    task = problem([9, 14, 7])
    model = started(task.shape)
    found = continue_full_batch(task, model, RATE, STEPS)
    x, y = (np.concatenate([getattr(shard, name) for shard in task.shards]).astype(float) for name in "xy")
    for number in range(1, STEPS[-1] + 1):
        model = model - RATE * (x.T @ (x @ model - y) / len(x) + task.ridge * model)
        if number in STEPS:
            assert found[STEPS.tolist().index(number)] == pytest.approx(model, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_minibatch_models_are_those_of_single_steps(epoch: int) -> None:
    """The parts go on where the trained epochs ended: cyclic, the first third of everyone's rows, the second ..."""
    task = problem([9, 14, 7])
    model = started(task.shape)
    found = continue_minibatch(task, model, RATE, parts=PARTS, epoch=epoch, cycles=STEPS)
    for number in range(epoch + 1, epoch + 1 + PARTS * STEPS[-1]):
        gradient, count = np.zeros_like(model), 0
        for shard in task.shards:
            part, n = (number - 1) % PARTS, shard.samples
            rows = slice(part * n // PARTS, (part + 1) * n // PARTS)
            x, y = shard.x[rows].astype(float), shard.y[rows].astype(float)
            gradient, count = gradient + x.T @ (x @ model - y), count + len(x)
        model = model - RATE * (gradient / count + task.ridge * model)
        done, rest = divmod(number - epoch, PARTS)
        if not rest and done in STEPS:
            assert found[STEPS.tolist().index(done)] == pytest.approx(model, rel=1e-9, abs=1e-9)


def run(times: list[list[float]]) -> Run:
    return Run(Path("nowhere"), load("paper-quick"), {"epochs": len(times[0])}, {}, np.array(times))


def test_time_goes_on_as_in_the_last_epochs() -> None:
    """Epochs end at 1, 4, 6 s and at 3, 6, 8 s: the mean of an epoch after the first is 2.5 s."""
    curve = LongCurve(np.array([1, 2, 3, 13, 23]), np.array([0.1, 0.5, 0.5, 0.7, 0.9]))
    own = run([[1.0, 4.0, 6.0], [3.0, 6.0, 8.0]])
    assert [curve.first(level) for level in (0.1, 0.4, 0.6, 0.91)] == [1, 2, 13, None]
    assert seconds_to(own, curve, 0.5) == 5.0
    assert seconds_to(own, curve, 0.6) == 7.0 + 10 * 2.5
    assert seconds_to(own, curve, 0.95) == np.inf


def test_gains_end_at_the_highest_accuracy_that_all_reach() -> None:
    def curves(*tops: float) -> dict[str, Any]:
        names = ("minibatch", "own")
        return {
            name: LongCurve(np.array([1, 2, 3]), np.array([0.9, 0.951, top]))
            for name, top in zip(names, tops, strict=True)
        }

    slow, fast = run([[10.0, 20.0, 40.0]]), run([[1.0, 4.0, 5.0]])
    rows = gains([curves(0.954, 0.96), curves(0.96, 0.9535)], [slow, slow], [fast, replace(fast)], "own", 0.95)
    assert [round(row["accuracy"], 6) for row in rows] == [0.951, 0.952, 0.953]
    assert [row["speedup"] for row in rows] == [5.0, 8.0, 8.0]
    assert {(row["low"], row["high"]) for row in rows} == {(5.0, 5.0), (8.0, 8.0)}
    assert gains([curves(0.9505, 0.96)], [slow], [fast], "own", 0.951) == []
