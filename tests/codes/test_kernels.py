"""Compiled loops over graphs against the same loops in plain Python."""

from collections.abc import Iterator

import numpy as np
import pytest

from codedfl.codes import kernels
from codedfl.codes.graph import TannerGraph, configuration_model

WORD = 2**64


def split_mix(seed: int) -> Iterator[int]:
    """SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % WORD
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
        yield z ^ z >> 31


def peeled(checks: list[list[int]], erased: set[int]) -> set[int]:
    """What is left of a set when every check with a single erased variable has restored it."""
    while True:
        at = [c for v in erased for c in checks[v]]
        alone = {v for v in erased if any(at.count(c) == 1 for c in checks[v])}
        if not alone:
            return erased
        erased = erased - alone


def test_the_generator_has_its_published_outputs() -> None:
    draws = split_mix(1234567)  # the values that implementations of SplitMix64 are checked with
    assert [next(draws) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(
    ("sizes", "erasures", "seed"),
    [((12, 6, 2), 5, 3), ((30, 15, 3), 12, 2**63 + 5), ((9, 70, 3), 9, 1), ((5, 2, 1), 3, 7)],
)
def test_stalled_sets_are_those_of_a_plain_replay(sizes: tuple[int, int, int], erasures: int, seed: int) -> None:
    n, m, degree = sizes
    edges = configuration_model(n, m, degree, seed=1).checks
    draws, order, expected = split_mix(seed), list(range(n)), []
    for _ in range(60):
        for i in range(erasures):
            j = i + ((next(draws) >> 32) * (n - i) >> 32)
            order[i], order[j] = order[j], order[i]
        left = peeled(edges.tolist(), set(order[:erasures]))
        if left:
            kept = [v for v in order[:erasures] if v in left]
            expected.append(kept + [-1] * (erasures - len(kept)))
    found = kernels.stalled_sets(edges, m, erasures, 60, np.uint64(seed))
    assert expected or m > n  # trees never stall
    assert found.tolist() == expected


@pytest.mark.parametrize("sizes", [(4, 4, 1), (6, 5, 2), (7, 9, 3), (4, 3, 3)])
def test_edges_are_exchanged_wherever_none_becomes_double(sizes: tuple[int, int, int]) -> None:
    n, m, degree = sizes
    rng = np.random.default_rng(4)
    edges = ((np.arange(n * degree) % m).reshape(n, degree)).astype(np.int32)
    first, second = rng.integers(n * degree, size=(2, 60))
    expected = edges.tolist()
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        (v, a), (w, b) = divmod(i, degree), divmod(j, degree)
        exchanged = [row.copy() for row in expected]
        exchanged[v][a], exchanged[w][b] = expected[w][b], expected[v][a]
        if v != w and all(len(set(row)) == degree for row in exchanged):
            expected = exchanged
    kernels.swap_edges(edges, first, second)
    assert edges.tolist() == expected


def shortest_cycle(graph: TannerGraph) -> int | None:
    """The girth: without an edge, its ends are one step less apart than the shortest cycle through it is long."""
    neighbours: dict[int, set[int]] = {node: set() for node in range(graph.n + graph.m)}
    for v, checks in enumerate(graph.checks.tolist()):
        for c in checks:
            neighbours[v].add(graph.n + c)
            neighbours[graph.n + c].add(v)
    lengths = []
    for v, checks in enumerate(graph.checks.tolist()):
        for end in (graph.n + c for c in checks):
            distance, level, steps = {v}, {v}, 0
            while level and end not in level:
                level = {w for u in level for w in neighbours[u] if {u, w} != {v, end}} - distance
                distance |= level
                steps += 1
            if level:
                lengths.append(steps + 1)
    return min(lengths, default=None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [(4, 30, 2), (12, 14, 2), (14, 28, 3), (40, 41, 2)])
def test_girth_of_random_graphs(sizes: tuple[int, int, int], seed: int) -> None:
    n, m, degree = sizes
    rng = np.random.default_rng(seed)
    graph = TannerGraph(n, m, np.array([np.sort(rng.choice(m, degree, replace=False)) for _ in range(n)]))
    assert graph.girth() == shortest_cycle(graph)


def test_the_shortest_cycle_may_lie_at_any_variable() -> None:
    longer, shorter = [[0, 1], [1, 2], [2, 3], [3, 0]], [[4, 5], [5, 6], [6, 4]]
    for order in (longer + shorter, shorter + longer, [longer[0], *shorter, *longer[1:]]):
        assert TannerGraph(7, 7, np.sort(np.array(order), axis=1)).girth() == 6
