"""Number formats of sealed schemes by hand: bounds, the finest steps that fit, which ring is taken, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from codedfl.cipher.seals import FIELD_31, RINGS, Z_32, Z_64, FixedPoint, PrimeField
from codedfl.errors import CipherError, DataError, ScenarioError, TrainingError
from codedfl.privacy.release import Release
from codedfl.schemes import Public
from codedfl.schemes.rounding import relative_error
from codedfl.schemes.sealing import (
    ENERGY_SLACK,
    MODEL_STEPS,
    Formats,
    PointedProducts,
    check_bounds,
    choose_formats,
    noise_reach,
    summed,
)
from codedfl.task import Shard

FLOAT = np.dtype("float64")
PUBLIC = Public((4, 2), 3, 2, FLOAT, largest_feature=2.0, largest_target=3.0)
ABOVE = 1 + 4 * 2.0**-52
"""Devices add up to four products in float64."""
NOISE = Release.plan(
    epsilon=1.0,
    delta=1e-5,
    clip_features=2.0,
    clip_targets=3.0,
    features=3,
    outputs=2,
    devices=2,
    largest_rows=4,
    records=6,
)


def is_finest(form: FixedPoint, steps: int) -> bool:
    """Whether models of so many steps fit, and would not with one bit more for the data."""
    try:
        finer = replace(form, data_bits=form.data_bits + 1).model_budget
    except CipherError:
        finer = 0
    return finer < steps <= form.model_budget


class TestBounds:
    def test_of_one_device_and_of_all_by_the_largest_entries(self) -> None:
        """4 * 2 * 2 of 6 * 2 * 2, and 4 * 2 * 3 of 6 * 2 * 3."""
        found = Formats.choose(Z_64, PUBLIC)
        assert (found.gram.entry_bound, found.gram.sum_bound) == (16 * ABOVE, 24 * ABOVE)
        assert (found.moments.entry_bound, found.moments.sum_bound) == (24 * ABOVE, 36 * ABOVE)
        assert found.gram.summands == found.moments.summands == 2
        assert found.ring is Z_64

    def test_energies_bound_both_if_they_say_more(self) -> None:
        """Nothing is above 9, or above sqrt(9 * 16) = 12, with room for the rounding of energies."""
        found = Formats.choose(Z_64, replace(PUBLIC, feature_energy=9.0, target_energy=16.0))
        assert found.gram.entry_bound == found.gram.sum_bound == 9 * ABOVE * ENERGY_SLACK
        assert found.moments.entry_bound == found.moments.sum_bound == 12 * ABOVE * ENERGY_SLACK

    def test_noise_of_one_device_and_of_all_is_added(self) -> None:
        plain, noisy = (Formats.choose(Z_64, replace(PUBLIC, release=release)) for release in (None, NOISE))
        for one, other, reach in (
            (plain.gram, noisy.gram, NOISE.gram_reach),
            (plain.moments, noisy.moments, NOISE.moments_reach),
        ):
            assert other.entry_bound == one.entry_bound + reach(1)
            assert other.sum_bound == one.sum_bound + reach(2)
        assert noise_reach(PUBLIC) == ((0, 0), (0, 0))


class TestSteps:
    @pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
    def test_are_the_finest_that_leave_room_for_products(self, ring: PrimeField) -> None:
        found = Formats.choose(ring, PUBLIC)
        assert is_finest(found.gram, 3 * MODEL_STEPS[ring.bits])
        assert is_finest(found.moments, 1)

    def test_are_the_finest_that_hold_sums_where_nothing_is_multiplied(self) -> None:
        found = Formats.choose(FIELD_31, PUBLIC, multiplied=False)
        assert is_finest(found.gram, 1)
        assert choose_formats(PUBLIC, "auto", (FIELD_31,), multiplied=False) == found
        assert choose_formats(PUBLIC, "auto", (FIELD_31,)) == Formats.choose(FIELD_31, PUBLIC) != found

    def test_are_cut_for_entries_of_one_and_more(self) -> None:
        """Right-hand sides of one row are up to (1 + 2^-52) (1 - 2^-52), which is 1."""
        public = Public((1,), 1, 1, FLOAT, largest_target=1 - 2.0**-52)
        free, cut, loose = (Formats.choose(Z_64, public, data_bits=bits) for bits in (None, 9, 900))
        assert free.moments.entry_bound == 1
        assert (cut.gram.data_bits, cut.moments.data_bits) == (9, 9)
        assert loose == free

    def test_rounding_is_half_a_step_of_every_device(self) -> None:
        found = Formats.choose(FIELD_31, replace(PUBLIC, samples=(4, 2, 1)))
        steps = found.gram.data_step, found.moments.data_step
        rounding = found.rounding(replace(PUBLIC, samples=(4, 2, 1)))
        assert rounding.uniform == (1.5 * steps[0], 1.5 * steps[1])
        assert rounding.gram == 1.5 * steps[0] + relative_error(4, FLOAT) * 28
        assert rounding.moments == 1.5 * steps[1] + relative_error(4, FLOAT) * 42
        assert rounding.joint == 0
        assert rounding.cause == "3 devices and 3 features, which leave too few steps in GF(2^31-1)"


def test_codes_need_a_field() -> None:
    assert Formats.choose(FIELD_31, PUBLIC).field is FIELD_31
    with pytest.raises(TypeError, match="no prime field"):
        _ = Formats.choose(Z_32, PUBLIC).field


class TestChoice:
    wide = replace(PUBLIC, accuracy=1.0)
    narrow = replace(PUBLIC, dtype=np.dtype("float32"), accuracy=1.0)

    def test_of_float64_the_widest_ring_and_of_float32_the_first_that_is_accurate_enough(self) -> None:
        rings = (Z_32, Z_64)
        assert choose_formats(self.wide, "auto", rings).ring is Z_64
        assert choose_formats(self.narrow, "auto", rings).ring is Z_32
        exact = replace(self.narrow, accuracy=Formats.choose(Z_32, self.narrow).rounding(self.narrow).relative(PUBLIC))
        assert choose_formats(exact, "auto", rings).ring is Z_32
        assert choose_formats(replace(exact, accuracy=exact.accuracy * 0.999), "auto", rings).ring is Z_64
        assert choose_formats(replace(exact, accuracy=0.0), "auto", rings).ring is Z_64, "none is accurate enough"

    def test_the_ring_that_is_wanted(self) -> None:
        for public in (self.wide, self.narrow, replace(self.narrow, accuracy=0.0)):
            assert choose_formats(public, "Z_2^32", (Z_32, Z_64)).ring is Z_32
            assert choose_formats(public, "Z_2^64", (Z_32, Z_64)).ring is Z_64

    def test_each_ring_has_bits_of_its_own(self) -> None:
        bits = {Z_32: 3, Z_64: 5}
        for ring in bits:
            assert choose_formats(self.wide, ring.name, (Z_32, Z_64), data_bits=bits).gram.data_bits == bits[ring]
        assert choose_formats(self.wide, "Z_2^32", (), data_bits={Z_64: 5}) == Formats.choose(Z_32, self.wide)

    def test_a_ring_without_room_is_passed_over_unless_it_is_the_last(self) -> None:
        """Ten million features, and models of 16 steps: too much for 32 bits, whatever the data."""
        many = replace(self.narrow, features=2**28)
        assert choose_formats(many, "auto", (Z_32, Z_64)).ring is Z_64
        for wanted, rings in (("auto", (Z_32,)), ("Z_2^32", (Z_32, Z_64))):
            with pytest.raises(ScenarioError, match="268435456 features of 6 points on 2 devices do not fit"):
                choose_formats(many, wanted, rings)

    def test_steps_may_be_as_coarse_as_noise_allows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        public = replace(PUBLIC, release=NOISE)
        found = Formats.choose(Z_64, public)
        steps = found.gram.data_step, found.moments.data_step
        for coarsest, refused in (
            (steps, None),
            ((steps[0] * 0.99, steps[1]), "Gram matrices"),
            ((steps[0], steps[1] * 0.99), "right-hand sides"),
        ):
            monkeypatch.setattr(Release, "coarsest_steps", coarsest)
            if refused is None:
                assert choose_formats(public, "auto", (Z_64,)) == found
                continue
            with pytest.raises(ScenarioError, match=f"{refused} with noise would be rounded to steps of"):
                choose_formats(public, "auto", (Z_64,))


class TestBoundsOfShards:
    def test_data_at_the_bounds_are_taken(self) -> None:
        shard = Shard(np.array([[-2.0, 0.0, 1.0]]), np.array([[3.0, -3.0]]))
        check_bounds(PUBLIC, shard)
        check_bounds(PUBLIC, Shard(np.zeros((0, 3)), np.zeros((0, 2))))
        small = Shard(np.full((1, 3), -0.5), np.full((1, 2), 0.25))
        check_bounds(replace(PUBLIC, largest_feature=0.5, largest_target=0.25), small)
        with pytest.raises(DataError, match=r"a feature of size 2 exceeds the bound of 1\.9"):
            check_bounds(replace(PUBLIC, largest_feature=1.9), shard)
        with pytest.raises(DataError, match=r"a target of size 3 exceeds the bound of 2\.9"):
            check_bounds(replace(PUBLIC, largest_target=2.9), shard)

    @pytest.mark.parametrize("key", ["feature_energy", "target_energy"])
    def test_energies_are_those_of_the_largest_column(self, key: str) -> None:
        """The squares of 1 and 2^-10 are as much as 1 with the slack of 2^-20; that of 2^-26 more is too much."""
        check_bounds(replace(PUBLIC, **{key: 0.25}), Shard(np.full((1, 3), 0.5), np.full((1, 2), 0.5)))
        public = replace(PUBLIC, **{key: 1.0})
        rows = np.array([[1.0, 0.5], [2.0**-10, 0.5], [0.0, 0.0]])
        check_bounds(public, Shard(rows, rows))
        rows[2, 0] = 2.0**-26
        with pytest.raises(DataError, match=r"squares of a (feature|target) add up to 1 on this device"):
            check_bounds(public, Shard(rows, rows))


class TestPoint:
    """The server's side alone, with the data of one device: a Gram matrix, multiplied in the ring."""

    form = Formats.choose(Z_32, PUBLIC).gram

    def test_nothing_is_known_before_a_model_is_sent(self) -> None:
        products = PointedProducts(self.form, PUBLIC)
        assert products.asked.shape == (2, 3)
        assert not products.asked.any()
        assert products.asked.dtype == np.uint32
        assert np.array_equal(products.point, np.zeros((3, 2)))
        with pytest.raises(RuntimeError, match="no model has been sent"):
            products.take(np.zeros((2, 3), np.uint32))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_model_must_be_finite(self, value: float) -> None:
        model = np.zeros((3, 2))
        model[1, 1] = value
        with pytest.raises(TrainingError, match="diverged"):
            PointedProducts(self.form, PUBLIC).ask(model)

    def test_for_each_output_what_is_smaller_is_sent(self) -> None:
        """From a point at 1, output 0 moves by a hundredth; output 1 goes to a hundredth, so its model is sent."""
        gram = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 8.0]])
        held = self.form.encode(gram)
        products = PointedProducts(self.form, PUBLIC)
        for model in (np.ones((3, 2)), np.array([[1.01, 0.01], [0.99, -0.01], [1.0, 0.0]])):
            product = products.take(Z_32.product(products.ask(model), held))
            assert products.point == pytest.approx(model, abs=0.02 * np.abs(model - 1).max() + 0.02)
            assert product == pytest.approx(gram @ products.point, abs=1e-12)
        assert products.point == pytest.approx(model, abs=0.001), "both were sent in steps of a hundredth of their size"
        kept = PointedProducts(self.form, PUBLIC)
        kept.restore({"point": products.state()["point"].copy(), "product": products.state()["product"].copy()})
        again = model + 1e-4
        assert np.array_equal(kept.ask(again), products.ask(again))
        residues = Z_32.product(kept.asked, held)
        assert np.array_equal(kept.take(residues), products.take(residues))
        kept.restore({})
        assert np.array_equal(kept.state()["point"], products.state()["point"])


def test_sums_of_residues_wrap_and_leave_their_parts() -> None:
    parts = [np.array([2**32 - 1, 5], np.uint32), np.array([3, 6], np.uint32), np.array([4, 7], np.uint32)]
    assert summed(Z_32, parts).tolist() == [6, 18]
    assert parts[0].tolist() == [2**32 - 1, 5]
    assert summed(Z_32, parts[:1]).tolist() == [2**32 - 1, 5]
