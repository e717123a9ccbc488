"""The summary of a training, entry by entry, from records by hand."""

import math
from typing import Any

import numpy as np
import pytest

from codedfl.runs.backend import SimulationBackend
from codedfl.runs.scoring import Scoring
from codedfl.runs.summary import summarise, tabulate
from codedfl.task import Problem
from codedfl.task.metrics import Counts
from codedfl.training import State
from codedfl.training.records import Lie
from tiny import problem, scenario, trained

FLEET = [{"count": 2, "mac_rate": 1e4}]
WANTED = scenario({"scheme": "conventional", "fleet.devices": FLEET, "training.targets": [0.5], "training.epochs": 4})
SECONDS = [(np.array([0.2, 0.4, 0.5, 0.6]), np.array([[1.0, 2.0, 3.0, 4.0], [3.0, 6.0, 9.0, 12.0]]))]


def untested(given: Problem) -> Problem:
    return Problem(given.shards, given.x_test[:0], given.y_test[:0], given.kind, given.ridge)


def state_of(given: Problem) -> State:
    return trained(given, WANTED)


def summary(given: Problem, state: State, scoring: Scoring | None = None, runs: Any = None) -> dict[str, Any]:
    return summarise(SimulationBackend(WANTED, given), state, runs or SECONDS, scoring)


def test_times_are_means_over_runs_and_draws() -> None:
    """Two draws of four epochs take 1 and 3 s each; a further run of two epochs takes 5 s each."""
    given = problem([4, 5])
    state = state_of(given)
    found = summary(given, state)
    assert (found["timing_draws"], found["seconds_per_epoch"]) == (2, 2.0)
    assert found["time_to_accuracy"] == {"0.5": 6.0}
    further = [*SECONDS, (np.array([0.5, 0.5]), np.array([[5.0, 10.0]]))]
    found = summary(given, state, runs=further)
    assert (found["timing_draws"], found["seconds_per_epoch"]) == (3, 3.5)
    assert found["time_to_accuracy"] == {"0.5": pytest.approx((3 + 9 + 5) / 3)}


def test_costs_are_those_of_all_epochs_and_of_devices() -> None:
    """In float32: 6 x 3 numbers each way, and products with 6 x 6 Gram matrices; the first epoch is beforehand."""
    given = problem([4, 5])
    state = state_of(given)
    found, columns = summary(given, state), state.history.columns
    for link in ("down", "up", "d2d"):
        assert found["bits_sent"][link] == sum(columns[f"{link}_bits"])
    one = 18 * 64 if given.dtype == np.float64 else 18 * 32
    assert found["bits_sent"] == {"down": 2 * 3 * one, "up": 2 * 4 * one, "d2d": 0}
    assert found["bits_per_device"]["down"] == {"mean": 3 * one, "largest": 3 * one}
    assert found["bits_per_device"]["up"] == {"mean": 4 * one, "largest": 4 * one}
    assert found["device_macs"] == sum(columns["device_macs"]) == 2 * found["macs_per_device"]["mean"]
    assert found["server_macs"] == sum(columns["server_macs"])
    assert (found["epochs"], found["handovers"], found["decode_failures"]) == (4, 0, 0)
    assert found["gradient_error"] == max(columns["gradient_error"])
    assert found["gradient_bound"] == max(columns["gradient_bound"])
    columns["losses_left"][:] = [3, 3, 2, 1]
    columns["gradient_error"][:] = [math.nan, 0.5, 0.25, math.nan]
    columns["gradient_bound"][:] = [math.nan] * 4
    found = summary(given, state)
    assert (found["survives_losses_left"], found["gradient_error"], found["gradient_bound"]) == (1, 0.5, None)


def test_who_lied_is_told_once_with_all_epochs() -> None:
    given = problem([4, 5])
    state = state_of(given)
    state.checked, state.spoilt = {2, 3, 4}, 7
    state.lies += [Lie(1, 2, contradicts_itself=False), Lie(0, 3, contradicts_itself=True)]
    state.lies.append(Lie(1, 4, contradicts_itself=True))
    found = summary(given, state)
    assert found["liars"] == [
        {"device": 1, "epochs": [2, 4], "how": "its reply in epoch 2 does not fit the replies of the others"},
        {"device": 0, "epochs": [3], "how": "it replied two different numbers to the same question of epoch 3"},
    ]
    assert (found["spoilt_epochs"], found["checked_epochs"], found["unchecked_epochs"]) == (7, 3, 1)


def test_scores_are_those_of_the_test_set() -> None:
    given = problem([4, 5])
    state = state_of(given)
    found = summary(given, state)
    right = np.argmax(given.x_test @ state.model, axis=1) == given.y_test
    assert found["metrics"]["accuracy"] == right.mean()
    assert (found["metric"], found["scored_on"], found["final_r2"], found["best_r2"]) == (
        *("accuracy", "test set", None, None),
    )
    assert "scoring" not in found
    state.history.columns["accuracy"][:] = [0.5, math.nan, 0.75, 0.25]
    found = summary(given, state)
    assert (found["final_accuracy"], found["best_accuracy"]) == (0.25, 0.75)
    state.history.columns["accuracy"][:] = [0.5, math.nan, 0.75, math.nan]
    found = summary(given, state)
    assert (found["final_accuracy"], found["best_accuracy"]) == (None, 0.75)


def test_without_a_test_set_the_held_out_rows_give_the_final_score() -> None:
    given = untested(problem([4, 5]))
    state = state_of(given)
    state.history.columns["accuracy"][:] = [math.nan] * 4
    bare = summary(given, state)
    assert [bare[name] for name in ("metrics", "scored_on", "remark", "final_accuracy", "best_accuracy")] == [None] * 5
    counts = Counts("classification", np.array([[3.0, 1, 0], [0, 2, 0], [0, 1, 1]]))
    found = summary(given, state, Scoring(counts, {"epochs": 2}))
    assert found["final_accuracy"] == found["metrics"]["accuracy"] == 6 / 8
    assert found["scoring"] == {"rows": 8, "metrics": found["metrics"], "epochs": 2}
    assert (found["scored_on"], found["best_accuracy"]) == ("rows held out by devices", None)
    failed = summary(given, state, Scoring(None, {"epochs": 1}, "they were not scored"))
    assert failed["scoring"] == {"rows": 0, "metrics": None, "epochs": 1}
    assert [failed[name] for name in ("metrics", "scored_on", "final_accuracy")] == [None] * 3
    assert failed["remark"] == "they were not scored"


def test_a_test_set_comes_before_held_out_rows() -> None:
    given = problem([4, 5])
    state = state_of(given)
    counts = Counts("classification", np.diag([1.0, 1.0, 1.0]))
    found, alone = summary(given, state, Scoring(counts, {})), summary(given, state)
    for name in ("metrics", "scored_on", "final_accuracy", "remark"):
        assert found[name] == alone[name]
    assert found["scoring"]["metrics"]["accuracy"] == 1
    assert found["scoring"]["rows"] == 3


def test_a_regression_is_scored_by_r2() -> None:
    given = problem([4, 5], kind="regression")
    state = state_of(given)
    found = summary(given, state)
    assert (found["metric"], found["final_accuracy"], found["best_accuracy"]) == ("r2", None, None)
    assert found["final_r2"] == state.history.columns["accuracy"][-1]
    assert found["best_r2"] == max(state.history.columns["accuracy"])
    table = np.array([[4.0] * 3, [8.0] * 3, [20.0] * 3, [2.0] * 3, [1.0] * 3])
    held = summary(untested(given), state, Scoring(Counts("regression", table), {}))
    # rows of variance 20/4 - (8/4)^2 = 1 whose errors have a mean square of 1/4
    assert held["final_r2"] == pytest.approx(0.75)


def test_bands_of_epochs_are_over_all_draws_of_all_runs() -> None:
    state = state_of(problem([4, 5]))
    columns = tabulate(state, [seconds for _, seconds in SECONDS] + [np.array([[5.0, 10.0, 15.0]])])
    assert columns["time_mean"][:3] == [3, 6, 9]
    assert math.isnan(columns["time_mean"][3])
    deviation = np.std([1.0, 3.0, 5.0], ddof=1) * 4.302653 * math.sqrt(4 / 3)  # Student's with two degrees of freedom
    assert columns["time_high"][:2] == pytest.approx([3 + deviation, 6 + 2 * deviation], rel=1e-6)
    assert columns["time_low"][:2] == [0, 0]
