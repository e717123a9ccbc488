"""Bounds on constant-weight families: the Johnson bound on their size, and the least overlap."""

from functools import cache
from math import comb

from codedfl.errors import CodeError

_binomial = cache(comb)


def _pairs(length: int, weight: int, count: int) -> int:
    """Return the least sum of overlaps over ordered pairs of subsets: all positions are used equally, up to one."""
    share, rest = divmod(count * weight, length)
    return length * share * (share - 1) + 2 * rest * share


def _second_moment(length: int, weight: int, overlap: int) -> int | None:
    """Return the largest count that the second-moment bound permits; None where it is void."""
    # the bound is finite exactly when weight^2 > overlap * length, then at most length * (weight - overlap) / excess
    excess = weight * weight - overlap * length
    if excess <= 0:
        return None
    count = length * (weight - overlap) // excess
    while _pairs(length, weight, count) > overlap * count * (count - 1):
        count -= 1
    return count


@cache
def johnson_bound(length: int, weight: int, overlap: int) -> int:
    """Return an upper bound on the number of ``weight``-subsets that meet pairwise in at most ``overlap`` positions.

    Johnson's recursions: the subsets through one position, and those that avoid one, are families on one position
    less; at each step the second moment gives a bound of its own. The smallest of all bounds is returned.
    """
    check_sizes(length, weight)
    if overlap < 0:
        return 1
    table: dict[int, int] = {}
    # with s positions removed, of which j lie in the subsets: row s of the table maps j to its bound
    for removed in range(length, -1, -1):
        row: dict[int, int] = {}
        for taken in range(min(removed, weight, overlap) + 1):
            n, w, common = length - removed, weight - taken, overlap - taken
            if w > n:
                continue
            row[taken] = _step(n, w, common, table.get(taken + 1), table.get(taken))
        table = row
    return table[0]


def _step(n: int, w: int, common: int, through: int | None, avoiding: int | None) -> int:
    if w <= common or w == n:
        # equal subsets would meet in everything, so distinct ones are counted by the trivial bound
        return _binomial(n, w)
    bounds = (
        _binomial(n, w),
        _second_moment(n, w, common),
        None if through is None else n * through // w,
        None if avoiding is None else n * avoiding // (n - w),
    )
    return min(bound for bound in bounds if bound is not None)


@cache
def least_overlap(length: int, weight: int, count: int) -> int:
    """Return a lower bound on the largest overlap of ``count`` subsets.

    Position i in s_i subsets gives s_i (s_i - 1) ordered pairs, at least as many as when all s_i are equal up to one;
    the average over all ordered pairs, rounded up, is a bound, sharpened where Johnson's is stronger.
    """
    check_sizes(length, weight)
    if count < 1:
        raise CodeError(f"A family of {count} subsets is empty: ask for at least 1.")
    if count == 1:
        return 0
    overlap = -(-_pairs(length, weight, count) // (count * (count - 1)))
    while overlap < weight and johnson_bound(length, weight, overlap) < count:
        overlap += 1
    return overlap


def check_sizes(length: int, weight: int) -> None:
    """Refuse a weight outside 1 .. length."""
    if not 1 <= weight <= length:
        raise CodeError(f"A subset of {weight} of {length} positions does not exist: choose 1 to {length}.")
