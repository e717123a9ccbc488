"""Bounds on rounding errors by hand: relative to the size of gradients, added up, and refused where they are large."""

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from codedfl.errors import ScenarioError
from codedfl.schemes import Public
from codedfl.schemes.rounding import (
    FLOAT64,
    NOTHING,
    OTHER,
    Rounding,
    check_rounding,
    reference_rounding,
    refuse_outlier,
    relative_error,
)

PUBLIC = Public((10,) * 3, 4, 2, np.dtype("float64"), largest_feature=8.0, claims=((1.0, 1.0), (1.0, 1.0), (8.0, 1.0)))


def test_uniform_steps_of_both_sums_count_against_the_size_that_is_typical() -> None:
    """By hand: 30 rows of typical features up to 1 sum up to 30; sqrt(d) = 2 times the error of a Gram matrix."""
    assert Rounding(0.0, 0.0, uniform=(0.0, 3.0)).at_typical(PUBLIC) == pytest.approx(3 / 30)
    assert Rounding(0.0, 0.0, uniform=(6.0, 0.0)).at_typical(PUBLIC) == pytest.approx(2 * 6 / 30)
    assert Rounding(0.0, 0.0, joint=6.0).at_typical(PUBLIC) == pytest.approx(2 * 6 / 30)
    assert Rounding(0.0, 0.0, joint=1.5, uniform=(4.5, 3.0)).at_typical(PUBLIC) == pytest.approx((3 + 2 * 6) / 30)


def test_where_all_publish_the_same_nothing_is_added() -> None:
    alike = replace(PUBLIC, claims=((8.0, 1.0),) * 3)
    assert Rounding(0.0, 0.0, joint=1.5, uniform=(4.5, 3.0)).at_typical(alike) == 0


def test_errors_of_two_steps_add_up() -> None:
    second = Rounding(0.5, 8.0, joint=0.25, uniform=(1.0, 64.0), cause="the second", advice="widen it")
    assert Rounding(2.0, 4.0, joint=16.0, uniform=(32.0, 128.0), cause="the first").beside(second) == Rounding(
        2.5, 12.0, joint=16.25, uniform=(33.0, 192.0)
    )
    found = NOTHING.beside(second)
    assert (found, found.cause, found.advice) == (second, "the second", "widen it")


def with_outlier(features: tuple[float, ...], targets: tuple[float, ...], share: float = 0.0) -> Public:
    """Devices of ten rows each that publish these bounds, with one output."""
    claims = tuple(zip(features, targets, strict=True))
    return Public(
        (10,) * len(claims),
        4,
        1,
        np.dtype("float64"),
        largest_feature=max(features),
        largest_target=max(targets),
        claims=claims,
        bound_share=share,
    )


class TestSizes:
    """100 rows of features up to 2 and targets up to 3: sums are up to 400 and 600, and sqrt(d) is 2."""

    public = Public((60, 40), 4, 2, np.dtype("float32"), largest_feature=2.0, largest_target=3.0)

    def test_errors_of_both_sums_are_relative_to_their_sizes(self) -> None:
        found = Rounding(gram=5.0, moments=12.0, joint=3.0)
        assert found.relative(self.public) == pytest.approx(2 * (5 + 3) / 400 + 12 / 600, rel=1e-12, abs=0)

    def test_an_error_in_a_sum_of_zeros_is_without_bound(self) -> None:
        nothing = replace(self.public, largest_feature=0.0)
        assert Rounding(0.0, 0.0).relative(nothing) == 0
        assert Rounding(1e-9, 0.0).relative(nothing) == math.inf
        unit = Public((1,), 1, 1, np.dtype("float64"))
        assert Rounding(0.25, 0.0).relative(unit) == 0.25

    def test_as_accurate_as_demanded_is_accurate_enough(self) -> None:
        """The share is 1/2 of the whole size and 1/4 of the typical size: bounds of 8, of which 1 is typical."""
        found = Rounding(gram=0.0, moments=120.0, uniform=(0.0, 60.0))
        public = with_outlier((1.0, 1.0, 8.0), (1.0, 1.0, 1.0), share=2.0)
        demanded = replace(public, accuracy=0.5)
        assert (found.relative(public), found.at_typical(public)) == (0.5, 2.0)
        assert found.suffices(demanded)
        assert not found.suffices(replace(demanded, accuracy=math.nextafter(0.5, 0)))
        assert not found.suffices(replace(demanded, bound_share=math.nextafter(2.0, 0)))

    def test_entries_of_gradients_by_the_formula_of_the_class(self) -> None:
        norms = np.array([[1.0, 5.0], [4.0, 2.0]])
        found = Rounding(gram=3.0, moments=7.0, joint=2.0).entries(norms, 10)
        assert found == pytest.approx(np.array([[3 + 10 + 7, 15 + 10 + 7], [12 + 8 + 7, 6 + 8 + 7]]) / 10)


class TestFurtherRoundings:
    public = Public((60, 40), 4, 2, np.dtype("float32"), largest_feature=2.0, largest_target=3.0)
    share = relative_error(100, np.float32)
    told = "float32 arithmetic on up to 60 rows"

    def test_add_their_share_of_both_sums(self) -> None:
        before = Rounding(gram=0.5, moments=0.25, joint=0.125, uniform=(0.5, 0.25))
        found = before.plus(self.public, 100)
        assert found.gram == 0.5 + self.share * 400
        assert found.moments == 0.25 + self.share * 600
        assert (found.joint, found.uniform) == (0.125, (0.5, 0.25))

    def test_are_those_of_the_messages_unless_another_format_is_named(self) -> None:
        assert NOTHING.plus(self.public, 9).gram == relative_error(9, np.float32) * 400
        assert NOTHING.plus(self.public, 9, np.float64).gram == relative_error(9, np.float64) * 400

    @pytest.mark.parametrize(
        ("more", "cause"),
        [(0.999, told), (1.0, told), (1.001, "steps"), (100.0, "steps")],
    )
    def test_are_the_cause_if_they_are_at_least_half_of_the_error(self, more: float, cause: str) -> None:
        before = Rounding(more * self.share * 400, more * self.share * 600, cause="steps", advice="wait")
        found = before.plus(self.public, 100)
        assert found.cause == cause
        assert (found.advice == "wait") == (cause == "steps")

    def test_what_outputs_share_is_no_part_of_them(self) -> None:
        assert Rounding(0.0, 0.0, joint=1.9, cause="steps").plus(self.public, 100).cause == "steps"
        assert Rounding(0.0, 0.0, joint=1e-9, cause="steps").plus(self.public, 100).cause == self.told

    def test_wider_numbers_are_advised_where_there_are_any(self) -> None:
        wide = replace(self.public, dtype=np.dtype("float64"))
        assert NOTHING.plus(self.public, 100).advice == FLOAT64
        assert NOTHING.plus(wide, 100).advice == OTHER
        assert NOTHING.plus(wide, 100).cause == "float64 arithmetic on up to 60 rows"


class TestChains:
    """The lesser of k u / (1 - k u), and of exp(10 sqrt(k) u + k u^2 / (1 - u)) - 1, which holds for any k."""

    @pytest.mark.parametrize("count", [1, 10, 90])
    def test_short_ones_have_the_certain_bound(self, count: int) -> None:
        unit = 2.0**-24
        assert relative_error(count, np.float32) == pytest.approx(count * unit / (1 - count * unit), rel=1e-14, abs=0)

    @pytest.mark.parametrize(
        ("dtype", "unit", "count"),
        [
            ("float32", 2.0**-24, 10**6),
            ("float32", 2.0**-24, 20_000_000),
            ("float16", 2.0**-11, 400),
            ("float16", 2.0**-11, 2500),
            ("float64", 2.0**-53, 10**9),
        ],
    )
    def test_long_ones_have_the_likely_bound(self, dtype: str, unit: float, count: int) -> None:
        """Twenty million roundings of float32 are more than 1 / u: nothing is certain. Half precision shows u^2."""
        exponent = Fraction(10) * Fraction(math.sqrt(count)) * Fraction(unit)
        exponent += count * Fraction(unit) ** 2 / (1 - Fraction(unit))
        assert relative_error(count, dtype) == pytest.approx(math.expm1(exponent), rel=1e-12, abs=0)

    def test_any_chain_has_a_finite_bound(self) -> None:
        assert 1e300 < relative_error(10**30, np.float32) < math.inf


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_the_reference_adds_rows_of_the_largest_device_and_of_small_ones(dtype: str, unit: float) -> None:
    """By hand: 30 rows, 5 * 3 of small devices and 2; servers in float64: 3 features, 2 * 2 devices, 4 an epoch, 8."""
    public = Public((30, 20), 3, 1, np.dtype(dtype), largest_target=4.0)
    for epoch in (1, 7):
        found = reference_rounding(public, epoch)
        share = 47 * unit / (1 - 47 * unit) + (15 + 4 * epoch) * 2.0**-53 / (1 - (15 + 4 * epoch) * 2.0**-53)
        assert found.gram == pytest.approx(share * 50, rel=1e-12, abs=0)
        assert found.moments == pytest.approx(share * 50 * 4, rel=1e-12, abs=0)
        if dtype == "float32":
            assert found.gram - relative_error(47, dtype) * 50 == pytest.approx((15 + 4 * epoch) * 2.0**-53 * 50, abs=0)


class TestRefusals:
    def test_an_error_as_large_as_the_accuracy_is_no_reason(self) -> None:
        public = Public((60, 40), 4, 2, np.dtype("float32"), accuracy=0.25)
        at_limit = SimpleNamespace(name="mine", public=public, exact=True, rounding=Rounding(0.0, 25.0, cause="haste"))
        check_rounding(at_limit)
        beyond = SimpleNamespace(**vars(at_limit) | {"rounding": Rounding(0.0, 25.01, cause="haste", advice="wait")})
        with pytest.raises(ScenarioError, match=r"'mine' could be off by 0\.25 of .* 0\.25 .* of haste; wait"):
            check_rounding(beyond)
        check_rounding(SimpleNamespace(**vars(beyond) | {"exact": False}))
        undefined = SimpleNamespace(**vars(beyond) | {"rounding": Rounding(math.nan, 0.0)})
        with pytest.raises(ScenarioError, match="could be off by nan"):
            check_rounding(undefined)

    def test_an_outlier_is_refused_with_the_same_check(self) -> None:
        public = replace(with_outlier((1.0, 1.0, 8.0), (1.0,) * 3, share=0.1), accuracy=1.0)
        steps = Rounding(0.0, 6.0, uniform=(0.0, 6.0))
        with pytest.raises(ScenarioError, match=r"device 2 has features up to 8, where 1 is the median"):
            check_rounding(SimpleNamespace(name="mine", public=public, exact=True, rounding=steps))

    @pytest.mark.parametrize(
        ("features", "targets", "said"),
        [
            ((1.0, 8.0, 1.0), (1.0, 1.0, 4.0), "device 1 has features up to 8, where 1 is"),
            ((2.0, 1.0, 1.0), (1.0, 1.0, 4.0), "device 2 has targets up to 4, where 1 is"),
            ((4.0, 1.0, 1.0), (1.0, 1.0, 4.0), "device 0 has features up to 4, where 1 is"),
            ((5.0, 8.0, 5.0), (3.0, 1.0, 1.0), "device 0 has targets up to 3, where 1 is"),
            ((1.0, 9.0, 1.0), (50.0, 50.0, 60.0), "device 1 has features up to 9, where 1 is"),
            ((50.0, 50.0, 60.0), (1.0, 1.0, 9.0), "device 2 has targets up to 9, where 1 is"),
        ],
    )
    def test_the_device_whose_bound_is_furthest_from_the_median_is_named(
        self, features: tuple[float, ...], targets: tuple[float, ...], said: str
    ) -> None:
        """Of features and targets the ones with the larger ratio to the median; features if both are alike."""
        public = with_outlier(features, targets)
        with pytest.raises(ScenarioError, match=said):
            refuse_outlier("mine", public, Rounding(0.0, 1.0, uniform=(0.0, 1.0)))

    def test_the_share_that_is_allowed_is_no_reason(self) -> None:
        """Steps of 6 of a typical size of 30 are a fifth."""
        public = with_outlier((1.0, 1.0, 8.0), (1.0,) * 3, share=0.2)
        steps = Rounding(0.0, 6.0, uniform=(0.0, 6.0))
        refuse_outlier("mine", public, steps)
        with pytest.raises(ScenarioError, match=r"'mine' could be off by 0\.2 of .* more than the 0\.19 of"):
            refuse_outlier("mine", replace(public, bound_share=0.19), steps)
