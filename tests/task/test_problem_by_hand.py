"""Sums, losses and gradients of a problem of three rows, by hand; problems built from scenarios."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import load
from codedfl.data.dataset import regression
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData, Shard
from codedfl.task.preparing import PlainSummer, prepare

X = np.array([[1.0, 0.0], [1.0, 2.0], [0.0, -1.0]])
Y = np.array([[2.0], [0.0], [3.0]])
GRAM = [[2.0, 2.0], [2.0, 5.0]]
MOMENTS = [[2.0], [-3.0]]
ENERGY = 13.0
MODEL = np.array([[1.0], [-1.0]])
"""Its residuals are -1, -1 and -2."""


def two_devices(ridge: Any = 0.0, start: Any = None, dtype: str = "float64", **more: Any) -> Problem:
    x, y = X.astype(dtype), Y.astype(dtype)
    shards = Shard(x[:1], y[:1]), Shard(x[1:], y[1:])
    return Problem(shards, x, Y, "regression", ridge, start, **more)


def test_totals() -> None:
    made = two_devices()
    assert (made.samples, made.shape, made.dtype) == (3, (2, 1), np.float64)
    assert made.total_gram.tolist() == made.sums.gram.tolist() == GRAM
    assert made.total_moments.tolist() == made.sums.moments.tolist() == MOMENTS
    assert made.sums.samples == 3
    assert made.target_energy == ENERGY


def test_devices_of_single_precision_have_sums_of_theirs() -> None:
    """Totals, the reference of all schemes, stay in double precision."""
    made = two_devices(dtype="float32")
    assert made.dtype == np.float32
    assert made.total_gram.dtype == made.total_moments.dtype == made.sums.moments.dtype == np.float64
    assert made.sums.gram.dtype == made.part_sums((0,)).gram.dtype == np.float32
    large = Problem(
        (Shard(np.ones((2, 1), np.float32), np.array([[4096.0], [1.0]], np.float32)),), X[:0, :1], Y[:0], "", 0
    )
    assert large.target_energy == 4096**2 + 1, "2^24 + 1 is no number of single precision"


@pytest.mark.parametrize("devices", [(0,), (1,), (1, 0)])
def test_sums_over_some_devices_are_made_once(devices: tuple[int, ...]) -> None:
    made, rows = two_devices(), [row for device in devices for row in ([0], [1, 2])[device]]
    found = made.part_sums(devices)
    assert found.gram.tolist() == (X[rows].T @ X[rows]).tolist()
    assert found.moments.tolist() == (X[rows].T @ Y[rows]).tolist()
    assert found.samples == len(rows)
    assert made.part_sums(devices) is found
    assert made.part_sums((0, 1)) is not found


def test_sums_over_batches_are_made_once_in_a_cycle() -> None:
    """Of two parts the first has no row of the first device and the first row of the second."""
    made, rows = two_devices(), {1: [1], 2: [0, 2]}
    first = {epoch: made.batch_sums(2, epoch) for epoch in (1, 2)}
    for epoch, found in first.items():
        assert found.gram.tolist() == (X[rows[epoch]].T @ X[rows[epoch]]).tolist()
        assert found.moments.tolist() == (X[rows[epoch]].T @ Y[rows[epoch]]).tolist()
        assert found.samples == len(rows[epoch])
        assert made.batch_sums(2, epoch + 2) is made.batch_sums(2, epoch + 40) is found
    assert made.batch_sums(1, 1).gram.tolist() == GRAM
    assert made.batch_sums(2, 1) is not first[1], "those of another number of parts are dropped"


class TestScores:
    def test_loss_and_gradient(self) -> None:
        """Squares 1 + 1 + 4 over 2 * 3; X^T r = -2, 0 over 3; the ridge term is lambda / 2 * 2."""
        for ridge in (0.0, 0.5):
            found = two_devices(ridge).score(MODEL[None])
            assert found.loss == pytest.approx([1 + ridge], rel=1e-15)
            assert found.gradient == pytest.approx(np.array([[[-2 / 3], [0.0]]]), rel=1e-15)
            assert two_devices(ridge).gradient(MODEL) == pytest.approx(np.array([[-2 / 3], [0.0]]), rel=1e-15)

    def test_a_weight_for_each_feature(self) -> None:
        found = two_devices(np.array([[0.5], [3.0]])).score(MODEL[None])
        assert found.loss == pytest.approx([1 + 0.25 + 1.5], rel=1e-15)

    def test_at_zero(self) -> None:
        made = two_devices(0.5)
        assert made.zero_loss == pytest.approx(ENERGY / 6, rel=1e-15)
        assert made.zero_gradient == pytest.approx(-np.array(MOMENTS) / 3, rel=1e-15)
        assert made.score(np.zeros((1, 2, 1))).loss == pytest.approx([ENERGY / 6], rel=1e-15)

    def test_from_a_first_model_the_ridge_term_is_that_of_the_sum(self) -> None:
        """The first model (2, -1) alone has 5 lambda / 2, with (1, -1) added (9 + 4) lambda / 2."""
        start = np.array([[2.0], [-1.0]])
        made = two_devices(0.5, start)
        assert made.zero_loss == pytest.approx(ENERGY / 6 + 1.25, rel=1e-15)
        assert made.score(MODEL[None]).loss == pytest.approx([1 + 3.25], rel=1e-15)
        weights = two_devices(np.array([[0.5], [3.0]]), start)
        assert weights.zero_loss == pytest.approx(ENERGY / 6 + 1.0 + 1.5, rel=1e-15)

    def test_from_a_first_model_the_whole_one_is_scored(self) -> None:
        """Test targets are those that the first model and another unit of its first weight predict."""
        start = np.array([[2.0], [-1.0]])
        made = Problem((Shard(X, Y),), X, X @ np.array([[3.0], [-1.0]]), "regression", 0.0, start)
        found = made.score(np.array([[[1.0], [0.0]], [[0.0], [0.0]]]))
        assert found.accuracy[0] == 1.0
        assert found.accuracy[1] < 1.0

    def test_further_points_have_gradients_alone(self) -> None:
        models, points = np.stack([MODEL, 2 * MODEL]), np.stack([3 * MODEL, MODEL, 0 * MODEL])
        made = two_devices(0.5)
        found, alone = made.score(models, points), made.score(models)
        assert found.loss.tolist() == alone.loss.tolist()
        assert found.accuracy.tolist() == alone.accuracy.tolist()
        assert found.gradient == pytest.approx(np.array([made.gradient(at) for at in [*models, *points]]), abs=1e-15)
        assert len(alone.gradient) == 2

    def test_without_a_test_set_there_is_no_accuracy(self) -> None:
        made = Problem((Shard(X, Y),), X[:0], Y[:0], "regression", 0.0)
        assert made.test is None
        assert np.isnan(made.score(np.stack([MODEL, MODEL])).accuracy).tolist() == [True, True]
        assert made.score(MODEL[None]).loss == pytest.approx([1.0])


class TestLimits:
    def test_the_minimiser_by_cramers_rule(self) -> None:
        """(G / 3 + I / 3) Theta = M / 3: 3 a + 2 b = 2, 2 a + 6 b = -3, so a = 18/14 and b = -13/14."""
        made = two_devices(1 / 3)
        assert made.ridge_solution() == pytest.approx(np.array([[18 / 14], [-13 / 14]]), rel=1e-14)
        made.ridge_solution()[:] = 7
        assert made.ridge_solution() == pytest.approx(np.array([[18 / 14], [-13 / 14]]), rel=1e-14)

    def test_from_a_first_model_the_minimiser_is_pulled(self) -> None:
        """The right-hand side is less lambda times the first model: 3 a + 2 b = 2 - 2, 2 a + 6 b = -3 + 1."""
        made = two_devices(1 / 3, np.array([[2.0], [-1.0]]))
        assert made.ridge_solution() == pytest.approx(np.array([[4 / 14], [-6 / 14]]), rel=1e-14)

    @pytest.mark.parametrize(("loss", "curvature"), [("squared", 1.0), ("softmax", 0.5)])
    def test_the_largest_stable_rate(self, loss: str, curvature: float) -> None:
        """Eigenvalues of the Gram matrix are 1 and 6; with the weights 1 and 5/2 added to 2 I, 3 and 9/2 are on its
        diagonal.
        """
        targets = np.eye(2)[[0, 1, 0]]
        for ridge, top in ((0.0, 2.0 * curvature), (0.25, 2.0 * curvature + 0.25)):
            made = Problem((Shard(X, targets),), X, np.array([0, 1, 0]), "classification", ridge, loss=loss)
            assert made.largest_stable_rate() == pytest.approx(2 / top, rel=1e-14)
        diagonal = np.array([[2.0, 0.0], [0.0, 1.0]])
        made = Problem(
            (Shard(diagonal, np.eye(2)),), X, np.array([0, 1, 0]), "classification", np.array([[0.5], [4.0]]), loss=loss
        )
        assert made.largest_stable_rate() == pytest.approx(2 / max(2 * curvature + 0.5, curvature / 2 + 4), rel=1e-14)


def wanted(**changes: Any) -> Scenario:
    given = {"data.source": "rows.csv", "task.ridge": 0.5, "fleet.devices": [{"count": 3, "mac_rate": 1e6}]}
    return load("own-data").with_settings(given | {name.replace("__", "."): value for name, value in changes.items()})


ROWS = np.random.default_rng(0).normal(size=(14, 2)) * [1, 50] + [3, 0]
TARGETS = ROWS @ [[1.0], [0.1]] + 7
DATA = regression("rows", ROWS[:10], TARGETS[:10], ROWS[10:], TARGETS[10:])


class TestBuilt:
    def raw(self, given: Scenario) -> RawData:
        return RawData.create(given, DATA)

    def test_rows_of_devices_and_of_the_test_set_are_prepared_alike(self) -> None:
        given = wanted(features__scale="none")
        raw = self.raw(given)
        summer = PlainSummer([raw.device(index) for index in range(3)], raw.features)
        prepared = prepare(given, summer, raw.dummies, regression=True)
        seen: list[tuple[Any, ...]] = []
        made = Problem.of_raw(given, raw, prepared, lambda *said: seen.append(said))
        assert seen == [("preparing data", done, 3) for done in range(4)]
        kept = prepared.preparation
        for index, shard in enumerate(made.shards):
            assert shard.x.tolist() == kept.inputs(raw.device(index).x).tolist()
            assert shard.y.tolist() == kept.targets(raw.device(index).y).tolist()
        assert made.x_test.tolist() == kept.inputs(ROWS[10:]).tolist()
        assert made.y_test.tolist() == TARGETS[10:].tolist()
        assert kept.penalty is not None
        assert np.asarray(made.ridge).tolist() == (0.5 * kept.penalty[:, None]).tolist()
        assert np.asarray(made.penalty).tolist() == kept.penalty[:, None].tolist()
        assert made.test is not None and made.test.preparation is kept
        assert made.described is not None and made.described.preparation is kept
        assert (made.kind, made.loss, made.raw, made.prepared) == ("regression", "squared", raw, prepared)

    def test_without_preparation_rows_stay_as_they_are(self) -> None:
        given = wanted(features__scale="none", features__intercept=False)
        made = Problem.of_raw(given, self.raw(given), None)
        assert np.concatenate([shard.x for shard in made.shards]).sum(axis=0) == pytest.approx(ROWS[:10].sum(axis=0))
        assert (made.ridge, made.penalty, made.prepared) == (0.5, 1.0, None)
        assert made.described is not None and made.described.preparation is None
        assert made.test is not None and made.test.preparation is None

    def test_from_a_first_model_targets_are_what_it_leaves(self, tmp_path: Path) -> None:
        """Of two outputs, the second of which is minus the first."""
        first = np.array([[1.0, -1.0], [0.1, -0.1]])
        np.savez(tmp_path / "model.npz", theta=first)
        start, targets = str(tmp_path / "model.npz"), np.hstack([TARGETS, -TARGETS])
        given = wanted(features__scale="none", features__intercept=False, training__start=start)
        raw = RawData.create(given, regression("rows", ROWS[:10], targets[:10], ROWS[10:], targets[10:]))
        made = Problem.of_raw(given, raw, None)
        assert made.start is not None and made.start.tolist() == first.tolist()
        assert np.concatenate([shard.y for shard in made.shards]) == pytest.approx(np.tile([7.0, -7.0], (10, 1)))
        assert made.score(np.zeros((1, 2, 2))).accuracy[0] < 1

    def test_a_loss_of_classes_needs_classes(self) -> None:
        given = wanted(features__scale="none", features__intercept=False, task__loss="softmax")
        with pytest.raises(ScenarioError, match="needs classes"):
            Problem.of_raw(given, self.raw(given), None)

    @pytest.mark.parametrize("intercept", [True, False])
    def test_from_a_file(self, tmp_path: Path, intercept: bool) -> None:
        """Columns are prepared where the scenario says so, and data are seen before."""
        np.savez(tmp_path / "rows.npz", x=ROWS, y=TARGETS)
        given = wanted(
            data__source=str(tmp_path / "rows.npz"), features__scale="none", features__intercept=intercept
        ).with_settings({"data.test_fraction": 0.0})
        seen: list[Any] = []
        made = Problem.build(given, loaded=lambda scenario, raw: seen.append((scenario, raw)))
        assert seen == [(given, made.raw)]
        if not intercept:
            assert made.prepared is None
            return
        assert made.prepared is not None
        assert made.prepared.preparation.shift == pytest.approx(ROWS.mean(axis=0))
        assert made.prepared.preparation.target_unit == pytest.approx(TARGETS.std(axis=0)), "of a regression"
