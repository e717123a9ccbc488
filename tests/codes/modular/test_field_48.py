"""The field of 2^48 - 59 elements: its prime, its limbs at their edges, and what a residue takes on the wire."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.seals import FIELD_31, FIELD_48, FIELD_61, Domain, FixedPoint, Pad, PrimeField, Seed
from codedfl.cipher.seals import pads as pads_module
from codedfl.codes.modular.field_48_kernels import DEPTH, ROWS, SMALL, product_48
from codedfl.codes.modular.vector_kernels import LANES
from codedfl.errors import CipherError

P = 2**48 - 59
fields = st.sampled_from([FIELD_31, FIELD_48, FIELD_61])
# residues at which a limb is empty or full, or one carries into the other
edges = st.sampled_from([0, 1, 2**24 - 1, 2**24, 2**24 + 1, 2**47, P - 2**24, P - 2, P - 1])
residues_48 = st.one_of(edges, st.integers(0, P - 1))


def exact(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return ((left.astype(object) @ right.astype(object)) % P).astype(np.uint64)


def test_the_modulus_is_the_largest_prime_of_48_bits() -> None:
    """By trial division: a number below 2^48 that is not prime has a prime factor below 2^24."""
    sieve = np.ones(1 << 24, bool)
    sieve[:2] = False
    for number in range(2, 1 << 12):
        if sieve[number]:
            sieve[number * number :: number] = False
    primes = np.flatnonzero(sieve)
    assert len(primes) == 1077871, "as many primes as there are below 2^24"
    assert FIELD_48.modulus == P
    assert (P % primes).all()
    assert not any((larger % primes).all() for larger in range(P + 1, 2**48))


@given(st.data(), st.integers(1, 5), st.integers(1, DEPTH + 3), st.integers(1, 2 * LANES + 1))
@settings(max_examples=100)
def test_limbs_at_their_edges(data: st.DataObject, c: int, d: int, b: int) -> None:
    """Few residues are drawn and repeated, because many examples matter more."""
    few = [data.draw(st.lists(residues_48, min_size=1, max_size=11)) for _ in range(2)]
    left, right = (
        np.resize(np.array(values, np.uint64), shape) for values, shape in zip(few, ((c, d), (d, b)), strict=True)
    )
    np.testing.assert_array_equal(FIELD_48.product(left, right), exact(left, right))


@pytest.mark.parametrize("rows", [ROWS, ROWS + 1, 2 * ROWS + 3])
def test_sums_over_more_rows_than_a_word_holds(rows: int) -> None:
    """(-1) (-1) d = d, and limbs that are all ones, 2^24 - 1 both: the largest sums there are; five columns."""
    largest = np.full((1, rows), P - 1, np.uint64)
    full = np.full((rows, LANES + 1), (2**24 - 2) * 2**24 + 2**24 - 1, np.uint64)
    assert FIELD_48.product(largest, np.repeat(largest.T, LANES + 1, axis=1)).tolist() == [[rows] * (LANES + 1)]
    expected = rows * int(full[0, 0]) ** 2 % P
    assert FIELD_48.product(full.T[:1], full).tolist() == [[expected] * (LANES + 1)]


@pytest.mark.parametrize("depth", [1, DEPTH - 1, DEPTH, DEPTH + 1, 3 * DEPTH])
@pytest.mark.parametrize("first, last", [(0, LANES), (3, 3 + 2 * LANES), (5, 15), (7, 7), (13, 16)])
def test_ranges_of_columns_leave_the_others_alone(depth: int, first: int, last: int) -> None:
    rng = np.random.default_rng(9)
    left, right = (rng.integers(0, P, shape, dtype=np.uint64) for shape in ((3, depth), (depth, 17)))
    out = np.full((3, 17), 77, np.uint64)
    product_48(left, right, out, first, last)
    expected = np.full((3, 17), 77, np.uint64)
    expected[:, first:last] = exact(left, right[:, first:last])
    np.testing.assert_array_equal(out, expected)


@given(fields, st.data(), st.integers(-(2**50), 2**50))
@settings(max_examples=100)
def test_multiples_are_added(field: PrimeField, data: st.DataObject, factor: int) -> None:
    own = st.one_of(st.sampled_from([field.modulus - 1, field.largest]), st.integers(0, field.modulus - 1))
    entry = st.one_of(residues_48.map(lambda value: value % field.modulus), own)
    pairs = data.draw(st.lists(st.tuples(entry, entry), min_size=1, max_size=30))
    total, block = (np.array(values, field.dtype) for values in zip(*pairs, strict=True))
    field.add_multiple(total, factor, block)
    assert total.tolist() == [(t + factor * x) % field.modulus for t, x in pairs]


def test_multiples_of_columns_and_of_other_shapes() -> None:
    total, block = np.zeros((2, 3), np.uint64), np.arange(6, dtype=np.uint64).reshape(3, 2)
    FIELD_48.add_multiple(total, 2, block.T)
    assert total.tolist() == [[0, 4, 8], [2, 6, 10]]
    with pytest.raises(CipherError, match=r"shape \(3, 2\) cannot be added to \(2, 3\)"):
        FIELD_48.add_multiple(total, 2, block)
    with pytest.raises(CipherError, match="one piece of memory"):
        FIELD_48.add_multiple(block.T, 2, block.T)
    with pytest.raises(CipherError, match="uint64 and these are uint32"):
        FIELD_48.add_multiple(total, 2, total.astype(np.uint32))


@given(st.lists(residues_48, min_size=1, max_size=40), st.booleans())
@settings(max_examples=60)
def test_48_bits_of_a_residue_are_sent_and_read_again(values: list[int], twice: bool) -> None:
    residues = np.array([values, values] if twice else values, np.uint64)
    words = FIELD_48.to_wire(residues)
    assert 8 * words.nbytes == 48 * residues.size
    assert words.shape == (*residues.shape, 3)
    np.testing.assert_array_equal(FIELD_48.from_wire(words), residues)
    np.testing.assert_array_equal(FIELD_48.from_wire(FIELD_48.to_wire(residues.T)), residues.T)
    assert [sum(int(word) << 16 * place for place, word in enumerate(triple)) for triple in words.reshape(-1, 3)] == [
        int(value) for value in residues.reshape(-1)
    ]


def test_other_rings_send_their_words_as_they_are() -> None:
    for field in (FIELD_31, FIELD_61):
        words = np.arange(5, dtype=field.dtype)
        assert field.to_wire(words) is words
        assert field.from_wire(words) is words
    with pytest.raises(CipherError, match="encode them in this ring"):
        FIELD_31.from_wire(words)


def test_what_is_no_residue_is_refused() -> None:
    words = FIELD_48.to_wire(np.zeros(4, np.uint64))
    words[2:] = 2**16 - 1
    with pytest.raises(CipherError, match="2 of 4 numbers that were sent are no residues"):
        FIELD_48.from_wire(words)
    for wrong in (words.astype(np.uint32), words[:, :2], np.array(3, np.uint16)):
        with pytest.raises(CipherError, match="three words of 16 bits"):
            FIELD_48.from_wire(wrong)
    with pytest.raises(ValueError, match="no prime field of 40 bits"):
        PrimeField(40)


class _Scripted:
    """A key stream that gives words of our choice."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, "<u8").tobytes()

    def update(self, zeros: bytes) -> bytes:
        taken, self._words = self._words[: len(zeros)], self._words[len(zeros) :]
        return taken

    def update_into(self, zeros: Any, out: Any) -> int:
        out[:] = self.update(zeros)
        return len(out)


def test_words_that_are_no_residues_are_drawn_again_from_their_own_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 59 values from p on, whatever the high 16 bits of their words are."""
    pad, asked = Pad(FIELD_48, Seed(bytes(32)), Domain(0, 0)), []

    def scripted(key: bytes, counter: int) -> _Scripted:
        asked.append((key, counter))
        if key == pad._key:
            return _Scripted([5 + 2**48, P, 2**64 - 1, P - 1][counter * 2 :])
        return _Scripted({1: [P, 2**48 - 1, 2**63 + 77], 2: [9]}[counter >> 64])

    monkeypatch.setattr(pads_module, "key_stream", scripted)
    assert pad.residues(4).tolist() == [5, 77, 9, P - 1]
    assert {counter for key, counter in asked if key != pad._key} == {1 << 64, 2 << 64}


def test_the_paper_leaves_26_bits_for_the_data() -> None:
    """(15/16) 2^47 / (16 * 2000) steps for a sum of 60: 60 * 2^26 = 4.03e9 fits in 4.12e9, 2^27 does not."""
    found = FixedPoint.choose(FIELD_48, entry_bound=2.4, summands=25, dimension=2000, model_steps=16)
    assert found.data_bits == 26


@given(st.data(), st.integers(1, 11), st.integers(1, DEPTH + 3), st.integers(1, 2 * LANES + 1))
@settings(max_examples=100)
def test_small_entries_of_either_sign(data: st.DataObject, c: int, d: int, b: int) -> None:
    """Rows whose magnitudes add up to the bound at most, of both signs, on limbs at their edges."""
    largest = SMALL // d
    entries = st.one_of(st.sampled_from([-largest, -1, 0, 1, largest]), st.integers(-largest, largest))
    few = data.draw(st.lists(entries, min_size=1, max_size=11)), data.draw(st.lists(residues_48, min_size=1))
    left = np.resize(FIELD_48.residues(np.array(few[0], np.int64)), (c, d))
    right = np.resize(np.array(few[1], np.uint64), (d, b))
    np.testing.assert_array_equal(FIELD_48.product(left, right), exact(left, right))


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_entries_at_and_above_the_bound_of_small_ones(sign: int, more: int) -> None:
    left = np.full((1, 8), SMALL // 8, np.int64)
    left[0, 0] += more
    right = np.full((8, LANES), P - 1, np.uint64)
    right[::2] = 2**24 - 1
    found = FIELD_48.product(FIELD_48.residues(sign * left), right)
    np.testing.assert_array_equal(found, exact(sign * left, right))
