"""Algebraic laws of the codes over random sizes."""

from itertools import combinations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from codedfl.codes.bounds import _pairs, johnson_bound, least_overlap
from codedfl.codes.constant_weight import affine_hyperplanes, family, partition_family
from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable
from codedfl.codes.graph import configuration_model, progressive_edge_growth
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError, UndecodableError
from codes.tolerance import message_tolerance, restored_tolerance

EPS = np.finfo(np.float64).eps
seeds = st.integers(0, 2**32 - 1)


@st.composite
def codes(draw):
    m = draw(st.integers(2, 16))
    n = m + draw(st.integers(1, 16))
    degree = draw(st.integers(1, min(m, 5)))
    construction = draw(st.sampled_from(["peg", "configuration"]))
    return MdpcCode.build(n, n - m, degree, seed=draw(seeds), construction=construction)


@st.composite
def graph_sizes(draw):
    m = draw(st.integers(1, 80))
    return draw(st.integers(1, 60)), m, draw(st.integers(1, m))


@given(graph_sizes(), seeds, st.sampled_from([progressive_edge_growth, configuration_model]))
def test_degrees_are_regular_and_a_seed_fixes_the_graph(sizes, seed, construct):
    n, m, degree = sizes
    graph = construct(n, m, degree, seed=seed)
    assert np.ptp(graph.check_degrees) <= 1
    assert graph.check_degrees.sum() == n * degree
    assert graph.checks.shape == (n, degree)
    assert np.all(np.diff(graph.checks, axis=1) > 0)
    assert np.array_equal(graph.checks, construct(n, m, degree, seed=seed).checks)


@given(codes())
def test_generator_spans_the_null_space_and_is_read_back(code):
    # n products a sum and a backward stable solve of m equations: a few n * eps, relative to the factors
    scale = np.linalg.norm(code.G) * np.linalg.norm(code.H.data)
    assert np.linalg.norm(code.H @ code.G.T) <= 4 * (code.n + code.m) * EPS * scale
    S = code.G[:, code.information]
    # Householder QR of a k x k matrix leaves an orthogonality error of a few k * eps in norm
    assert np.linalg.norm(S @ S.T - np.eye(code.k)) <= 8 * code.k**1.5 * EPS


@given(codes(), seeds, st.floats(0, 1), st.sampled_from([np.float32, np.float64]))
def test_decoders_restore_or_refuse_together(code, seed, share, dtype):
    rng = np.random.default_rng(seed)
    erased = np.sort(rng.choice(code.n, int(share * code.m), replace=False))
    messages = rng.standard_normal((2, code.k))
    words = code.encode(messages)
    damaged = words.copy()
    damaged[:, erased] = np.nan
    diagnosis = decodable(code, erased)
    assume(diagnosis.condition * np.finfo(np.float32).eps < 1 or not diagnosis)
    for name, decoder in DECODERS.items():
        try:
            plan = decoder.prepare(code, erased, dtype)
        except UndecodableError:
            assert name == "peeling" or not diagnosis
            continue
        assert diagnosis
        assert np.abs(plan.decode(damaged) - words).max() <= restored_tolerance(plan, words)
        assert np.abs(plan.message(damaged) - messages).max() <= message_tolerance(plan, words)


@given(codes(), seeds)
def test_decoders_agree_where_peeling_succeeds(code, seed):
    rng = np.random.default_rng(seed)
    erased = np.sort(rng.choice(code.n, max(1, code.m // 3), replace=False))
    words = code.encode(rng.standard_normal((2, code.k)))
    try:
        plans = [decoder.prepare(code, erased) for decoder in DECODERS.values()]
    except UndecodableError:
        assume(False)
    results = [plan.decode(words) for plan in plans]
    tolerance = 2 * max(restored_tolerance(plan, words) for plan in plans)
    assert all(np.abs(a - b).max() <= tolerance for a, b in combinations(results, 2))


def brute_force_overlap(found):
    return max((len(set(a) & set(b)) for a, b in combinations(found.sets.tolist(), 2)), default=0)


@settings(max_examples=60)
@given(st.data())
def test_families_meet_as_promised(data):
    length = data.draw(st.integers(2, 24))
    weight = data.draw(st.integers(1, length - 1))
    count = data.draw(st.integers(1, 8))
    try:
        found = family(length, weight, count, seed=data.draw(seeds))
    except CodeError:
        assume(False)
    assert found.sets.shape == (count, weight)
    assert found.overlap == brute_force_overlap(found)
    assert least_overlap(length, weight, count) <= found.overlap
    assert count <= johnson_bound(length, weight, found.overlap)


@given(st.sampled_from([(2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4), (3, 4), (2, 5), (2, 7), (2, 8), (2, 9)]))
def test_hyperplanes_meet_in_nothing_or_a_flat(size):
    m, q = size
    planes = affine_hyperplanes(m, q)
    assert q * (q**m - 1) // (q - 1) == planes.M
    assert set(planes.overlaps) <= {0, q ** (m - 2)}
    assert planes.overlap == brute_force_overlap(planes)
    # optimal: they meet the Johnson bound
    assert johnson_bound(q**m, q ** (m - 1), planes.overlap) == planes.M


@given(st.integers(1, 60), st.integers(1, 60))
def test_partitions_are_disjoint(length, weight):
    assume(weight <= length)
    blocks = partition_family(length, weight)
    assert blocks.M == length // weight == johnson_bound(length, weight, blocks.overlap)
    assert brute_force_overlap(blocks) == 0


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 12))
def test_even_use_of_positions_gives_fewest_pairs(length, count, weight):
    assume(weight <= length)
    total = count * weight
    uses = [total // length + (i < total % length) for i in range(length)]
    assert _pairs(length, weight, count) == sum(u * (u - 1) for u in uses)


@settings(max_examples=30)
@given(st.integers(3, 7), st.data())
def test_no_family_beats_the_johnson_bound(length, data):
    weight = data.draw(st.integers(1, length - 1))
    overlap = data.draw(st.integers(0, weight - 1))
    subsets = [set(s) for s in combinations(range(length), weight)]
    order = data.draw(st.permutations(range(len(subsets))))
    chosen: list[set[int]] = []
    for i in order:
        if all(len(subsets[i] & other) <= overlap for other in chosen):
            chosen.append(subsets[i])
    assert len(chosen) <= johnson_bound(length, weight, overlap)
