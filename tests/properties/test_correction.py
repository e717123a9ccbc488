"""Laws of error correction: which wrong replies are detected and found, for both codes of the coded schemes."""

from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.codes.correction import ReedSolomon
from codedfl.codes.gradient_code import GradientCode
from codedfl.codes.mds import MdsCode
from codedfl.codes.modular import PRIME_31, PRIME_48, PRIME_61, WORD_BITS
from codedfl.errors import CodeError

seeds = st.integers(0, 2**32 - 1)


def _words(generator, blocks, prime):
    """Encode with whole numbers of any size, by no kernel of the package."""
    sums = [[sum(map(mul, row, column)) % prime for column in zip(*blocks, strict=True)] for row in generator]
    return np.array(sums, f"uint{WORD_BITS[prime]}")


@st.composite
def sizes(draw):
    """A prime, W and K, the kind of the code, how many columns, and the numbers of some replies in any order."""
    prime = draw(st.sampled_from([PRIME_31, PRIME_48, PRIME_61]))
    count = draw(st.integers(1, 12))
    needed = draw(st.integers(1, count))
    which = draw(st.permutations(range(count)))[: draw(st.integers(needed, count))]
    return prime, count, needed, draw(st.booleans()), draw(st.integers(1, 5)), which, draw(seeds)


def _replies(found):
    """Return the code, the numbers of the replies, and all honest words."""
    prime, count, needed, cauchy, columns, which, seed = found
    rng = np.random.default_rng(seed)
    code = MdsCode(count, needed, prime) if cauchy else GradientCode(count, count - needed + 1, prime)
    rows = code.generator.tolist() if cauchy else code.matrix
    blocks = rng.integers(0, prime, (len(rows[0]), columns)).tolist()
    return code.reed_solomon, list(which), _words(rows, blocks, prime), rng


def _changed(words, which, wrong, rng, prime, how):
    lies = words.copy()
    for number in wrong:
        columns = [rng.integers(words.shape[1])] if how == "one entry" else range(words.shape[1])
        by = 1 if how == "by one" else int(rng.integers(1, prime))
        for column in columns:
            lies[number, column] = (int(words[number, column]) + by) % prime
    return lies[which]


hows = st.sampled_from(["one entry", "by one", "all by the same"])


@given(sizes())
def test_honest_replies_are_always_consistent(found):
    code, which, words, _ = _replies(found)
    assert code.consistent(which, words[which])
    assert code.wrong(which, words[which]) == ()


@given(sizes(), hows, st.data())
def test_as_many_wrong_replies_as_there_are_spare_ones_are_detected(found, how, data):
    code, which, words, rng = _replies(found)
    spare = len(which) - code.K
    wrong = which[: data.draw(st.integers(0, spare))]
    assert code.consistent(which, _changed(words, which, wrong, rng, code.prime, how)) == (not wrong)


@given(sizes(), hows, st.data())
def test_half_as_many_are_found(found, how, data):
    code, which, words, rng = _replies(found)
    wrong = which[: data.draw(st.integers(0, (len(which) - code.K) // 2))]
    assert code.wrong(which, _changed(words, which, wrong, rng, code.prime, how)) == tuple(wrong)


@given(sizes(), hows, st.data())
def test_more_are_never_found_wrongly_with_one_spare_reply(found, how, data):
    code, which, words, rng = _replies(found)
    which = which[: code.K + 1]
    wrong = which[: data.draw(st.integers(1, len(which)))] if len(which) > code.K else []
    lies = _changed(words, which, wrong, rng, code.prime, how)
    assert code.wrong(which, lies) == (() if code.consistent(which, lies) else None)


def test_by_hand() -> None:
    """P = 3 + 2x at 1, 2, 3, 4 is 5, 7, 9, 11; the third is told as 10."""
    code = ReedSolomon(2, PRIME_31, (1, 2, 3, 4), (1, 1, 1, 1))
    told = np.array([[5], [7], [10], [11]], np.uint32)
    assert code.wrong([0, 1, 2, 3], told) == (2,)
    assert code.wrong([0, 1, 2], told[:3]) is None
    assert code.wrong([0, 1], told[:2]) == ()
    assert code.wrong([0, 1, 3], told[[0, 1, 3]]) == ()


@pytest.mark.parametrize("points", [(1, 1, 2), (0, 1, 2), (1, PRIME_31 + 1, 2), (1, 2)])
def test_points_that_do_not_make_a_code_are_refused(points: tuple[int, ...]) -> None:
    with pytest.raises(CodeError, match="distinct points"):
        ReedSolomon(3, PRIME_31, points, (1,) * len(points))


@pytest.mark.parametrize("which", [[0], [0, 0], [0, 4]])
def test_replies_that_cannot_be_checked_are_refused(which: list[int]) -> None:
    code = ReedSolomon(2, PRIME_31, (1, 2, 3, 4), (1, 1, 1, 1))
    with pytest.raises(CodeError, match="do not check each other"):
        code.consistent(which, np.zeros((len(which), 1), np.uint32))
