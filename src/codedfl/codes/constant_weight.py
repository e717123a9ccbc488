"""Families of equally large supports that meet in few positions (constant-weight codes)."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import final

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.bounds import check_sizes, johnson_bound, least_overlap
from codedfl.codes.field import LARGEST, field, prime_power
from codedfl.errors import CodeError

EXCHANGES = 2000
"""Exchanges of one position that the random construction makes before it gives up."""


@final
@dataclass(frozen=True, eq=False)
class Family:
    """M subsets of t of the positions 0..length-1; row i of ``sets`` is subset i, sorted."""

    length: int
    weight: int
    sets: Int[np.ndarray, "M t"]
    kind: str

    def __post_init__(self) -> None:
        sets = np.sort(np.asarray(self.sets, dtype=np.int64), axis=1)
        if sets.shape[1] != self.weight or sets.shape[0] == 0:
            raise CodeError(f"Subsets of shape {sets.shape} are no family of weight {self.weight}: give M x t.")
        if sets.min() < 0 or sets.max() >= self.length or np.any(np.diff(sets, axis=1) == 0):
            raise CodeError(f"A subset repeats a position or leaves 0..{self.length - 1}: give distinct positions.")
        if np.unique(sets, axis=0).shape[0] < sets.shape[0]:
            raise CodeError(f"Two of the {sets.shape[0]} subsets are equal: give distinct subsets.")
        sets.flags.writeable = False
        object.__setattr__(self, "sets", sets)

    @property
    def M(self) -> int:  # noqa: N802 - the paper's symbol
        """Number of subsets."""
        return int(self.sets.shape[0])

    @cached_property
    def overlaps(self) -> dict[int, int]:
        """How many pairs of subsets meet in how many positions."""
        incidence = np.zeros((self.M, self.length), dtype=np.float32)
        np.put_along_axis(incidence, self.sets, 1, axis=1)
        # counts below 2**24 are exact in float32
        shared = (incidence @ incidence.T)[np.triu_indices(self.M, 1)].astype(np.int64)
        values, counts = np.unique(shared, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    @property
    def overlap(self) -> int:
        """Largest number of positions that two subsets share."""
        return max(self.overlaps, default=0)

    def first(self, count: int) -> "Family":
        """The family of the first ``count`` subsets."""
        if not 1 <= count <= self.M:
            raise CodeError(f"The {self.kind} family has {self.M} subsets, not {count}: ask for 1 to {self.M}.")
        return Family(self.length, self.weight, self.sets[:count], self.kind)


def partition_family(length: int, weight: int) -> Family:
    """Return as many disjoint blocks as fit, in order."""
    check_sizes(length, weight)
    count = length // weight
    return Family(length, weight, np.arange(count * weight).reshape(count, weight), "partition")


def affine_lines(q: int) -> Family:
    """The q(q+1) lines of the affine plane AG(2, q): q of q^2 positions each, two meet in at most one."""
    plane = affine_hyperplanes(2, q)
    return Family(plane.length, plane.weight, plane.sets, "affine lines")


def affine_hyperplanes(m: int, q: int) -> Family:
    """The hyperplanes of AG(m, q): q^(m-1) of q^m positions; two are disjoint (parallel) or share q^(m-2).

    Parallel classes follow each other, so the first q subsets are a partition. Position i has coordinates i in base q.
    """
    if m < 2:
        raise CodeError(f"Hyperplanes of AG({m}, {q}) are points or nothing: choose a dimension of at least 2.")
    scalars = field(q)
    points = np.array(list(product(range(q), repeat=m)))
    sets = []
    for normal in product(range(q), repeat=m):
        # one normal a direction: the first coordinate that is not zero is one
        if next((x for x in normal if x), 0) != 1:
            continue
        value = np.zeros(len(points), dtype=np.int64)
        for j, x in enumerate(normal):
            value = scalars.plus[value, scalars.times[x, points[:, j]]]
        sets.append(np.argsort(value, kind="stable").reshape(q, -1))
    return Family(q**m, q ** (m - 1), np.concatenate(sets), "affine hyperplanes")


def greedy_random(length: int, weight: int, count: int, overlap: int, seed: int) -> Family:
    """Draw subsets of rarely used positions, then exchange positions until no two share more than ``overlap``."""
    _refuse_impossible(length, weight, count, overlap)
    rng = np.random.default_rng(seed)
    member = np.zeros((count, length))
    for i in range(count):
        least_used = np.argsort(member.sum(axis=0) + rng.random(length))
        member[i, least_used[:weight]] = 1
    for _ in range(EXCHANGES):
        shared = member @ member.T
        np.fill_diagonal(shared, 0)
        crowded = np.flatnonzero((shared > overlap).any(axis=1))
        if not crowded.size:
            return Family(length, weight, np.nonzero(member)[1].reshape(count, weight), "greedy random")
        i = int(rng.choice(crowded))
        _exchange(member, i, shared[i], overlap, rng)
    raise CodeError(
        f"{EXCHANGES} exchanges found no {count} subsets of {weight} in {length} positions that meet in at most "
        f"{overlap}, though the Johnson bound permits {johnson_bound(length, weight, overlap)}: "
        "allow a larger overlap or try another seed."
    )


def _exchange(
    member: Float[np.ndarray, "M n"], i: int, shared: Float[np.ndarray, "M"], overlap: int, rng: np.random.Generator
) -> None:
    """Swap one position of subset i for another so that the squared excess of its overlaps falls most; shared[i] is 0.

    Leaving position a changes the overlap with every subset through a by -1, entering b by +1, both by 0; so the change
    of the penalty is down.A + up.B - A^T diag(up + down) B over all pairs (a, b). Noise breaks ties and cycles.
    """
    now, more, less = (np.maximum(0, shared - overlap + step) ** 2 for step in (0, 1, -1))
    up, down = more - now, less - now
    inside, outside = np.flatnonzero(member[i]), np.flatnonzero(member[i] == 0)
    if not outside.size:
        return
    A, B = member[:, inside], member[:, outside]
    change = (down @ A)[:, None] + (up @ B)[None] - (A * (up + down)[:, None]).T @ B
    change += rng.exponential(0.3, change.shape)
    a, b = np.unravel_index(np.argmin(change), change.shape)
    member[i, inside[a]], member[i, outside[b]] = 0, 1


def family(length: int, weight: int, count: int, *, overlap: int | None = None, seed: int = 0) -> Family:
    """Return ``count`` subsets of the least overlap that is found here, and of at most ``overlap`` if given."""
    _refuse_impossible(length, weight, count, overlap)
    found = _structured(length, weight, count)
    best = least_overlap(length, weight, count)
    worst = weight - 1 if overlap is None else overlap
    limit = worst if found is None else min(worst, found.overlap - 1)
    for common in range(best, limit + 1):
        try:
            return greedy_random(length, weight, count, common, seed)
        except CodeError:
            continue
    if found is None or (overlap is not None and found.overlap > overlap):
        raise CodeError(
            f"No construction here gives {count} subsets of {weight} in {length} positions with overlap at "
            f"most {worst}, and no family has less than {best}: allow more or ask for fewer subsets."
        )
    return found


def _structured(length: int, weight: int, count: int) -> Family | None:
    """The first subsets of a partition or of an affine geometry, where one fits."""
    if count * weight <= length:
        return partition_family(length, weight).first(count)
    q, rest = divmod(length, weight)
    if rest or q > LARGEST or prime_power(q) is None:
        return None
    m = 2
    while q**m < length:
        m += 1
    if q**m != length or count > (length - 1) // (q - 1) * q:
        return None
    return (affine_lines(q) if m == 2 else affine_hyperplanes(m, q)).first(count)


def _refuse_impossible(length: int, weight: int, count: int, overlap: int | None) -> None:
    if count < 1:
        raise CodeError(f"A family of {count} subsets is empty: ask for at least 1.")
    most = johnson_bound(length, weight, weight - 1 if overlap is None else overlap)
    if count <= most:
        return
    if overlap is None or overlap >= weight - 1:
        raise CodeError(f"{length} positions have {most} subsets of {weight}, not {count}: ask for fewer.")
    raise CodeError(
        f"{count} subsets of {weight} in {length} positions cannot meet pairwise in at most {overlap}: the Johnson "
        f"bound permits {most}, and {count} subsets need an overlap of {least_overlap(length, weight, count)} or more."
    )
