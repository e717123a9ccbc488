"""Estimates of delays: exact without chance, close to the truth where much was seen, fair to what was cut off."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network.estimation import (
    Observed,
    alike_losses,
    alike_setups,
    estimate_links,
    estimate_pairs,
    estimate_work,
)

MANY = 4000


def observed(amount: np.ndarray, seconds: np.ndarray, ended: np.ndarray | None = None, device: int = 0) -> Observed:
    whole = np.ones(len(amount), bool) if ended is None else ended
    return Observed(np.full(len(amount), device), amount.astype(float), seconds, whole)


@given(
    tries=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    bits=st.integers(1, 10**9),
    rate=st.floats(1e2, 1e9),
)
def test_tries_are_counted_exactly(tries: list[int], bits: int, rate: float) -> None:
    """With a first try that succeeded: its time is that of the link, and every other one is counted."""
    counts = np.array([1, *tries])
    found = estimate_links(observed(np.full(len(counts), bits), counts * bits / rate), 2)
    assert found.bit_seconds[0] == pytest.approx(1 / rate)
    assert np.isnan(found.bit_seconds[1])
    assert found.failures[0] == pytest.approx(counts.sum() - len(counts))
    assert found.successes.tolist() == [len(counts), 0]


def test_a_transmission_that_was_cut_off_failed_as_often_as_it_had_time(rng: np.random.Generator) -> None:
    """The loss of links that are watched for three and a half tries is that of links that are watched to the end."""
    loss, limit = 0.4, 3.5
    tries = rng.geometric(1 - loss, MANY).astype(float)
    cut = observed(np.ones(MANY), np.minimum(tries, limit), tries <= limit)
    found = estimate_links(cut, 1)
    estimate = found.failures[0] / (found.failures[0] + found.successes[0])
    assert abs(estimate - loss) < 5 * np.sqrt(loss * (1 - loss) / (found.failures[0] + found.successes[0]))
    assert found.successes[0] == np.count_nonzero(tries <= limit)


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_work_with_a_setup(share: float, rng: np.random.Generator) -> None:
    """Rate within the shortest excess of so many, the mean setup within five standard errors; also if cut off."""
    macs, rate, ratio = 1e6, 5e6, 0.5
    seconds = macs / rate * (1 + rng.exponential(ratio, MANY))
    limit = np.quantile(seconds, share)
    done = observed(np.full(MANY, macs), np.minimum(seconds, limit), seconds <= limit)
    found = estimate_work(done, 1)
    assert abs(found.mac_rate[0] / rate - 1) < 20 * ratio / MANY
    assert abs(found.setup_ratio[0] / ratio - 1) < 5 / np.sqrt(share * MANY)
    assert found.setup_seconds[0] == 0
    assert found.ends[0] == np.count_nonzero(seconds <= limit)


def test_unlike_amounts_tell_two_kinds_of_setup_apart(rng: np.random.Generator) -> None:
    macs, rate, ratio, constant = np.repeat([1e5, 4e6], MANY), 5e6, 0.5, 0.1
    seconds = macs / rate + rng.exponential(ratio * macs / rate + constant)
    found = estimate_work(observed(macs, seconds), 1)
    assert found.mac_rate[0] == pytest.approx(rate, rel=0.02)
    assert found.setup_ratio[0] == pytest.approx(ratio, rel=0.1)
    assert found.setup_seconds[0] == pytest.approx(constant, rel=0.1)
    alone = estimate_work(observed(macs, macs / rate * (1 + rng.exponential(ratio, 2 * MANY))), 1)
    assert alone.setup_seconds[0] == 0


def test_work_without_chance() -> None:
    found = estimate_work(observed(np.full(3, 100), np.full(3, 4.0)), 2)
    assert (found.mac_rate[0], found.setup_ratio[0], found.setup_seconds[0]) == (25.0, 0.0, 0.0)
    assert np.isnan(found.mac_rate[1])


def test_the_slower_end_decides_between_devices(rng: np.random.Generator) -> None:
    """Rates are found where a device meets one that is no slower; the fastest is known up to the second fastest."""
    rates, loss, n = np.array([8.0, 5.0, 3.0, 3.0]), 0.25, 4
    sender, recipient = np.divmod(rng.permutation(np.repeat(np.arange(n * n), 50)), n)
    sender, recipient = sender[sender != recipient], recipient[sender != recipient]
    tries = rng.geometric(1 - loss, len(sender))
    seconds = tries * 10 / np.minimum(rates[sender], rates[recipient])
    sent = Observed(sender, np.full(len(sender), 10.0), seconds, np.ones(len(sender), bool))
    found, failures, successes = estimate_pairs(sent, recipient, n + 1)
    assert found[:n] == pytest.approx([5.0, 5.0, 3.0, 3.0])
    assert np.isnan(found[n])
    assert failures.sum() == pytest.approx(tries.sum() - len(tries))
    assert successes.tolist() == [*np.bincount(sender).tolist(), 0]


def test_one_number_for_all_devices_where_it_explains_them(rng: np.random.Generator) -> None:
    tries = rng.geometric(0.9, (20, 200))
    counts = (tries - 1.0).sum(axis=1), np.full(20, 200.0)
    assert alike_losses(*counts)
    assert not alike_losses(counts[0] + np.where(np.arange(20) == 3, 60, 0), counts[1])
    assert alike_losses(np.zeros(3), np.array([5.0, 0.0, 2.0]))
    means = rng.exponential(0.5, (20, 200)).mean(axis=1)
    ends = np.full(20, 201)
    assert alike_setups(means, ends)
    assert not alike_setups(np.where(np.arange(20) == 3, 1.0, means), ends)
    assert not alike_setups(np.where(np.arange(20) == 3, 0.0, means), ends)
