"""Metrics from sums, against scikit-learn on the rows themselves."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from codedfl.task.metrics import Counts, NearbyModels, counts
from codedfl.task.objective import side_by_side


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


def test_sums_of_a_regression_are_about_a_center_or_zero() -> None:
    """Rows, sums of y, y^2, |e| and e^2 of y = 1, 2, 6 predicted as 2, 2, 4; about 2 they are -1, 0, 4."""
    predicted, values = np.array([[2.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [6.0]])
    for center, sums in ((None, (9, 41)), (np.array([2.0]), (3, 17))):
        found = Counts.regressed(predicted, values, center)
        assert (found.kind, found.table[:, 0].tolist()) == ("regression", [3, *sums, 3, 5])
        assert found.metrics() == Counts.regressed(predicted, values).metrics()
        assert counts("regression", predicted, values, center).table.tolist() == found.table.tolist()


def test_numbers_of_rows() -> None:
    assert Counts.regressed(np.zeros((4, 2)), np.zeros((4, 2))).rows == 4
    assert Counts.classified(np.eye(3)[[0, 1, 1, 2, 0]], np.array([0, 1, 2, 2, 1])).rows == 5


def test_small_targets_have_an_r2() -> None:
    """The spread is 14 / 10^4, errors are 0.01, 0 and 0.02 off."""
    found = Counts.regressed(np.array([[0.02], [0.02], [0.04]]), np.array([[0.01], [0.02], [0.06]]))
    assert found.metrics()["r2"] == pytest.approx(1 - 5 / 14)


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


class TestNearbyModels:
    """Accuracies are those of outputs in float64, whatever was scored before."""

    def trained(self, rows: int, dtype: Any, epochs: int, parts: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, labels, and the models of gradient descent, which move less and less."""
        rng = np.random.default_rng(rows)
        x, labels = rng.standard_normal((rows, 30)), rng.integers(0, 4, rows)
        x[np.arange(rows), labels] += 1.5
        model, models = np.zeros((30, 4)), []
        for epoch in range(epochs):
            part = slice(epoch % parts, None, parts)
            model = model - 0.02 * x[part].T @ (x[part] @ model - np.eye(4)[labels[part]]) * parts / rows
            models.append(model)
        return x.astype(dtype), labels, np.array(models, dtype)

    def expected(self, x: np.ndarray, labels: np.ndarray, models: np.ndarray) -> list[float]:
        outputs = np.einsum("qd,bdc->bqc", x.astype(np.float64), models.astype(np.float64))
        return [float(each) for each in (outputs.argmax(axis=2) == labels).mean(axis=1)]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("parts", [1, 5])
    def test_every_block_of_a_training(self, dtype: Any, parts: int) -> None:
        x, labels, models = self.trained(400, dtype, 96, parts)
        nearby = NearbyModels(x, labels)
        for block in np.split(models, 12):
            assert nearby.accuracies(side_by_side(block), 8).tolist() == self.expected(x, labels, block)
        assert len(nearby._blocks) < 6, "most blocks follow from others"

    def test_models_far_from_known_ones_and_single_ones(self, rng: np.random.Generator) -> None:
        x, labels, models = self.trained(200, np.float32, 8)
        nearby = NearbyModels(x, labels)
        for count in (8, 3, 8, 1, 20):
            far = rng.standard_normal((count, 30, 4)).astype(np.float32)
            assert nearby.accuracies(side_by_side(far), count).tolist() == self.expected(x, labels, far)
        assert nearby.accuracies(side_by_side(models), 8).tolist() == self.expected(x, labels, models)

    def test_ties_within_the_rounding_of_single_precision(self, rng: np.random.Generator) -> None:
        """Two classes whose outputs differ by less than float32 can tell are told apart in float64."""
        x, labels, models = self.trained(300, np.float32, 16)
        models[:, :, 1] = models[:, :, 0]
        models[:, 0, 1] = np.nextafter(models[:, 0, 1], np.float32(9))
        nearby = NearbyModels(x, labels)
        for block in (models[:8], models[8:], models[4:12]):
            assert nearby.accuracies(side_by_side(block), 8).tolist() == self.expected(x, labels, block)

    def test_models_that_are_not_finite_have_some_accuracy(self) -> None:
        x, labels, models = self.trained(100, np.float32, 24)
        models[9:, 3, 2] = np.inf
        nearby = NearbyModels(x, labels)
        with np.errstate(all="ignore"):
            found = [nearby.accuracies(side_by_side(block), 8) for block in np.split(models, 3)]
        assert np.all((np.array(found) >= 0) & (np.array(found) <= 1))
        assert len(nearby._blocks) == 1, "nothing follows from infinite models"

    def test_rows_of_zeros(self) -> None:
        x, labels, models = self.trained(50, np.float32, 16)
        x[::3] = 0
        nearby = NearbyModels(x, labels)
        for block in np.split(models, 2):
            assert nearby.accuracies(side_by_side(block), 8).tolist() == self.expected(x, labels, block)
