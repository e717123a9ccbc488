from itertools import product
from operator import mul

import numpy as np
import pytest

from codedfl.codes import constant_weight
from codedfl.codes.bounds import johnson_bound, least_overlap
from codedfl.codes.constant_weight import (
    Family,
    _exchange,
    affine_hyperplanes,
    affine_lines,
    family,
    greedy_random,
    partition_family,
)
from codedfl.errors import CodeError


def test_families_of_the_paper_sizes():
    for found, count, overlaps in (
        (partition_family(256, 64), 4, {0}),
        (affine_hyperplanes(4, 4), 340, {0, 16}),
        (affine_hyperplanes(8, 2), 510, {0, 64}),
        (affine_lines(16), 272, {0, 1}),
    ):
        assert (found.M, found.length, set(found.overlaps)) == (count, 256, overlaps)
        assert johnson_bound(found.length, found.weight, found.overlap) == count


def test_first_parallel_class_is_a_partition():
    planes = affine_hyperplanes(4, 4)
    assert planes.first(4).overlap == 0
    assert sorted(planes.first(4).sets.ravel()) == list(range(256))


@pytest.mark.parametrize("count", [1, 2, 20])
def test_the_first_subsets_are_a_family(count):
    lines = affine_lines(4)
    found = lines.first(count)
    assert found.sets.tolist() == lines.sets[:count].tolist()
    assert (found.length, found.weight, found.kind) == (16, 4, "affine lines")


class NoNoise(np.random.Generator):
    """Exchanges are chosen by their gain alone."""

    def exponential(self, scale=1.0, shape=None):
        return np.zeros(shape)


class OneNoise(np.random.Generator):
    """The best exchange is made to look bad: noise of 1000 where the change would fall most, and none elsewhere."""

    place: tuple[int, int]

    def exponential(self, scale=1.0, shape=None):
        noise = np.zeros(shape)
        noise[self.place] = 1000
        return noise


@pytest.mark.parametrize("overlap", [3, 5, 6])
@pytest.mark.parametrize("seed", range(8))
def test_an_exchange_is_the_one_that_gains_most(seed, overlap):
    """Against all exchanges of one position, each with its squared excesses counted anew."""
    length, weight, count = 24, 12, 8
    rng = np.random.default_rng(seed)
    member = np.zeros((count, length))
    for row in member:
        row[rng.choice(length, weight, replace=False)] = 1
    others = member[1:]

    def excess(row):
        return sum(max(0, int(shared) - overlap) ** 2 for shared in others @ row)

    tried = []
    for leaving in np.flatnonzero(member[0]):
        for entering in np.flatnonzero(member[0] == 0):
            row = member[0].copy()
            row[leaving], row[entering] = 0, 1
            tried.append(excess(row))
    shared = member @ member[0]
    shared[0] = 0
    start = member.copy()
    _exchange(member, 0, shared, overlap, NoNoise(np.random.PCG64()))
    assert excess(member[0]) == min(tried) < max(tried)
    assert member.sum(axis=1).tolist() == [weight] * count
    noise, best = OneNoise(np.random.PCG64()), int(np.argmin(tried))
    noise.place = divmod(best, length - weight)
    tried.pop(best)
    _exchange(start, 0, shared, overlap, noise)
    assert excess(start[0]) == min(tried), "noise is added to the change"


@pytest.mark.parametrize(
    ("length", "weight", "overlap", "count"),
    [
        (7, 3, 1, 7),
        (8, 4, 2, 14),
        (9, 3, 1, 12),
        (12, 6, 4, 132),
        (24, 8, 4, 759),
        (13, 4, 1, 13),
        (22, 6, 2, 77),
    ],
)
def test_johnson_bound_is_met_by_steiner_systems(length, weight, overlap, count):
    """S(2,3,7), S(3,4,8), S(2,3,9), S(5,6,12), S(5,8,24), S(2,4,13), S(3,6,22) exist and are optimal."""
    assert johnson_bound(length, weight, overlap) == count


def test_least_overlaps_of_the_paper():
    assert least_overlap(256, 64, 16) == 13
    assert least_overlap(256, 128, 4) == 43
    assert least_overlap(256, 64, 4) == 0
    assert [least_overlap(256, 64, count) for count in (340, 341)] == [16, 17]
    assert least_overlap(10, 3, 1) == 0


@pytest.mark.parametrize(
    ("size", "kind", "overlap"),
    [
        ((256, 64, 4), "partition", 0),
        ((256, 64, 16), "greedy random", 13),
        ((256, 128, 4), "greedy random", 43),
        ((256, 64, 340), "affine hyperplanes", 16),
        ((256, 16, 272), "affine lines", 1),
    ],
)
def test_family_chooses_an_optimal_construction(size, kind, overlap):
    found = family(*size)
    assert (found.kind, found.overlap, found.M) == (kind, overlap, size[2])
    assert found.overlap == least_overlap(*size)


@pytest.mark.parametrize(
    ("size", "asked", "kind", "overlap"),
    [
        ((16, 4, 4), 0, "partition", 0),
        ((16, 4, 20), 1, "affine lines", 1),
        ((16, 4, 20), 3, "affine lines", 1),
        ((60, 8, 20), 1, "greedy random", 1),
    ],
)
def test_an_overlap_that_is_asked_for_is_kept(size, asked, kind, overlap):
    """Asked for the least overlap that there is, or for more: the least is found."""
    found = family(*size, overlap=asked)
    assert (found.kind, found.overlap, found.M) == (kind, overlap, size[2])
    assert least_overlap(*size) == overlap


@pytest.mark.parametrize(("length", "weight", "count"), [(12, 3, 4), (10, 3, 3), (4, 4, 1), (5, 1, 5), (7, 2, 1)])
def test_disjoint_subsets_are_drawn_without_an_exchange(monkeypatch, length, weight, count):
    """Every subset takes the positions that are used least."""
    monkeypatch.setattr(constant_weight, "EXCHANGES", 1)
    found = greedy_random(length, weight, count, 0, seed=5)
    assert (found.M, found.length, found.weight, found.kind) == (count, length, weight, "greedy random")
    assert np.unique(found.sets).size == count * weight


def test_an_overlap_below_zero_is_not_found():
    with pytest.raises(CodeError, match=r"no 1 subsets of 4 in 4 positions .* though the Johnson bound permits 1"):
        greedy_random(4, 4, 1, -1, seed=0)


def test_overlaps_by_hand():
    found = Family(6, 3, np.array([[2, 1, 0], [0, 3, 1], [3, 4, 5]]), "own")
    assert found.sets.tolist() == [[0, 1, 2], [0, 1, 3], [3, 4, 5]]
    assert (found.overlaps, found.overlap) == ({0: 1, 1: 1, 2: 1}, 2)
    assert Family(6, 3, np.array([[0, 1, 5]]), "own").overlap == 0
    with pytest.raises(ValueError, match="read-only"):
        found.sets[0, 0] = 1


@pytest.mark.parametrize(("q", "m"), [(2, 3), (3, 2)])
def test_hyperplanes_are_the_solutions_of_one_equation(q, m):
    """For every direction a_1 x_1 + ... + a_m x_m = b with its first number 1, directions in order, then b."""
    expected = []
    for a in product(range(q), repeat=m):
        if next((x for x in a if x), 0) == 1:
            for b in range(q):
                points = enumerate(product(range(q), repeat=m))
                expected.append([i for i, x in points if sum(map(mul, a, x)) % q == b])
    found = affine_hyperplanes(m, q)
    assert found.sets.tolist() == expected
    assert (found.length, found.weight) == (q**m, q ** (m - 1))


@pytest.mark.parametrize(
    ("size", "kind", "overlap"),
    [
        ((9, 3, 12), "affine lines", 1),
        ((9, 3, 13), "greedy random", 2),  # one more than there are lines
        ((8, 4, 14), "affine hyperplanes", 2),
        ((8, 4, 15), "greedy random", 3),
        ((27, 9, 39), "affine hyperplanes", 3),
        ((27, 9, 4), "greedy random", 2),  # the fourth plane meets the others in 3
        ((24, 8, 4), "greedy random", 2),  # 24 is no power of 3
        ((10, 5, 3), "greedy random", 2),  # 10 is no power of 2
        ((12, 2, 7), "greedy random", 1),  # 6 is no power of a prime
        ((7, 3, 3), "greedy random", 1),  # 7 is no multiple of 3
        ((6, 3, 2), "partition", 0),
        ((7, 3, 2), "partition", 0),
        ((5, 2, 10), "greedy random", 1),
    ],
)
def test_the_construction_at_the_edges_of_each(size, kind, overlap):
    found = family(*size)
    assert (found.kind, found.overlap, found.length, found.weight, found.M) == (kind, overlap, *size)


@pytest.mark.parametrize(("largest", "kind"), [(3, "affine lines"), (2, "greedy random")])
def test_fields_without_tables_give_no_lines(monkeypatch, largest, kind):
    monkeypatch.setattr(constant_weight, "LARGEST", largest)
    assert family(9, 3, 10).kind == kind


def test_an_overlap_above_that_of_the_construction_is_not_tried(monkeypatch):
    """Lines meet in 1, which no other family beats: nothing is drawn at random, whatever is permitted."""
    monkeypatch.setattr(constant_weight, "EXCHANGES", 0)
    for overlap in (None, 1, 2, 3):
        assert family(9, 3, 12, overlap=overlap).kind == "affine lines"
    with pytest.raises(
        CodeError, match="No construction here gives 7 subsets of 2 in 12 positions with overlap at most 1"
    ):
        family(12, 2, 7)


@pytest.mark.parametrize(
    ("overlap", "sentence"),
    [
        (None, "4 positions have 6 subsets of 2, not 7: ask for fewer"),
        (1, "4 positions have 6 subsets of 2, not 7: ask for fewer"),
        (2, "4 positions have 6 subsets of 2, not 7: ask for fewer"),
        (0, "at most 0: the Johnson bound permits 2, and 7 subsets need an overlap of 2 or more"),
    ],
)
def test_more_subsets_than_there_are(overlap, sentence):
    with pytest.raises(CodeError, match=sentence):
        family(4, 2, 7, overlap=overlap)


def test_as_many_subsets_as_there_are():
    assert family(4, 2, 6, overlap=1).M == 6
    assert family(4, 2, 2, overlap=0).sets.tolist() == [[0, 1], [2, 3]]
    with pytest.raises(CodeError, match="3 subsets of 2 in 4 positions cannot meet pairwise in at most 0"):
        family(4, 2, 3, overlap=0)


def test_a_seed_fixes_the_random_family():
    first, again = (greedy_random(60, 8, 20, 2, seed=4) for _ in range(2))
    assert np.array_equal(first.sets, again.sets)
    assert first.overlap <= 2


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: family(256, 64, 16, overlap=1),
            "at most 1: the Johnson bound permits 4, and 16 subsets need an overlap of 13",
        ),
        (lambda: greedy_random(256, 16, 273, 1, seed=0), "the Johnson bound permits 272"),
        (
            lambda: greedy_random(16, 4, 20, 1, seed=0),
            "though the Johnson bound permits 20: allow a larger overlap",
        ),
        (lambda: family(4, 2, 7), "4 positions have 6 subsets of 2, not 7"),
        (lambda: family(4, 2, 0), "family of 0 subsets is empty"),
        (lambda: least_overlap(4, 2, 0), "family of 0 subsets is empty"),
        (lambda: family(4, 5, 1), "subset of 5 of 4 positions does not exist: choose 1 to 4"),
        (lambda: partition_family(4, 0), "subset of 0 of 4"),
        (lambda: affine_hyperplanes(1, 4), "choose a dimension of at least 2"),
        (lambda: affine_lines(6), "no table field of 6 elements"),
        (lambda: affine_lines(4).first(21), "has 20 subsets, not 21: ask for 1 to 20"),
        (lambda: affine_lines(4).first(0), "has 20 subsets, not 0: ask for 1 to 20"),
        (lambda: Family(4, 2, np.array([[0, 0]]), "own"), "repeats a position"),
        (lambda: Family(4, 2, np.array([[0, 4]]), "own"), r"leaves 0\.\.3"),
        (lambda: Family(4, 2, np.array([[0, 1], [1, 0]]), "own"), "are equal: give distinct subsets"),
        (lambda: Family(4, 3, np.array([[0, 1]]), "own"), "no family of weight 3"),
        (lambda: Family(4, 2, np.zeros((0, 2), int), "own"), "no family of weight 2"),
        (lambda: Family(4, 2, np.array([[0, -1]]), "own"), r"leaves 0\.\.3"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(CodeError, match=sentence):
        call()


def test_what_is_not_found_is_refused_with_the_bound():
    # there is no plane of order six, though the Johnson bound does not know it
    assert johnson_bound(36, 6, 1) == 42
    with pytest.raises(CodeError, match=r"No construction here gives 40 subsets of 6 .* no family has less than 1"):
        family(36, 6, 40, overlap=1)
