"""Secret random numbers: the ends of the streams of words, where numbers are largest, and seeds."""

import hashlib

import numpy as np
import pytest
from scipy.stats import norm

from codedfl.cipher.randomness import Stream, fresh_seed
from codedfl.errors import CipherError

SEED = b"seed of thirty-two bytes, fixed."


def stream_of(words: list[int], monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A stream that begins with these words of 64 bits."""
    monkeypatch.setattr(Stream, "_bytes", lambda self, count: np.array(words, "<u8").tobytes()[:count])
    return Stream(SEED, "label")


def test_the_bytes_are_those_of_the_standard_function() -> None:
    """The label comes first, after its length in two bytes, so that no label and seed look like another pair."""
    expected = hashlib.shake_256(b"\x05\x00label" + SEED).digest(40)
    assert Stream(SEED, "label")._bytes(40) == expected


@pytest.mark.parametrize("word", [0, 1, 2**51 - 1, 2**51, 2**52 - 1])
def test_normal_numbers_are_the_quantiles_in_the_middle_of_each_step(
    word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The top 53 bits w of a word stand for (w + 1/2) / 2^53; the other 11 bits say nothing.

    Below 2^52 the half is exact in double precision. Zero gives the largest number of all, -8.29.
    """
    (found,) = stream_of([word << 11 | 2**11 - 1], monkeypatch).normals(1)
    assert found == pytest.approx(norm.ppf((2 * word + 1) / 2**54), rel=1e-13)
    assert np.isfinite(found)


def test_the_largest_word_gives_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^53 - 1/2 rounds up to 2^53, whose quantile is infinite; that of the last number below 1 is taken."""
    (found,) = stream_of([2**64 - 1], monkeypatch).normals(1)
    assert found == pytest.approx(norm.ppf(np.nextafter(1, 0)), rel=1e-13)


@pytest.mark.parametrize("word", [1, 2, 10**6, 2**50])
def test_normal_numbers_are_as_large_above_zero_as_below(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near 1 double precision has steps of 2^-53, so that a half is rounded away; near 0 it is not."""
    below, above = stream_of([word << 11, 2**53 - 1 - word << 11], monkeypatch).normals(2)
    low, high = (norm.isf((2 * word + 1 + 2 * by) / 2**54) for by in (1, -1))
    assert low <= above <= high
    assert low <= -below <= high


@pytest.mark.parametrize(("bits", "expected"), [(63, 2**63 - 1), (64, 2**64 - 1), (1, 1), (8, 255), (9, 511)])
def test_integers_have_all_their_bits(bits: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream_of([2**64 - 1] * 2, monkeypatch).integer(bits) == expected


def test_a_permutation_sorts_the_words_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream_of([7, 2**64 - 1, 0, 2**63], monkeypatch).permutation(4).tolist() == [2, 0, 3, 1]


def test_seeds() -> None:
    """32 bytes from the system, another one each time; half as many are enough where one is given."""
    assert len(fresh_seed()) == 32
    assert fresh_seed() != fresh_seed()
    assert fresh_seed(SEED[:16]) == SEED[:16]
    with pytest.raises(CipherError, match="seed of 15 bytes is too short: give at least 16"):
        fresh_seed(SEED[:15])
