"""Passes over upper triangles in NumPy, for machines without a compiler: those of the compiled kernels, bit for bit."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 128


def pack_upper(matrix: NDArray[np.generic], packed: NDArray[np.generic]) -> None:
    """The upper triangle of ``matrix``, row after row, into ``packed``."""
    at, d = 0, len(matrix)
    for i in range(d):
        packed[at : at + d - i] = matrix[i, i:]
        at += d - i


def unpack_upper(packed: NDArray[np.generic], matrix: NDArray[np.generic]) -> None:
    """The symmetric matrix of an upper triangle; the mirror image is written in blocks that stay in the cache."""
    at, d = 0, len(matrix)
    for i in range(d):
        matrix[i, i:] = packed[at : at + d - i]
        at += d - i
    for top in range(0, d, _BLOCK):
        end = min(top + _BLOCK, d)
        for i in range(top, end):
            matrix[i + 1 : end, i] = matrix[i, i + 1 : end]
        matrix[end:, top:end] = matrix[top:end, end:].T


def encode_upper(
    matrix: NDArray[np.floating],
    scale: float,
    bound: float,
    wrap: np.unsignedinteger,
    packed: NDArray[np.unsignedinteger],
) -> bool:
    """Round scale * upper triangle to residues; False if an entry exceeds ``bound`` or is no number.

    Negative integers wrap modulo 2^32 or 2^64, and then ``wrap`` is added to them.
    """
    at, sound, d = 0, True, len(matrix)
    none = wrap.dtype.type(0)
    with np.errstate(invalid="ignore"):
        for i in range(d):
            row = matrix[i, i:]
            sound &= bool((np.abs(row) <= bound).all())
            rounded = np.rint(row.astype(np.float64) * scale).astype(np.int64)
            packed[at : at + d - i] = rounded.astype(packed.dtype) + np.where(rounded < 0, wrap, none)
            at += d - i
    return sound


encode_upper_narrow = encode_upper_wide = encode_upper
