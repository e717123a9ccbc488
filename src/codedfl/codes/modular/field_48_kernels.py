"""Compiled arithmetic in the field of p = 2^48 - 59 elements, the largest prime below 2^48, on words of 64 bits.

Residues are cut into limbs of 24 bits, t = t0 + 2^24 t1 and x = x0 + 2^24 x1. By Karatsuba's identity three sums give
the product of a row and a column,

    sum t x = L + 2^24 (M - L - H) + 2^48 H,    L = sum t0 x0,  H = sum t1 x1,  M = sum (t0 + t1)(x0 + x1),

each of one 32-bit multiplication and one addition a term. Sums are exact: a term of M is below 2^50, so 2^14 of them
stay below 2^64, and after so many rows what is there is reduced. Because 2^48 = 59 modulo p, a word is *folded* to
(w mod 2^48) + 59 (w >> 48), which is below 2^48 + 2^22.

The innermost loop is written in vectors of LLVM: two rows of the left factor meet four columns of the right one, and
their sums stay in registers over sixteen rows of the right factor. Kernels work on a range of columns and hold no lock
of the interpreter.

A model has a few steps an entry (``codedfl.schemes.sealing``), so that its centred entries t are small and two sums in
float64 suffice,

    sum t x = sum t x0 + 2^24 sum t x1,    both exact while the sum of |t| is at most 2^29,

each of one fused multiplication and addition a term; without fused ones the result is the same, because nothing is
rounded.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from codedfl.codes.modular import PRIME_48
from codedfl.codes.modular.vector_kernels import LANES, WORDS, accumulation, constant, load, repeat

P = np.uint64(PRIME_48)
ONE = np.uint64(1)
MASK = np.uint64(2**48 - 1)
BITS = np.uint64(48)
EXCESS = np.uint64(59)
LIMB = np.uint64(2**24 - 1)
LIMB_BITS = np.uint64(24)
TILE = 1024
DEPTH = 16
ROWS = 1 << 14
"""Rows after which sums are reduced."""
SMALL = 1 << 29
"""Sum of magnitudes in a row up to which its products with limbs add up exactly in float64."""
SMALL_DEPTH = 8
"""Rows of the right factor over which their sums stay in registers: more are more streams than are fetched in time."""
TOGETHER = 5
"""Rows of small entries that are multiplied together: their sums fill ten of sixteen registers."""


def _more(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums L, H, M of two rows after one more row of four words; factors are (t0, t1, t0 + t1) of both rows."""
    x = load(builder, words, 0)
    low = builder.and_(x, constant(2**24 - 1))
    # residues need no mask here; it shows the compiler that a multiplication of 32 bits will do
    high = builder.and_(builder.lshr(x, constant(24)), constant(2**24 - 1))
    limbs = [low, high, builder.add(low, high)] * 2
    small = [builder.and_(repeat(builder, factors, place), constant(2**32 - 1)) for place in range(6)]
    terms = [builder.mul(limb, factor) for limb, factor in zip(limbs, small, strict=True)]
    return [builder.add(s, term) for s, term in zip(sums, terms, strict=True)]


_accumulate: Any = intrinsic(accumulation(_more, [WORDS] * 6))

DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def _double(builder: Any, limb: Any) -> Any:
    """The numbers of a limb in float64: the bits of 2^52 + limb, less 2^52."""
    shifted = builder.bitcast(builder.or_(limb, constant(0x433 << 52)), DOUBLES)
    return builder.fsub(shifted, ir.Constant(DOUBLES, [2.0**52] * LANES))


def _more_small(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums of t x0 and t x1 of five rows after one more row of four words; factors are t in float64."""
    x = load(builder, words, 0)
    limbs = [builder.and_(x, constant(2**24 - 1)), builder.lshr(x, constant(24))]
    numbers, result = [_double(builder, limb) for limb in limbs], []
    for row in range(TOGETHER):
        factor = builder.bitcast(repeat(builder, factors, row), DOUBLES)
        terms = [builder.fmul(factor, number, flags=["contract"]) for number in numbers]
        result += [
            builder.fadd(s, term, flags=["contract"])
            for s, term in zip(sums[2 * row : 2 * row + 2], terms, strict=True)
        ]
    return result


_accumulate_small: Any = intrinsic(accumulation(_more_small, [DOUBLES] * (2 * TOGETHER)))


@njit(inline="always")
def _folded(word: np.uint64) -> np.uint64:
    return (word & MASK) + EXCESS * (word >> BITS)


@njit(inline="always")
def _joined(low: np.uint64, high: np.uint64, middle: np.uint64) -> np.uint64:
    """The residue of low + 2^24 middle + 2^48 high; middle below 2^49, low and 59 high together below 2^63."""
    total = low + EXCESS * high + ((middle & LIMB) << LIMB_BITS) + EXCESS * (middle >> LIMB_BITS)
    s = _folded(total)
    return min(s, s - P)


@njit(inline="always")
def _reduced(low: np.uint64, high: np.uint64, mixed: np.uint64) -> np.uint64:
    """The residue that the sums L, H and M stand for."""
    return _joined(_folded(low), _folded(high), _folded(mixed - low - high))


@njit(inline="always")
def _sum(left: np.uint64, right: np.uint64) -> np.uint64:
    s = left + right
    return min(s, s - P)


@njit(cache=True, nogil=True)
def _factors(left: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    """(t0, t1, t0 + t1) of every entry t of left^T, with zeros up to ``rows`` columns."""
    c, d = left.shape
    result = np.zeros((d, rows, 3), np.uint64)
    for r in range(c):
        for k in range(d):
            low, high = left[r, k] & LIMB, left[r, k] >> LIMB_BITS
            result[k, r, 0], result[k, r, 1], result[k, r, 2] = low, high, low + high
    return result


@njit(cache=True, nogil=True)
def product_48(
    left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, last: int
) -> None:
    """Columns first..last-1 of left @ right modulo 2^48 - 59 into ``out``; all three lie row after row in memory."""
    whole = last - (last - first) % LANES
    out[:, first:last] = 0
    if _is_small(left):
        _small_product(left, right, out, first, whole)
    else:
        _large_product(left, right, out, first, whole)
    if whole < last:
        _single_columns(_factors(left, len(left)), right, out, whole, last)


@njit(cache=True, nogil=True)
def _is_small(left: NDArray[np.uint64]) -> bool:
    """Whether the magnitudes of the centred entries of every row add up to no more than ``SMALL``."""
    for r in range(len(left)):
        total = np.uint64(0)
        for k in range(left.shape[1]):
            total += min(left[r, k], P - left[r, k])
            if total > SMALL:
                return False
    return True


@njit(cache=True, nogil=True)
def _small_product(
    left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, last: int
) -> None:
    """The columns of a product with small entries on the left, a multiple of four of them."""
    c, (d, columns) = left.shape[0], right.shape
    rows, words = -(-c // TOGETHER) * TOGETHER, right.reshape(-1)
    numbers = np.zeros((d, rows))
    for r in range(c):
        for k in range(d):
            t = np.int64(left[r, k])
            numbers[k, r] = t if left[r, k] <= P >> ONE else t - np.int64(P)
    sums = np.empty((TILE // LANES, rows, 2, LANES))
    factors, flat_sums = numbers.reshape(-1).view(np.uint64), sums.reshape(-1).view(np.uint64)
    for start in range(first, last, TILE):
        groups = min(TILE, last - start) // LANES
        sums[:groups] = 0
        for k in range(0, d, SMALL_DEPTH):
            depth = min(SMALL_DEPTH, d - k)
            for g in range(groups):
                at = k * columns + start + g * LANES
                for r in range(0, rows, TOGETHER):
                    place = 2 * LANES * (g * rows + r)
                    _accumulate_small(words, at, columns, factors, k * rows + r, rows, depth, flat_sums, place)
        for r in range(c):
            for g in range(groups):
                for j in range(LANES):
                    low, high = np.int64(sums[g, r, 0, j]), np.int64(sums[g, r, 1, j])
                    residues = np.uint64(low % np.int64(P)), np.uint64(high % np.int64(P))
                    out[r, start + g * LANES + j] = _joined(residues[0], np.uint64(0), residues[1])


@njit(cache=True, nogil=True)
def _large_product(
    left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, whole: int
) -> None:
    """The columns of any product, a multiple of four of them, added to what is in ``out``."""
    c, (d, columns) = left.shape[0], right.shape
    rows = c + c % 2
    factors, words = _factors(left, rows), right.reshape(-1)
    flat_factors = factors.reshape(-1)
    sums = np.empty((TILE // LANES, rows, 3, LANES), np.uint64)
    flat_sums = sums.reshape(-1)
    for start in range(first, whole, TILE):
        groups = min(TILE, whole - start) // LANES
        for top in range(0, d, ROWS):
            sums[:groups] = 0
            bottom = min(d, top + ROWS)
            for k in range(top, bottom, DEPTH):
                depth = min(DEPTH, bottom - k)
                for g in range(groups):
                    at = k * columns + start + g * LANES
                    for r in range(0, rows, 2):
                        place, factor = 3 * LANES * (g * rows + r), 3 * (k * rows + r)
                        _accumulate(words, at, columns, flat_factors, factor, 3 * rows, depth, flat_sums, place)
            for r in range(c):
                for g in range(groups):
                    for j in range(LANES):
                        value = _reduced(sums[g, r, 0, j], sums[g, r, 1, j], sums[g, r, 2, j])
                        column = start + g * LANES + j
                        out[r, column] = _sum(out[r, column], value)


@njit(cache=True, nogil=True)
def _single_columns(
    factors: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64], first: int, last: int
) -> None:
    """The columns that do not fill a vector, one by one, added to what is in ``out``."""
    d = len(right)
    for r in range(len(out)):
        for j in range(first, last):
            for top in range(0, d, ROWS):
                low, high, mixed = np.uint64(0), np.uint64(0), np.uint64(0)
                for k in range(top, min(d, top + ROWS)):
                    x0, x1 = right[k, j] & LIMB, right[k, j] >> LIMB_BITS
                    low += factors[k, r, 0] * x0
                    high += factors[k, r, 1] * x1
                    mixed += factors[k, r, 2] * (x0 + x1)
                out[r, j] = _sum(out[r, j], _reduced(low, high, mixed))


@njit(cache=True, nogil=True)
def add_48(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """left + right modulo 2^48 - 59; ``out`` may be either. The wrapped difference s - p is large when s < p."""
    for i in range(out.size):
        out[i] = _sum(left[i], right[i])


@njit(cache=True, nogil=True)
def subtract_48(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """left - right modulo 2^48 - 59; ``out`` may be either."""
    for i in range(out.size):
        s = left[i] - right[i]
        out[i] = min(s, s + P)


@njit(cache=True, nogil=True)
def add_multiple_48(total: NDArray[np.uint64], factor: np.uint64, block: NDArray[np.uint64]) -> None:
    """Add factor * block to ``total`` modulo 2^48 - 59, in place."""
    f0, f1 = factor & LIMB, factor >> LIMB_BITS
    for i in range(total.size):
        x0, x1 = block[i] & LIMB, (block[i] >> LIMB_BITS) & LIMB
        total[i] = _joined(total[i] + f0 * x0, f1 * x1, f0 * x1 + f1 * x0)


@njit(cache=True, nogil=True)
def reduce_48(words: NDArray[np.uint64]) -> int:
    """Keep the low 48 bits of every word, in place; the number of words that then are p or more: no residues."""
    outside = 0
    for i in range(words.size):
        words[i] &= MASK
        outside += words[i] >= P
    return outside


@njit(cache=True, nogil=True)
def pack_48(residues: NDArray[np.uint64], words: NDArray[np.uint16]) -> None:
    """Three words of 16 bits for each residue, the lowest first."""
    for i in range(residues.size):
        words[3 * i] = np.uint16(residues[i])
        words[3 * i + 1] = np.uint16(residues[i] >> np.uint64(16))
        words[3 * i + 2] = np.uint16(residues[i] >> np.uint64(32))


@njit(cache=True, nogil=True)
def unpack_48(words: NDArray[np.uint16], residues: NDArray[np.uint64]) -> int:
    """The residues of packed words; how many of them are p or more, and so are none."""
    outside = 0
    for i in range(residues.size):
        low, middle, high = np.uint64(words[3 * i]), np.uint64(words[3 * i + 1]), np.uint64(words[3 * i + 2])
        residues[i] = low | (middle << np.uint64(16)) | (high << np.uint64(32))
        outside += residues[i] >= P
    return outside
