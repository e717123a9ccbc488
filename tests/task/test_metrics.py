"""Metrics from sums, against scikit-learn on the rows themselves."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from codedfl.task.metrics import Counts, counts


def classes(rows: int, kinds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, kinds)), rng.integers(0, kinds, rows)


@given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 1000))
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_classification(rows: int, kinds: int, seed: int) -> None:
    outputs, labels = classes(rows, kinds, seed)
    guesses = outputs.argmax(axis=1)
    found = Counts.classified(outputs, labels).metrics()
    assert found["accuracy"] == reference.accuracy_score(labels, guesses)
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(labels, guesses), rel=1e-12)
    assert found["macro_f1"] == pytest.approx(reference.f1_score(labels, guesses, average="macro"), rel=1e-12)
    matrix = reference.confusion_matrix(labels, guesses, labels=range(kinds))
    assert found["confusion_matrix"] == matrix.tolist()
    recalls = reference.recall_score(labels, guesses, labels=range(kinds), average=None, zero_division=np.nan)
    assert found["recall"] == [None if np.isnan(recall) else pytest.approx(recall) for recall in recalls]


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("mean", [0.0, 1e7])
def test_regression(outputs: int, mean: float, rng: np.random.Generator) -> None:
    values = mean + rng.standard_normal((50, outputs))
    predicted = values + 0.3 * rng.standard_normal(values.shape)
    found = Counts.regressed(predicted, values, values[:5].mean(axis=0)).metrics()
    for name, measure in (
        ("r2", reference.r2_score),
        ("rmse", reference.root_mean_squared_error),
        ("mae", reference.mean_absolute_error),
    ):
        assert found[name] == pytest.approx(measure(values, predicted), rel=1e-8)
        assert found["outputs"][name] == pytest.approx(measure(values, predicted, multioutput="raw_values"), rel=1e-8)


def test_by_hand() -> None:
    """Three rows y = 1, 2, 6 predicted as 2, 2, 4: mean 3, spread 4 + 1 + 9 = 14, errors -1, 0, 2."""
    found = Counts.regressed(np.array([[2.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [6.0]])).metrics()
    assert (found["r2"], found["rmse"], found["mae"]) == pytest.approx((1 - 5 / 14, np.sqrt(5 / 3), 1.0))


def test_a_constant_target_has_no_r2() -> None:
    found = Counts.regressed(np.zeros((3, 2)), np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])).metrics()
    assert found["r2"] is None
    assert found["outputs"]["r2"] == [None, pytest.approx(-1.5)]
    assert found["mae"] == 1.0


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_counts_of_devices_add_up_to_those_of_all_rows(kind: str, rng: np.random.Generator) -> None:
    outputs, labels = classes(30, 3, 1)
    truth: Any = labels if kind == "classification" else rng.standard_normal((30, 3))
    whole = counts(kind, outputs, truth)
    parts = [counts(kind, outputs[rows], truth[rows]) for rows in (slice(0, 1), slice(1, 12), slice(12, 30))]
    total = parts[0] + parts[1] + parts[2]
    assert total.kind == kind
    assert total.table == pytest.approx(whole.table, rel=1e-12)


class TestRemarks:
    def table(self, *rows: list[int]) -> Counts:
        return Counts("classification", np.array(rows, np.float64))

    def test_accuracy_at_the_share_of_the_commonest_class(self) -> None:
        assert "accuracy 0.6000 is not above 0.6000" in (self.table([6, 0], [4, 0]).remark() or "")
        assert "accuracy 0.5000 is not above 0.6000" in (self.table([5, 1], [4, 0]).remark() or "")
        assert self.table([6, 0], [3, 1]).remark() is None

    def test_r2_of_a_constant_and_below(self) -> None:
        values = np.array([[0.0], [1.0], [5.0]])
        assert "R² 0.0000 is not above 0" in (Counts.regressed(np.full((3, 1), 2.0), values).remark() or "")
        assert "R² -0." in (Counts.regressed(np.full((3, 1), 3.0), values).remark() or "")
        assert Counts.regressed(values * 0.9, values).remark() is None
        assert Counts.regressed(values, np.ones((3, 1))).remark() is None, "R² is undefined"
