"""Scores of what attacks found against the truth, and verdicts against what could be guessed without any message."""

import math

import numpy as np
import pytest

from codedfl.security.contract import Finding
from codedfl.security.scoring import Truth, area_under_curve, relative_error, score

TRUE = np.diag([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("error", "guess", "verdict"),
    [
        (2**-7, 1.0, "falls"),
        (2**-7, 2**-6, "falls"),
        (2**-7, 2**-7, "holds"),
        (2**-7, 2**-8, "holds"),
        (0.0, 0.0, "holds"),
        (2**-6, 1.0, "leaks"),
        (0.5, 0.53, "leaks"),
        (0.5, 0.52, "holds"),
        (0.5, 0.25, "holds"),
    ],
)
def test_an_attack_no_better_than_the_guess_holds(error: float, guess: float, verdict: str) -> None:
    """Below 1e-2 the matrix falls, if that is news; else it leaks if the error is below 95% of the guess's."""
    found = score(Finding(gram=(1 + error) * TRUE), Truth(gram=TRUE, guess_error=guess))
    assert (found.relative_error, found.guess_error, found.verdict) == (error, guess, verdict)


@pytest.mark.parametrize(("error", "guess", "verdict"), [(1e-2, 1.0, "falls"), (0.95, 1.0, "holds")])
def test_limits_of_errors_count_as_found_and_as_guessed(error: float, guess: float, verdict: str) -> None:
    """A truth of size 1: the error is the number itself."""
    found = score(Finding(gram=np.array([[1.0], [error]])), Truth(gram=np.array([[1.0], [0.0]]), guess_error=guess))
    assert (found.relative_error, found.verdict) == (error, verdict)


@pytest.mark.parametrize(
    ("found", "true", "expected"),
    [
        ([[3.0, 4.0]], [[0.0, 0.0]], math.inf),
        ([[0.0, 0.0]], [[0.0, 0.0]], 0.0),
        ([[3.0, 0.0]], [[3.0, 4.0]], 0.8),
        ([[math.nan, 0.0]], [[3.0, 4.0]], math.inf),
        ([[math.inf, 0.0]], [[3.0, 4.0]], math.inf),
    ],
)
def test_errors_are_relative_to_the_size_of_the_truth(
    found: list[list[float]], true: list[list[float]], expected: float
) -> None:
    assert relative_error(np.array(found), np.array(true)) == expected


@pytest.mark.parametrize(
    ("scores", "members", "expected"),
    [
        ([2.0, 1.0], [True, False], 1.0),
        ([1.0, 2.0], [True, False], 0.0),
        ([1.0, 1.0, 3.0, 2.0], [True, False, True, False], 0.625),
        ([5.0, 4.0, 3.0, 2.0, 1.0], [False, True, True, False, True], 1 / 3),
    ],
)
def test_the_area_is_the_share_of_pairs_in_the_right_order(
    scores: list[float], members: list[bool], expected: float
) -> None:
    """By counting pairs of a member and another: 2 1/2 of 4, then 2 of 6."""
    assert area_under_curve(np.array(scores), np.array(members)) == pytest.approx(expected, rel=1e-15)


def members_above(pairs: int, inside: int, outside: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and members, where members are above so many of all pairs with the others, who score 0, 1, 2, ..."""
    full, rest = divmod(pairs, outside)
    above = [outside] * full + [rest] * (full < inside) + [0] * (inside - full - 1)
    return np.array([*(count - 0.5 for count in above), *range(outside)]), np.arange(inside + outside) < inside


@pytest.mark.parametrize(
    ("pairs", "inside", "outside", "verdict"),
    [
        (9, 1, 10, "falls"),
        (384, 12, 36, "holds"),
        (385, 12, 36, "leaks"),
        (1830, 50, 50, "holds"),
        (1831, 50, 50, "leaks"),
    ],
)
def test_membership_leaks_from_four_deviations_above_chance(
    pairs: int, inside: int, outside: int, verdict: str
) -> None:
    """Under chance the share of pairs has variance (a + b + 1) / (12 a b): of 50 and 50 0.0580^2, so that 0.7321 is
    the limit, 1830.2 pairs of 2500; of 12 and 36 (7/72)^2, the limit 384 pairs of 432. At 0.9 it falls.
    """
    scores, members = members_above(pairs, inside, outside)
    found = score(Finding(membership=scores), Truth(members=members))
    assert found.auc == pytest.approx(pairs / (inside * outside), rel=1e-15)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("length", "size", "named", "hits", "verdict"),
    [
        (100, 10, 10, 4, "holds"),
        (100, 10, 10, 5, "leaks"),
        (64, 28, 32, 22, "holds"),
        (64, 28, 32, 23, "leaks"),
        (10_000, 4, 10, 2, "holds"),
        (10_000, 4, 10, 3, "leaks"),
        (10_000, 4, 4, 4, "falls"),
    ],
)
def test_positions_leak_from_four_deviations_above_chance(
    length: int, size: int, named: int, hits: int, verdict: str
) -> None:
    """Ten random positions hit 1 of 10 in 100 on average, variance 10/10 * 90/100 * 90/99: the limit is 4.6.
    Of 28 in 64, 32 hit 14, variance 14 * 36/64 * 32/63 = 4: the limit is 22.

    Of a few in many the variance is small; it counts as 1/4, so that the limit is two above the average.
    """
    positions = np.r_[:hits, size : size + named - hits]
    found = score(Finding(support=positions), Truth(support=np.arange(size), length=length))
    assert found.support_found == hits / size
    assert found.support_recovered == (verdict == "falls")
    assert found.verdict == verdict


def test_all_positions_and_one_more_are_not_the_support() -> None:
    found = score(Finding(support=np.arange(3)), Truth(support=np.arange(2), length=1000))
    assert (found.support_found, found.support_recovered, found.verdict) == (1.0, False, "holds")


@pytest.mark.parametrize(("named", "recovered"), [([], True), ([3], False)])
def test_to_find_no_errors_where_there_are_none_is_no_success(named: list[int], recovered: bool) -> None:
    finding = Finding(support=np.array(named, np.int64))
    found = score(finding, Truth(support=np.zeros(0, np.int64), length=10))
    assert (found.support_found, found.support_recovered, found.verdict) == (None, recovered, "holds")


WHOLE = Finding(gram=TRUE, support=np.arange(2), membership=np.array([2.0, 1.0]), remark="all of it")
KNOWN = Truth(gram=TRUE, support=np.arange(2), members=np.array([True, False]), length=1000)


@pytest.mark.parametrize(("finding", "truth"), [(WHOLE, Truth()), (Finding(remark="all of it"), KNOWN)])
def test_what_was_not_attacked_or_is_not_known_has_no_score(finding: Finding, truth: Truth) -> None:
    found = score(finding, truth)
    assert (found.relative_error, found.guess_error, found.support_found, found.support_recovered) == (None,) * 4
    assert (found.auc, found.verdict, found.remark) == (None, "holds", "all of it")


@pytest.mark.parametrize(
    ("gram", "support", "membership", "verdict"),
    [
        (TRUE, [0, 1], [1.0, 2.0], "falls"),
        (9 * TRUE, [0, 1], [1.0, 2.0], "falls"),
        (9 * TRUE, [5], [2.0, 1.0], "falls"),
        (1.5 * TRUE, [5], [1.0, 2.0], "leaks"),
        (9 * TRUE, [5], [1.0, 2.0], "holds"),
    ],
)
def test_the_verdict_is_the_worst_of_all(
    gram: np.ndarray, support: list[int], membership: list[float], verdict: str
) -> None:
    finding = Finding(gram=gram, support=np.array(support), membership=np.array(membership))
    assert score(finding, KNOWN).verdict == verdict
