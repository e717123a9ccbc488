"""Estimates of delays: exact without chance, close to the truth where much was seen, fair to what was cut off."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network.estimation import (
    Observed,
    _likely,
    alike_losses,
    alike_setups,
    count_tries,
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


# --- by hand ---


@pytest.mark.parametrize(
    ("tries", "ended", "failed", "succeeded"),
    [
        (1.0, True, 0, 1),
        (2.5, True, 1.5, 1),  # of a real network
        (0.4, True, 0, 1),
        (2.5, False, 2, 0),
        (0.4, False, 0, 0),
        (0.0, False, 0, 0),
        (1.0, False, 0, 1),  # cut off when the first try ended
        (3.0, False, 2, 1),
        (1000.0005, False, 999, 1),
        (999.9995, False, 999, 1),
        (1000.002, False, 1000, 0),
        (3.0001, False, 3, 0),
    ],
)
def test_failures_and_successes_of_one_transmission(tries: float, ended: bool, failed: float, succeeded: int) -> None:
    """What was cut off within a millionth of a whole number of tries ended with the last of them."""
    assert count_tries(np.array([tries]), np.array([ended])) == (failed, succeeded)


def test_transmissions_of_which_none_ended_tell_nothing() -> None:
    found = estimate_links(observed(np.ones(2), np.array([0.5, 3.0]), np.zeros(2, bool)), 1)
    assert np.isnan(found.bit_seconds[0])
    assert (found.failures[0], found.successes[0]) == (0, 0)


def test_a_transmission_that_was_cut_off_says_nothing_of_the_time_of_a_try() -> None:
    """16 bits take 8 s a try: cut off after 4 s in the first, ended with the second, cut off in the third."""
    found = estimate_links(
        observed(np.full(4, 16), np.array([4, 8, 16, 20.0]), np.array([False, True, True, False])), 1
    )
    assert (found.bit_seconds[0], found.failures[0], found.successes[0]) == (0.5, 0 + 0 + 1 + 2, 2)


def test_pairs_that_send_less_than_a_bit_a_second() -> None:
    """Device 0 sends 1 bit to 1 in 4 s, twice, then in 12 s; from 1 to 2 it was cut off after 5 s."""
    seconds, ended = np.array([4.0, 4.0, 12.0, 5.0]), np.array([True, True, True, False])
    sent = Observed(np.array([0, 0, 0, 1]), np.ones(4), seconds, ended)
    found, failures, successes = estimate_pairs(sent, np.array([1, 1, 1, 0]), 3)
    assert found[:2].tolist() == [0.25, 0.25]
    assert np.isnan(found[2])
    assert (failures.tolist(), successes.tolist()) == ([2.0, 1.0, 0.0], [3.0, 0.0, 0.0])


@pytest.mark.parametrize("unit", [1.0, 2.0**-10, 2.0**10])
class TestWork:
    """Computations of 4 multiplications each, in any unit of time."""

    def found(self, seconds: list[float], ended: list[bool], unit: float) -> tuple[float, float, float]:
        done = observed(np.full(len(seconds), 4), unit * np.array(seconds), np.array(ended))
        found = estimate_work(done, 1)
        return float(found.mac_rate[0] * unit), float(found.setup_ratio[0]), float(found.setup_seconds[0])

    def test_the_shortest_is_less_its_mean_excess(self, unit: float) -> None:
        """Shortest 2 a multiplication, a mean excess of (0 + 1)/2 = 0.5, of the least of two 0.25: 1.75 are left.

        Above 4 * 1.75 = 7 are 1 and 5: on average 3, 0.75 a multiplication. The mean is (8 + 12)/2 = 4 * (1.75 + 0.75).
        """
        found = self.found([8, 12], [True, True], unit)
        assert found == pytest.approx((1 / 1.75, 0.75 / 1.75, 0))
        assert self.found([8, 12, 1], [True, True, False], unit) == found, "cut off while it computes"

    def test_but_no_less_than_half_the_shortest(self, unit: float) -> None:
        """Shortest 1, mean excess 10/2 = 5, of the least of two 2.5: half of 1 is left; then 2 and 42 are above it."""
        assert self.found([4, 44], [True, True], unit) == pytest.approx((2, 11, 0))

    def test_one_end_has_no_excess_that_is_known(self, unit: float) -> None:
        """Twice the shortest, 4 in all, passed without another end: 1 a multiplication."""
        assert self.found([8, 12], [True, False], unit) == pytest.approx((0.5, 0.5, 0))


def test_unlike_amounts_without_chance() -> None:
    amounts = np.array([1.0, 8.0, 64.0])
    found = estimate_work(observed(amounts, amounts / 4), 1)
    assert (found.mac_rate[0], found.setup_ratio[0], found.setup_seconds[0]) == (4.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("pairs", "factor", "apart"), [(44, 2.0, False), (52, 2.0, True), (200, 2.0, True), (200, 1.9, False)]
)
def test_setups_per_request_are_told_apart_if_that_is_significant(pairs: int, factor: float, apart: bool) -> None:
    """Amounts 8 and 16 with the same excesses, of mean 1: a mean of 1 for both is the likeliest one per request.

    One per 8 multiplications is (1 + 1/2)/2 = 0.75 at best. Means of 1 and 1 have the log-likelihood -2 a pair, and
    0.75 and 1.5 have -(ln 0.75 + 1/0.75 + ln 1.5 + 1/1.5) = -2.118. Twice the difference is 0.236 a pair: 10.4 for 44
    pairs and 12.3 for 52, of which 1 in 1000 exceeds 10.8. Amounts within a factor of 2 are never told apart.
    """
    excess = -np.log1p(-(np.arange(pairs) + 0.5) / pairs)
    excess /= excess.mean()
    amounts = 8 * np.repeat([1.0, factor], pairs)
    found = estimate_work(observed(amounts, 3 * amounts + np.tile(excess, 2)), 1)
    assert (found.setup_seconds[0] > 0) == apart
    if apart:
        assert found.setup_seconds[0] == pytest.approx(1, rel=0.1)
        assert found.mac_rate[0] == pytest.approx(1 / 3, rel=0.01)


def test_the_shortest_is_less_its_mean_excess_also_with_setups_per_request() -> None:
    """Excesses 0.5, 1 and 1.5 above 3 a multiplication, for 1 and for 100 of them: the shortest is 3.005.

    Above it are 0.995 and 0.5 on average, 0.7475 of all requests. The mean excess of the shortest is 0.7475/303, a
    minimum over 3 * (1 + 100) multiplications: 3.0025 are left. Above it are 0.9975 and 0.747, on average 0.872.
    """
    amounts = np.repeat([1.0, 100.0], 3)
    found = estimate_work(observed(amounts, 3 * amounts + np.tile([0.5, 1.0, 1.5], 2)), 1)
    assert found.mac_rate[0] == pytest.approx(1 / 3.0025, rel=1e-4)
    assert found.setup_seconds[0] == pytest.approx(0.872, rel=0.02)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 10.828), (2, 13.816), (3, 16.266), (10, 29.588), (30, 59.703), (100, 149.449)]
)
def test_one_statistic_in_a_thousand_is_unlikely(degrees: int, quantile: float) -> None:
    """From a table of chi-squared; the cube root is within 3.1% for one degree, and within 2.3% for more."""
    assert _likely(0.97 * quantile, degrees)
    assert not _likely(1.031 * quantile, degrees)


def test_one_device_is_alike() -> None:
    assert _likely(1e9, 0) is True


@pytest.mark.parametrize(
    ("failures", "successes", "alike"),
    [
        # n successes, and n failures with n successes: 2 n (3 ln 3 - 4 ln 2) = 1.047 n, with a quantile of 10.8
        ([0, 10], [10, 10], True),
        ([0, 11], [11, 11], False),
        ([0, 11, 0], [11, 11, 0], False),  # one that did not try is no degree
        # one more that tried once is a degree: 13.35 is below the quantile of two, 13.8
        ([0, 12, 0], [12, 12, 1], True),
        # 1 in k + 1 fails, and k: 4 ((k + 1) ln 2 - ln(k + 1) - k ln(1 + 1/k)) = 10.1 for 7 and 12.4 for 8
        ([1, 7], [7, 1], True),
        ([1, 8], [8, 1], False),
    ],
)
def test_losses_are_alike_unless_the_difference_is_significant(
    failures: list[int], successes: list[int], alike: bool
) -> None:
    assert alike_losses(np.array(failures, float), np.array(successes, float)) == alike


@pytest.mark.parametrize(
    ("ratio", "ends", "alike"),
    [
        # r and 5 r, each from n + 1 ends: 2 n (2 ln 3 - ln 5) = 10.6 for n = 9 and 11.8 for 10
        ([0.5, 2.5], [10, 10], True),
        ([0.5, 2.5], [11, 11], False),
        # one end tells the rate only, with a setup or without
        ([0.5, 2.5, 0.7, np.nan], [11, 11, 1, 0], False),
        ([0.5, 2.5, 0.0, np.nan], [10, 10, 1, 0], True),
        # two tell of a setup, or that there is none
        ([0.5, 0.5, 0.5], [50, 50, 2], True),
        ([0.5, 0.5, 0.0], [50, 50, 2], False),
        ([np.nan, 0.0], [0, 1], True),
    ],
)
def test_setups_are_alike_unless_the_difference_is_significant(
    ratio: list[float], ends: list[int], alike: bool
) -> None:
    assert alike_setups(np.array(ratio), np.array(ends)) == alike
