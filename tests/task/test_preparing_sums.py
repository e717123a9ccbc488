"""Sums that devices compute over their rows, and the bounds that they publish before: by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.data import Column, FeatureMap, Preparation
from codedfl.errors import DataError
from codedfl.task.folds import DeviceRows, RowChoice
from codedfl.task.preparing import (
    COLUMNS,
    COUNTS,
    ERRORS,
    FEATURES,
    PlainSummer,
    Summer,
    SumRequest,
    bounds_of,
    scales_of,
    sums_of,
)

NONE = FeatureMap.create("none", inputs=2, dtype="float64")
ROWS = DeviceRows(np.array([[1.0, -5.0], [3.0, np.nan], [4.0, 2.0]]), np.array([[10.0], [7.0], [2.0]]))
ORIGIN = {"origin": np.array([2.0, 1.0]), "target_origin": np.array([4.0])}
HALVED = Preparation(np.zeros(2), np.full(2, 2.0), np.array([0.0, 6.0]), None, None, np.array([1.0]), np.array([4.0]))
"""Inputs are halved, a missing second one counts as 6; outputs are 4 times as large and larger by 1."""
MODELS = np.array([[[1.0], [1.0]], [[0.0], [-0.5]]])
"""Outputs on the rows: 4 (x_0 + x_1) / 2 + 1 = -7, 19, 13, and -x_1 + 1 = 6, -5, -1."""
CENTER = {"models": MODELS[1:], "center": np.array([9.5])}
HELD_OUT, TRAINING = (RowChoice(1, 2, 0, held_out) for held_out in (True, False))


def request(kind: str, **arrays: Any) -> SumRequest:
    return SumRequest(kind, arrays, None if kind == COLUMNS else HALVED)


class TestSums:
    def test_of_columns_about_an_origin(self) -> None:
        """Without the missing value: -1, 1, 2 and -6, 1; targets 6, 3, -2."""
        found = sums_of(request(COLUMNS, **ORIGIN), ROWS, NONE, 0)
        assert found.tolist() == [2, -5, 6, 37, 3, 2, 7, 49, 3]

    def test_of_features(self) -> None:
        assert sums_of(request(FEATURES), ROWS, NONE, 0).tolist() == [4.0, 1.5]

    def test_features_are_added_in_float64(self) -> None:
        """In float32, 1 beside 2^24 would be lost."""
        rows = DeviceRows(np.array([[2.0**25, 0], [2.0, 0], [2.0, 0]]), np.zeros((3, 1)))
        single = FeatureMap.create("none", inputs=2, dtype="float32")
        assert sums_of(request(FEATURES), rows, single, 0).tolist() == [2.0**24 + 2, 0.0]

    def test_of_squared_errors(self) -> None:
        """Errors are -17, 12, 11 and -4, -12, -3."""
        assert sums_of(request(ERRORS, models=MODELS), ROWS, NONE, 0).tolist() == [289 + 144 + 121, 16 + 144 + 9, 3]

    def test_squared_errors_are_a_mean_over_outputs(self) -> None:
        """Outputs are 0, targets 3, 1 and 2, 4: means (9 + 1) / 2 and (4 + 16) / 2."""
        rows = DeviceRows(np.ones((2, 2)), np.array([[3.0, 1.0], [2.0, 4.0]]))
        wanted = SumRequest(ERRORS, {"models": np.zeros((1, 2, 2))}, Preparation.identity(2, 2))
        assert sums_of(wanted, rows, NONE, 0).tolist() == [15, 2]
        assert bounds_of(wanted, rows, NONE, 0).tolist() == [16]

    def test_of_a_regression(self) -> None:
        """Targets less 9.5 are 0.5, -2.5, -7.5, errors 4, 12, 3."""
        found = sums_of(request(COUNTS, **CENTER), ROWS, NONE, 0)
        assert found.tolist() == [3, -9.5, 0.25 + 6.25 + 56.25, 19, 16 + 144 + 9]

    def test_of_a_classification(self) -> None:
        """Row i, column j: rows of class i whose output j is the largest."""
        rows = DeviceRows(np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 0.0]]), np.array([[1.0, 0], [0, 1], [0, 1]]))
        wanted = SumRequest(COUNTS, {"models": np.eye(2)[None]}, Preparation.identity(2, 2))
        assert sums_of(wanted, rows, NONE, 0).tolist() == [0, 1, 2, 0]
        assert bounds_of(wanted, rows, NONE, 0).shape == (0,)

    @pytest.mark.parametrize("choice", [HELD_OUT, TRAINING])
    @pytest.mark.parametrize("kind", [COLUMNS, FEATURES, ERRORS, COUNTS])
    def test_only_chosen_rows_count(self, kind: str, choice: RowChoice) -> None:
        arrays: dict[str, Any] = {COLUMNS: ORIGIN, FEATURES: {}, ERRORS: {"models": MODELS}, COUNTS: CENTER}[kind]
        wanted, chosen = request(kind, **arrays), ROWS.where(choice.chosen(3, 5))
        assert 0 < len(chosen.x) < 3
        some = SumRequest(kind, wanted.arrays, wanted.preparation, choice)
        assert sums_of(some, ROWS, NONE, 5).tolist() == sums_of(wanted, chosen, NONE, 0).tolist()
        assert bounds_of(some, ROWS, NONE, 5).tolist() == bounds_of(wanted, chosen, NONE, 0).tolist()


class TestBounds:
    def test_of_columns(self) -> None:
        """Largest sizes about the origin are 2, 6 and 6."""
        assert bounds_of(request(COLUMNS, **ORIGIN), ROWS, NONE, 0).tolist() == [2, 8, 8]

    def test_of_features_nothing_is_published(self) -> None:
        assert bounds_of(request(FEATURES), ROWS, NONE, 0).shape == (0,)

    def test_of_squared_errors(self) -> None:
        assert bounds_of(request(ERRORS, models=MODELS), ROWS, NONE, 0).tolist() == [512, 256]

    def test_of_a_regression(self) -> None:
        """Largest sizes are 7.5 of targets less the centre, 12 of errors; 7 of those of 2 x_0 + 1."""
        assert bounds_of(request(COUNTS, **CENTER), ROWS, NONE, 0).tolist() == [8, 16]
        other = {**CENTER, "models": np.array([[[1.0], [0.0]]])}
        assert bounds_of(request(COUNTS, **other), ROWS, NONE, 0).tolist() == [8, 8]

    @pytest.mark.parametrize(("kind", "arrays"), [(COLUMNS, ORIGIN), (ERRORS, {"models": MODELS}), (COUNTS, CENTER)])
    def test_without_rows_they_are_zero(self, kind: str, arrays: Any) -> None:
        found = bounds_of(request(kind, **arrays), ROWS.where(np.zeros(3, bool)), NONE, 0)
        assert len(found) > 0 and not found.any()

    @pytest.mark.parametrize(
        ("value", "bound"),
        [
            *((0.0, 0.0), (0.25, 0.25), (0.3, 0.5), (-1.0, 1.0), (1.0 + 2**-52, 2.0), (-3.0, 4.0), (4.0, 4.0)),
            *((1e140, 2.0**466), (1e-140, 2.0**-465)),
        ],
    )
    def test_they_are_the_least_powers_of_two_that_are_not_smaller(self, value: float, bound: float) -> None:
        """2^465 < 1e140 < 2^466 and so 2^-466 < 1e-140 < 2^-465."""
        rows = DeviceRows(np.array([[value, 0.0]]), np.zeros((1, 1)))
        origin = {"origin": np.zeros(2), "target_origin": np.zeros(1)}
        assert bounds_of(request(COLUMNS, **origin), rows, NONE, 0).tolist() == [bound, 0, 0]

    @pytest.mark.parametrize("value", [np.nextafter(1e140, 2e140), np.nextafter(1e-140, 0), np.inf])
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_numbers_whose_squares_cannot_be_summed_are_refused(self, value: float, place: int) -> None:
        row = np.ones((1, 3))
        row[0, place] = value
        origin = {"origin": np.zeros(2), "target_origin": np.zeros(1)}
        with pytest.raises(DataError, match=rf"input or target {place} \(counted from 0\) holds a number of size"):
            bounds_of(request(COLUMNS, **origin), DeviceRows(row[:, :2], row[:, 2:]), NONE, 0)


class TestScales:
    def scales(self, wanted: SumRequest, bounds: Sequence[float], shape: tuple[int, int] = (2, 1)) -> list[float]:
        return scales_of(wanted, np.array(bounds, np.float64), shape, 10, NONE).tolist()

    def test_of_columns_and_squared_errors(self) -> None:
        """Rows times bounds, of which 0 counts as 1, and of columns times their squares."""
        found = self.scales(request(COLUMNS, **ORIGIN), [4, 0, 0.5])
        assert found == [40, 10, 160, 10, 10, 10, 5, 2.5, 10]
        assert self.scales(request(ERRORS, models=MODELS), [4, 0]) == [40, 10, 10]

    def test_of_features(self) -> None:
        kernel = FeatureMap.create("rbf", inputs=2, dimension=8, dtype="float64")
        found = scales_of(request(FEATURES), np.zeros(0), (2, 1), 10, kernel)
        assert found == pytest.approx(np.full(8, 10 * np.sqrt(2 / 8)), rel=2e-6)
        assert (found >= 5).all()

    def test_counts_over_no_rows_are_bounded_as_of_one(self) -> None:
        wanted = request(COUNTS, models=MODELS)
        assert scales_of(wanted, np.zeros(0), (2, 1), 0, NONE).tolist() == [2.0]


@pytest.fixture
def devices() -> list[DeviceRows]:
    return [ROWS, DeviceRows(np.array([[7.0, 1.0]]), np.array([[4.5]])), ROWS.where(np.zeros(3, bool))]


@pytest.mark.parametrize("kind", [COLUMNS, ERRORS, COUNTS])
def test_totals_are_those_of_all_rows_together(kind: str, devices: list[DeviceRows]) -> None:
    arrays: dict[str, Any] = {COLUMNS: ORIGIN, ERRORS: {"models": MODELS}, COUNTS: CENTER}[kind]
    summer, wanted = PlainSummer(devices, NONE), request(kind, **arrays)
    assert (summer.samples, summer.shape) == (4, (2, 1))
    together = DeviceRows(*(np.concatenate([getattr(rows, name) for rows in devices]) for name in "xy"))
    assert summer.total(wanted) == pytest.approx(sums_of(wanted, together, NONE, 0), rel=1e-15)
    bounds = [bounds_of(wanted, rows, NONE, 0).tolist() for rows in devices]
    assert summer.claims(wanted).tolist() == bounds


def test_each_device_has_its_own_rows_chosen(devices: list[DeviceRows]) -> None:
    """Which rows are chosen depends on the number of the device."""
    chosen = [rows.where(HELD_OUT.chosen(len(rows.x), device)) for device, rows in enumerate([ROWS] * 4)]
    assert len({rows.x.tobytes() for rows in chosen}) > 1
    wanted = request(COLUMNS, **ORIGIN)
    some = SumRequest(COLUMNS, ORIGIN, rows=HELD_OUT)
    assert PlainSummer([ROWS] * 4, NONE).total(some).tolist() == PlainSummer(chosen, NONE).total(wanted).tolist()
    expected = [bounds_of(wanted, rows, NONE, 0).tolist() for rows in chosen]
    assert PlainSummer([ROWS] * 4, NONE).claims(some).tolist() == expected


class Told(Summer):
    """Adds up sums over two rows, one at each of two devices; the bounds that these publish are given."""

    def __init__(self, rows: DeviceRows, claims: Sequence[Sequence[float]], error: float = 0.0) -> None:
        self._rows, self._claims, self.error = rows, np.array(claims, np.float64), error
        self.features, self.samples, self.shape = NONE, 2, (rows.x.shape[1], rows.y.shape[1])

    def claims(self, request: SumRequest) -> np.ndarray:
        return self._claims

    def add(self, request: SumRequest, scales: np.ndarray) -> np.ndarray:
        return 2 * sums_of(request, self._rows, self.features, 0) / scales


ROW = DeviceRows(np.array([[3.0, 2.0]]), np.array([[5.0]]))
ZERO = {"origin": np.zeros(2), "target_origin": np.zeros(1)}
IDENTITY = Preparation.identity(2, 1)
REGRESSION = SumRequest(COUNTS, {"models": np.zeros((1, 2, 1)), "center": np.ones(1)}, IDENTITY)
ABOVE = 1 + 2e-6
"""Just above the margin of 2^-20 that rounding is given."""


class TestInflatedClaims:
    """Both devices have the same row: sums of squares are twice those of the row."""

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_of_columns(self, place: int) -> None:
        """Claims above 2 sqrt(2) times 3, 2 and 5 are disproved."""
        most = 2 * np.sqrt(2) * np.array([3.0, 2.0, 5.0])
        wanted, claimed = SumRequest(COLUMNS, ZERO), most.copy()
        assert Told(ROW, [claimed, most]).total(wanted) == pytest.approx([6, 4, 18, 8, 2, 2, 10, 50, 2])
        claimed[place] *= ABOVE
        what = f"input {place} \\(counted from 0\\)" if place < 2 else "targets or errors"
        says = f"device 1 claims that {what} reach {claimed[place]:g}, .* say at most {most[place] / 2:g};"
        with pytest.raises(DataError, match=says):
            Told(ROW, [most, claimed]).total(wanted)

    def test_names_are_said_where_they_are_known(self) -> None:
        for claimed, says in (([4, 99, 8], "south claims that the column 'cost' reach 99"), ([4, 2, 99], "or errors")):
            summer = Told(ROW, [[4, 2, 8], claimed])
            summer.columns, summer.names = (Column("age"), Column("cost")), ("north", "south")
            with pytest.raises(DataError, match=says):
                summer.total(SumRequest(COLUMNS, ZERO))

    def test_of_squared_errors(self) -> None:
        """Models have the squared errors 25 and 4 on each of two rows: no claims above 100 and 16 are possible."""
        wanted = SumRequest(ERRORS, {"models": np.array([[[0.0], [0.0]], [[1.0], [0.0]]])}, IDENTITY)
        assert Told(ROW, [[100.0, 4], [32, 16]]).total(wanted).tolist() == [50, 8, 2]
        for claimed in ([100 * ABOVE, 4], [32, 16 * ABOVE]):
            with pytest.raises(DataError, match="device 0 claims that targets or errors reach 1"):
                Told(ROW, [claimed, [32.0, 4.0]]).total(wanted)

    def test_of_a_regression(self) -> None:
        """Targets less their centre are 4, errors 5."""
        most = 2 * np.sqrt(2) * np.array([4.0, 5.0])
        assert Told(ROW, [most, most]).total(REGRESSION) == pytest.approx([2, 8, 32, 10, 50])
        for place in (0, 1):
            claimed = most.copy()
            claimed[place] *= ABOVE
            with pytest.raises(DataError, match="device 1 claims that targets or errors reach"):
                Told(ROW, [most, claimed]).total(REGRESSION)

    def test_where_nothing_is_claimed_nothing_is_refused(self) -> None:
        wanted = SumRequest(COUNTS, {"models": np.zeros((1, 2, 2))}, Preparation.identity(2, 2))
        row = DeviceRows(np.array([[3.0, 2.0]]), np.array([[1.0, 0.0]]))
        assert Told(row, [[], []]).total(wanted).tolist() == [2, 0, 0, 0]

    def test_the_error_of_sums_is_granted(self) -> None:
        """Claims of 1 make scales of 2, so that sums of zeros may be off by 2 * error: 1 is at most 2 sqrt(1/4)."""
        row, wanted = DeviceRows(np.zeros((1, 2)), np.zeros((1, 1))), SumRequest(COLUMNS, ZERO)
        assert Told(row, [[1, 1, 1]], 0.125).total(wanted).tolist() == [0, 0, 0, 0, 2, 2, 0, 0, 2]
        with pytest.raises(DataError, match="claims that input 0"):
            Told(row, [[1, 1, 1]], 0.1249).total(wanted)

    def test_sums_of_squares_that_an_error_makes_negative_disprove_any_claim(self) -> None:
        row, counted = DeviceRows(np.zeros((1, 2)), np.zeros((1, 1))), dict(REGRESSION.arrays, center=np.zeros(1))
        for wanted, claims, what in (
            (SumRequest(COLUMNS, ZERO), [0, 1, 0], r"input 1 \(counted from 0\)"),
            (SumRequest(COUNTS, counted, IDENTITY), [1, 0], "targets or errors"),
        ):
            assert Told(row, [[0] * len(claims)], -0.1).total(wanted)[:2].max() <= 2
            with pytest.raises(DataError, match=f"claims that {what} reach 1, .* say at most 0;"):
                Told(row, [claims], -0.1).total(wanted)


def test_sums_are_scaled_by_the_largest_bounds() -> None:
    """Those of rows, columns, targets and their squares, over two rows."""
    summer = Told(ROW, [[4, 2, 8], [3, 2, 5]])
    seen: list[np.ndarray] = []
    add = summer.add
    summer.add = lambda request, scales: (seen.append(scales), add(request, scales))[1]  # type: ignore[method-assign]
    summer.total(SumRequest(COLUMNS, ZERO))
    assert [scales.tolist() for scales in seen] == [[8, 4, 32, 8, 2, 2, 16, 128, 2]]
