"""Compiled modular arithmetic on arrays of residues: Z_2^32, Z_2^64 and the field of p = 2^31 - 1 elements.

A product (c x d)(d x b) with few rows c streams its right factor once. Columns are cut into tiles so that the c
rows of sums stay in the cache, and four rows of the right factor meet two of the left at a time, so that a sum is
loaded and stored once for four multiplications and a word of the right factor once for two. With an odd number of
rows the last one is multiplied twice, the second time into a row of sums that nobody reads. Kernels work on a range
of columns and hold no lock of the interpreter: a caller runs them on several threads. Rings modulo a power of two
wrap by themselves.

Bounds of the prime field: four products of residues are at most 4 (p - 1)^2 < 2^64 - 2^34, and a folded sum
(s mod 2^31) + (s >> 31) is below 2^33 + 2^31 < 2^34, so four products on top of a folded sum never wrap.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from codedfl.codes.modular import PRIME_31

P = np.uint64(PRIME_31)
P_32 = np.uint32(PRIME_31)
BITS = np.uint64(31)
TILE = 1024


@njit(cache=True, nogil=True)
def product_wrapping(
    left: NDArray[np.unsignedinteger],
    right: NDArray[np.unsignedinteger],
    out: NDArray[np.unsignedinteger],
    first: int,
    last: int,
) -> None:
    """Columns first..last-1 of left @ right into ``out``, modulo 2^32 or 2^64 as the words of all three wrap."""
    c, d = left.shape
    sums = np.empty((c + 1, TILE), out.dtype)
    for start in range(first, last, TILE):
        width = min(TILE, last - start)
        sums[:] = 0
        for k in range(0, d - 3, 4):
            d0, d1 = right[k, start : start + width], right[k + 1, start : start + width]
            d2, d3 = right[k + 2, start : start + width], right[k + 3, start : start + width]
            for r in range(0, c, 2):
                a, b, s = sums[r], sums[r + 1], min(r + 1, c - 1)
                t0, t1, t2, t3 = left[r, k], left[r, k + 1], left[r, k + 2], left[r, k + 3]
                u0, u1, u2, u3 = left[s, k], left[s, k + 1], left[s, k + 2], left[s, k + 3]
                for j in range(width):
                    x0, x1, x2, x3 = d0[j], d1[j], d2[j], d3[j]
                    a[j] = a[j] + t0 * x0 + t1 * x1 + t2 * x2 + t3 * x3
                    b[j] = b[j] + u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3
        for k in range(d - d % 4, d):
            for r in range(c):
                for j in range(width):
                    sums[r, j] += left[r, k] * right[k, start + j]
        for r in range(c):
            for j in range(width):
                out[r, start + j] = sums[r, j]


@njit(cache=True, nogil=True)
def product_31(
    left: NDArray[np.uint32], right: NDArray[np.uint32], out: NDArray[np.uint32], first: int, last: int
) -> None:
    """Columns first..last-1 of left @ right modulo 2^31 - 1 into ``out``.

    Sums are folded after four rows.
    """
    c, d = left.shape
    sums = np.empty((c + 1, TILE), np.uint64)
    for start in range(first, last, TILE):
        width = min(TILE, last - start)
        sums[:] = 0
        for k in range(0, d - 3, 4):
            d0, d1 = right[k, start : start + width], right[k + 1, start : start + width]
            d2, d3 = right[k + 2, start : start + width], right[k + 3, start : start + width]
            for r in range(0, c, 2):
                a, b, s = sums[r], sums[r + 1], min(r + 1, c - 1)
                t0, t1 = np.uint64(left[r, k]), np.uint64(left[r, k + 1])
                t2, t3 = np.uint64(left[r, k + 2]), np.uint64(left[r, k + 3])
                u0, u1 = np.uint64(left[s, k]), np.uint64(left[s, k + 1])
                u2, u3 = np.uint64(left[s, k + 2]), np.uint64(left[s, k + 3])
                for j in range(width):
                    x0, x1 = np.uint64(d0[j]), np.uint64(d1[j])
                    x2, x3 = np.uint64(d2[j]), np.uint64(d3[j])
                    v = a[j] + t0 * x0 + t1 * x1 + t2 * x2 + t3 * x3
                    w = b[j] + u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3
                    a[j] = (v & P) + (v >> BITS)
                    b[j] = (w & P) + (w >> BITS)
        for k in range(d - d % 4, d):
            for r in range(c):
                for j in range(width):
                    v = sums[r, j] + np.uint64(left[r, k]) * np.uint64(right[k, start + j])
                    sums[r, j] = (v & P) + (v >> BITS)
        for r in range(c):
            for j in range(width):
                out[r, start + j] = np.uint32(sums[r, j] % P)


@njit(cache=True, nogil=True)
def add_31(left: NDArray[np.uint32], right: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """left + right modulo 2^31 - 1; ``out`` may be either. The wrapped difference s - p is large when s < p."""
    for i in range(out.size):
        s = np.uint32(left[i] + right[i])
        out[i] = min(s, np.uint32(s - P_32))


@njit(cache=True, nogil=True)
def subtract_31(left: NDArray[np.uint32], right: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """left - right modulo 2^31 - 1; ``out`` may be either."""
    for i in range(out.size):
        s = np.uint32(left[i] - right[i])
        out[i] = min(s, np.uint32(s + P_32))


@njit(cache=True, nogil=True)
def add_multiple_31(total: NDArray[np.uint32], factor: np.uint32, block: NDArray[np.uint32]) -> None:
    """Add factor * block to ``total`` modulo 2^31 - 1, in place."""
    f = np.uint64(factor)
    for i in range(total.size):
        s = np.uint64(total[i]) + f * np.uint64(block[i])
        s = (s & P) + (s >> BITS)
        s = (s & P) + (s >> BITS)
        total[i] = np.uint32(min(s, s - P))


@njit(cache=True, nogil=True)
def reduce_31(words: NDArray[np.uint32]) -> int:
    """Keep the low 31 bits of every word, in place; the number of words that then equal p, which is no residue."""
    outside = 0
    for i in range(words.size):
        words[i] &= P_32
        outside += words[i] == P_32
    return outside
