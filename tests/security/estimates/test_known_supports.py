"""Levels left against devices that know supports: exact binomials, and every coalition."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.codes.constant_weight import Family, family
from codedfl.security.estimates.claimed import claimed_level
from codedfl.security.estimates.known_supports import (
    bits_with_known_positions,
    level_after_overlap,
    levels_after_overlap,
)
from codedfl.security.estimates.parameters import DecodingProblem

PAPER = {64: DecodingProblem(4000, 2000, 64, 4, 32), 128: DecodingProblem(4000, 2000, 128, 4, 32)}


def whole_bits(work: Fraction) -> int:
    return (work.numerator // work.denominator).bit_length() - 1


@pytest.mark.parametrize(("t", "count", "shared", "level"), [(64, 16, 13, 80), (128, 4, 43, 118)])
def test_one_device_that_knows_its_own_support(t: int, count: int, shared: int, level: int) -> None:
    """Length n - t, weight t - overlap - beta, and sqrt(beta) = 2 saved: exact binomials."""
    n, w = 4000 - t, t - shared - 4
    assert whole_bits(Fraction(2000**3 * math.comb(n, w), 2 * math.comb(n - 2000, w))) == level
    assert level_after_overlap(PAPER[t], family(256, t, count)) == level


def test_disjoint_supports_tell_where_there_are_no_errors() -> None:
    """64, 128 and 192 positions without errors: so many fewer of the k = 2000 are to be found, in a shortened code."""
    found = levels_after_overlap(PAPER[64], family(256, 64, 4))
    exact = [
        whole_bits(Fraction((2000 - known) ** 3 * math.comb(4000 - known, 60), 2 * math.comb(2000, 60)))
        for known in (64, 128, 192)
    ]
    assert [entry.level for entry in found] == exact == [90, 89, 87]
    assert [entry.errors for entry in found] == [0, 0, 0]


def test_without_knowledge_it_is_the_claimed_level() -> None:
    for problem in PAPER.values():
        claimed = claimed_level(problem.n, problem.k, problem.t, problem.beta, problem.q_bits)
        assert math.floor(bits_with_known_positions(problem, 0, 0)) == claimed


@given(st.integers(2, 256), st.data())
def test_knowledge_never_helps_the_defender(positions: int, data: st.DataObject) -> None:
    """Knowing more errors on as many positions never costs more, and nothing costs more than knowing nothing."""
    errors = data.draw(st.integers(1, min(positions, 64) - 1))
    fewer, more = (bits_with_known_positions(PAPER[64], positions, count) for count in (errors, errors + 1))
    assert 3 * math.log2(2000) <= more <= fewer <= bits_with_known_positions(PAPER[64], 0, 0)


def every_coalition(problem: DecodingProblem, supports: Family, known: int) -> float:
    """Return the least work over all targets and all coalitions of one size."""
    sets = [set(entry) for entry in supports.sets.tolist()]
    found = []
    for target in range(supports.M):
        for members in combinations([other for other in range(supports.M) if other != target], known):
            union = set().union(*(sets[member] for member in members))
            found.append(bits_with_known_positions(problem, len(union), len(union & sets[target])))
    return min(found)


@pytest.mark.parametrize(("t", "count"), [(64, 16), (128, 4), (64, 4)])
def test_coalitions_against_all_of_them(t: int, count: int) -> None:
    """Exact for one device; never below the true least; within a bit of it here."""
    supports = family(256, t, count)
    found = levels_after_overlap(PAPER[t], supports)
    assert [entry.known for entry in found] == list(range(1, count))
    assert found[0].bits == every_coalition(PAPER[t], supports, 1)
    for entry in found[1:3]:
        least = every_coalition(PAPER[t], supports, entry.known)
        assert least <= entry.bits <= least + 1


def test_all_others_together_know_every_error() -> None:
    """Each of the 256 positions lies in several of the 16 supports, so 15 of them cover the sixteenth."""
    last = levels_after_overlap(PAPER[64], family(256, 64, 16))[-1]
    assert (last.positions, last.errors) == (256, 64)
    assert last.bits == pytest.approx(3 * math.log2(2000))


@pytest.mark.parametrize("known", [0, 4])
def test_impossible_coalitions_are_refused(known: int) -> None:
    with pytest.raises(ValueError, match=f"{known} devices"):
        level_after_overlap(PAPER[64], family(256, 64, 4), known)


def test_the_chance_behind_the_formula_by_experiment() -> None:
    """An information set outside the known positions misses the hidden errors as often as the formula counts."""
    n, k, t, shared, trials = 60, 20, 10, 6, 20_000
    rng = np.random.default_rng(0)
    outside = np.arange(n - t) < t - shared  # the errors among the positions that the attacker does not know
    missed = sum(not outside[rng.permutation(n - t)[:k]].any() for _ in range(trials))
    chance = math.comb(n - t - k, t - shared) / math.comb(n - t, t - shared)
    assert abs(missed / trials - chance) <= 5 * math.sqrt(chance * (1 - chance) / trials)
