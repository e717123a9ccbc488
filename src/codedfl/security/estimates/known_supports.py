"""The level left against devices that know their own error supports, by the paper's own argument.

Section IV-A wants supports that hardly meet, because a device that knows much about E_i "could reduce the number of
errors" in C_i. It can: |E_i & E_j| of the t errors of device i lie on the t positions that device j knows. A coalition
knows the union U of its supports and has two uses for it:

- *puncture*: decode without the positions U. A word of length n - |U| is left with t - |E_i & U| errors, and the error
  code loses as much distance;
- *shorten*: where U and E_i are disjoint, the positions U are known to be free of errors ("learns only t error-free
  positions", section IV-B), and k - |U| more of n - |U| are to be found.

Both are decoding problems of the kind that the claimed level counts, so the same fitted formula applies. As there, the
result says what the paper would claim: linear algebra needs no support at all (``codedfl.security.attacks``).
"""

import math
from dataclasses import dataclass

from codedfl.codes.constant_weight import Family
from codedfl.security.estimates.counting import elimination_bits
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.security.estimates.prange import prange_work


@dataclass(frozen=True)
class KnownPositions:
    """The knowledge of a coalition about the support of one target, and the level that it leaves.

    known: devices in the coalition.
    positions: size of the union of their supports.
    errors: positions of the target's support that lie in the union.
    bits: log2 of the work left, never less than that of one elimination.
    """

    known: int
    positions: int
    errors: int
    bits: float

    @property
    def level(self) -> int:
        """Whole bits, rounded down as in Table I."""
        return math.floor(self.bits)


def bits_with_known_positions(problem: DecodingProblem, positions: int, errors: int) -> float:
    """Return log2 of the work left to an attacker who knows positions, so many of them being errors of the target.

    Laws: with no positions known it is the claimed level before rounding, and it never exceeds that.
    """
    n, k, saved = problem.n, problem.k, math.log2(problem.beta) / 2
    work = [prange_work(n, k, problem.w), prange_work(n - positions, k, max(problem.w - errors, 0))]
    if errors == 0 and positions < k:
        work.append(prange_work(n - positions, k - positions, problem.w))
    decoding = max(min(work) - saved, elimination_bits(n, k, "k^3"))
    return min(decoding, float(problem.beta * problem.q_bits))


def levels_after_overlap(problem: DecodingProblem, family: Family) -> tuple[KnownPositions, ...]:
    """Return the least level found for coalitions of 1, 2, ... M - 1 devices, over all targets.

    Exact for one device. Larger coalitions grow one device at a time, always by the one that lowers the level most, so
    a coalition with a lower level may exist; this one does.
    """
    sets = [frozenset(entry) for entry in family.sets.tolist()]
    least: dict[int, KnownPositions] = {}
    for target in sets:
        union: frozenset[int] = frozenset()
        others = [entry for entry in sets if entry != target]
        for known in range(1, len(sets)):
            joined = min(others, key=lambda entry: _order(problem, target, union | entry))
            others.remove(joined)
            union |= joined
            found = _knowledge(problem, target, union, known)
            least[known] = min(least.get(known, found), found, key=lambda entry: entry.bits)
    return tuple(least.values())


def level_after_overlap(problem: DecodingProblem, family: Family, known: int = 1) -> int:
    """Return the level that the paper's argument leaves against ``known`` devices that pool their supports."""
    if not 1 <= known < family.M:
        raise ValueError(f"{known} devices cannot attack another one of {family.M}: choose 1 to {family.M - 1}")
    return levels_after_overlap(problem, family)[known - 1].level


def _knowledge(problem: DecodingProblem, target: frozenset[int], union: frozenset[int], known: int) -> KnownPositions:
    errors = len(target & union)
    return KnownPositions(known, len(union), errors, bits_with_known_positions(problem, len(union), errors))


def _order(problem: DecodingProblem, target: frozenset[int], union: frozenset[int]) -> tuple[float, int]:
    """Least work first; among equals the most errors known, which helps the next device to join."""
    found = _knowledge(problem, target, union, 0)
    return found.bits, -found.errors
