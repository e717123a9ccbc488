import numpy as np
import pytest

from codedfl.codes.frame_errors import frame_error_rate, wilson_interval
from codedfl.codes.graph import TannerGraph, progressive_edge_growth
from codedfl.errors import CodeError


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
