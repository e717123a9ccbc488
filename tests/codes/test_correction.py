"""Wrong replies in small code words: every set of them, with polynomials that are evaluated by hand."""

from itertools import combinations

import numpy as np
import pytest

from codedfl.codes.correction import ReedSolomon
from codedfl.codes.modular import PRIME_31, PRIME_48, PRIME_61, WORD_BITS
from codedfl.errors import CodeError

POINTS = (3, 1, 10, 7, 5, 8, 2, 12)
FACTORS = (1, 4, 2, 9, 5, 3, 11, 6)


def replies(prime: int, K: int, columns: int) -> np.ndarray:
    """u_i P(x_i) with P = 1 + 2 x + ... + K x^(K-1) in the first column; the next one's coefficients are 1 larger."""
    return np.array(
        [
            [u * sum((k + 1 + column) * x**k for k in range(K)) % prime for column in range(columns)]
            for x, u in zip(POINTS, FACTORS, strict=True)
        ],
        f"uint{WORD_BITS[prime]}",
    )


@pytest.mark.parametrize("prime", [PRIME_31, PRIME_48, PRIME_61])
@pytest.mark.parametrize(("K", "total"), [(1, 8), (2, 8), (3, 8), (3, 6), (2, 3), (5, 6), (8, 8)])
def test_half_of_the_spare_replies_are_found_wherever_they_are(prime: int, K: int, total: int) -> None:
    code, which = ReedSolomon(K, prime, POINTS, FACTORS), tuple(range(total))[::-1]
    words = replies(prime, K, 2)
    assert code.consistent(which, words[list(which)])
    assert code.wrong(which, words[list(which)]) == ()
    for count in range(1, (total - K) // 2 + 1):
        for liars in combinations(which, count):
            told = words.copy()
            for place, liar in enumerate(liars):
                told[liar, place % 2] = (int(told[liar, place % 2]) + 1 + place) % prime
            assert not code.consistent(which, told[list(which)])
            assert code.wrong(which, told[list(which)]) == liars


@pytest.mark.parametrize(("K", "total"), [(2, 3), (2, 4), (2, 5), (3, 6), (2, 7), (1, 2)])
def test_one_more_than_can_be_found_is_told_to_be_too_many(K: int, total: int) -> None:
    """Lies of 1, 2, ... that are far from any other code word."""
    code, which = ReedSolomon(K, PRIME_48, POINTS, FACTORS), list(range(total))
    for liars in combinations(which, (total - K) // 2 + 1):
        told = replies(PRIME_48, K, 3)
        for place, liar in enumerate(liars):
            told[liar] = (told[liar].astype(object) + 2**20 * (place + 1) ** 3 + np.arange(3)) % PRIME_48
        assert not code.consistent(which, told[which])
        assert code.wrong(which, told[which]) is None


def test_wrong_replies_are_told_by_their_numbers() -> None:
    code = ReedSolomon(2, PRIME_31, POINTS, FACTORS)
    told = replies(PRIME_31, 2, 1)
    told[6] += 5
    assert code.wrong([7, 6, 1, 4], told[[7, 6, 1, 4]]) == (6,)
    assert code.wrong([7, 0, 1, 4], told[[7, 0, 1, 4]]) == ()
    assert code.wrong([7, 6], told[[7, 6]]) == ()


def test_replies_without_columns_are_consistent() -> None:
    code = ReedSolomon(2, PRIME_31, POINTS, FACTORS)
    assert code.consistent([0, 1, 2], np.zeros((3, 0), np.uint32))
    assert code.wrong([0, 1, 2], np.zeros((3, 0), np.uint32)) == ()


@pytest.mark.parametrize(
    ("K", "points", "factors"),
    [
        (0, (1, 2), (1, 1)),
        (-1, (1, 2), (1, 1)),
        (3, (1, 2), (1, 1)),
        (1, (1, 2), (1, 1, 1)),
        (1, (1, 2, 3), (1, 1)),
        (1, (1, 2), (1, 0)),
        (1, (1, 2), (PRIME_31, 1)),
        (1, (1, PRIME_31), (1, 1)),
        (1, (2, PRIME_31 + 2), (1, 1)),
        (1, (), ()),
    ],
)
def test_what_is_no_code_is_refused(K: int, points: tuple[int, ...], factors: tuple[int, ...]) -> None:
    with pytest.raises(CodeError, match=f"no code of {len(points)} points and dimension {K} here"):
        ReedSolomon(K, PRIME_31, points, factors)


def test_a_code_may_have_as_many_points_as_its_dimension() -> None:
    assert ReedSolomon(2, PRIME_31, (1, 2), (1, 1)).consistent([1, 0], np.array([[5], [9]], np.uint32))


@pytest.mark.parametrize("which", [[0, -1], [0, 1, -2], [1, 8], [3], [0, 1, 0]])
def test_replies_that_do_not_check_each_other_are_refused(which: list[int]) -> None:
    code = ReedSolomon(2, PRIME_31, POINTS, FACTORS)
    with pytest.raises(CodeError, match=r"do not check each other: give at least 2 different ones"):
        code.consistent(which, np.zeros((len(which), 1), np.uint32))
