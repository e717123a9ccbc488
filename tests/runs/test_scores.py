"""Scores and times to targets of a summary, from numbers by hand."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from codedfl.runs.summary import final_score, metric_name, times_to_targets

TIMES = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], [3.0, 6.0, 9.0, 12.0]])


def interval(values: np.ndarray) -> list[float]:
    """Student's interval for one more value, and never below 0."""
    factor = stats.t.ppf(0.975, len(values) - 1) * np.sqrt((1 + 1 / len(values)) * values.var(ddof=1))
    return [max(values.mean() - factor, 0.0), values.mean() + factor]


def test_the_time_to_a_target_is_that_of_the_first_epoch_that_reaches_it() -> None:
    accuracy = np.array([0.2, 0.5, 0.4, 0.6])
    means, bands = times_to_targets([0.5, 0.6, 0.61], [(accuracy, TIMES)])
    assert means == {"0.5": 4.0, "0.6": 8.0, "0.61": None}
    for name, column in (("0.5", 1), ("0.6", 3)):
        assert bands[name] == pytest.approx(interval(TIMES[:, column]))
    assert bands["0.61"] is None
    assert times_to_targets([0.2], [(accuracy, TIMES[:1])]) == ({"0.2": 1.0}, {"0.2": [None, None]}), "a single draw"


def test_a_target_that_one_of_several_runs_misses_has_no_time() -> None:
    """With two runs in one draw each, of which the second is quicker in epochs and slower in time."""
    first, second = np.array([0.2, 0.5, 0.7]), np.array([0.5, 0.6, 0.6])
    runs = [(first, np.array([[1.0, 2.0, 3.0]])), (second, np.array([[10.0, 20.0, 30.0]]))]
    means, bands = times_to_targets([0.5, 0.7], runs)
    assert means == {"0.5": 6.0, "0.7": None}
    assert bands["0.5"] == pytest.approx(interval(np.array([2.0, 10.0])))
    assert bands["0.7"] is None
    assert times_to_targets([], runs) == ({}, {})


@pytest.mark.parametrize(
    ("summary", "score"),
    [
        ({"final_accuracy": 0.75, "final_r2": None}, 0.75),
        ({"final_accuracy": 0.0, "final_r2": 0.5}, 0.0),
        ({"final_accuracy": None, "final_r2": -2.0}, -2.0),
        ({"final_accuracy": None, "final_r2": None}, None),
        ({}, None),
    ],
)
def test_the_final_score_is_the_accuracy_or_else_r2(summary: dict[str, Any], score: float | None) -> None:
    assert final_score(summary) == score


def test_metrics_have_names() -> None:
    assert [metric_name({"metric": metric}) for metric in ("accuracy", "r2")] == ["accuracy", "R²"]
