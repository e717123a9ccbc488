"""How many subsets of one size can meet in few positions: the Johnson bound, and its converse."""

from functools import cache
from math import comb

from codedfl.errors import CodeError

__all__ = ["johnson_bound", "least_overlap"]


_binomial = cache(comb)


def _pairs(length: int, weight: int, count: int) -> int:
    """Least sum of overlaps over ordered pairs of subsets: all positions used as evenly as they can be."""
    share, rest = divmod(count * weight, length)
    return length * share * (share - 1) + 2 * rest * share


def _evenly_possible(length: int, weight: int, overlap: int, count: int) -> bool:
    return _pairs(length, weight, count) <= overlap * count * (count - 1)


def _second_moment(length: int, weight: int, overlap: int) -> int | None:
    """Largest count that counting common positions permits, or None when it limits nothing."""
    # the limit is finite exactly when weight^2 > overlap * length, and then below length * (weight - overlap)
    # / that
    excess = weight * weight - overlap * length
    if excess <= 0:
        return None
    count = length * (weight - overlap) // excess
    while count > 1 and not _evenly_possible(length, weight, overlap, count):
        count -= 1
    return count


@cache
def johnson_bound(length: int, weight: int, overlap: int) -> int:
    """No more subsets of ``weight`` of ``length`` positions than this meet pairwise in at most ``overlap``.

    Johnson's recursions: the subsets through one position, and those that avoid one, are families on one
    position less; at each step counting common positions gives a bound of its own. The smallest of all
    counts.
    """
    _check(length, weight)
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
    bounds = [_binomial(n, w)]
    direct = _second_moment(n, w, common)
    if direct is not None:
        bounds.append(direct)
    if common == 0:
        bounds.append(n // w)
    if through is not None:
        bounds.append(n * through // w)
    if avoiding is not None:
        bounds.append(n * avoiding // (n - w))
    return max(1, min(bounds))


@cache
def least_overlap(length: int, weight: int, count: int) -> int:
    """No family of ``count`` subsets has a smaller largest overlap than this.

    Position i in s_i subsets gives s_i (s_i - 1) ordered pairs, at least as many as when all s_i are equal up
    to one; the average over the count * (count - 1) pairs, rounded up, is a bound, sharpened where Johnson's
    is stronger.
    """
    _check(length, weight)
    if count < 1:
        raise CodeError(f"A family of {count} subsets is empty: ask for at least 1.")
    if count == 1:
        return 0
    overlap = -(-_pairs(length, weight, count) // (count * (count - 1)))
    while overlap < weight and johnson_bound(length, weight, overlap) < count:
        overlap += 1
    return overlap


def _check(length: int, weight: int) -> None:
    if not 1 <= weight <= length:
        raise CodeError(f"A subset of {weight} of {length} positions does not exist: choose 1 to {length}.")
