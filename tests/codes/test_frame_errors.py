import numpy as np
import pytest
import scipy.sparse

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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"erasures": 61}, "61 of 60 positions cannot be erased: choose 0 to 60"),
        ({"erasures": -1}, "-1 of 60"),
        ({"trials": 0}, "0 trials give no rate"),
        ({"relative_precision": 0.0}, "precision 0.0 is never reached"),
        ({"workers": 0}, "0 workers cannot work"),
    ],
)
def test_refusals(graph, arguments, sentence):
    with pytest.raises(CodeError, match=sentence):
        frame_error_rate(graph, **{"erasures": 5, "trials": 10, "seed": 1} | arguments)


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
