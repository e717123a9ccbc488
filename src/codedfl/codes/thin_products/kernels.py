"""The compiled product of a few rows with a matrix in single precision, which reads the matrix once.

A general product first copies the matrix into blocks. Here five rows of the left factor meet sixteen columns of the
right one, and their sums stay in registers over eight rows of the right factor. A word of 64 bits holds two numbers; a
factor is there twice. Sums of 256 products in single precision are added up in double precision, so that rounding is
less than that of a product which adds all of them in single precision.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from codedfl.codes.modular.vector_kernels import LANES, accumulation, load, repeat

COLUMNS = 4 * LANES
"""Columns that are multiplied together: two vectors."""
TOGETHER = 5
"""Rows that are multiplied together: their sums fill ten of sixteen registers."""
TILE = 2048
DEPTH = 8
BLOCK = 256
"""Products that are added up in single precision."""

FLOATS = ir.VectorType(ir.FloatType(), 2 * LANES)


def _more(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums of five rows, two vectors each, after one more row of sixteen numbers."""
    x, result = [builder.bitcast(load(builder, words, LANES * half), FLOATS) for half in range(2)], []
    for row in range(TOGETHER):
        factor = builder.bitcast(repeat(builder, factors, row), FLOATS)
        terms = [builder.fmul(factor, each, flags=["contract"]) for each in x]
        old = sums[2 * row : 2 * row + 2]
        result += [builder.fadd(s, term, flags=["contract"]) for s, term in zip(old, terms, strict=True)]
    return result


_accumulate: Any = intrinsic(accumulation(_more, [FLOATS] * (2 * TOGETHER)))


@njit(cache=True, nogil=True)
def thin_product_32(left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    """left @ right into ``out``; all lie row after row in memory, and ``right`` has a multiple of sixteen columns."""
    c, (d, columns) = left.shape[0], right.shape
    rows, stride = -(-c // TOGETHER) * TOGETHER, columns // 2
    doubled = np.zeros((d, rows, 2), np.float32)
    for r in range(c):
        for k in range(d):
            doubled[k, r, 0] = doubled[k, r, 1] = left[r, k]
    sums = np.empty((TILE // COLUMNS, rows, COLUMNS), np.float32)
    factors, words = doubled.reshape(-1).view(np.uint64), right.reshape(-1).view(np.uint64)
    flat, size = sums.reshape(-1).view(np.uint64), COLUMNS // 2
    out[:] = 0
    for start in range(0, columns, TILE):
        groups = min(TILE, columns - start) // COLUMNS
        for top in range(0, d, BLOCK):
            sums[:groups] = 0
            bottom = min(d, top + BLOCK)
            for k in range(top, bottom, DEPTH):
                depth = min(DEPTH, bottom - k)
                for g in range(groups):
                    at = k * stride + start // 2 + g * size
                    for r in range(0, rows, TOGETHER):
                        _accumulate(words, at, stride, factors, k * rows + r, rows, depth, flat, size * (g * rows + r))
            for r in range(c):
                for g in range(groups):
                    for j in range(COLUMNS):
                        out[r, start + g * COLUMNS + j] += sums[g, r, j]
