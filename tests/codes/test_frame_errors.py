import threading

import numpy as np
import pytest
import scipy.sparse

from codedfl.codes import frame_errors, kernels
from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable
from codedfl.codes.erasure.schedule import schedule
from codedfl.codes.frame_errors import decoder_error_rates, frame_error_rate, independent_columns, wilson_interval
from codedfl.codes.graph import TannerGraph, progressive_edge_growth
from codedfl.codes.mdpc import MdpcCode, draw_parity_check
from codedfl.errors import CodeError, UndecodableError


@pytest.fixture(scope="module")
def graph():
    return progressive_edge_growth(60, 30, 4, seed=1)


def test_result_does_not_depend_on_the_workers(graph):
    one, two = (frame_error_rate(graph, 16, trials=100_000, seed=5, workers=w) for w in (1, 2))
    assert one == two
    assert frame_error_rate(graph, 16, trials=100_000, seed=6).failures != one.failures


@pytest.mark.parametrize("trials", [1, 4096, 4097, 9000])
def test_every_block_of_4096_sets_has_a_stream_of_its_own(graph, trials):
    streams = np.random.SeedSequence(5).generate_state(-(-trials // 4096), np.uint64)
    sizes = [min(4096, trials - first) for first in range(0, trials, 4096)]
    edges = graph.checks.astype(np.uint16)
    stalled = sum(len(kernels.stalled_sets(edges, 30, 18, *each)) for each in zip(sizes, streams, strict=True))
    found = frame_error_rate(graph, 18, trials=trials, seed=5)
    assert (found.erasures, found.trials, found.failures, found.rate) == (18, trials, stalled, stalled / trials)
    assert (found.low, found.high) == wilson_interval(stalled, trials)


@pytest.fixture(scope="module")
def stuck():
    """Two variables that share their only check: two erasures always stall."""
    return TannerGraph(3, 2, np.array([[0], [0], [0]]))


def test_progress_is_told_after_every_sixteen_blocks(stuck):
    seen = []
    frame_error_rate(stuck, 2, trials=140_000, seed=1, progress=lambda *each: seen.append(each))
    assert seen == [(65536, 65536), (131072, 131072), (140_000, 140_000)]


@pytest.mark.parametrize(("precision", "batches"), [(3e-5, 1), (2.9e-5, 2), (1.47e-5, 2), (1.46e-5, 3), (1e-9, 4)])
def test_it_stops_when_half_the_width_is_small_enough(stuck, precision, batches):
    """Where all of N fail, the interval begins at 1 / (1 + z^2 / N): half its width is 2.93e-5 after the first batch.

    After two it is half of that.
    """
    found = frame_error_rate(stuck, 2, trials=4 * 65536, seed=1, relative_precision=precision)
    assert (found.trials, found.rate) == (batches * 65536, 1)


def test_it_stops_at_exactly_the_wanted_precision(stuck):
    low, high = wilson_interval(65536, 65536)
    found = frame_error_rate(stuck, 2, trials=2 * 65536, seed=1, relative_precision=(high - low) / 2)
    assert found.trials == 65536


def test_blocks_are_shared_among_as_many_threads_as_are_asked_for(stuck, monkeypatch):
    """Three sets of trials that wait for each other, where the machine has one core."""
    met = threading.Barrier(3, timeout=10)
    monkeypatch.setattr(frame_errors, "cores", lambda: 1)
    monkeypatch.setattr(kernels, "stalled_sets", lambda *arguments: np.zeros((met.wait() * 0, 2), np.int32))
    assert frame_error_rate(stuck, 2, trials=3 * 4096, seed=1, workers=3).failures == 0


def test_it_never_stops_before_a_failure(stuck):
    assert frame_error_rate(stuck, 1, trials=70_000, seed=1, relative_precision=0.5).trials == 70_000


def test_the_precision_is_relative_to_the_rate():
    """One of six sets stalls: half the width is 1.96 sqrt(5 / N) of that, 1.71 % after a batch and 1.21 % after two."""
    graph = TannerGraph(4, 6, np.array([[0, 1], [0, 1], [2, 3], [4, 5]]))
    for precision, batches in ((0.018, 1), (0.016, 2), (0.0125, 2)):
        found = frame_error_rate(graph, 2, trials=3 * 65536, seed=1, relative_precision=precision)
        assert found.trials == batches * 65536


def test_checks_beyond_16_bits_are_told_apart():
    """Checks 0 and 65536, which have the same low bits: both variables are restored."""
    graph = TannerGraph(2, 65537, np.array([[0], [65536]]))
    assert frame_error_rate(graph, 2, trials=10, seed=1).failures == 0


@pytest.mark.parametrize(("stalls", "trials"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 150), (None, 150)])
def test_rates_of_decoders_stop_after_64_sets_or_more(stalls, trials):
    H = scipy.sparse.csr_matrix(np.ones((1, 3)))
    for found in decoder_error_rates(H, 2, trials=150, seed=1, stalls=stalls).values():
        assert (found.erasures, found.trials, found.failures) == (2, trials, trials)


def test_every_block_of_32_sets_has_a_stream_of_its_own():
    H = draw_parity_check(40, 20, 2, seed=2, weights="ones")
    streams = np.random.SeedSequence(6).generate_state(3, np.uint64)
    edges = TannerGraph.of(H).checks.astype(np.uint16)
    blocks = [kernels.stalled_sets(edges, 20, 16, *each) for each in zip((32, 32, 6), streams, strict=True)]
    ranks = [np.linalg.matrix_rank(H.toarray()[:, row[row >= 0]]) for rows in blocks for row in rows]
    dependent = sum(rank < (row >= 0).sum() for rank, row in zip(ranks, np.concatenate(blocks), strict=True))
    found = decoder_error_rates(H, 16, trials=70, seed=6)
    assert (found["peeling"].failures, found["inactivation"].failures) == (len(ranks), dependent)
    assert 0 < dependent < len(ranks)


@pytest.mark.parametrize(("failures", "trials"), [(1, 1000), (5, 10), (81, 263), (999, 1000), (0, 20), (20, 20)])
def test_bounds_of_the_interval_are_roots_of_its_equation(failures, trials):
    """(p - f/N)^2 = z^2 p (1 - p) / N with the 97.5 % point of the normal law."""
    z = 1.959963984540054
    low, high = wilson_interval(failures, trials)
    for p in (low, high):
        assert (p - failures / trials) ** 2 == pytest.approx(z**2 * p * (1 - p) / trials, rel=1e-9, abs=1e-15)
    assert (low == 0) == (failures == 0) and (high == 1) == (failures == trials)
    assert 0 <= low <= failures / trials <= high <= 1 and low < high


def test_stops_early_at_the_wanted_precision(graph):
    seen = []
    found = frame_error_rate(
        graph,
        20,
        trials=10**9,
        seed=1,
        relative_precision=0.05,
        progress=lambda done, bad: seen.append((done, bad)),
    )
    assert found.trials < 10**9 and (found.trials, found.failures) == seen[-1]
    assert (found.high - found.low) / 2 <= 0.05 * found.rate
    assert found.low < found.rate < found.high


def test_extremes(graph):
    nothing = frame_error_rate(graph, 0, trials=100, seed=1)
    assert (nothing.failures, nothing.low) == (0, 0.0) and 0 < nothing.high < 0.05
    everything = frame_error_rate(graph, 60, trials=100, seed=1)
    assert (everything.rate, everything.high) == (1.0, 1.0) and everything.low > 0.95
    assert frame_error_rate(graph, 1, trials=5000, seed=1).failures == 0


def test_two_equal_columns_fail_exactly_together():
    # variables 0 and 1 share both checks, all others have checks of their own
    graph = TannerGraph(4, 6, np.array([[0, 1], [0, 1], [2, 3], [4, 5]]))
    found = frame_error_rate(graph, 2, trials=200_000, seed=3)
    assert found.low < 1 / 6 < found.high


def test_wilson_interval_of_a_textbook_case():
    # Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson_interval(0, 20)[0] == 0.0 and round(wilson_interval(0, 20)[1], 4) == 0.1611


@pytest.mark.parametrize("trials", [1, 2, 6, 9, 13, 4096, 10**6])
def test_what_never_or_always_fails_has_an_end_of_the_interval_to_itself(trials):
    assert wilson_interval(0, trials)[0] == 0 and wilson_interval(trials, trials)[1] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"erasures": 61}, "61 of 60 positions cannot be erased: choose 0 to 60"),
        ({"erasures": -1}, "-1 of 60"),
        ({"trials": 0}, "0 trials give no rate"),
        ({"relative_precision": 0.0}, "precision 0.0 is never reached"),
        ({"relative_precision": -1.0}, "precision -1.0 is never reached: give a number above 0"),
        ({"relative_precision": float("nan")}, "precision nan is never reached"),
        ({"workers": 0}, "0 workers cannot work"),
    ],
)
def test_refusals(graph, arguments, sentence):
    with pytest.raises(CodeError, match=sentence):
        frame_error_rate(graph, **{"erasures": 5, "trials": 10, "seed": 1} | arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"erasures": 4}, "4 of 3 positions cannot be erased: choose 0 to 3"),
        ({"trials": 0}, "0 trials give no rate: ask for at least 1"),
        ({"workers": 0}, "0 workers cannot work: ask for at least 1"),
    ],
)
def test_rates_of_decoders_refuse_the_same(arguments, sentence):
    with pytest.raises(CodeError, match=sentence):
        decoder_error_rates(
            scipy.sparse.csr_matrix(np.ones((1, 3))), **{"erasures": 2, "trials": 10, "seed": 1} | arguments
        )


def brute_force(H, erasures, trials, seed):
    """Peel and compute ranks by dense linear algebra, on random sets of another generator."""
    rng, dense = np.random.default_rng(seed), H.toarray()
    stalled = dependent = 0
    for _ in range(trials):
        left = set(rng.choice(dense.shape[1], erasures, replace=False).tolist())
        dependent += np.linalg.matrix_rank(dense[:, sorted(left)]) < erasures
        while left:
            checks = np.count_nonzero(dense[:, sorted(left)], axis=1) == 1
            restored = {v for v in left if dense[checks, v].any()}
            if not restored:
                break
            left -= restored
        stalled += bool(left)
    return stalled, dependent


@pytest.mark.parametrize("weights", ["signed-uniform", "ones"])
@pytest.mark.parametrize("erasures", [12, 19, 24])
def test_rates_of_both_decoders_agree_with_dense_ranks(weights, erasures):
    """Sizes of 3 standard deviations of the difference apart at most; peeling does not look at the weights."""
    H, trials = draw_parity_check(40, 20, 2, seed=2, weights=weights), 1000
    rates = decoder_error_rates(H, erasures, trials=trials, seed=4)
    for found, other in zip(rates.values(), brute_force(H, erasures, trials, seed=9), strict=True):
        expected = (found.failures + other) / (2 * trials)
        assert abs(found.failures - other) / trials <= 3 * np.sqrt(2 * expected * (1 - expected) / trials)
    assert rates["inactivation"].failures <= rates["peeling"].failures
    assert rates["peeling"].trials == rates["inactivation"].trials == trials
    if erasures == 24:  # more columns than rows
        assert rates["inactivation"].rate == 1


def test_inactivation_fails_exactly_where_the_decoder_does():
    """The same sets, one by one: what peeling leaves is dependent iff the decoder refuses the whole set."""
    code = MdpcCode.build(40, 20, 2, seed=2)
    columns, rng, refused = scipy.sparse.csc_matrix(code.H), np.random.default_rng(1), 0
    for _ in range(200):
        erased = rng.choice(40, 14, replace=False)
        left = schedule(code.H, erased, inactivate=False).stuck
        independent = independent_columns(columns, left)
        assert independent == independent_columns(columns, erased) == bool(decodable(code, erased))
        if not independent:
            refused += 1
            with pytest.raises(UndecodableError):
                DECODERS["inactivation"].prepare(code, erased)
    assert 0 < refused < 200


def test_rates_of_decoders_do_not_depend_on_the_workers_and_stop_early():
    H = draw_parity_check(60, 30, 4, seed=1)
    one, two = (decoder_error_rates(H, 20, trials=1000, seed=5, workers=w) for w in (1, 2))
    assert one == two
    stopped = decoder_error_rates(H, 20, trials=1000, seed=5, stalls=10)["peeling"]
    assert stopped.failures >= 10 and stopped.trials < 1000


def test_nearly_dependent_columns_are_independent():
    """The certificate by Cholesky cannot tell 1e-6 from zero; the singular values can."""
    H = scipy.sparse.csc_matrix(np.array([[1.0, 1.0], [0.0, 1e-6], [0.0, 0.0]]))
    assert independent_columns(H, np.array([0, 1]))
    assert not independent_columns(H[:, [0, 0]], np.array([0, 1]))


@pytest.mark.parametrize("scale", [1.0, 2.0**30])
@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize(("share", "independent"), [(0.95, False), (1.0, False), (1.05, True)])
def test_columns_are_independent_above_the_rounding_of_their_singular_values(rows, share, independent, scale):
    """Two columns of so many rows: rows * 2^-52 of the largest is counted as zero."""
    small = share * rows * np.finfo(float).eps
    H = scipy.sparse.csc_matrix(scale * np.pad(np.diag([1.0, small]), ((0, rows - 2), (0, 0))))
    assert independent_columns(H, np.array([0, 1])) == independent
    assert independent_columns(H, np.array([1]))
    assert independent_columns(H, np.array([], dtype=np.int64))


@pytest.mark.parametrize("scale", [1.0, 2.0**30])
def test_a_short_column_is_judged_beside_the_long_ones(scale):
    """(1, 0) and (2^-30, 1.9 * 2^-52): the certificate must not count by the shorter column, whose square is 2^-60."""
    H = scipy.sparse.csc_matrix(scale * np.array([[1.0, 2.0**-30], [0.0, 1.9 * np.finfo(float).eps]]))
    assert not independent_columns(H, np.array([0, 1]))


@pytest.mark.parametrize("seed", [45, 56, 58, 90])
def test_many_dependent_columns_are_no_independent_ones_by_rounding(seed):
    """The last of 200 columns is the difference of two others; a decomposition of their products may not see it."""
    columns = np.random.default_rng(seed).standard_normal((200, 200))
    columns[:, -1] = columns[:, 0] - columns[:, 1]
    assert not independent_columns(scipy.sparse.csc_matrix(columns), np.arange(200))


def test_a_column_of_zeros_is_dependent():
    H = scipy.sparse.csc_matrix(np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert not independent_columns(H, np.array([1]))
    assert not independent_columns(H, np.array([0, 1]))
    assert independent_columns(H, np.array([0]))
