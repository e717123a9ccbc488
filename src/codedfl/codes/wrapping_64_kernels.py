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

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from codedfl.codes.modular_kernels import TILE, product_wrapping

__all__ = ["product_64"]

COLUMNS = 8
DEPTH = 16
HALF = np.uint64(32)

WORD, HALVES = ir.IntType(64), ir.IntType(32)
LANES = 4
WORDS = ir.VectorType(WORD, LANES)
PAIRS = ir.VectorType(HALVES, 2 * LANES)
LOW_HALVES = ir.Constant(WORDS, [2**32 - 1] * LANES)
HALF_WORD = ir.Constant(WORDS, [32] * LANES)


def _load(builder: Any, pointer: Any, offset: int) -> Any:
    place = builder.gep(pointer, [ir.Constant(WORD, offset)])
    return builder.load(builder.bitcast(place, WORDS.as_pointer()), align=8)


def _repeat(builder: Any, pointer: Any, offset: int) -> Any:
    """One word in every lane."""
    nothing, first = ir.Constant(WORDS, ir.Undefined), ir.Constant(HALVES, 0)
    word = builder.load(builder.gep(pointer, [ir.Constant(WORD, offset)]), align=8)
    lanes = ir.Constant(ir.VectorType(HALVES, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, word, first), nothing, lanes)


def _more(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
    """The sums of two rows, each two vectors of low and two of middle sums, after one more row of words."""
    x = [_load(builder, words, LANES * q) for q in range(2)]
    result = []
    for row in range(2):
        exchanged = _repeat(builder, factors, row)
        low = builder.lshr(exchanged, HALF_WORD)
        low_terms = [builder.mul(builder.and_(word, LOW_HALVES), low) for word in x]
        factor = builder.bitcast(exchanged, PAIRS)
        middle_terms = [builder.mul(builder.bitcast(word, PAIRS), factor) for word in x]
        old = sums[4 * row : 4 * row + 4]
        result += [builder.add(s, term) for s, term in zip(old, low_terms + middle_terms, strict=True)]
    return result


def _loop(builder: Any, sums: list[Any], words: Any, stride: Any, factors: Any, step: Any, count: Any) -> list[Any]:
    """The sums after ``count`` >= 1 rows, ``stride`` words and ``step`` factors apart."""
    before, body, after = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("joined")
    builder.branch(body)
    builder.position_at_end(body)
    carried = [builder.phi(value.type) for value in [count, words, factors, *sums]]
    left, x, t = carried[:3]
    following = [
        builder.sub(left, ir.Constant(WORD, 1)),
        builder.gep(x, [stride]),
        builder.gep(t, [step]),
        *_more(builder, carried[3:], x, t),
    ]
    for phi, first, later in zip(carried, [count, words, factors, *sums], following, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.cbranch(builder.icmp_signed(">", following[0], ir.Constant(WORD, 0)), body, after)
    builder.position_at_end(after)
    return following[3:]


def _accumulation(
    typing: Any,
    words: Any,
    at: Any,
    stride: Any,
    factors: Any,
    first: Any,
    step: Any,
    count: Any,
    sums: Any,
    place: Any,
) -> tuple[Any, Callable[..., Any]]:
    """Add the products of ``count`` rows of eight words with two factors each to 2 x (low, middle) x 8 sums.

    Rows start at words[at], words[at + stride], ..., their factors (with halves exchanged) at factors[first],
    factors[first + step], ...; the sums are at sums[place]. Arrays are flat.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def pointer(array: int, index: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(data, [arguments[index]])

        total = pointer(7, 8)
        kinds = [WORDS, WORDS, PAIRS, PAIRS] * 2
        old = [builder.bitcast(_load(builder, total, LANES * i), kind) for i, kind in enumerate(kinds)]
        new = _loop(builder, old, pointer(0, 1), arguments[2], pointer(3, 4), arguments[5], arguments[6])
        for i, value in enumerate(new):
            address = builder.gep(total, [ir.Constant(WORD, LANES * i)])
            builder.store(builder.bitcast(value, WORDS), builder.bitcast(address, WORDS.as_pointer()), align=8)
        return context.get_dummy_value()

    index = types.intp
    return types.void(words, index, index, factors, index, index, index, sums, index), generate


_accumulate: Any = intrinsic(_accumulation)


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
