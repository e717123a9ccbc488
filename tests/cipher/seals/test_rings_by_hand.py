"""The rings by number: sizes and formats, multiples, words that are no residues, and shapes that do not fit."""

from collections.abc import Callable

import numpy as np
import pytest

from codedfl.cipher.seals import FIELD_31, FIELD_48, FIELD_61, RINGS, Z_32, Z_64, PowerOfTwoRing, PrimeField, Ring
from codedfl.errors import CipherError

fields = pytest.mark.parametrize("field", [FIELD_31, FIELD_48, FIELD_61], ids=str)
every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


@pytest.mark.parametrize(
    ("kind", "bits", "modulus", "largest", "held", "wire", "layout"),
    [
        (PowerOfTwoRing, 32, 2**32, 2**31 - 1, "uint32", 32, ("uint32", (2, 5))),
        (PowerOfTwoRing, 64, 2**64, 2**63 - 1, "uint64", 64, ("uint64", (2, 5))),
        (PrimeField, 31, 2**31 - 1, 2**30 - 1, "uint32", 32, ("uint32", (2, 5))),
        (PrimeField, 48, 2**48 - 59, 2**47 - 30, "uint64", 48, ("uint16", (2, 5, 3))),
        (PrimeField, 61, 2**61 - 1, 2**60 - 1, "uint64", 64, ("uint64", (2, 5))),
    ],
    ids=["Z_32", "Z_64", "31", "48", "61"],
)
def test_sizes_and_formats(
    kind: Callable[[int], Ring],
    bits: int,
    modulus: int,
    largest: int,
    held: str,
    wire: int,
    layout: tuple[str, tuple[int, ...]],
) -> None:
    ring = kind(bits)
    assert (ring.modulus, ring.largest, ring.dtype.name, ring.wire_bits) == (modulus, largest, held, wire)
    assert ring.bits == (modulus - 1).bit_length() == bits
    assert ring.packed == (bits == 48)
    dtype, shape = ring.wire_layout(2, 5)
    assert (dtype.name, shape) == layout
    sent = ring.to_wire(np.zeros((2, 5), ring.dtype))
    assert (sent.dtype.name, sent.shape) == layout
    ends = np.array([largest, -largest, -1], np.int64)
    assert ring.residues(ends).tolist() == [largest, modulus - largest, modulus - 1]
    assert ring.centred(ring.residues(ends)).tolist() == ends.tolist()


@pytest.mark.parametrize("bits", [0, 16, 31, 33, 63, 65])
def test_other_rings_are_not_built(bits: int) -> None:
    with pytest.raises(ValueError, match=f"2\\^{bits} is not built: choose 32 or 64"):
        PowerOfTwoRing(bits)


@pytest.mark.parametrize("bits", [30, 32, 47, 49, 60, 62, 64])
def test_other_fields_are_not_built(bits: int) -> None:
    with pytest.raises(ValueError, match=f"no prime field of {bits} bits is built: choose 31, 48 or 61"):
        PrimeField(bits)


def test_the_middle_of_a_power_of_two_is_negative() -> None:
    for ring in (Z_32, Z_64):
        assert ring.centred(np.array([ring.modulus // 2], ring.dtype)).tolist() == [-ring.modulus // 2]


@fields
def test_words_that_are_none_are_counted(field: PrimeField) -> None:
    p, top = field.modulus, (1 << (48 if field.packed else 8 * field.dtype.itemsize)) - 1
    words = np.array([0, p - 1, p, top], field.dtype)
    if field.packed:
        words = np.stack([(words >> np.uint64(16 * part)) & np.uint64(65535) for part in range(3)], -1).astype("u2")
    residues, outside = field.unpack(words)
    assert (residues.tolist()[:2], outside) == ([0, p - 1], 2)
    with pytest.raises(CipherError, match=r"^2 of 4 numbers that were sent are no residues of GF"):
        field.from_wire(words)
    with pytest.raises(CipherError, match=r"^device 3 is refused: 2 of 4 numbers"):
        field.read({"x": words}, "x", (4,), "device 3")
    assert field.from_wire(words[:2]).tolist() == [0, p - 1]


@every_ring
def test_words_of_another_format_are_refused(ring: Ring) -> None:
    with pytest.raises(CipherError, match="three words of 16 bits" if ring.packed else "and these are uint16"):
        ring.from_wire(np.zeros((2, 4), np.uint16))
    wrong = np.zeros(3, np.uint64 if ring.dtype.itemsize == 4 else np.uint32)
    low = [ring.keep_low_bits] if isinstance(ring, PrimeField) else []
    operations = (*low, ring.to_wire, ring.centred, lambda x: ring.add(x, x), lambda x: ring.subtract(x, x))
    for operation in operations:
        with pytest.raises(CipherError, match="encode them in this ring"):
            operation(wrong)
    with pytest.raises(CipherError, match="encode them in this ring"):
        ring.product(wrong[None], wrong[:, None])


def test_packed_words_are_of_16_bits_by_threes() -> None:
    for wrong in (np.zeros((2, 3), np.uint32), np.zeros((3, 2), np.uint16), np.zeros(3, np.uint64)):
        with pytest.raises(CipherError, match="three words of 16 bits"):
            FIELD_48.unpack(wrong)
    assert FIELD_48.to_wire(np.array([1 + (2 << 16) + (3 << 32)], np.uint64)).tolist() == [[1, 2, 3]]
    assert FIELD_48.unpack(np.array([[[1, 2, 3]]], np.uint16))[0].tolist() == [[1 + (2 << 16) + (3 << 32)]]


@fields
@pytest.mark.parametrize("factor", [0, 1, -1, 2**70 + 3])
def test_multiples_are_added_in_place(field: PrimeField, factor: int) -> None:
    p = field.modulus
    total, block = (np.array(rows, field.dtype) for rows in ([[p - 1, 1], [2, 3]], [[5, p - 1], [p - 2, 0]]))
    expected = [(int(t) + factor * int(b)) % p for t, b in zip(total.flat, block.flat, strict=True)]
    field.add_multiple(total, factor, block)
    assert total.ravel().tolist() == expected
    field.add_multiple(total, -factor, np.asfortranarray(block))
    assert total.tolist() == [[p - 1, 1], [2, 3]]


@fields
def test_multiples_that_do_not_fit_are_refused(field: PrimeField) -> None:
    square = np.zeros((2, 2), field.dtype)
    for total, block in ((square, square[:1]), (np.zeros((2, 4), field.dtype)[:, :2], square), (square, square[0])):
        with pytest.raises(CipherError, match="A multiple of shape"):
            field.add_multiple(total, 1, block)
    wrong = np.zeros((2, 2), np.uint16)
    for total, block in ((square, wrong), (wrong, square)):
        with pytest.raises(CipherError, match="and these are uint16"):
            field.add_multiple(total, 1, block)


@fields
def test_low_bits_are_kept(field: PrimeField) -> None:
    """2^bits - 1 is no residue; it is p itself where p is a Mersenne prime."""
    bits, p = field.bits, field.modulus
    top = (1 << 8 * field.dtype.itemsize) - 1
    words = np.array([0, p - 1, p, top, (1 << bits) + 5 if bits < 8 * field.dtype.itemsize else 5], field.dtype)
    assert field.keep_low_bits(words) == 2
    assert words.tolist() == [0, p - 1, p, (1 << bits) - 1, 5]


@every_ring
def test_products_by_one_thread_and_by_several_are_those_of_integers(ring: Ring) -> None:
    """A few multiplications, and 240,000, which are spread over threads."""
    rng = np.random.default_rng(0)
    for rows, inner, columns in ((2, 3, 4), (6, 200, 200)):
        left = rng.integers(0, ring.modulus - 1, (rows, inner), ring.dtype, endpoint=True)
        right = rng.integers(0, ring.modulus - 1, (inner, columns), ring.dtype, endpoint=True)
        exact = left.astype(object) @ right[:, ::50].astype(object) % ring.modulus
        for workers in (None, 1, 2):
            assert np.array_equal(ring.product(left, right, workers=workers)[:, ::50], exact)
        assert np.array_equal(ring.product(left.copy("F"), right.copy("F"))[:, ::50], exact)
