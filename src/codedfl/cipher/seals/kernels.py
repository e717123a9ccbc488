"""Compiled passes over symmetric matrices that travel as their upper triangle, row after row.

Row i of the packed form holds the entries (i, i), (i, i+1), ..., (i, d-1) and starts at i d - i (i - 1) / 2. Rows are
copied by loops: to compile the assignment of a whole row takes seconds.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

BLOCK = 32


@njit(cache=True, nogil=True)
def pack_upper(matrix: NDArray[np.generic], packed: NDArray[np.generic]) -> None:
    """The upper triangle of ``matrix``, row after row, into ``packed``."""
    at = 0
    for i in range(matrix.shape[0]):
        width = matrix.shape[0] - i
        for j in range(width):
            packed[at + j] = matrix[i, i + j]
        at += width


@njit(cache=True, nogil=True)
def unpack_upper(packed: NDArray[np.generic], matrix: NDArray[np.generic]) -> None:
    """The symmetric matrix of an upper triangle; the mirror image is written in blocks that stay in the cache."""
    d = matrix.shape[0]
    at = 0
    for i in range(d):
        for j in range(d - i):
            matrix[i, i + j] = packed[at + j]
        at += d - i
    for top in range(0, d, BLOCK):
        for left in range(top, d, BLOCK):
            for j in range(left, min(left + BLOCK, d)):
                for i in range(top, min(top + BLOCK, j)):
                    matrix[j, i] = matrix[i, j]


@njit(cache=True, nogil=True)
def encode_upper_narrow(
    matrix: NDArray[np.floating], scale: float, bound: float, wrap: np.uint32, packed: NDArray[np.uint32]
) -> bool:
    """Round scale * upper triangle to residues; False if an entry exceeds ``bound`` or is no number.

    Negative integers wrap modulo 2^32, and then ``wrap`` is added to them: zero for Z_2^32, p for the prime field.
    """
    at, sound = 0, True
    for i in range(matrix.shape[0]):
        row, width, outside = matrix[i, i:], matrix.shape[0] - i, 0
        for j in range(width):
            outside += not abs(row[j]) <= bound
            rounded = np.int32(np.rint(np.float64(row[j]) * scale))
            packed[at + j] = np.uint32(rounded) + (wrap if rounded < 0 else np.uint32(0))
        at += width
        sound &= outside == 0
    return sound


@njit(cache=True, nogil=True)
def encode_upper_wide(
    matrix: NDArray[np.floating], scale: float, bound: float, wrap: np.uint64, packed: NDArray[np.uint64]
) -> bool:
    """Do the same for words of 64 bits: negative integers wrap modulo 2^64 before ``wrap`` is added to them."""
    at, sound = 0, True
    for i in range(matrix.shape[0]):
        row, width, outside = matrix[i, i:], matrix.shape[0] - i, 0
        for j in range(width):
            outside += not abs(row[j]) <= bound
            rounded = np.int64(np.rint(np.float64(row[j]) * scale))
            packed[at + j] = np.uint64(rounded) + (wrap if rounded < 0 else np.uint64(0))
        at += width
        sound &= outside == 0
    return sound
