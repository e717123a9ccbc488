"""The rings: residues, centred lifts, sums and differences against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.seals import FIELD_31, RINGS, Z_32, Z_64, PowerOfTwoRing, Ring
from codedfl.errors import CipherError

every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


@st.composite
def rings_and_residues(draw: st.DrawFn, arrays: int) -> tuple[Ring, list[np.ndarray]]:
    """Equally long arrays of residues, the ends of the range among them more often than not."""
    ring = draw(st.sampled_from(list(RINGS.values())))
    entry = st.one_of(st.integers(0, ring.modulus - 1), st.sampled_from([0, 1, ring.largest, ring.modulus - 1]))
    size = draw(st.integers(1, 40))
    drawn = [draw(st.lists(entry, min_size=size, max_size=size)) for _ in range(arrays)]
    return ring, [np.array(values, ring.dtype) for values in drawn]


def integers(residues: np.ndarray) -> list[int]:
    return [int(residue) for residue in residues]


@given(rings_and_residues(2))
@settings(max_examples=150)
def test_sums_and_differences_are_those_of_integers(drawn: tuple[Ring, list[np.ndarray]]) -> None:
    ring, (a, b) = drawn
    pairs = list(zip(integers(a), integers(b), strict=True))
    assert integers(ring.add(a, b)) == [(x + y) % ring.modulus for x, y in pairs]
    assert integers(ring.subtract(a, b)) == [(x - y) % ring.modulus for x, y in pairs]
    np.testing.assert_array_equal(ring.subtract(ring.add(a, b), b), a)


@given(rings_and_residues(2))
@settings(max_examples=50)
def test_memory_may_be_that_of_an_argument(drawn: tuple[Ring, list[np.ndarray]]) -> None:
    ring, (a, b) = drawn
    total, difference = ring.add(a, b), ring.subtract(a, b)
    for operation, expected in ((ring.add, total), (ring.subtract, difference)):
        first, second = a.copy(), b.copy()
        assert operation(first, b, out=first) is first
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(operation(a, second, out=second), expected)


@given(rings_and_residues(1))
@settings(max_examples=100)
def test_the_centred_lift_is_least_and_congruent(drawn: tuple[Ring, list[np.ndarray]]) -> None:
    ring, (a,) = drawn
    lifted = ring.centred(a)
    assert all(2 * abs(int(x)) <= ring.modulus for x in lifted)
    assert [int(x) % ring.modulus for x in lifted] == integers(a)
    np.testing.assert_array_equal(ring.residues(lifted), a)


@every_ring
def test_lifts_at_the_ends(ring: Ring) -> None:
    ends = np.array([ring.largest, -ring.largest, 0, -1], np.int64)
    np.testing.assert_array_equal(ring.centred(ring.residues(ends)), ends)


@every_ring
def test_columns_and_odd_layouts(ring: Ring) -> None:
    """Sums into a part of a matrix, as the server does with products of strips."""
    a = np.arange(24, dtype=ring.dtype).reshape(4, 6)
    b = np.full((4, 6), ring.modulus - 1, ring.dtype)
    whole = a.copy()
    ring.add(whole[:, 2:5], b[:, 2:5], out=whole[:, 2:5])
    np.testing.assert_array_equal(whole[:, 2:5].astype(object), (a[:, 2:5].astype(object) - 1) % ring.modulus)
    np.testing.assert_array_equal(whole[:, [0, 1, 5]], a[:, [0, 1, 5]])
    np.testing.assert_array_equal(ring.add(a.T, b.T).astype(object), (a.T.astype(object) - 1) % ring.modulus)


@every_ring
def test_a_product_is_sent_as_its_residues_are(ring: Ring) -> None:
    left = np.arange(6, dtype=ring.dtype).reshape(2, 3)
    right = np.full((3, 4), ring.modulus - 1, ring.dtype)
    sent = ring.wire_product(left, right)
    assert (sent.dtype, sent.shape) == ring.wire_layout(2, 4)
    np.testing.assert_array_equal(ring.from_wire(sent), ring.product(left, right))


@every_ring
def test_what_is_read_has_its_name_and_shape(ring: Ring) -> None:
    sent = {"model": ring.to_wire(np.arange(6, dtype=ring.dtype).reshape(2, 3))}
    np.testing.assert_array_equal(ring.read(sent, "model", (2, 3), "It"), np.arange(6).reshape(2, 3))
    with pytest.raises(CipherError, match="It is refused: it has no array 'other'"):
        ring.read(sent, "other", (2, 3), "It")
    with pytest.raises(CipherError, match=r"It is refused: 'model' has the shape \(2, 3\) instead of \(3, 2\)"):
        ring.read(sent, "model", (3, 2), "It")


def test_formats_on_the_wire() -> None:
    assert [(ring.modulus, ring.bits, ring.dtype.name) for ring in (Z_32, Z_64, FIELD_31)] == [
        (2**32, 32, "uint32"),
        (2**64, 64, "uint64"),
        (2**31 - 1, 31, "uint32"),
    ]


def test_misuse_is_refused() -> None:
    with pytest.raises(CipherError, match="uint32 and these are uint64"):
        Z_32.add(np.zeros(3, np.uint64), np.zeros(3, np.uint64))
    with pytest.raises(CipherError, match=r"shapes \(3,\) and \(4,\)"):
        FIELD_31.add(np.zeros(3, np.uint32), np.zeros(4, np.uint32))
    with pytest.raises(ValueError, match="2\\^16 is not built"):
        PowerOfTwoRing(16)
