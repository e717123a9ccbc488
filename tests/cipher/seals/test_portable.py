"""Passes over triangles in NumPy have the bits of the compiled ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.cipher.seals import kernels, portable


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.float32, np.float64])
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(0, 300))
def test_triangles(dtype: Any, seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 60000, (d, d)).astype(dtype)
    packed = [np.zeros(d * (d + 1) // 2, dtype) for _ in range(2)]
    wholes = [np.zeros((d, d), dtype) for _ in range(2)]
    for module, flat, whole in zip((kernels, portable), packed, wholes, strict=True):
        module.pack_upper(matrix, flat)
        module.unpack_upper(flat, whole)
    assert np.array_equal(*packed)
    assert np.array_equal(*wholes)


@pytest.mark.parametrize(
    ("name", "dtype", "wraps"),
    [("encode_upper_narrow", np.uint32, (0, 2**31 - 1)), ("encode_upper_wide", np.uint64, (0, 2**48 - 59, 2**61 - 1))],
)
@pytest.mark.parametrize("real", [np.float32, np.float64])
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 20), beyond=st.booleans())
def test_residues_of_entries(
    name: str, dtype: Any, wraps: tuple[int, ...], real: Any, seed: int, d: int, beyond: bool
) -> None:
    """Halves are rounded to even, and the last entry may be too large, infinite or no number: then both refuse."""
    rng = np.random.default_rng(seed)
    matrix = (rng.integers(-9, 10, (d, d)) / 8).astype(real)
    if beyond:
        matrix[-1, -1] = rng.choice([1.3, -np.inf, np.nan])
    for wrap in wraps:
        found = []
        for module in (kernels, portable):
            packed = np.zeros(d * (d + 1) // 2, dtype)
            found.append((getattr(module, name)(matrix, 4.0, 1.25, dtype(wrap), packed), packed))
        assert found[0][0] == found[1][0] == (not beyond)
        if not beyond:
            assert np.array_equal(found[0][1], found[1][1])
