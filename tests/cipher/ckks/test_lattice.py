"""Sizes of ciphertexts, their words on the wire, and arithmetic on them held against Python's integers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.cipher.ckks.lattice import LIMIT, PRIME_BITS, SCALE, SECOND_PRIME_BITS, STANDARD_BITS, TAIL, Lattice
from codedfl.errors import CipherError

MODULI = [2**60 - 16383, 2**60 - 98303, 2**60 - 262143]
"""Those that SEAL chooses, from degree 4096 to 32768."""
seeds = st.integers(0, 2**32 - 1)


def words(rng: np.random.Generator, shape: tuple[int, ...], q: int) -> np.ndarray:
    """Residues all over the range, both ends among them."""
    found = rng.integers(0, q, shape, dtype=np.uint64)
    found[rng.random(shape) < 0.2] = q - 1
    found[rng.random(shape) < 0.1] = 0
    return found


def test_the_primes_are_within_the_table_of_the_standard() -> None:
    for allowed in STANDARD_BITS.values():
        assert allowed >= PRIME_BITS + SECOND_PRIME_BITS


@given(st.integers(1, max(STANDARD_BITS) // 2))
def test_the_smallest_degree_that_holds_a_row_is_taken(entries: int) -> None:
    lattice = Lattice.holding(entries)
    assert lattice.degree // 2 >= entries
    assert lattice.degree == min(STANDARD_BITS) or lattice.degree // 4 < entries


@pytest.mark.parametrize("entries", [0, 16385])
def test_rows_without_room_are_refused(entries: int) -> None:
    with pytest.raises(CipherError, match="1 to 16384"):
        Lattice.holding(entries)


@given(st.sampled_from([8, 32]), st.integers(0, 3), st.sampled_from(MODULI), seeds)
def test_words_on_the_wire_take_60_bits_and_come_back(degree: int, count: int, q: int, seed: int) -> None:
    lattice = Lattice(degree)
    sent = words(np.random.default_rng(seed), (count, lattice.words), q)
    packed = lattice.to_bytes(sent)
    assert packed.dtype == np.uint8
    assert 8 * packed.size == 60 * sent.size == 8 * count * lattice.ciphertext_bytes
    assert np.array_equal(lattice.from_bytes(packed), sent)


def test_bytes_of_another_length_are_refused() -> None:
    with pytest.raises(CipherError, match="120 bytes each"):
        Lattice(8).from_bytes(np.zeros((2, 119), np.uint8))


@given(st.integers(1, 4), st.integers(1, 7), st.sampled_from(MODULI), seeds)
def test_products_are_those_of_whole_numbers(outputs: int, rows: int, q: int, seed: int) -> None:
    """Every word: sum_p (a_p - b_p unit) C_p modulo q, over the pairs (a_p, b_p) of multipliers."""
    lattice, rng = Lattice(8), np.random.default_rng(seed)
    left = rng.integers(-(2**20), 2**20, (outputs, rows), endpoint=True)
    C, unit = words(rng, (lattice.count(rows), lattice.words), q), words(rng, (8,), q)
    padded = np.concatenate([left, np.zeros((outputs, 1), np.int64)], axis=1)
    found = lattice.multiply(left, C, unit, q)
    for output, row in enumerate(found.tolist()):
        for place, word in enumerate(row):
            expected = sum(
                (int(padded[output, 2 * pair]) - int(padded[output, 2 * pair + 1]) * int(unit[place % 8]))
                * int(C[pair, place])
                for pair in range(len(C))
            )
            assert word == expected % q


@given(st.sampled_from(MODULI), seeds)
def test_sums_are_those_of_whole_numbers(q: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = words(rng, (2, 16), q), words(rng, (2, 16), q)
    expected = [(int(a) + int(b)) % q for a, b in zip(one.ravel(), other.ravel(), strict=True)]
    assert Lattice(8).add(one, other, q).ravel().tolist() == expected


def test_multipliers_that_float64_could_not_add_up_exactly_are_refused() -> None:
    left = np.full((1, 2), 2**22)
    with pytest.raises(CipherError, match=r"add up to 2\^23"):
        Lattice(8).multiply(left, np.zeros((1, 16), np.uint64), np.zeros(8, np.uint64), MODULI[0])


def test_the_largest_sums_fit_below_half_of_the_prime() -> None:
    """Two parts of a slot at their limit; noise may be as large as a step, and coefficients sqrt(N/2) times that."""
    largest = math.hypot(LIMIT, LIMIT) * SCALE
    assert largest + SCALE * math.sqrt(max(STANDARD_BITS)) < min(MODULI) // 2


@given(st.sampled_from(list(STANDARD_BITS)), st.integers(1, 1000))
def test_at_the_longest_multipliers_the_noise_is_rounded_away(degree: int, summands: int) -> None:
    """Written out for N = 4096: sigma^2 = 2048 (2 + 12 * 8192 / 3) / 12, and 8 sigma |m| sqrt(V) < SCALE / 2."""
    lattice = Lattice(degree)
    assert TAIL * lattice.largest_noise * lattice.longest(summands) * math.sqrt(summands) < SCALE / 2
    if degree == 4096:
        assert math.isclose(lattice.largest_noise**2, 2048 * (2 + 32768) / 12)


def test_costs_at_the_papers_size() -> None:
    """1000 ciphertexts of 2 * 4096 words for 2000 rows; ten classes."""
    lattice = Lattice.holding(2000)
    assert lattice.count(2000) == 1000
    assert lattice.product_macs(10, 2000) == 10 * 1000 * 8192
    assert lattice.ciphertext_bytes == 8192 * 60 // 8
    assert lattice.encryption_macs(3) == 3 * (11 * 2048 * 12 + 4 * 4096)
    assert lattice.decryption_macs(3) == 3 * (2048 * 12 + 4096)
