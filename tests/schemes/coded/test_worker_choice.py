"""Who works, and how many replies are awaited: against fleets small enough to try everything."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import Public
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from tiny import PAPER_FLEET

FOREVER = 10**12
"""So many epochs that the set-up weighs nothing."""


def known(fleet: list[dict[str, Any]], *, features: int = 100, outputs: int = 10, **links: Any) -> Public:
    delays = DelayModel.create(Fleet(devices=fleet), Links(**links))
    return Public((5,) * delays.devices, features, outputs, np.dtype("float32"), delays=delays)


def chosen(public: Public, **options: Any) -> Workers:
    defaults: dict[str, Any] = {"workers": None, "threshold": None, "spares": 1, "expected_epochs": FOREVER}
    return choose_workers(public, 32, **(defaults | options))


def test_the_fast_devices_of_the_papers_fleet_work() -> None:
    """Ten devices of 25e6, five each of 5e6, 2.5e6 and 1.25e6: slower ones come later, equal ones by their number."""
    found = chosen(known(PAPER_FLEET, features=2000), spares=2, expected_epochs=500)
    assert found.order == tuple(range(25))
    assert set(found.chosen) >= set(range(10))
    assert found.threshold <= found.count - 2


def test_a_fast_device_on_a_slow_link_comes_last() -> None:
    slow = {"count": 1, "mac_rate": 1e9, "up_rate": 100.0}
    found = chosen(known([slow, {"count": 3, "mac_rate": 1e6}]))
    assert found.order == (1, 2, 3, 0)


def test_where_nothing_is_known_everyone_works_and_spares_are_not_awaited() -> None:
    public = Public((5,) * 6, 10, 2, np.dtype("float64"))
    assert chosen(public, spares=2) == Workers(tuple(range(6)), 6, 4)
    assert chosen(public, workers=4, threshold=3) == Workers(tuple(range(6)), 4, 3)
    assert chosen(public, workers=2, spares=5).threshold == 1


FLEETS = st.lists(st.sampled_from([1e5, 3e5, 1e6, 4e6, 2e7]), min_size=2, max_size=6)


CHANNELS = st.sampled_from(["parallel", "shared"])


@given(
    FLEETS, st.integers(0, 3), st.integers(10, 90), st.integers(1, 12), st.sampled_from([1, 10, 100, FOREVER]), CHANNELS
)
@example([1e5] * 6, 0, 20, 1, 1, "parallel")  # the set-up decides
@example([1e5] * 6, 0, 20, 1, 1, "shared")
@settings(max_examples=60)
def test_without_chance_the_choice_is_the_best_of_all(
    rates: list[float], spares: int, d: int, c: int, epochs: int, channel: str
) -> None:
    """Every W and K tried by hand: words of 32 bits and a tenth more, the K-th fastest of the W best ends an epoch.

    Coded blocks are spread once: a worker takes d rows of one, an adder sends its share of the rows of W of them. On a
    shared channel all go one after the other, but for the share that a worker has itself.
    """
    spares = min(spares, len(rates) - 1)
    groups = [{"count": 1, "mac_rate": rate, "setup_ratio": 0.0, "setup_seconds": 0.0} for rate in rates]
    links: dict[str, Any] = {"loss": 0.0, "down_rate": 10e6, "up_rate": 5e6, "d2d_rate": 1e6, "overhead": 0.1}
    public = known(groups, features=d, outputs=c, **links, d2d_channel=channel)

    def seconds(W: int, K: int) -> float:
        width = (d + K - 1) // K
        times = [c * d * 35.2 / 10e6 + c * d * width / rate + c * width * 35.2 / 5e6 for rate in rates]
        words = max(d * width, W * width * math.ceil(d / len(rates)))
        if channel == "shared":
            words = W * width * (d - d // len(rates))
        return sorted(sorted(times)[:W])[K - 1] + words * 35.2 / 1e6 / epochs

    found = chosen(public, spares=spares, expected_epochs=epochs)
    pairs = [(W, K) for W in range(1, len(rates) + 1) for K in range(1, W + 1) if K + spares <= W]
    assert (found.count, found.threshold) in pairs
    assert seconds(found.count, found.threshold) == pytest.approx(min(seconds(*pair) for pair in pairs), rel=1e-9)
    assert sorted(found.order, key=lambda device: (-rates[device], device)) == list(found.order)


def test_with_chance_the_choice_is_as_good_as_the_best_of_all() -> None:
    """An independent simulation with 20000 draws of its own; predictions rest on 200.

    Two predicted means may be apart by chance: by four deviations of the difference of means of 200 draws each, at most
    sqrt(2 / 200) times the larger deviation of an epoch.
    """
    rates, d, c, loss = [2e6, 2e6, 1e6, 5e5, 1e5], 80, 10, 0.1
    public = known(
        [{"count": 1, "mac_rate": rate, "setup_ratio": 0.5} for rate in rates], features=d, outputs=c, loss=loss
    )
    rng = np.random.default_rng(1)
    shape = (20000, len(rates))

    def epoch(W: int, K: int) -> np.ndarray:
        width = (d + K - 1) // K
        work = c * d * width / np.array(rates)
        total = work + rng.exponential(size=shape) * work / 2
        total += rng.geometric(1 - loss, shape) * c * d * 35.2 / 10e6
        total += rng.geometric(1 - loss, shape) * c * width * 35.2 / 5e6
        return np.sort(total[:, :W], axis=1)[:, K - 1]

    found = chosen(public)
    times = {(W, K): epoch(W, K) for W in range(2, 6) for K in range(1, W)}
    best = min(times.values(), key=np.mean)
    mine = times[found.count, found.threshold]
    assert mine.mean() <= best.mean() + 4 * np.sqrt(2 / 200) * max(mine.std(), best.std())
    worst = max(values.mean() for values in times.values())
    assert mine.mean() < 0.7 * worst, "the choice matters here"


@given(FLEETS, st.integers(0, 4))
@settings(max_examples=25)
def test_what_is_given_is_kept_and_spares_are_kept_free(rates: list[float], spares: int) -> None:
    public = known([{"count": 1, "mac_rate": rate} for rate in rates])
    n = len(rates)
    spares = min(spares, n - 1)
    free = chosen(public, spares=spares)
    assert 1 <= free.threshold <= free.count - spares <= n - spares
    assert chosen(public, workers=n, spares=spares).count == n
    fixed = chosen(public, workers=n, threshold=1 + spares, spares=spares)
    assert (fixed.count, fixed.threshold) == (n, 1 + spares)
    assert chosen(public, threshold=n, spares=spares).count == n, "all must reply, so all must work"
