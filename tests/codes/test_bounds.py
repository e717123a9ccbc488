"""The Johnson bound and the least overlap against a plain recursion over all small sizes."""

from functools import cache
from math import comb

import pytest

from codedfl.codes.bounds import check_sizes, johnson_bound, least_overlap
from codedfl.errors import CodeError

SIZES = [(length, weight) for length in range(1, 11) for weight in range(1, length + 1)]


def least_pairs(length: int, weight: int, count: int) -> int:
    """Sum of overlaps over ordered pairs when all positions are used equally often, up to one."""
    uses = [(count * weight + place) // length for place in range(length)]
    return sum(use * (use - 1) for use in uses)


@cache
def recursion(n: int, w: int, common: int) -> int:
    """Johnson's inequalities as they stand in the textbook, from the smallest sizes up."""
    if common < 0:
        return 1
    found = comb(n, w)
    if w <= common or w == n:
        return found
    if w * w > common * n:  # then more subsets need more overlap on average, and some count is too many
        count = 1
        while least_pairs(n, w, count + 1) <= common * count * (count + 1):
            count += 1
        found = min(found, count)
    return min(found, n * recursion(n - 1, w - 1, common - 1) // w, n * recursion(n - 1, w, common) // (n - w))


@pytest.mark.parametrize(("length", "weight"), SIZES)
def test_the_bound_is_the_least_of_all_recursions(length: int, weight: int) -> None:
    """From no overlap at all to one more than whole subsets have."""
    for overlap in range(-1, weight + 2):
        if overlap == 0:
            assert johnson_bound(length, weight, 0) == length // weight
        elif overlap >= weight:
            assert johnson_bound(length, weight, overlap) == comb(length, weight)
        assert johnson_bound(length, weight, overlap) == recursion(length, weight, overlap)


def test_subsets_that_may_not_even_be_disjoint_are_one() -> None:
    assert johnson_bound(10, 3, -1) == 1


@pytest.mark.parametrize(("length", "weight"), SIZES)
def test_the_least_overlap_is_the_first_that_the_bound_permits(length: int, weight: int) -> None:
    """The subsets of any family count; more than there are can only repeat, and so overlap entirely."""
    for count in range(2, 25):
        permitted = (overlap for overlap in range(weight) if recursion(length, weight, overlap) >= count)
        assert least_overlap(length, weight, count) == next(permitted, weight)
    assert least_overlap(length, weight, 1) == 0


@pytest.mark.parametrize(("length", "weight"), [(4, 0), (4, 5), (0, 0), (4, -1), (0, 1)])
def test_sizes_that_do_not_exist_are_refused(length: int, weight: int) -> None:
    sentence = f"subset of {weight} of {length} positions does not exist: choose 1 to {length}"
    for refuse in (
        lambda: check_sizes(length, weight),
        lambda: johnson_bound(length, weight, 1),
        lambda: least_overlap(length, weight, 1),
    ):
        with pytest.raises(CodeError, match=sentence):
            refuse()


@pytest.mark.parametrize("count", [0, -1])
def test_no_subsets_are_no_family(count: int) -> None:
    with pytest.raises(CodeError, match=f"family of {count} subsets is empty: ask for at least 1"):
        least_overlap(4, 2, count)
