"""Pads that are made in pieces: words that are no residues are drawn again by their position in the whole pad."""

from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import (
    FIELD_31,
    FIELD_48,
    FIELD_61,
    Z_32,
    Z_64,
    Domain,
    Pad,
    PadLedger,
    PrimeField,
    Seed,
    seal,
)
from codedfl.cipher.seals import pads as pads_module
from codedfl.errors import CipherError

SECRET = b"seed of thirty-two bytes, fixed."
every_field = pytest.mark.parametrize("field", [FIELD_31, FIELD_48, FIELD_61], ids=str)


class _Scripted:
    """A key stream that gives words of our choice."""

    def __init__(self, words: list[int], width: int) -> None:
        self._words = b"".join(word.to_bytes(width, "little") for word in words)

    def update(self, zeros: bytes) -> bytes:
        taken, self._words = self._words[: len(zeros)], self._words[len(zeros) :]
        assert len(taken) == len(zeros), "no more words are needed"
        return taken

    def update_into(self, zeros: Any, out: Any) -> int:
        out[:] = self.update(zeros)
        return len(out)


@pytest.fixture
def pad(field: PrimeField, monkeypatch: pytest.MonkeyPatch) -> Pad:
    """A pad in pieces of two words: 5, p and then p - 1, 2^bits - 1 (no residue unless p), and 7.

    The second key gives no residue, then 70 and the number of the position.
    """
    made, width = Pad(field, Seed(SECRET), Domain(0, 0)), field.dtype.itemsize
    p, top = field.modulus, (1 << 8 * width) - 1

    def scripted(key: bytes, counter: int) -> _Scripted:
        if key == made._key:
            assert counter == 0
            return _Scripted([5, p, p - 1, top, 7], width)
        position, rest = divmod(counter, 1 << 64)
        assert rest == 0
        return _Scripted([p, top, 70 + position], width)

    monkeypatch.setattr(pads_module, "key_stream", scripted)
    monkeypatch.setattr(pads_module, "PIECE_BYTES", 2 * width)
    return made


@every_field
def test_words_are_drawn_again_for_their_position(field: PrimeField, pad: Pad) -> None:
    assert pad.residues(5).tolist() == [5, 71, field.modulus - 1, 73, 7]


@every_field
def test_pads_are_added_and_taken_off_by_position(field: PrimeField, pad: Pad) -> None:
    numbers = np.array([1, 2, 3, 4, 5], field.dtype)
    pad.add_to(numbers)
    assert numbers.tolist() == [6, 73, 2, 77, 12]
    pad.take_from(numbers)
    assert numbers.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("ring", [Z_32, Z_64, FIELD_31], ids=str)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9])
def test_pieces_make_no_difference(ring: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pad(ring, Seed(SECRET), Domain(1, 2, 3))
    whole = made.residues(count)
    monkeypatch.setattr(pads_module, "PIECE_BYTES", 4 * ring.dtype.itemsize)
    assert np.array_equal(made.residues(count), whole)
    added = np.zeros(count, ring.dtype)
    made.add_to(added)
    assert np.array_equal(added, whole)


def test_pads_are_the_same_on_machines_of_the_other_byte_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a machine reads words of the key stream with their bytes in the other order, and swaps them."""
    made = Pad(Z_32, Seed(SECRET), Domain(1, 2, 3))
    words = made.residues(5)
    monkeypatch.setattr(np, "little_endian", False)
    assert np.array_equal(made.residues(5), words.byteswap())


def test_residues_of_another_format_are_refused() -> None:
    with pytest.raises(CipherError, match="uint32 and these are uint64"):
        Pad(Z_32, Seed(SECRET), Domain(0, 0)).fill(np.zeros(3, np.uint64))


def test_numbers_of_a_domain_have_eight_bytes() -> None:
    encoded = Domain(1, 2**64 - 1, 258).encoded()
    assert encoded == bytes(7) + b"\x01" + b"\xff" * 8 + bytes(6) + b"\x01\x02"
    with pytest.raises(CipherError, match=r"numbers from 0 to 2\^64 - 1"):
        Domain(0, 2**64).encoded()
    assert Domain(1, 2) < Domain(1, 2, 1) < Domain(1, 3) < Domain(2, 0)


def test_a_refused_seal_uses_no_pad() -> None:
    """What is refused stays as it was, and its pad may still hide something else."""
    made, ledger = Pad(Z_32, Seed(SECRET), Domain(0, 0)), PadLedger()
    square = np.zeros((2, 2), np.uint32)
    for wrong in (np.zeros(3, np.uint64), square[:, :1], square.T[:1]):
        with pytest.raises(CipherError):
            seal(wrong, made, ledger)
        assert len(ledger) == 0
        assert not wrong.any()
    assert seal(square, made, ledger) is square
    assert np.array_equal(square.ravel(), made.residues(4))
    assert len(ledger) == 1
