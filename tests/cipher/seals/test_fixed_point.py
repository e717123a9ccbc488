"""Fixed point: the homomorphic laws, rounding errors, proven bounds, and the band that finds overflow."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.seals import FIELD_31, RINGS, Z_32, Z_64, FixedPoint, Ring, unpack_upper
from codedfl.errors import CipherError

rings = st.sampled_from(list(RINGS.values()))
seeds = st.integers(0, 2**32 - 1)
every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


@st.composite
def formats(draw: st.DrawFn) -> tuple[FixedPoint, int]:
    """A format and the dimension it was chosen for."""
    dimension = draw(st.integers(1, 30))
    bound = draw(st.floats(1e-6, 1e6))
    steps = draw(st.one_of(st.none(), st.floats(1, 100)))
    ring, summands = draw(rings), draw(st.integers(1, 20))
    return FixedPoint.choose(
        ring, entry_bound=bound, summands=summands, dimension=dimension, model_steps=steps
    ), dimension


def data(numbers: FixedPoint, rng: np.random.Generator, dimension: int, extreme: bool) -> np.ndarray:
    """Entries all over the allowed range, or all at its end, where sums are largest."""
    A = rng.uniform(-1, 1, (dimension, dimension)) * numbers.entry_bound
    return np.full_like(A, numbers.entry_bound) if extreme else A


def steps_of(A: np.ndarray, bits: int) -> np.ndarray:
    """A in steps of 2^-bits, rounded by Python's integers and fractions."""
    return np.array([[round(Fraction(float(x)) * Fraction(2) ** bits) for x in row] for row in A], object)


@given(formats(), seeds, st.booleans())
@settings(max_examples=40)
def test_sums_of_residues_are_sums_of_rounded_data(chosen: tuple[FixedPoint, int], seed: int, extreme: bool) -> None:
    numbers, dimension = chosen
    rng = np.random.default_rng(seed)
    matrices = [data(numbers, rng, dimension, extreme) for _ in range(numbers.summands)]
    total = numbers.encode(matrices[0])
    for A in matrices[1:]:
        numbers.ring.add(total, numbers.encode(A), out=total)
    expected = sum(steps_of(A, numbers.data_bits) for A in matrices)
    found = numbers.decode_sum(total)
    # float() of a fraction rounds once, to nearest, as the decoder does; below 2^53 steps it does not round
    assert found.ravel().tolist() == [float(x / Fraction(2) ** numbers.data_bits) for x in expected.ravel()]
    error = np.abs(found - np.sum(matrices, axis=0)).max()
    # half a step each, and the rounding of the float64 sum that it is held against
    assert error <= numbers.summands * (numbers.data_step / 2 + 2**-52 * numbers.sum_bound)


@given(formats(), st.integers(1, 4), st.floats(1e-9, 1e9), seeds, st.booleans())
@settings(max_examples=60)
def test_products_of_residues_are_products_of_rounded_matrices(
    chosen: tuple[FixedPoint, int], classes: int, size: float, seed: int, extreme: bool
) -> None:
    numbers, dimension = chosen
    rng = np.random.default_rng(seed)
    matrices = [data(numbers, rng, dimension, extreme) for _ in range(numbers.summands)]
    total = numbers.encode(matrices[0])
    for A in matrices[1:]:
        numbers.ring.add(total, numbers.encode(A), out=total)
    theta = np.full((dimension, classes), size) if extreme else size * rng.standard_normal((dimension, classes))
    model = numbers.encode_model(theta)
    found = numbers.decode_product(numbers.ring.product(model.residues, total), model)
    integers = np.array([steps_of(theta[:, [k]], int(model.bits[k]))[:, 0] for k in range(classes)])
    exact = integers @ sum(steps_of(A, numbers.data_bits) for A in matrices)
    scale = [Fraction(2) ** int(bits + numbers.data_bits) for bits in model.bits]
    for k in range(classes):
        # float() of a fraction rounds once, to nearest, as the decoder does
        assert found[k].tolist() == [float(x / scale[k]) for x in exact[k]]
    true = theta.T @ np.sum(matrices, axis=0)
    slack = (dimension + numbers.summands) * 2**-52 * np.abs(theta).sum(axis=0) * numbers.sum_bound
    # |[T]^T [A] - T^T A| <= |[T]|_1 max |[A] - A| + |[T] - T|_1 max |A|, half a step for each rounded number
    data_error = np.abs(model.value).sum(axis=0) * numbers.summands * numbers.data_step / 2
    model_error = np.ldexp(dimension * numbers.sum_bound / 2, -model.bits)
    assert np.all(np.abs(found - true) <= (data_error + model_error + slack)[:, None])


@given(formats(), st.integers(1, 4), st.floats(1e-9, 1e9), seeds)
@settings(max_examples=60)
def test_models_use_the_most_bits_that_are_safe(
    chosen: tuple[FixedPoint, int], classes: int, size: float, seed: int
) -> None:
    """One more bit would leave the safe part of the ring; and the limits are proven by the integers themselves."""
    numbers, dimension = chosen
    theta = size * np.random.default_rng(seed).standard_normal((dimension, classes))
    model = numbers.encode_model(theta)
    for k in range(classes):
        largest = sum(abs(x) for x in steps_of(theta[:, [k]], int(model.bits[k]))[:, 0]) * numbers.sum_limit
        assert largest == model.limits[k]
        assert 16 * largest <= 15 * numbers.ring.largest
        finer = sum(abs(x) for x in steps_of(theta[:, [k]], int(model.bits[k]) + 1)[:, 0]) * numbers.sum_limit
        assert 16 * finer > 15 * numbers.ring.largest - 16 * numbers.sum_limit
    assert np.all(np.abs(model.value - theta) <= np.ldexp(0.5, -model.bits))


@given(rings, st.floats(1e-6, 1e6), st.integers(1, 20), st.integers(1, 30), st.floats(1, 100))
@settings(max_examples=60)
def test_the_choice_leaves_the_promised_room_and_no_bit_unused(
    ring: Ring, bound: float, summands: int, dimension: int, steps: float
) -> None:
    numbers = FixedPoint.choose(ring, entry_bound=bound, summands=summands, dimension=dimension, model_steps=steps)
    needed = math.ceil(steps * dimension)
    assert numbers.model_budget >= needed
    finer = math.floor(Fraction(numbers.sum_bound) * Fraction(2) ** (numbers.data_bits + 1)) + summands
    assert 16 * finer * needed > 15 * ring.largest - 16
    assert Fraction(numbers.sum_bound) >= Fraction(bound) * summands


@given(formats(), seeds, st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60)
def test_the_packed_encoding_is_the_encoding(chosen: tuple[FixedPoint, int], seed: int, dtype: type) -> None:
    numbers, dimension = chosen
    A = data(numbers, np.random.default_rng(seed), dimension, extreme=False).astype(dtype) * dtype(0.999)
    A = np.triu(A) + np.triu(A, 1).T
    np.testing.assert_array_equal(unpack_upper(numbers.encode_symmetric(A)), numbers.encode(A))


@every_ring
def test_differences_lose_no_precision_as_they_shrink(ring: Ring) -> None:
    """The error of the model follows its size: products of small steps are as exact, relatively, as of large ones."""
    numbers = FixedPoint.choose(ring, entry_bound=1.0, summands=4, dimension=8)
    theta = np.random.default_rng(4).standard_normal((8, 2))
    for size in (1e3, 1.0, 1e-12, 1e-250):
        model = numbers.encode_model(size * theta)
        steps = np.abs(model.value).sum(axis=0) / np.ldexp(1.0, -model.bits)
        # the budget is filled to more than half, whatever the size
        assert np.all(2 * (steps + 8) > numbers.model_budget)


def test_the_paper_fits_in_32_bits() -> None:
    """60,000 points of 25 devices with features up to sqrt(2/2000): |A_i| <= 2400 * 2/2000 = 2.4."""
    bits = {
        ring.name: FixedPoint.choose(ring, entry_bound=2.4, summands=25, dimension=2000, model_steps=16).data_bits
        for ring in (Z_32, FIELD_31, Z_64)
    }
    # (15/16) 2^31 / (16 * 2000) = 62915 steps for a sum of 60 + 25 roundings: 60 * 2^10 = 61440 fits, 2^11 does not
    assert bits == {"Z_2^32": 10, "GF(2^31-1)": 9, "Z_2^64": 42}


@every_ring
@pytest.mark.parametrize("value", [2.5, -2.5, np.nan, np.inf])
def test_data_beyond_its_bound_is_refused(ring: Ring, value: float) -> None:
    numbers = FixedPoint.choose(ring, entry_bound=2.4, summands=3, dimension=5)
    A = np.zeros((5, 5))
    A[1, 3] = value
    for encode in (numbers.encode, numbers.encode_symmetric):
        with pytest.raises(CipherError, match=r"beyond the agreed bound 2\.4"):
            encode(A)
    with pytest.raises(CipherError, match="learning rate"):
        numbers.encode_model(np.full((5, 1), np.nan))


def test_a_device_keeps_to_its_own_share() -> None:
    numbers = FixedPoint.choose(Z_32, entry_bound=2.0, summands=2, dimension=5, sum_bound=2.5)
    A = np.full((5, 5), 0.75)
    numbers.encode(A, bound=1.0)
    with pytest.raises(CipherError, match=r"agreed bound 0\.5"):
        numbers.encode(A, bound=0.5)
    with pytest.raises(CipherError, match="agreed bound 2"):
        numbers.encode(A, bound=3.0)


@every_ring
def test_what_cannot_be_a_result_is_found(ring: Ring) -> None:
    numbers = FixedPoint.choose(ring, entry_bound=1.0, summands=2, dimension=3)
    model = numbers.encode_model(np.ones((3, 1)))
    limit = int(model.limits[0])
    for integer in (limit, -limit):
        numbers.decode_product(ring.residues(np.array([[integer]])), model)
    for integer in (limit + 1, -limit - 1, ring.largest, -ring.largest):
        with pytest.raises(CipherError, match="1 of 1 decoded numbers"):
            numbers.decode_product(ring.residues(np.array([[integer]])), model)
    with pytest.raises(CipherError, match="1 of 1 decoded numbers"):
        numbers.decode_product(np.array([[ring.modulus // 2]], ring.dtype), model)
    with pytest.raises(CipherError, match="a pad does not match"):
        numbers.decode_sum(ring.residues(np.array([numbers.sum_limit + 1])))


@every_ring
def test_sums_of_data_that_were_all_rounded_up_are_no_overflow(ring: Ring) -> None:
    """7 devices at a bound of 3.5 steps hold 4 each: 28 steps where the bound is 7 * 3.5."""
    bound = 3.5 / 8
    numbers = FixedPoint(ring, 3, entry_bound=bound, summands=7, sum_bound=7 * bound)
    for sign in (1, -1):
        part = numbers.encode(np.full((2, 2), sign * bound))
        total = part
        for _ in range(6):
            total = ring.add(total, part)
        assert np.array_equal(numbers.decode_sum(total), np.full((2, 2), sign * 28 / 8))
    assert numbers.sum_limit == math.floor(7 * 3.5) + 7


@every_ring
def test_a_wrong_pad_does_not_decode(ring: Ring) -> None:
    """Uniform residues in place of a reply: all 200 escape the band with probability below (15/16)^200 < 3e-6."""
    numbers = FixedPoint.choose(ring, entry_bound=1.0, summands=2, dimension=100)
    model = numbers.encode_model(np.ones((100, 2)))
    noise = np.random.default_rng(3).integers(0, ring.modulus - 1, (2, 100), dtype=ring.dtype)
    with pytest.raises(CipherError, match="larger than the bounds allow"):
        numbers.decode_product(noise, model)


def test_a_model_of_zeros_has_zero_products() -> None:
    numbers = FixedPoint.choose(Z_32, entry_bound=1.0, summands=1, dimension=4)
    model = numbers.encode_model(np.zeros((4, 2)))
    product = Z_32.product(model.residues, numbers.encode(np.ones((4, 4))))
    assert not numbers.decode_product(product, model).any()


def test_a_ring_that_is_too_small_is_named() -> None:
    with pytest.raises(CipherError, match=r"GF\(2\^31-1\) is too small for the sum of 1000 matrices"):
        FixedPoint.choose(FIELD_31, entry_bound=1.0, summands=1000, dimension=10**6, model_steps=1)
    with pytest.raises(CipherError, match="no room for 10000000000 rows"):
        FixedPoint.choose(Z_32, entry_bound=1.0, summands=1, dimension=10**10)
    with pytest.raises(CipherError, match="take fewer data bits"):
        FixedPoint(Z_32, 40, entry_bound=1.0, summands=1, sum_bound=1.0)
    with pytest.raises(CipherError, match="not positive numbers"):
        FixedPoint(Z_32, 4, entry_bound=math.inf, summands=1, sum_bound=1.0)


@given(formats(), st.integers(1, 4), st.floats(2, 1e4), seeds)
@settings(max_examples=40)
def test_a_model_is_as_long_as_told_and_no_coarser_than_needed(
    chosen: tuple[FixedPoint, int], classes: int, longest: float, seed: int
) -> None:
    """With one bit more, a class would be too long or beyond the budget: rounding adds half a step an entry."""
    numbers, dimension = chosen
    theta = np.random.default_rng(seed).standard_normal((dimension, classes))
    model = numbers.encode_model(theta, longest=longest)
    steps = np.ldexp(model.value, model.bits)
    assert np.all(np.linalg.norm(steps, axis=0) <= longest)
    finer = steps_of(np.ldexp(theta, model.bits + 1), 0).astype(float)
    too_long = np.linalg.norm(finer, axis=0) > longest
    assert np.all(too_long | (np.abs(finer).sum(axis=0) > numbers.model_budget))
