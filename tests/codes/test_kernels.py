"""Compiled loops on graphs against plain Python: the same draws give the same sets, edges and cycles."""

from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

from codedfl.codes import kernels
from codedfl.codes.graph import TannerGraph, configuration_model

WORD = 2**64


def splitmix(state: int) -> Iterator[int]:
    """SplitMix64 of Steele, Lea and Flood (2014)."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % WORD
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % WORD
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % WORD
        yield mixed ^ mixed >> 31


def test_the_generator_is_the_published_one() -> None:
    """The first numbers of the authors' program for the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [number for number, _ in zip(splitmix(1234567), expected, strict=False)] == expected


def peeled(left: set[int], checks: np.ndarray) -> set[int]:
    """What stays when every check that misses one variable restores it, as often as possible."""
    while True:
        touching = [[v for v in left if c in checks[v]] for c in range(checks.max() + 1)]
        restored = {variables[0] for variables in touching if len(variables) == 1}
        if not restored:
            return left
        left = left - restored


@pytest.mark.parametrize(("n", "m", "degree", "erasures"), [(12, 8, 2, 5), (20, 12, 3, 9), (6, 4, 2, 6), (5, 5, 1, 3)])
def test_stalled_sets_are_those_of_plain_peeling(n: int, m: int, degree: int, erasures: int) -> None:
    """Sets are drawn by a shuffle that goes on from one set to the next; what is left stands in the order drawn."""
    checks = configuration_model(n, m, degree, seed=3).checks
    draws, order, expected = splitmix(77), list(range(n)), []
    for _ in range(60):
        for i in range(erasures):
            j = i + ((next(draws) >> 32) * (n - i) >> 32)
            order[i], order[j] = order[j], order[i]
        left = peeled(set(order[:erasures]), checks)
        if left:
            row = [v for v in order[:erasures] if v in left]
            expected.append(row + [-1] * (erasures - len(row)))
    found = kernels.stalled_sets(checks.astype(np.uint16), m, erasures, 60, np.uint64(77))
    assert found.tolist() == expected
    assert found.dtype == np.int32


def test_no_erasures_and_no_trials_stall_nothing() -> None:
    checks = configuration_model(6, 4, 2, seed=3).checks.astype(np.uint16)
    assert kernels.stalled_sets(checks, 4, 0, 10, np.uint64(1)).shape == (0, 0)
    assert kernels.stalled_sets(checks, 4, 6, 0, np.uint64(1)).shape == (0, 6)


def test_numbers_below_a_bound_are_shares_of_all_words() -> None:
    for bound in (1, 2, 3, 10, 2**31 - 1):
        for high in (0, 1, 2**31 - 1, 2**31, 2**32 - 1):
            draw = np.uint64(high * 2**32 + 2**32 - 1)
            assert kernels.bounded(draw, bound) == high * bound // 2**32


@pytest.mark.parametrize(("n", "m", "degree"), [(6, 5, 2), (10, 4, 3), (8, 8, 1), (3, 3, 3)])
def test_edges_are_exchanged_unless_one_would_be_double(n: int, m: int, degree: int) -> None:
    rng = np.random.default_rng(n)
    edges = np.array([rng.choice(m, degree, replace=False) for _ in range(n)], np.int32)
    first, second = rng.integers(edges.size, size=(2, 80))
    expected = edges.tolist()
    for one, two in zip(first.tolist(), second.tolist(), strict=True):
        (v, a), (w, b) = divmod(one, degree), divmod(two, degree)
        if v == w:
            continue
        expected[v][a], expected[w][b] = expected[w][b], expected[v][a]
        if len(set(expected[v])) < degree or len(set(expected[w])) < degree:
            expected[v][a], expected[w][b] = expected[w][b], expected[v][a]
    assert (expected != edges.tolist()) == (degree < m)
    kernels.swap_edges(edges, first, second)
    assert edges.tolist() == expected


def girth(graph: TannerGraph) -> int | None:
    """For every edge, one more than the length of the shortest way between its ends without it."""
    edges = {(v, graph.n + c) for v, row in enumerate(graph.checks.tolist()) for c in row}
    neighbours = {
        node: {b for a, b in edges if a == node} | {a for a, b in edges if b == node}
        for node in range(graph.n + graph.m)
    }
    shortest = []
    for start, end in edges:
        depth, queue = {start: 0}, deque([start])
        while queue:
            node = queue.popleft()
            for other in neighbours[node]:
                if other not in depth and (node, other) != (start, end):
                    depth[other] = depth[node] + 1
                    queue.append(other)
        if end in depth:
            shortest.append(depth[end] + 1)
    return min(shortest, default=None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n", "m", "degree"), [(5, 9, 2), (9, 14, 2), (7, 20, 3), (4, 9, 2), (6, 3, 1)])
def test_the_girth_is_the_shortest_way_back_over_all_edges(n: int, m: int, degree: int, seed: int) -> None:
    graph = configuration_model(n, m, degree, seed=seed)
    assert graph.girth() == girth(graph)


def test_a_long_ring_behind_a_tree_and_a_short_one_far_from_it() -> None:
    """Cycles that the first nodes reach last: rings of 12 and of 6, and two variables with checks of their own."""
    ring = [[2 + i, 2 + (i + 1) % 6] for i in range(6)]
    triangle = [[8, 9], [9, 10], [8, 10]]
    table = np.sort(np.array([[0, 1], [1, 2], *ring, *triangle, [11, 12]]), axis=1)
    assert TannerGraph(len(table), 13, table).girth() == 6
    assert TannerGraph(8, 8, table[:8]).girth() == 12


def shortest_through(neighbours: list[list[int]], roots: int) -> int:
    """The kernel's answer for lists of neighbours, and as interpreted code, which checks every index."""
    starts, ends = np.cumsum([0, *map(len, neighbours)]), np.concatenate(neighbours).astype(np.int64)
    found = kernels.shortest_cycle(starts, ends, roots)
    assert kernels.shortest_cycle.py_func(starts, ends, roots) == found
    return found


def ring(first: int, length: int) -> list[list[int]]:
    """Neighbours of nodes first, first + 1, ... on a ring."""
    return [[first + (i - 1) % length, first + (i + 1) % length] for i in range(length)]


@pytest.mark.parametrize("length", range(3, 10))
def test_rings_of_odd_and_of_even_length(length: int) -> None:
    assert shortest_through(ring(0, length), 1) == length
    assert shortest_through([*ring(0, length), *ring(length, length + 1)], length + 1) == length


@pytest.mark.parametrize("length", [3, 4, 5, 6, 7])
def test_a_ring_that_is_one_shorter_than_those_before_it_is_found(length: int) -> None:
    assert shortest_through([*ring(0, length + 1), *ring(length + 1, length)], length + 2) == length


def test_only_cycles_that_the_first_nodes_reach_are_counted() -> None:
    """A way of three nodes beside a triangle, and a triangle at the end of a way."""
    assert shortest_through([[1], [0, 2], [1], *ring(3, 3)], 3) == 0
    assert shortest_through([[1], [0, 2], [1], *ring(3, 3)], 4) == 3
