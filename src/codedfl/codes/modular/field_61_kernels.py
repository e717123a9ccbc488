"""Compiled arithmetic in the field of p = 2^61 - 1 elements, a Mersenne prime, on words of 64 bits.

Residues are cut into limbs, t = t0 + 2^30 t1 in the left factor and x = x0 + 2^31 x1 in the right one. Because 2^61 = 1
modulo p, three sums give the product of a row and a column,

    sum t x = sum (t0 x0 + t1 x1) + 2^30 sum t1 x0 + 2^31 sum t0 x1,

each of 32-bit multiplications. Their terms are below 2^62, 2^62 and 2^60, so that three of them on top of a *folded*
sum (w mod 2^61) + (w >> 61), which is at most 2^61 + 6, never wrap.

The innermost loop is written in vectors of LLVM: two rows of the left factor meet four columns of the right one, and
their sums stay in registers over fifteen rows of the right factor. Kernels work on a range of columns and hold no lock
of the interpreter.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from codedfl.codes.modular import PRIME_61
from codedfl.codes.modular.vector_kernels import LANES, WORDS, accumulation, constant, load, repeat

P = np.uint64(PRIME_61)
BITS = np.uint64(61)
LEFT_BITS, RIGHT_BITS = np.uint64(30), np.uint64(31)
LEFT_LIMB, RIGHT_LIMB = np.uint64(2**30 - 1), np.uint64(2**31 - 1)
TILE = 1024
TOGETHER = 3
"""Rows whose products are added to folded sums."""
TURNS = 5
DEPTH = TOGETHER * TURNS


def _more(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums of two rows, each three vectors, after one more row of four words; factors are (t0, t1) of both rows."""
    x = load(builder, words, 0)
    # residues need no masks of 32 bits; they show the compiler that a multiplication of 32 bits will do
    x0, x1 = builder.and_(x, constant(2**31 - 1)), builder.and_(builder.lshr(x, constant(31)), constant(2**30 - 1))
    result = []
    for row in range(2):
        t0, t1 = (builder.and_(repeat(builder, factors, 2 * row + limb), constant(2**32 - 1)) for limb in range(2))
        outer, first, second = sums[3 * row : 3 * row + 3]
        outer = builder.add(builder.add(outer, builder.mul(t0, x0)), builder.mul(t1, x1))
        result += [outer, builder.add(first, builder.mul(t1, x0)), builder.add(second, builder.mul(t0, x1))]
    return result


def _fold(builder: Any, sums: list[Any]) -> list[Any]:
    return [builder.add(builder.and_(word, constant(PRIME_61)), builder.lshr(word, constant(61))) for word in sums]


_accumulate: Any = intrinsic(accumulation(_more, [WORDS] * 6, TOGETHER, _fold))
_accumulate_row: Any = intrinsic(accumulation(_more, [WORDS] * 6, 1, _fold))


@njit(inline="always")
def _residue(word: np.uint64) -> np.uint64:
    """The residue of any word."""
    s = (word & P) + (word >> BITS)
    return min(s, s - P)


@njit(inline="always")
def _joined(outer: np.uint64, first: np.uint64, second: np.uint64) -> np.uint64:
    """The residue of outer + 2^30 first + 2^31 second, of any words."""
    outer, first, second = _residue(outer), _residue(first), _residue(second)
    # multiplying a residue by 2^k turns its 61 bits by k
    first = ((first << LEFT_BITS) & P) | (first >> RIGHT_BITS)
    second = ((second << RIGHT_BITS) & P) | (second >> LEFT_BITS)
    return _residue(outer + first + second)


@njit(inline="always")
def _sum(left: np.uint64, right: np.uint64) -> np.uint64:
    s = left + right
    return min(s, s - P)


@njit(inline="always")
def _product(left: np.uint64, right: np.uint64) -> np.uint64:
    t0, t1, x0, x1 = left & LEFT_LIMB, left >> LEFT_BITS, right & RIGHT_LIMB, right >> RIGHT_BITS
    return _joined(t0 * x0 + t1 * x1, t1 * x0, t0 * x1)


@njit(cache=True, nogil=True)
def product_61(
    left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, last: int
) -> None:
    """Columns first..last-1 of left @ right modulo 2^61 - 1 into ``out``; all three lie row after row in memory."""
    c, (d, columns) = left.shape[0], right.shape
    rows = c + c % 2
    factors, words = np.zeros((d, rows, 2), np.uint64), right.reshape(-1)
    for r in range(c):
        for k in range(d):
            factors[k, r, 0], factors[k, r, 1] = left[r, k] & LEFT_LIMB, left[r, k] >> LEFT_BITS
    flat_factors = factors.reshape(-1)
    sums = np.empty((TILE // LANES, rows, 3, LANES), np.uint64)
    flat_sums = sums.reshape(-1)
    whole = last - (last - first) % LANES
    for start in range(first, whole, TILE):
        groups = min(TILE, whole - start) // LANES
        sums[:groups] = 0
        for k in range(0, d, DEPTH):
            turns, more = divmod(min(DEPTH, d - k), TOGETHER)
            for g in range(groups):
                at = k * columns + start + g * LANES
                beyond = at + TOGETHER * turns * columns
                for r in range(0, rows, 2):
                    place, factor = 3 * LANES * (g * rows + r), 2 * (k * rows + r)
                    if turns:
                        _accumulate(words, at, columns, flat_factors, factor, 2 * rows, turns, flat_sums, place)
                    if more:
                        factor += 2 * rows * TOGETHER * turns
                        _accumulate_row(words, beyond, columns, flat_factors, factor, 2 * rows, more, flat_sums, place)
        for r in range(c):
            for g in range(groups):
                for j in range(LANES):
                    value = _joined(sums[g, r, 0, j], sums[g, r, 1, j], sums[g, r, 2, j])
                    out[r, start + g * LANES + j] = value
    for r in range(c):
        for j in range(whole, last):  # the columns that do not fill a vector
            total = np.uint64(0)
            for k in range(d):
                total = _sum(total, _product(left[r, k], right[k, j]))
            out[r, j] = total


@njit(cache=True, nogil=True)
def add_61(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """left + right modulo 2^61 - 1; ``out`` may be either. The wrapped difference s - p is large when s < p."""
    for i in range(out.size):
        out[i] = _sum(left[i], right[i])


@njit(cache=True, nogil=True)
def subtract_61(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """left - right modulo 2^61 - 1; ``out`` may be either."""
    for i in range(out.size):
        s = left[i] - right[i]
        out[i] = min(s, s + P)


@njit(cache=True, nogil=True)
def add_multiple_61(total: NDArray[np.uint64], factor: np.uint64, block: NDArray[np.uint64]) -> None:
    """Add factor * block to ``total`` modulo 2^61 - 1, in place."""
    for i in range(total.size):
        total[i] = _sum(total[i], _product(factor, block[i]))


@njit(cache=True, nogil=True)
def reduce_61(words: NDArray[np.uint64]) -> int:
    """Keep the low 61 bits of every word, in place; the number of words that then equal p, which is no residue."""
    outside = 0
    for i in range(words.size):
        words[i] &= P
        outside += words[i] == P
    return outside
