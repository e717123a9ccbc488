"""What a server without training data knows of its task: scores on a test set, and NaN for everything else."""

import math

import numpy as np
import pytest

from codedfl.data import Preparation
from codedfl.errors import DataError
from codedfl.task import Problem, Shard
from codedfl.task.metrics import accuracies, accuracy
from codedfl.task.objective import PublicObjective, TestSet, r_squared, side_by_side

MODELS = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
"""The first model tells by the larger feature, the second by the smaller one, the third says 0 always."""
TEST = TestSet(np.array([[3.0, 1.0], [2.0, 1.0], [1.0, 4.0]]), np.array([0, 0, 1]), "classification")


def objective(test: TestSet | None) -> PublicObjective:
    return PublicObjective(
        samples=10, shape=(2, 2), dtype=np.dtype("float64"), ridge=0.1, kind="classification", test=test
    )


def test_what_follows_from_training_data_is_unknown() -> None:
    for known in (objective(None), objective(TEST)):
        assert math.isnan(known.zero_loss)
        assert math.isnan(known.largest_stable_rate())
        assert known.zero_gradient.shape == (2, 2)
        assert np.isnan(known.zero_gradient).all()


def test_scores_are_those_of_the_test_set_alone() -> None:
    """One gradient for each model and each further point."""
    for points, gradients in ((None, 3), (MODELS[:2], 5)):
        without, with_test = (objective(test).score(MODELS, points) for test in (None, TEST))
        assert np.isnan(without.accuracy).all()
        assert with_test.accuracy.tolist() == [1.0, 0.0, 2 / 3]
        for scores in (without, with_test):
            assert np.isnan(scores.loss).all()
            assert len(scores.accuracy) == len(scores.loss) == 3
            assert scores.gradient.shape == (gradients, 2, 2)
            assert np.isnan(scores.gradient).all()


def test_accuracies_of_many_models_are_those_of_each_alone() -> None:
    """Of equal outputs the first counts, and an output that is no number counts as the largest."""
    rng = np.random.default_rng(0)
    outputs, labels = rng.integers(0, 3, (50, 4, 3)).astype(np.float32), rng.integers(0, 3, 50)
    outputs[::7, 1, 2] = np.nan
    alone = [sum(np.argmax(outputs[i, m]) == labels[i] for i in range(50)) / 50 for m in range(4)]
    assert accuracies(outputs, labels).tolist() == alone
    assert [accuracy(outputs[:, m], labels) for m in range(4)] == alone
    assert len(set(alone)) > 1


def test_models_side_by_side_have_contiguous_columns() -> None:
    """The columns of the first model, then those of the second."""
    models = np.arange(12.0).reshape(2, 3, 2)
    found = side_by_side(models)
    assert found.tolist() == np.concatenate(list(models), axis=1).tolist()
    assert found.T.flags.c_contiguous


def test_the_coefficient_of_determination_is_a_mean_over_outputs() -> None:
    """Residuals 1 and 4 + 4, spreads 2 and 8 + 8."""
    values, predicted = np.array([[1.0, 0], [3, 4], [2, 8]]), np.array([[2.0, 2], [3, 4], [2, 6]])
    assert r_squared(predicted, values) == pytest.approx((1 / 2 + (1 - 8 / 32)) / 2)


class TestFirstModels:
    """What all parties learn are differences to the first model."""

    def begun(self, ridge: object, start: np.ndarray | None, dtype: str = "float64") -> Problem:
        x = np.eye(2, dtype=dtype)
        return Problem((Shard(x, x),), x, np.array([[1.0, 0.0], [0.0, 2.0]]), "regression", ridge, start)  # type: ignore[arg-type]

    def test_the_ridge_term_pulls_at_the_first_model(self) -> None:
        assert self.begun(0.5, None).pull is None
        start, weights = np.array([[2.0, 4.0], [6.0, 8.0]]), np.array([[0.5], [2.0]])
        pulls = [self.begun(ridge, start).pull for ridge in (0.5, weights)]
        assert [None if pull is None else pull.tolist() for pull in pulls] == [[[1, 2], [3, 4]], [[1, 2], [12, 16]]]

    def test_whole_models_keep_their_precision(self) -> None:
        start = np.array([[2.0, 4.0], [6.0, 8.0]])
        for dtype in (np.float32, np.float64):
            models = np.ones((3, 2, 2), dtype)
            found = self.begun(0.5, start).whole(models)
            assert found.dtype == dtype
            assert found.tolist() == [(start + 1).tolist()] * 3
            assert self.begun(0.5, None).whole(models) is models


def test_weights_of_several_ridge_terms() -> None:
    single = objective(None)
    assert single.weights([0.5, 2.0]) == (0.5, 2.0)
    known = {"samples": 1, "shape": (2, 1), "dtype": np.dtype("float64"), "ridge": 0.1, "kind": "regression"}
    several = PublicObjective(**known, penalty=np.array([[2.0], [4.0]]))  # type: ignore[arg-type]
    assert [np.asarray(each).tolist() for each in several.weights([0.5, 2.0])] == [[[1], [2]], [[4], [8]]]


class TestTestSets:
    def test_only_a_regression_needs_targets_that_differ(self) -> None:
        labels = np.array([1, 1])
        assert TestSet(np.eye(2), labels, "classification").score(np.eye(2)[::-1], 1).tolist() == [0.5]
        with pytest.raises(DataError, match="a target of the test set is constant"):
            TestSet(np.eye(2), np.array([[1.0, 2.0], [1.0, 3.0]]), "regression")

    def test_outputs_are_in_the_units_of_the_targets(self) -> None:
        """Prepared outputs x Theta are 1, 2 and 3, 4 of the first model, 10, 20 and 30, 40 of the second."""
        prepared = Preparation(np.zeros(2), np.ones(2), None, None, None, np.array([1.0, 0.0]), np.array([2.0, 3.0]))
        y = np.array([[3.0, 6.0], [7.0, 13.0]])
        test, models = (
            TestSet(np.eye(2), y, "regression", prepared),
            np.array([[[1.0, 2], [3, 4]], [[10, 20], [30, 40]]]),
        )
        found = test.outputs(side_by_side(models), 2)
        assert found.tolist() == [[[3, 6], [21, 60]], [[7, 12], [61, 120]]]
        assert test.outputs(models[0])[:, 0].tolist() == [[3, 6], [7, 12]]
        assert test.score(side_by_side(models), 2)[0] == pytest.approx((1 + 1 - 1 / 24.5) / 2)

    def test_counts_of_a_regression_are_about_the_mean(self) -> None:
        """Targets 1e9 + 1, 2, 6 less their mean are -2, -1, 3; predictions are off by 1."""
        y = 1e9 + np.array([[1.0], [2.0], [6.0]])
        found = TestSet(y + 1, y, "regression").counts(np.array([[1.0]]))
        assert found.table[:, 0].tolist() == [3, 0, 14, 3, 3]

    def test_counts_of_a_classification(self) -> None:
        assert TEST.counts(MODELS[0]).table.tolist() == [[2, 0], [0, 1]]
        assert TEST.counts(MODELS[1]).table.tolist() == [[0, 2], [1, 0]]

    @pytest.mark.parametrize("entries", [3, 4])
    def test_large_sets_tell_outputs_apart_that_single_precision_cannot(
        self, entries: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """1 + 2^-30 is more than 1, but not in float32; sets of this size and larger ones are large."""
        monkeypatch.setattr("codedfl.task.objective.LARGE", entries)
        x = np.array([[1.0, 2.0**-15], [1.0, 2.0**-15]], np.float32)
        model = np.array([[1.0, 1.0], [0.0, 2.0**-15]], np.float32)
        test = TestSet(x, np.array([1, 1]), "classification")
        for _ in range(2):
            assert test.score(side_by_side(model[None]), 1).tolist() == [1.0]

    def test_large_sets_with_prepared_targets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The outputs 1 and 0 become 1 and 5."""
        monkeypatch.setattr("codedfl.task.objective.LARGE", 1)
        prepared = Preparation(np.zeros(1), np.ones(1), None, None, None, np.array([0.0, 5.0]), np.ones(2))
        test = TestSet(np.ones((2, 1)), np.array([1, 0]), "classification", prepared)
        assert test.score(np.array([[1.0, 0.0]]), 1).tolist() == [0.5]
        test = TestSet(np.ones((2, 1)), np.array([1, 1]), "classification", prepared)
        assert test.score(np.array([[1.0, 0.0]]), 1).tolist() == [1.0]
