"""Sums of products in vectors of LLVM, for the innermost loops that compilers do not find by themselves.

A kernel says how one more row of words and its factors change the sums; what is here loads the sums into registers,
goes over the rows, and stores them. Every processor that numba compiles for supports these vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

WORD, HALF = ir.IntType(64), ir.IntType(32)
LANES = 4
WORDS = ir.VectorType(WORD, LANES)

More = Callable[[Any, list[Any], Any, Any], list[Any]]
Fold = Callable[[Any, list[Any]], list[Any]]


def constant(value: int) -> Any:
    """The same number in every lane."""
    return ir.Constant(WORDS, [value] * LANES)


def load(builder: Any, pointer: Any, offset: int) -> Any:
    """Consecutive words from ``pointer`` + ``offset``."""
    place = builder.gep(pointer, [ir.Constant(WORD, offset)])
    return builder.load(builder.bitcast(place, WORDS.as_pointer()), align=8)


def repeat(builder: Any, pointer: Any, offset: int) -> Any:
    """One word in every lane."""
    nothing, first = ir.Constant(WORDS, ir.Undefined), ir.Constant(HALF, 0)
    word = builder.load(builder.gep(pointer, [ir.Constant(WORD, offset)]), align=8)
    lanes = ir.Constant(ir.VectorType(HALF, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, word, first), nothing, lanes)


def _loop(
    builder: Any, turn: More, sums: list[Any], words: Any, stride: Any, factors: Any, step: Any, count: Any
) -> list[Any]:
    """The sums after ``count`` >= 1 turns, ``stride`` words and ``step`` factors apart."""
    before, body, after = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("joined")
    builder.branch(body)
    builder.position_at_end(body)
    carried = [builder.phi(value.type) for value in [count, words, factors, *sums]]
    left, x, t = carried[:3]
    following = [
        builder.sub(left, ir.Constant(WORD, 1)),
        builder.gep(x, [stride]),
        builder.gep(t, [step]),
        *turn(builder, carried[3:], x, t),
    ]
    for phi, first, later in zip(carried, [count, words, factors, *sums], following, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.cbranch(builder.icmp_signed(">", following[0], ir.Constant(WORD, 0)), body, after)
    builder.position_at_end(after)
    return following[3:]


def _unfolded(builder: Any, sums: list[Any]) -> list[Any]:
    return sums


def accumulation(
    more: More, kinds: Sequence[Any], together: int = 1, fold: Fold = _unfolded
) -> Callable[..., tuple[Any, Callable[..., Any]]]:
    """What numba's ``intrinsic`` takes: sums of these kinds of vectors over rows, each of which ``more`` adds.

    After every ``together`` rows, the sums are what ``fold`` makes of them.
    """

    def define(
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
        """Add the products of ``count`` times ``together`` rows with their factors to the sums at sums[place].

        Rows start at words[at], words[at + stride], ..., their factors at factors[first], factors[first + step], ...;
        arrays are flat.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def pointer(array: int, index: int) -> Any:
                data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
                return builder.gep(data, [arguments[index]])

            stride, step = arguments[2], arguments[5]

            def turn(builder: Any, sums: list[Any], words: Any, factors: Any) -> list[Any]:
                for row in range(together):
                    sums = more(builder, sums, words, factors)
                    if row + 1 < together:
                        words, factors = builder.gep(words, [stride]), builder.gep(factors, [step])
                return fold(builder, sums)

            total = pointer(7, 8)
            apart = [builder.mul(each, ir.Constant(WORD, together)) for each in (stride, step)]
            old = [builder.bitcast(load(builder, total, LANES * i), kind) for i, kind in enumerate(kinds)]
            new = _loop(builder, turn, old, pointer(0, 1), apart[0], pointer(3, 4), apart[1], arguments[6])
            for i, value in enumerate(new):
                address = builder.gep(total, [ir.Constant(WORD, LANES * i)])
                builder.store(builder.bitcast(value, WORDS), builder.bitcast(address, WORDS.as_pointer()), align=8)
            return context.get_dummy_value()

        index = types.intp
        return types.void(words, index, index, factors, index, index, index, sums, index), generate

    return define
