"""Formats of sealed schemes: room for what devices' own rounding adds to data at the agreed bounds."""

from fractions import Fraction

import numpy as np
import pytest

from codedfl.cipher.seals import RINGS, Ring
from codedfl.errors import CipherError
from codedfl.schemes import Public
from codedfl.schemes.sealing import Formats, summed

every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())
SAMPLES = (700, 2000, 11)
FEATURE, TARGET = 0.75, 3.0


def largest_sum(count: int, size: float, dtype: str) -> Fraction:
    """What ``count`` products of this size can add up to: gamma_n = n u / (1 - n u), u the unit roundoff (Higham)."""
    errors = count * Fraction(float(np.finfo(dtype).eps)) / 2
    return count * Fraction(size) * (1 + errors / (1 - errors))


@every_ring
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_allow_for_the_rounding_of_devices_and_little_more(ring: Ring, dtype: str) -> None:
    """The largest device's relative error holds for all; twice that is the most that is granted."""
    formats = Formats.choose(ring, Public(SAMPLES, 4, 2, np.dtype(dtype), FEATURE, TARGET))
    for form, size in ((formats.gram, FEATURE**2), (formats.moments, FEATURE * TARGET)):
        most = largest_sum(max(SAMPLES), size, dtype)
        exact = max(SAMPLES) * Fraction(size)
        assert most <= Fraction(form.entry_bound)
        # rounding of the bound itself: three products in float64
        assert Fraction(form.entry_bound) <= (exact + 2 * (most - exact)) * (1 + Fraction(1, 2**51))
        total = sum(largest_sum(count, size, dtype) for count in SAMPLES)
        assert (
            total
            <= Fraction(form.sum_bound)
            <= sum(SAMPLES) * Fraction(form.entry_bound) / max(SAMPLES) * (1 + Fraction(1, 2**51))
        )


@every_ring
def test_devices_at_their_bounds_are_summed_and_one_beyond_is_refused(ring: Ring) -> None:
    samples = (2000,) * 7
    form = Formats.choose(ring, Public(samples, 4, 2, np.dtype("float32"), FEATURE, TARGET)).gram
    entry = float(largest_sum(2000, FEATURE**2, "float32"))
    parts = [form.encode_symmetric(np.full((4, 4), entry)) for _ in samples]
    found = form.decode_sum(summed(ring, parts))
    assert np.abs(found - 7 * entry).max() <= 7 * form.data_step / 2 + 2**-50 * found.max()
    with pytest.raises(CipherError, match="beyond the agreed bound"):
        form.encode_symmetric(np.full((4, 4), 2000 * FEATURE**2 * (1 + 2.01 * 2000 * 2.0**-23)))


def test_the_number_of_data_bits_is_cut_for_large_entries_only() -> None:
    """Entries of 1 and more keep no more bits than told; smaller ones need theirs."""
    for feature, cut in ((1.0, True), (0.03, False)):
        public = Public((2, 2), 4, 2, np.dtype("float64"), feature, 10.0)
        free, told = (Formats.choose(RINGS["Z_2^64"], public, data_bits=bits) for bits in (None, 7))
        assert told.gram.data_bits == (7 if cut else free.gram.data_bits)
        assert free.gram.data_bits > 7
