"""What devices say of their data before a run: sizes, and bounds that hold."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.cipher.seals import FIELD_31
from codedfl.errors import DataError, ScenarioError
from codedfl.schemes import Public
from codedfl.schemes.facts import refuse_claims
from codedfl.schemes.sealing import Formats, check_bounds
from codedfl.task import Shard
from tiny import is_one_sentence, scenario

PLAIN = scenario({"features.kind": "none"})


def described(x: Any, y: Any = ((0.5,),)) -> schemes.Facts:
    return schemes.describe(PLAIN, Shard(np.array(x), np.array(y)))


@given(st.floats(min_value=0, max_value=2.0**1023, exclude_min=True))
@example(1024.0)
@example(math.nextafter(1024.0, math.inf))
@example(math.nextafter(1024.0, 0.0))
@example(5e-324)
@example(2.0**1023)
def test_a_bound_is_the_least_power_of_two_that_is_not_below(largest: float) -> None:
    bound = described([[-largest, largest / 2]]).largest_feature
    assert bound / 2 < largest <= bound or (bound == largest == 5e-324)
    assert math.frexp(bound)[0] == 0.5


def test_what_is_known_whatever_the_data_is_said_where_it_holds() -> None:
    """Nothing of zeros, sqrt(2 / d) of random Fourier features, 1 of targets; a power of two where data are larger."""
    assert described([[0.0, -0.0]], [[0.0]]).largest_feature == 0
    assert described([[0.0]], [[0.25]]).largest_target == described([[0.0]], [[-1.0]]).largest_target == 1
    assert described([[0.0]], [[-1.25]]).largest_target == 2
    known = math.sqrt(2 / 8)
    mapped = scenario({"features.kind": "rbf"})
    inside, outside = (
        schemes.describe(mapped, Shard(np.full((1, 8), value), np.zeros((1, 1)))) for value in (known, 1.25 * known)
    )
    assert known <= inside.largest_feature <= known * (1 + 1e-6)
    assert outside.largest_feature == 1


@pytest.mark.parametrize("target", [-1.0, 0.0, 1.0])
def test_a_bound_on_residuals_of_a_first_model_holds_for_all_targets_alike(target: float) -> None:
    """|y - x theta| <= 1 + |x|, whatever the targets are; it is reached where y = 1 and x theta = -1."""
    row, start = np.ones((1, 1)), np.array([[-1.0]])
    found = schemes.describe(PLAIN, Shard(row, np.array([[target]]) - row @ start), start)
    assert 2.0 <= found.largest_target <= 2.0 * (1 + 1e-6)
    assert found.largest_target == schemes.describe(PLAIN, Shard(row, row), start).largest_target


@pytest.mark.parametrize(
    ("kind", "features", "targets", "refused"),
    [
        ("regression", 0.5, 1e6, None),
        ("regression", 0.51, 1.0, "site-b claims features up to 0.51, where none can be above 0.5"),
        ("classification", 0.5, 1.0, None),
        ("classification", 0.5, 1.01, "site-b claims targets up to 1.01, where none can be above 1;"),
    ],
)
def test_no_device_claims_more_than_any_data_have(
    kind: str, features: float, targets: float, refused: str | None
) -> None:
    """Of eight random Fourier features none is above sqrt(2/8) = 1/2, whatever the rows; one-hot targets are 1."""
    mapped = scenario({"features.kind": "rbf"})
    usual = schemes.Facts(5, 8, 2, np.dtype("float64"), 0.5, 1.0)
    claims = [usual, replace(usual, largest_feature=features, largest_target=targets)]
    if refused is None:
        refuse_claims(mapped, claims, ("site-a", "site-b"), kind)
        return
    with pytest.raises(DataError, match=refused) as error:
        refuse_claims(mapped, claims, ("site-a", "site-b"), kind)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("where", ["features", "targets"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.7e308])
def test_numbers_without_a_bound_are_refused(value: float, where: str) -> None:
    good, bad = [[0.5, 0.25]], [[0.5, value]]
    with pytest.raises(DataError, match=f"{where} contain") as error:
        described(*((bad, good) if where == "features" else (good, bad)))
    assert is_one_sentence(str(error.value))


def test_the_largest_bound_serves_all() -> None:
    public = schemes.agree(PLAIN, [described([[0.25]], [[3.0]]), described([[0.75]], [[1.0]])])
    assert (public.largest_feature, public.largest_target, public.samples) == (1.0, 4.0, (1, 1))


@pytest.mark.parametrize("bound", [0.0, 1e-101, 1.5e100, math.inf, math.nan])
@pytest.mark.parametrize("where", ["largest_feature", "largest_target"])
def test_bounds_that_cannot_be_sealed_are_refused(bound: float, where: str) -> None:
    public = Public((5, 5), 4, 3, np.dtype("float64"), **{where: bound})
    with pytest.raises(ScenarioError, match="cannot be sealed") as error:
        Formats.choose(FIELD_31, public)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("bound", [1e-100, 1e100])
def test_bounds_at_the_limit_are_sealed(bound: float) -> None:
    public = Public((5, 5), 4, 3, np.dtype("float64"), largest_feature=bound, largest_target=bound)
    form = Formats.choose(FIELD_31, public).gram
    assert 0 < form.data_step < 10 * bound**2 <= form.sum_bound


@pytest.mark.parametrize("where", ["x", "y"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_device_seals_no_hole(value: float, where: str) -> None:
    arrays = {"x": np.full((5, 4), 0.5), "y": np.full((5, 3), 0.5)}
    check_bounds(Public((5, 5), 4, 3, np.dtype("float64")), Shard(**arrays))
    arrays[where][2, 1] = value
    with pytest.raises(DataError, match="exceeds the bound"):
        check_bounds(Public((5, 5), 4, 3, np.dtype("float64")), Shard(**arrays))


def test_energies_bound_sums_better_than_the_largest_entry() -> None:
    """One row of 100 is large: m F^2 = 100 * 64 against 1 * 64 + 99 * 1/16; for right-hand sides by Cauchy-Schwarz."""
    x, y = np.full((100, 2), 0.25), np.full((100, 1), 0.5)
    x[0], y[0] = 8.0, 4.0
    energies = 64 + 99 / 16, 16 + 99 / 4
    public = Public((100,), 2, 1, np.dtype("float64"), 8.0, 4.0)
    known = replace(public, feature_energy=energies[0], target_energy=energies[1])
    assert (public.gram_bound, public.moments_bound) == (6400, 3200)
    assert known.gram_bound == np.abs(x.T @ x).max() == energies[0]
    assert np.abs(x.T @ y).max() <= known.moments_bound == pytest.approx(math.sqrt(energies[0] * energies[1]))
    assert replace(public, target_energy=energies[1]).moments_bound == pytest.approx(math.sqrt(6400 * energies[1]))
    assert replace(public, feature_energy=1e9, target_energy=1e9).moments_bound == 3200
    wide, narrow = (Formats.choose(FIELD_31, each) for each in (public, known))
    assert narrow.gram.data_bits == wide.gram.data_bits + 6, "6400 / 70.2 is above 2^6"
    assert narrow.gram.decode_sum(narrow.gram.encode(x.T @ x)).max() == pytest.approx(energies[0], rel=1e-4)
    check_bounds(known, Shard(x, y))


@pytest.mark.parametrize(
    ("name", "changes"), [("feature", {"feature_energy": 3.9}), ("target", {"target_energy": 0.9})]
)
def test_more_energy_than_all_devices_have_is_refused(name: str, changes: dict[str, float]) -> None:
    """Squares of 1 + 1 + 1 + 1 and 1/4 + 1/4 + 1/4 + 1/4; rounding of the bound itself is allowed for."""
    shard = Shard(np.ones((4, 2)), np.full((4, 1), 0.5))
    public = Public((4,), 2, 1, np.dtype("float64"))
    check_bounds(replace(public, feature_energy=4.0 * (1 - 1e-9), target_energy=1.0), shard)
    with pytest.raises(DataError, match=f"squares of a {name} add up to") as error:
        check_bounds(replace(public, **changes), shard)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("energy", [0.0, 1e-250, 1e250])
def test_energies_that_no_format_holds_are_refused(energy: float) -> None:
    with pytest.raises(ScenarioError, match="cannot be sealed") as error:
        Formats.choose(FIELD_31, Public((4,), 2, 1, np.dtype("float64"), feature_energy=energy))
    assert is_one_sentence(str(error.value))
