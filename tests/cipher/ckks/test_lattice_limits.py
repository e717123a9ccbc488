"""Lattices at their limits: the last row, multiplier and length that fit, and products in several parts."""

import math

import numpy as np
import pytest

from codedfl.cipher.ckks.lattice import SCALE, Lattice
from codedfl.errors import CipherError

Q = 2**60 - 16383


@pytest.mark.parametrize(
    ("entries", "degree"), [(1, 4096), (2048, 4096), (2049, 8192), (4096, 8192), (8193, 32768), (16384, 32768)]
)
def test_a_row_takes_half_a_degree(entries: int, degree: int) -> None:
    assert Lattice.holding(entries) == Lattice(degree)


def test_sizes() -> None:
    lattice = Lattice(16)
    assert (lattice.words, lattice.key_words, lattice.ciphertext_bytes) == (32, 64, 240)
    assert [lattice.count(rows) for rows in range(6)] == [0, 1, 1, 2, 2, 3]
    assert lattice.product_macs(3, 5) == 3 * 3 * 32
    assert lattice.encryption_macs(2) == 2 * (11 * 8 * 4 + 4 * 16)
    assert lattice.decryption_macs(2) == 2 * (8 * 4 + 16)


@pytest.mark.parametrize("summands", [1, 4, 25])
def test_the_longest_multipliers_leave_room_for_errors_of_decoding(summands: int) -> None:
    """8 sigma |m| sqrt(V) is half a step less 2^22, with sigma^2 = N/2 (2 + 12 * 2N / 3) / 12."""
    sigma = math.sqrt(4096 * (2 + 12 * 2 * 8192 / 3) / 12)
    expected = (SCALE / 2 - 2**22) / (8 * sigma * math.sqrt(summands))
    assert Lattice(8192).longest(summands) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("left", [[[2**23 - 1]], [[1 - 2**23]], [[2**22, -(2**22) + 1]], [[1, 2], [0, 2**23 - 1]]])
def test_multipliers_may_add_up_to_almost_2_to_the_23(left: list[list[int]]) -> None:
    """Of the largest words, that is; one more is refused, whatever its sign."""
    lattice, multipliers = Lattice(8), np.array(left)
    words = np.full((1, 16), Q - 1, np.uint64)
    unit = np.arange(8, dtype=np.uint64) + np.uint64(Q - 9)
    found = lattice.multiply(multipliers, words, unit, Q)
    padded = np.concatenate([multipliers, np.zeros_like(multipliers)], axis=1)[:, :2].tolist()
    expected = [[(a - b * int(unit[place % 8])) * (Q - 1) % Q for place in range(16)] for a, b in padded]
    assert found.tolist() == expected
    multipliers[-1, -1] += np.sign(multipliers[-1, -1])
    with pytest.raises(CipherError, match=r"add up to 2\^23"):
        lattice.multiply(multipliers, words, unit, Q)


def test_products_of_nothing() -> None:
    lattice, unit = Lattice(8), np.ones(8, np.uint64)
    assert lattice.multiply(np.zeros((0, 2), np.int64), np.ones((1, 16), np.uint64), unit, Q).shape == (0, 16)
    found = lattice.multiply(np.zeros((2, 0), np.int64), np.ones((0, 16), np.uint64), unit, Q)
    assert found.tolist() == [[0] * 16] * 2


def test_products_are_made_in_parts_of_the_words() -> None:
    """Degree 300 has 600 words: parts of 512 and of 88."""
    rng = np.random.default_rng(0)
    lattice, left = Lattice(300), np.array([[3, -5, 7], [-1, 0, 2**22]])
    words, unit = (rng.integers(0, Q, shape, dtype=np.uint64) for shape in ((2, 600), (300,)))
    found, turn = lattice.multiply(left, words, unit, Q), np.tile(unit, 2).astype(object)
    for row, (a, b, c) in zip(found, left.tolist(), strict=True):
        expected = ((a - b * turn) * words[0].astype(object) + c * words[1].astype(object)) % Q
        assert row.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(2, 241), (2, 239), (0, 24)])
def test_bytes_of_other_sizes_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(CipherError, match="are not 240 bytes each"):
        Lattice(16).from_bytes(np.zeros(shape, np.uint8))


def test_words_on_the_wire_by_hand() -> None:
    """Seven bytes of each word, the lowest first, and then the last halves of bytes, two in one."""
    lattice, word = Lattice(1), 0xABCDEF012345678
    packed = lattice.to_bytes(np.array([[word, 0x900000000000001]], np.uint64))
    assert packed.tolist() == [[*word.to_bytes(8, "little")[:7], 1, 0, 0, 0, 0, 0, 0, 0x9A]]
    assert lattice.from_bytes(packed).tolist() == [[word, 0x900000000000001]]


def test_sums_wrap_at_the_prime() -> None:
    left, right = np.array([[0, 1, Q - 1, Q - 1]], np.uint64), np.array([[0, Q - 2, 1, Q - 1]], np.uint64)
    assert Lattice(2).add(left, right, Q).tolist() == [[0, Q - 1, 0, Q - 2]]
