"""What every party knows before a run, and what follows from it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.masks.simulated import SimulatedKey
from codedfl.schemes import Public

PUBLIC = Public((30, 50, 20), 4, 2, np.dtype("float64"), largest_feature=2.0, largest_target=3.0)


def test_sizes() -> None:
    assert (PUBLIC.devices, PUBLIC.total, PUBLIC.most) == (3, 100, 50)
    assert PUBLIC.model_layout == (np.dtype("float64"), (4, 2))


def test_devices_are_called_by_their_names_or_numbers() -> None:
    assert PUBLIC.name(1) == "device 1"
    assert replace(PUBLIC, names=("north", "south", "west")).name(1) == "south"


def test_a_device_has_a_nonce_of_a_session_on_real_sites_only() -> None:
    assert PUBLIC.nonce(1) == b""
    assert replace(PUBLIC, nonces=(b"a", b"b", b"c")).nonce(1) == b"b"


@pytest.mark.parametrize("of_sites", [{"signed": True}, {"nonces": (b"", b"", b"c")}, {"announced": {}}], ids=str)
def test_real_sites_do_not_simulate_their_keys(of_sites: dict[str, Any]) -> None:
    replace(PUBLIC, **of_sites)
    simulated = replace(PUBLIC, agreement=SimulatedKey)
    with pytest.raises(TypeError, match="X25519"):
        replace(simulated, **of_sites)


class TestTypical:
    """The lower median of the bounds above zero that devices publish, features and targets apart."""

    def test_of_an_even_number_the_lower_one_in_the_middle(self) -> None:
        found = replace(PUBLIC, claims=((1.0, 3.0), (2.0, 0.5), (0.25, 1.0), (0.5, 2.0))).typical
        assert (found.largest_feature, found.largest_target) == (0.5, 1.0)

    def test_zeros_do_not_count(self) -> None:
        found = replace(PUBLIC, claims=((0.0, 0.0), (0.0, 3.0), (2.0, 0.0), (0.0, 3.0), (1.5, 0.25))).typical
        assert (found.largest_feature, found.largest_target) == (1.5, 3.0)

    @pytest.mark.parametrize("claims", [(), ((0.0, 0.0),) * 3])
    def test_the_largest_where_nobody_says_more(self, claims: tuple[tuple[float, float], ...]) -> None:
        found = replace(PUBLIC, claims=claims).typical
        assert (found.largest_feature, found.largest_target) == (2.0, 3.0)

    def test_all_else_stays(self) -> None:
        assert replace(PUBLIC.typical, largest_feature=2.0, largest_target=3.0) == PUBLIC


class TestBoundsOnSums:
    """m F^2 = 400 and m F T = 600, or by energies: of right-hand sides the root of both, by Cauchy and Schwarz."""

    def test_by_the_largest_entries(self) -> None:
        assert (PUBLIC.gram_bound, PUBLIC.moments_bound) == (400, 600)
        assert replace(PUBLIC, largest_feature=5.0).gram_bound == 2500

    @pytest.mark.parametrize(("energy", "bound"), [(399.0, 399), (401.0, 400), (0.0, 0)])
    def test_the_energy_of_features_if_it_is_less(self, energy: float, bound: float) -> None:
        assert replace(PUBLIC, feature_energy=energy).gram_bound == bound

    def test_one_energy_and_the_largest_entry_of_the_other(self) -> None:
        assert replace(PUBLIC, feature_energy=16.0).moments_bound == pytest.approx(math.sqrt(16 * 900))
        assert replace(PUBLIC, target_energy=25.0).moments_bound == pytest.approx(math.sqrt(400 * 25))
        assert replace(PUBLIC, feature_energy=16.0, target_energy=25.0).moments_bound == 20
        assert replace(PUBLIC, feature_energy=400.0, target_energy=901.0).moments_bound == 600
