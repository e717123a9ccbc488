import numpy as np
import pytest
import scipy.sparse

from codedfl.codes import kernels
from codedfl.codes.graph import TannerGraph, configuration_model, progressive_edge_growth
from codedfl.errors import CodeError

CONSTRUCTIONS = [progressive_edge_growth, configuration_model]


def tree_levels(own, members, edges):
    """Checks by their distance from a variable, by plain breadth-first search: [own, one step on, ...]."""
    levels, reached = [set(own)], set(own)
    while levels[-1]:
        following = {int(d) for c in levels[-1] for v in members[c] for d in edges[v]} - reached
        reached |= following
        levels.append(following)
    return levels


@pytest.mark.parametrize("sizes", [(60, 30, 3), (40, 20, 6), (30, 12, 4), (100, 70, 2), (20, 130, 9), (30, 65, 4)])
def test_every_edge_goes_where_the_textbook_sends_it(sizes):
    n, m, degree = sizes
    rng = np.random.default_rng(8)
    capacity = np.full(m, n * degree // m)
    capacity[: n * degree % m] += 1
    uniforms = rng.random((n, degree))
    uniforms[::7], uniforms[3::7] = 0.0, np.nextafter(1.0, 0.0)
    edges = kernels.grow_edges(n, degree, capacity, uniforms)
    room, members = capacity.copy(), [[] for _ in range(m)]
    for v in range(n):
        own = []
        for c, uniform in zip(edges[v].tolist(), uniforms[v], strict=True):
            candidates = {d for d in range(m) if room[d] == n - v and d not in own}
            if not candidates:
                candidates = {d for d in range(m) if room[d] > 0 and d not in own}
                for level in tree_levels(own, members, edges):
                    candidates = candidates - level or candidates
            most = sorted(d for d in candidates if room[d] == max(room[e] for e in candidates))
            assert c == most[int(uniform * len(most))]
            room[c] -= 1
            own.append(c)
        for c in own:
            members[c].append(v)
    assert not room.any()


def test_paper_size_is_exactly_regular():
    graph = progressive_edge_growth(4000, 2000, 45, seed=1)
    assert graph.degree == 45 and graph.check_degrees.tolist() == [90] * 2000


@pytest.mark.parametrize("seed", range(3))
def test_growth_keeps_short_cycles_away(seed):
    grown = progressive_edge_growth(500, 250, 3, seed=seed)
    assert configuration_model(500, 250, 3, seed=seed).girth() == 4
    assert grown.girth() >= 6 and grown.four_cycles() == 0


@pytest.mark.parametrize("construct", CONSTRUCTIONS)
def test_another_seed_gives_another_graph(construct):
    first, second = (construct(60, 30, 4, seed=s).checks for s in (1, 2))
    assert not np.array_equal(first, second)


def test_girth_and_four_cycles_of_known_graphs():
    ring = TannerGraph(5, 5, np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]]))
    assert (ring.girth(), ring.four_cycles()) == (10, 0)
    complete = TannerGraph(5, 3, np.tile(np.arange(3), (5, 1)))
    assert (complete.girth(), complete.four_cycles()) == (4, 10 * 3)
    tree = TannerGraph(2, 3, np.array([[0, 1], [1, 2]]))
    assert (tree.girth(), tree.four_cycles()) == (None, 0)
    # points and lines of the Fano plane: girth 6
    fano = np.array([[0, 1, 2], [0, 3, 4], [0, 5, 6], [1, 3, 5], [1, 4, 6], [2, 3, 6], [2, 4, 5]])
    assert TannerGraph(7, 7, fano).girth() == 6


@pytest.mark.parametrize("construct", CONSTRUCTIONS)
@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((0, 3, 1), "n=0 and m=3: give both at least 1"),
        ((3, 0, 1), "n=3 and m=0"),
        ((10, 5, 6), "degree 6 does not fit 5 checks: choose a degree between 1 and 5"),
        ((10, 5, 0), "degree 0 does not fit"),
    ],
)
def test_impossible_sizes(construct, sizes, sentence):
    with pytest.raises(CodeError, match=sentence):
        construct(*sizes, seed=0)


@pytest.mark.parametrize("construct", CONSTRUCTIONS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 3, 3), (3, 1, 1)])
def test_the_smallest_graphs_have_all_edges(construct, sizes):
    n, m, degree = sizes
    assert construct(n, m, degree, seed=0).checks.tolist() == [list(range(m))] * n


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        ([[0, 1]], "shape"),
        ([[0, 9], [0, 1]], "outside 0..2"),
        ([[0, 1], [0, 3]], "outside 0..2"),
        ([[0, 1], [-1, 1]], "outside 0..2"),
        ([[1, 0], [0, 1]], "unsorted or repeated"),
        ([[1, 1], [0, 1]], "unsorted or repeated"),
    ],
)
def test_wrong_tables(checks, sentence):
    with pytest.raises(CodeError, match=sentence):
        TannerGraph(2, 3, np.array(checks))


@pytest.mark.parametrize(("m", "checks"), [(3, [[0, 1], [0, 2]]), (1, [[0], [0]])])
def test_tables_may_name_every_check(m, checks):
    assert TannerGraph(2, m, np.array(checks)).checks.tolist() == checks


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tables_are_kept_as_whole_numbers_that_nobody_changes(dtype):
    graph = TannerGraph(3, 4, np.array([[0, 1, 2], [1, 2, 3]], dtype=dtype).T)
    assert graph.checks.dtype == np.int32 and graph.checks.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        graph.checks[0, 0] = 1


def test_a_variable_without_checks_is_refused():
    with pytest.raises(CodeError, match=r"shape \(2, 0\) for 2 variables: give one non-empty row each"):
        TannerGraph(2, 3, np.zeros((2, 0), np.int32))


def test_the_graph_of_a_matrix_does_not_depend_on_the_order_of_its_entries():
    entries, rows, starts = np.ones(4), np.array([2, 0, 1, 2]), np.array([0, 2, 4])
    H = scipy.sparse.csc_matrix((entries, rows, starts), shape=(3, 2))
    assert TannerGraph.of(H).checks.tolist() == [[0, 2], [1, 2]]


def test_a_graph_without_checks_is_refused():
    with pytest.raises(CodeError, match=r"outside 0\.\.-1"):
        TannerGraph(0, 0, np.zeros((0, 1), np.int32))
