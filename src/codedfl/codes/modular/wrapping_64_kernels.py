"""The compiled product in Z_2^64, from multiplications of 32-bit halves.

Vector units without a 64-bit multiplication emulate one with three of 32 bits, shifts and additions in a chain. With
t = t0 + 2^32 t1 and x = x0 + 2^32 x1,

    sum t x = sum t0 x0 + 2^32 (sum t1 x0 + sum t0 x1)    modulo 2^64,

so two sums are kept apart and joined once at the end: the low one of 64-bit products of halves, and the middle one,
which only counts modulo 2^32, of 32-bit products of the halves of x with the *exchanged* halves (t1, t0) of t. A word
then costs two multiplications and two additions, and no shuffle. The law holds for all words; nothing is assumed about
their size.

Compilers do not find the second multiplication in a loop over 64-bit words. The innermost loop is therefore written in
vectors of LLVM, which every processor that numba compiles for supports: two rows of the left factor meet eight columns
of the right one, and their sums stay in registers over sixteen rows of the right factor. More rows at a time than that
are more streams than the processor fetches ahead.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from codedfl.codes.modular.kernels import TILE, product_wrapping
from codedfl.codes.modular.vector_kernels import LANES, WORDS, accumulation, constant, load, repeat

COLUMNS = 8
DEPTH = 16
HALF = np.uint64(32)

PAIRS = ir.VectorType(ir.IntType(32), 2 * LANES)


def _more(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums of two rows, each two vectors of low and two of middle sums, after one more row of words."""
    x = [load(builder, words, LANES * q) for q in range(2)]
    result = []
    for row in range(2):
        exchanged = repeat(builder, factors, row)
        low = builder.lshr(exchanged, constant(32))
        low_terms = [builder.mul(builder.and_(word, constant(2**32 - 1)), low) for word in x]
        factor = builder.bitcast(exchanged, PAIRS)
        middle_terms = [builder.mul(builder.bitcast(word, PAIRS), factor) for word in x]
        old = sums[4 * row : 4 * row + 4]
        result += [builder.add(s, term) for s, term in zip(old, low_terms + middle_terms, strict=True)]
    return result


# rows of eight words, two factors each (with halves exchanged), and 2 x (low, middle) x 8 sums
_accumulate: Any = intrinsic(accumulation(_more, [WORDS, WORDS, PAIRS, PAIRS] * 2))


@njit(cache=True, nogil=True)
def _exchanged(left: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    """left^T with the halves of every word exchanged and zeros up to ``rows`` columns."""
    c, d = left.shape
    result = np.zeros((d, rows), np.uint64)
    for r in range(c):
        for k in range(d):
            result[k, r] = (left[r, k] << HALF) | (left[r, k] >> HALF)
    return result


@njit(cache=True, nogil=True)
def product_64(
    left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, last: int
) -> None:
    """Columns first..last-1 of left @ right into ``out``, modulo 2^64; all three lie row after row in memory."""
    c, (d, columns) = left.shape[0], right.shape
    rows = c + c % 2
    factors, words = _exchanged(left, rows).reshape(-1), right.reshape(-1)
    sums = np.empty((TILE // COLUMNS, rows, 2, COLUMNS), np.uint64)
    flat = sums.reshape(-1)
    whole = last - (last - first) % COLUMNS
    for start in range(first, whole, TILE):
        groups = min(TILE, whole - start) // COLUMNS
        sums[:groups] = 0
        for k in range(0, d, DEPTH):
            depth = min(DEPTH, d - k)
            for g in range(groups):
                at = k * columns + start + g * COLUMNS
                for r in range(0, rows, 2):
                    place = 2 * COLUMNS * (g * rows + r)
                    _accumulate(words, at, columns, factors, k * rows + r, rows, depth, flat, place)
        for r in range(c):
            for g in range(groups):
                for j in range(COLUMNS):
                    middle = sums[g, r, 1, j]
                    out[r, start + g * COLUMNS + j] = sums[g, r, 0, j] + ((middle + (middle >> HALF)) << HALF)
    product_wrapping(left, right, out, whole, last)
