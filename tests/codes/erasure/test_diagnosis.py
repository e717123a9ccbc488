"""Ranks, conditions and dependent positions of erased columns: small cases by hand."""

import numpy as np
import pytest

from codedfl.codes.erasure.contract import describe
from codedfl.codes.erasure.diagnosis import decodable, draw_support
from codedfl.codes.erasure.least_squares import LeastSquares
from codedfl.codes.erasure.peeling import Peeling
from codedfl.errors import CodeError, UndecodableError
from codes.erasure.bordered import bordered

EPS = np.finfo(np.float64).eps


def test_nothing_erased_can_be_restored() -> None:
    code, _ = bordered([[2.0]], [[1.0]])
    found = decodable(code, np.array([], dtype=np.int64))
    assert (bool(found), found.rank, found.condition, found.dependent.size) == (True, 0, 1, 0)


def test_symbols_of_no_check_are_all_undetermined() -> None:
    code, erased = bordered([[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    for positions in (erased, erased[1:]):
        found = decodable(code, positions)
        assert (bool(found), found.rank, found.condition) == (False, 0, np.inf)
        assert found.dependent.tolist() == positions.tolist()


def test_rank_and_condition_of_a_diagonal() -> None:
    code, erased = bordered([[1, 0], [0, 0.125], [0, 0]], np.eye(3).tolist())
    found = decodable(code, erased)
    assert (bool(found), found.rank, found.dependent.size) == (True, 2, 0)
    assert found.condition == pytest.approx(8)


@pytest.mark.parametrize(("times", "rank"), [(1.9, 1), (2.1, 2), (3.1, 2)])
def test_singular_values_below_the_rounding_of_the_decomposition_are_zero(times: float, rank: int) -> None:
    """Two rows and columns, so that 2 * 2^-52 of the largest is counted as zero."""
    code, erased = bordered([[1, 0], [0, times * EPS]], [[1, 0], [0, 1]])
    found = decodable(code, erased)
    assert found.rank == rank
    assert found.dependent.tolist() == ([1] if rank == 1 else [])


@pytest.mark.parametrize(("times", "rank"), [(3.9, 1), (4.1, 2)])
def test_the_longer_side_of_the_erased_columns_counts(times: float, rank: int) -> None:
    """Four rows and two columns: 4 * 2^-52 of the largest is counted as zero."""
    code, erased = bordered([[1, 0], [0, times * EPS], [0, 0], [0, 0]], np.eye(4).tolist())
    assert decodable(code, erased).rank == rank


def test_equal_columns_are_dependent_however_small_they_are() -> None:
    """Three columns of singular values 1, 3.75 * 2^-52 and 0, where 3 * 2^-52 is counted as zero.

    The null space may be turned by 3 / 3.75, but its entries of 0.71 are no rounding.
    """
    small = 3.75 * EPS / np.sqrt(2)
    code, erased = bordered([[1, 0, 0], [0, small, small], [0, 0, 0]], np.eye(3).tolist())
    found = decodable(code, erased)
    assert (found.rank, found.dependent.tolist()) == (2, [1, 2])


def test_more_positions_than_checks_hide_the_dependent_ones() -> None:
    """Columns 0 and 1 are equal, and 2 is independent of them."""
    code, _ = bordered([[1, 1, 0], [0, 0, 1]], [[0], [0]])
    found = decodable(code, np.array([0, 1, 2]))
    assert (found.rank, found.dependent.tolist()) == (2, [0, 1])


@pytest.mark.parametrize(("exponent", "restored"), [(-24, False), (-23, False), (-22, True)])
def test_a_condition_of_all_digits_is_refused(exponent: int, restored: bool) -> None:
    """float32 has spacing 2^-23 at 1; in float64 all of them can be restored."""
    code, erased = bordered([[1, 0], [0, 2.0**exponent]], [[1, 0], [0, 1]])
    assert LeastSquares().prepare(code, erased).condition == 2.0**-exponent
    if restored:
        LeastSquares().prepare(code, erased, np.float32)
    else:
        with pytest.raises(UndecodableError, match=r"condition .*, which leaves no correct digit in float32"):
            LeastSquares().prepare(code, erased, np.float32)


def test_nine_positions_are_one_more_than_are_named() -> None:
    assert describe([3]) == "3"
    assert describe(list(range(9))) == "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"


def test_supports_of_every_size_up_to_the_checks() -> None:
    code, _ = bordered([[1, 0], [0, 1]], [[1, 2], [2, 1]])
    assert draw_support(code, 2, np.random.default_rng(0), LeastSquares()).size == 2
    assert draw_support(code, 0, np.random.default_rng(0), Peeling(), attempts=1).tolist() == []
    for size in (-1, 3):
        with pytest.raises(CodeError, match=f"support of {size} positions .* choose a size between 0 and 2"):
            draw_support(code, size, np.random.default_rng(0), LeastSquares())


def test_supports_are_drawn_sorted_until_one_can_be_restored() -> None:
    """Only one of two positions is in a check: draws are those of a generator with the same seed."""
    code, _ = bordered([[0.0, 1.0]], [[0.0, 0.0]])
    rng, attempts = np.random.default_rng(3), 1
    while rng.choice(4, 1, replace=False)[0] != 1:
        attempts += 1
    assert attempts > 1
    for granted in (attempts, attempts + 1):
        assert draw_support(code, 1, np.random.default_rng(3), Peeling(), attempts=granted).tolist() == [1]
    with pytest.raises(UndecodableError, match=f"None of {attempts - 1} random sets of 1 positions .* by peeling"):
        draw_support(code, 1, np.random.default_rng(3), Peeling(), attempts=attempts - 1)
    wide, _ = bordered(np.eye(6).tolist(), np.ones((6, 6)).tolist())
    drawn = draw_support(wide, 5, np.random.default_rng(1), LeastSquares())
    assert drawn.tolist() == sorted(drawn)
