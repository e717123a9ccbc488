"""The preparation that follows from sums: by hand, and from the rows of all devices together."""

from typing import Any

import numpy as np
import pytest

from codedfl.data import FeatureMap
from codedfl.errors import DataError
from codedfl.task.folds import RowChoice
from codedfl.task.preparing import (
    COUNTS,
    DeviceRows,
    Moments,
    PlainSummer,
    Prepared,
    Summer,
    SumRequest,
    prepare,
    prepare_fold,
    scales_of,
)
from tiny import scenario


@pytest.mark.parametrize("samples", [1, 6])
def test_counts_are_bounded_by_twice_the_rows_of_the_training(samples: int) -> None:
    """Times the bounds on deviations from the centre and on errors, and their squares; a bound of 0 counts as 1."""
    features, models = FeatureMap.create("none", inputs=4, dtype="float64"), np.zeros((1, 4, 2))
    classified = scales_of(SumRequest(COUNTS, {"models": models}), np.zeros(0), (4, 2), samples, features)
    assert classified.tolist() == [2 * samples] * 4
    request, bounds = SumRequest(COUNTS, {"models": models, "center": np.zeros(2)}), np.array([4.0, 0.0, 0.5, 2.0])
    regressed = scales_of(request, bounds, (4, 2), samples, features)
    assert regressed.tolist() == [2 * samples * bound for bound in (1, 1, 4, 1, 16, 1, 0.5, 2, 0.25, 4)]


@pytest.mark.parametrize("value", [0.0, 7.5, -3e8, 1e17])
def test_a_constant_column_has_no_variance_whatever_its_size(value: float) -> None:
    """It is not refused as too coarse for float64, and what rounding leaves of it is divided by its size."""
    varying, target = np.arange(12.0), np.ones((6, 1))
    rows = [DeviceRows(np.column_stack([np.full(6, value), part]), target) for part in (varying[:6], varying[6:])]
    features = FeatureMap.create("none", inputs=2, dtype="float64")
    wanted = scenario({"features.kind": "none", "features.scale": "standard", "features.intercept": True})
    found = prepare(wanted, PlainSummer(rows, features), np.zeros(2, bool), regression=True).preparation
    assert found.shift.tolist() == [value, varying.mean()]
    assert found.unit[0] == max(1.0, abs(value))
    assert found.unit[1] == pytest.approx(varying.std(), rel=1e-12)


class TestMoments:
    def test_by_hand(self) -> None:
        """3, 5 and 10 about 4: offsets -1, 1, 6; a column of no value has no mean, and rounding no variance."""
        found = Moments.of(np.array([3, 0, 2]), np.array([6.0, 0.0, 2.0]), np.array([38.0, 0.0, 2.0 - 1e-9]))
        assert found.count.tolist() == [3, 1, 2]
        assert found.offset.tolist() == [2, 0, 1]
        assert found.variance.tolist() == [38 / 3 - 4, 0, 0]
        assert Moments.of(2, np.array([6.0, 2.0]), np.array([20.0, 4.0])).variance.tolist() == [1, 1]

    def cancelled(self, offset: float, variance: float, mean: float) -> bool:
        """Of the first of two columns; no digit of the second has cancelled."""
        found = Moments(np.ones(2), np.array([offset, 0.0]), np.array([variance, 1.0]))
        return found.cancelled(np.array([mean - offset, 0.0]))

    def test_four_digits_cancel_where_the_mean_is_a_hundred_deviations_from_the_origin(self) -> None:
        assert not self.cancelled(100.0, 1.0, 100.0)
        assert self.cancelled(101.0, 1.0, 101.0)
        assert self.cancelled(-101.0, 1.0, -101.0)

    def test_a_column_that_is_constant_up_to_rounding_needs_no_other_origin(self) -> None:
        """Two roundings of a mean of 2^50 are 4 eps 2^50 = 1."""
        assert not self.cancelled(1.0, 0.0, 2.0**50)
        assert self.cancelled(1.2, 0.0, 2.0**50)
        assert not self.cancelled(-1.0, 0.0, -(2.0**50))
        assert not self.cancelled(0.0, 0.0, 0.0)

    def test_a_deviation_of_two_units_in_the_last_place_is_none(self) -> None:
        """2 eps 2^51 = 1."""
        found = Moments(np.ones(3), np.full(3, 2.0), np.array([1.0, 1.01, 0.0]))
        assert found.cleaned(np.full(3, 2.0**51 - 2)).tolist() == [0.0, 1.01, 0.0]
        assert found.cleaned(np.full(3, -(2.0**51) - 2)).tolist() == [0.0, 1.01, 0.0]


X = np.array([[1.0, 1, 0, -4], [2, 0, 1, 4], [6, 0, 1, 0], [3, 1, 0, 8], [8, 1, 0, 2]])
Y = np.array([[3.0, -1], [1, 0], [2, 0], [8, 0], [6, 5]])
DUMMIES = np.array([False, True, True, False])
RIDGE = 0.5


def summer_of(x: np.ndarray = X, y: np.ndarray = Y, kind: str = "none", **options: Any) -> PlainSummer:
    """Two devices, one with two rows and one with the others."""
    features = FeatureMap.create(kind, inputs=x.shape[1], dtype="float64", **options)
    return PlainSummer([DeviceRows(x[:2], y[:2]), DeviceRows(x[2:], y[2:])], features)


def prepared(summer: Summer, *, regression: bool = True, dummies: Any = DUMMIES, **features: Any) -> Prepared:
    chosen = {"kind": "none", "scale": "standard", "intercept": True, **features}
    wanted = scenario({"task.ridge": RIDGE, **{f"features.{name}": value for name, value in chosen.items()}})
    return prepare(wanted, summer, dummies, regression=regression)


class TestPreparation:
    """Means, variances and mean squares are those that NumPy computes from all rows."""

    def test_standard_scale_leaves_categories_their_size(self) -> None:
        found = prepared(summer_of()).preparation
        assert found.shift == pytest.approx(X.mean(axis=0))
        assert found.unit == pytest.approx(np.where(DUMMIES, 1.0, X.std(axis=0)))
        assert found.target_shift == pytest.approx(Y.mean(axis=0))
        assert found.target_unit == pytest.approx(Y.std(axis=0))
        assert prepared(summer_of(y=Y / 100)).preparation.target_unit == pytest.approx(Y.std(axis=0) / 100)
        assert (found.fill, found.penalty, found.feature_shift, found.constant) == (None, None, None, None)

    def test_standard_scale_without_an_intercept_shifts_numbers_only(self) -> None:
        found = prepared(summer_of(), intercept=False).preparation
        assert found.shift == pytest.approx(np.where(DUMMIES, 0.0, X.mean(axis=0)))
        assert found.unit == pytest.approx(np.where(DUMMIES, 1.0, X.std(axis=0)))
        assert found.target_shift.tolist() == [0, 0]
        assert found.target_unit == pytest.approx(np.sqrt((Y**2).mean(axis=0)))

    @pytest.mark.parametrize("intercept", [True, False])
    def test_columns_as_they_are_have_a_hessian_of_ones_on_the_diagonal(self, intercept: bool) -> None:
        """The penalty undoes the unit: lambda z^2 / unit^2 = lambda theta^2 with z = unit theta."""
        found = prepared(summer_of(), scale="none", intercept=intercept).preparation
        shift = X.mean(axis=0) if intercept else np.zeros(4)
        unit = np.sqrt(((X - shift) ** 2).mean(axis=0) + RIDGE)
        assert found.shift == pytest.approx(shift)
        assert found.unit == pytest.approx(unit)
        assert found.penalty == pytest.approx(1 / unit**2)

    def test_a_column_of_zeros_without_ridge_has_the_unit_one(self) -> None:
        summer = summer_of(np.zeros((5, 1)), Y[:, :1])
        wanted = scenario({"features.kind": "none", "features.missing": "mean", "task.ridge": 0.0})
        found = prepare(wanted, summer, np.zeros(1, bool), regression=True).preparation
        assert found.unit.tolist() == [1.0]
        assert found.penalty is not None and found.penalty.tolist() == [1.0]

    @pytest.mark.parametrize(("scale", "intercept"), [("standard", True), ("standard", False), ("none", True)])
    def test_before_a_kernel_only_standardised_numbers_are_shifted(self, scale: str, intercept: bool) -> None:
        summer = summer_of(kind="rbf", dimension=7)
        found = prepared(summer, kind="rbf", scale=scale, intercept=intercept).preparation
        moved = (scale == "standard") & ~DUMMIES
        assert found.shift == pytest.approx(np.where(moved, X.mean(axis=0), 0.0))
        assert found.unit == pytest.approx(np.where(moved, X.std(axis=0), 1.0))
        assert found.penalty is None
        if not intercept:
            assert found.feature_shift is None
            assert found.target_shift.tolist() == [0, 0]
            return
        features = summer.features.transform((X - found.shift) / found.unit)
        assert found.feature_shift == pytest.approx(features.mean(axis=0))

    def test_classes_are_shifted_and_keep_their_size(self) -> None:
        found = prepared(summer_of(), regression=False).preparation
        assert found.target_shift == pytest.approx(Y.mean(axis=0))
        assert found.target_unit.tolist() == [1, 1]

    def test_constant_targets_have_the_unit_one(self) -> None:
        for intercept in (True, False):
            zeros = prepared(summer_of(y=np.zeros((5, 1))), intercept=intercept).preparation
            assert (zeros.target_shift.tolist(), zeros.target_unit.tolist()) == ([0.0], [1.0])
        assert prepared(summer_of(y=np.full((5, 1), -3.0))).preparation.target_unit.tolist() == [1.0]
        assert prepared(summer_of(y=np.full((5, 1), -3.0)), intercept=False).preparation.target_unit.tolist() == [3.0]

    def test_missing_values_stand_at_the_mean(self) -> None:
        """They add nothing to the variance, which is that of the filled column."""
        x = X.copy()
        x[1, 0] = x[4, 3] = np.nan
        mean = np.nanmean(x, axis=0)
        found = prepared(summer_of(x), missing="mean").preparation
        assert found.fill == pytest.approx(mean)
        assert found.shift == pytest.approx(mean)
        assert found.unit == pytest.approx(np.where(DUMMIES, 1.0, np.where(np.isnan(x), mean, x).std(axis=0)))

    def test_a_column_without_values_is_refused_by_its_number(self) -> None:
        x = X.copy()
        x[:, 3] = np.nan
        with pytest.raises(DataError, match=r"input 3 \(counted from 0\) has no value at any device"):
            prepared(summer_of(x), missing="mean")

    @pytest.mark.parametrize("offset", [1e4, 1e8, -1e11])
    def test_digits_far_from_zero_are_kept(self, offset: float) -> None:
        """Sums about the mean have the digits that sums about zero lose; numbers here are exact at any offset."""
        for x, y in ((X + offset, Y), (X, Y + offset)):
            found = prepared(summer_of(x, y), dummies=np.zeros(4, bool)).preparation
            assert found.unit == pytest.approx(X.std(axis=0), rel=1e-7)
            assert found.target_unit == pytest.approx(Y.std(axis=0), rel=1e-7)

    def test_a_column_that_float64_is_too_coarse_for_is_refused(self) -> None:
        """Numbers around 2^44 are 2^-8 apart, which is more than a thousandth of 2, and less of 8."""
        signs = np.array([1.0, -1, 1, -1])
        for size, mean in ((2.0, 2.0**44), (2.0, -(2.0**44))):
            x = np.stack([signs, mean + size * signs], axis=1)
            with pytest.raises(
                DataError, match=r"input 1 .* has the mean -?1\.75922e\+13 and the standard deviation 2"
            ):
                prepared(summer_of(x, Y[:4]), dummies=np.zeros(2, bool))
        x = np.stack([signs, 2.0**44 + 8 * signs], axis=1)
        assert prepared(summer_of(x, Y[:4]), dummies=np.zeros(2, bool)).preparation.unit == pytest.approx([1, 8])

    def test_a_thousandth_of_a_deviation_is_not_too_coarse(self) -> None:
        """The mean is exactly so large that float64 there is accurate to 1/1000; all sums are exact."""
        for mean, refused in ((1e-3 * 2.0**52, False), (1.001e-3 * 2.0**52, True)):
            summer = summer_of(np.array([[-1.0], [1.0], [-1.0], [1.0]]) + mean, Y[:4, :1])
            if refused:
                with pytest.raises(DataError, match="too small beside it for float64"):
                    prepared(summer, dummies=np.zeros(1, bool))
            else:
                assert prepared(summer, dummies=np.zeros(1, bool)).preparation.unit.tolist() == [1.0]


class TestEnergies:
    """Bounds on sums of squares of prepared columns are at most a few millionths above them, and at least 1."""

    def close(self, bound: float | None, squares: np.ndarray) -> bool:
        exact = float(squares.sum(axis=0).max())
        return bound is not None and exact * (1 + 5e-7) < bound < exact * (1 + 2e-6)

    @pytest.mark.parametrize("scale", ["standard", "none"])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_they_are_those_of_prepared_rows(self, scale: str, intercept: bool) -> None:
        found = prepared(summer_of(), scale=scale, intercept=intercept)
        assert self.close(found.feature_energy, found.preparation.inputs(X) ** 2)
        assert self.close(found.target_energy, found.preparation.targets(Y) ** 2)

    @pytest.mark.parametrize("intercept", [True, False])
    def test_those_of_random_features_are_unknown(self, intercept: bool) -> None:
        found = prepared(summer_of(kind="rbf", dimension=7), kind="rbf", intercept=intercept)
        assert found.feature_energy is None
        assert self.close(found.target_energy, found.preparation.targets(Y) ** 2)

    def test_they_are_positive_where_all_is_constant(self) -> None:
        found = prepared(summer_of(np.full((5, 1), 7.5), np.full((5, 1), 0.1)), dummies=np.zeros(1, bool))
        for bound in (found.feature_energy, found.target_energy):
            assert bound is not None and 1 < bound < 1 + 2e-6

    def test_small_classes_have_an_energy_of_their_own(self) -> None:
        """Targets of a classification keep their size: squares that add up to less than 1 count as 1."""
        found = prepared(summer_of(y=Y / 100), regression=False)
        assert found.target_energy is not None and 1 < found.target_energy < 1 + 2e-6
        assert self.close(prepared(summer_of(y=Y), regression=False).target_energy, (Y - Y.mean(axis=0)) ** 2)


CHOICE = RowChoice(1, 2, 3, held_out=False)


def chosen_rows(x: np.ndarray = X, y: np.ndarray = Y) -> DeviceRows:
    parts = [DeviceRows(x[:2], y[:2]), DeviceRows(x[2:], y[2:])]
    kept = [CHOICE.of(rows, device) for device, rows in enumerate(parts)]
    return DeviceRows(np.concatenate([rows.x for rows in kept]), np.concatenate([rows.y for rows in kept]))


class TestFolds:
    def test_means_are_those_of_the_chosen_rows_and_units_stay(self) -> None:
        summer, rows = summer_of(), chosen_rows()
        whole = prepared(summer)
        found, count = prepare_fold(scenario(), summer, whole, CHOICE)
        assert (found, count) == (whole.preparation, len(rows.x)), "without an intercept nothing is shifted"
        wanted = scenario({"features.kind": "none", "features.intercept": True})
        found, count = prepare_fold(wanted, summer, whole, CHOICE)
        assert 0 < count == len(rows.x) < 5
        assert found.shift == pytest.approx(rows.x.mean(axis=0))
        assert found.target_shift == pytest.approx(rows.y.mean(axis=0))
        assert found.unit.tolist() == whole.preparation.unit.tolist()
        assert found.target_unit.tolist() == whole.preparation.target_unit.tolist()

    def test_before_a_kernel_features_are_shifted_instead_of_columns(self) -> None:
        summer, rows = summer_of(kind="rbf", dimension=7), chosen_rows()
        whole = prepared(summer, kind="rbf")
        wanted = scenario({"features.kind": "rbf", "features.dimension": 7, "features.intercept": True})
        found, _ = prepare_fold(wanted, summer, whole, CHOICE)
        features = summer.features.transform(whole.preparation.inputs(rows.x))
        assert found.feature_shift == pytest.approx(features.mean(axis=0))
        assert found.target_shift == pytest.approx(rows.y.mean(axis=0))
        assert found.shift.tolist() == whole.preparation.shift.tolist()

    def test_missing_values_stand_at_the_mean_of_all_rows(self) -> None:
        x = X.copy()
        x[[0, 3], 0] = np.nan
        mean = np.nanmean(x[:, 0])
        whole, filled = prepared(summer_of(x), missing="mean"), x.copy()
        filled[[0, 3], 0] = mean
        wanted = scenario({"features.kind": "none", "features.intercept": True, "features.missing": "mean"})
        found, _ = prepare_fold(wanted, summer_of(x), whole, CHOICE)
        assert found.shift == pytest.approx(chosen_rows(filled).x.mean(axis=0))
        assert found.fill is not None and found.fill[0] == pytest.approx(mean)

    def test_a_fold_of_one_row_and_of_none(self) -> None:
        row = DeviceRows(X[:1], Y[:1])
        summer = PlainSummer([row], FeatureMap.create("none", inputs=4, dtype="float64"))
        whole = prepared(summer)
        empty, full = sorted(
            (RowChoice(fold, 2, 3, held_out=False) for fold in (0, 1)), key=lambda c: c.chosen(1, 0)[0]
        )
        assert prepare_fold(scenario(), summer, whole, full)[1] == 1
        with pytest.raises(DataError, match=r"a fold leaves no row to train on; lower task\.folds"):
            prepare_fold(scenario(), summer, whole, empty)
