"""Load allocation: the chance of a reply by three routes, the best loads by trying all, the least deadline."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from codedfl.network import Allocation, DelayModel, ReplyChances, RoundCosts, allocate
from codedfl.network.load_allocation import _MARGIN, _least
from codedfl.scenario import Fleet, Links, load

EPS = float(np.finfo(np.float64).eps)


def one(
    *,
    point: float = 0.01,
    ratio: float = 0.5,
    setup: float = 0.0,
    down: float = 0.07,
    up: float = 0.14,
    loss: float = 0.1,
) -> ReplyChances:
    return ReplyChances(*(np.array([value]) for value in (point, ratio, setup, down, up, loss)))


def chance(device: ReplyChances, t: float, points: int) -> float:
    return float(device.by(t, np.array([points]))[0])


def summed(device: ReplyChances, t: float, points: int) -> float:
    """The double sum over the tries as it stands, each try that fits by itself, added without rounding error."""
    point, ratio, setup, down, up, loss = (float(value[0]) for value in vars(device).values())
    work = points * point
    mean = ratio * work + setup if points else 0.0
    downs, ups = np.meshgrid(np.arange(1, 200), np.arange(1, 200))
    left = t - work - downs * down - ups * up
    arrives = np.where(left < 0, 0.0, 1.0 if mean == 0 else -np.expm1(-np.maximum(left, 0) / (mean or 1.0)))
    return math.fsum(((1 - loss) ** 2 * loss ** (downs + ups - 2.0) * arrives).ravel())


devices = st.builds(
    one,
    point=st.floats(1e-3, 1.0),
    ratio=st.sampled_from([0.0, 1e-3, 0.5, 3.0]),
    setup=st.sampled_from([0.0, 0.2, 5.0]),
    down=st.floats(0.01, 2.0),
    up=st.floats(0.01, 2.0),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.8]),
)
times = st.floats(0.01, 30.0)


@given(device=devices, t=times, points=st.integers(0, 50))
@example(device=one(setup=0.2, loss=0.5), t=0.5, points=0)
@example(device=one(setup=0.2, loss=0.5), t=0.5, points=1)
def test_a_chance_is_the_sum_over_all_tries(device: ReplyChances, t: float, points: int) -> None:
    """Both stop early: at 200 tries (0.8^200 < 1e-19), or where 2^-60 is left. Q has some ten roundings near 1.

    Rounding of the times themselves moves a reply by EPS t, which matters where it takes no setup time: then a reply
    is there or not, so times at which a number of tries just fits are left out.
    """
    mean = float(device.setup_ratio[0]) * points * float(device.point_seconds[0]) + float(device.setup_seconds[0])
    hair = 1e-9 * t
    if mean == 0 or points == 0:
        assume(summed(device, t - hair, points) == summed(device, t + hair, points))
    slope = 0.0 if mean == 0 or points == 0 else 64 * EPS * t / mean
    assert chance(device, t, points) == pytest.approx(summed(device, t, points), abs=64 * EPS + slope)


@given(st.floats(0.5, 20.0), st.integers(1, 60), st.floats(0.05, 1.0), st.sampled_from([0.05, 0.1, 0.4]))
def test_one_rate_for_both_ways_is_the_published_formula(t: float, points: int, tau: float, loss: float) -> None:
    """sum_{v >= 2} (v-1) (1-p)^2 p^(v-2) (1 - exp(-g (t - l a - v tau))) over the positive exponents."""
    a = 0.05
    g = 1 / (0.5 * points * a)
    terms = [
        (v - 1) * (1 - loss) ** 2 * loss ** (v - 2) * -math.expm1(-g * (t - points * a - v * tau))
        for v in range(2, 400)
        if t - points * a - v * tau > 0
    ]
    slope = 64 * EPS * t * g
    assert chance(one(point=a, down=tau, up=tau, loss=loss), t, points) == pytest.approx(
        math.fsum(terms), abs=64 * EPS + slope
    )


FLEET = Fleet(
    devices=[
        {"count": 2, "mac_rate": 2e3},
        {"count": 1, "mac_rate": 1e3, "setup_ratio": 0.0, "setup_seconds": 0.5, "loss": 0.0},
        {"count": 1, "mac_rate": 5e3, "setup_ratio": 2.0, "down_rate": 900.0, "up_rate": 4000.0, "loss": 0.6},
        {"count": 1, "mac_rate": 1e3, "setup_ratio": 0.0, "loss": 0.3},
    ]
)
DRAWS = 100_000
ALARM = 1e-9
HOEFFDING = math.sqrt(math.log(2 / ALARM) / (2 * DRAWS))
"""The share of draws strays further than this from its chance with a probability of at most ALARM."""


@pytest.mark.parametrize("t", [0.9, 1.3, 1.7, 3.0])
def test_chances_are_those_of_the_delay_model(t: float) -> None:
    """Twenty comparisons of 100,000 draws each: a right formula fails with a probability of at most 2e-8."""
    delays = DelayModel.create(FLEET, Links(down_rate=1000.0, up_rate=500.0, overhead=0.1, loss=0.2))
    loads = np.array([30, 5, 20, 40, 25])
    costs = RoundCosts(np.arange(5), np.full(5, 200), 40 * loads, np.full(5, 100), quorum=5, server_macs=0)
    seconds = delays.reply_seconds(costs, delays.chance(1, 2, 0, DRAWS))
    expected = ReplyChances.create(delays, point_macs=40, down_bits=200, up_bits=100).by(t, loads)
    assert np.all(abs(np.mean(seconds <= t, axis=0) - expected) <= HOEFFDING)
    assert not np.all((expected < HOEFFDING) | (expected > 1 - HOEFFDING)), "a time that tells nothing"


@given(device=devices, t=times, later=st.floats(1.0, 3.0), points=st.integers(0, 50), more=st.integers(0, 50))
def test_a_chance_grows_with_time_and_falls_with_the_load(
    device: ReplyChances, t: float, later: float, points: int, more: int
) -> None:
    now = chance(device, t, points)
    assert -16 * EPS <= now <= 1 + 16 * EPS
    assert chance(device, t * later, points) >= now - 64 * EPS
    assert chance(device, t, points + more) <= now + 64 * EPS


@given(device=devices, t=times, most=st.integers(0, 80))
@example(device=one(ratio=0.0, loss=0.5), t=1.0, most=80)
def test_the_best_load_is_the_best_of_all(device: ReplyChances, t: float, most: int) -> None:
    loads, returns = device.best_loads(t, np.array([most]))
    every = np.arange(most + 1)
    tried = every * device.by(t, every, np.zeros(most + 1, np.int64))
    assert returns[0] == max(float(tried.max()), 0.0)
    assert tried[loads[0]] == returns[0]


def test_devices_are_independent_of_their_company() -> None:
    delays = DelayModel.create(FLEET, Links(down_rate=1000.0, up_rate=500.0, loss=0.2))
    chances = ReplyChances.create(delays, point_macs=40, down_bits=200, up_bits=100)
    points = np.array([30, 5, 0, 40, 25])
    loads, returns = chances.best_loads(2.0, points)
    for device in range(5):
        alone = ReplyChances(*(value[device : device + 1] for value in vars(chances).values()))
        own_load, own_return = alone.best_loads(2.0, points[device : device + 1])
        assert (own_load[0], own_return[0]) == (loads[device], returns[device])
    assert loads[2] == returns[2] == 0, "a device with no points"


fleets = st.lists(st.tuples(devices, st.integers(0, 30)), min_size=1, max_size=6)


@settings(max_examples=25)
@given(fleet=fleets, share=st.floats(0.02, 0.98))
def test_the_deadline_is_the_least(fleet: list[tuple[ReplyChances, int]], share: float) -> None:
    """By then all points but the parity rows are expected, and not a millionth sooner, whatever the loads."""
    chances = ReplyChances(
        *(np.concatenate(column) for column in zip(*(vars(d).values() for d, _ in fleet), strict=True))
    )
    points = np.array([count for _, count in fleet])
    assume(points.sum() >= 2)
    rows = max(1, int(share * points.sum()))
    found = allocate(chances, points, rows)
    assert np.all(found.loads <= points)
    assert found.loads @ found.chances >= points.sum() - rows - 1e-9
    np.testing.assert_allclose(
        found.chances, chances.by(found.deadline, found.loads) * (found.loads > 0), atol=16 * EPS
    )
    sooner = chances.best_loads(found.deadline * (1 - 1e-6), points)[1].sum()
    assert sooner < points.sum() - rows


@settings(max_examples=25)
@given(fleet=fleets, share=st.floats(0.1, 0.9), more=st.integers(1, 20))
def test_more_parity_rows_make_no_later_deadline(
    fleet: list[tuple[ReplyChances, int]], share: float, more: int
) -> None:
    chances = ReplyChances(
        *(np.concatenate(column) for column in zip(*(vars(d).values() for d, _ in fleet), strict=True))
    )
    points = np.array([count for _, count in fleet])
    assume(points.sum() >= 2)
    rows = max(1, int(share * points.sum()))
    assert allocate(chances, points, rows + more).deadline <= allocate(chances, points, rows).deadline


@given(least=st.floats(0.1, 1e3), first=st.floats(0.01, 1.0), high=st.floats(0.01, 10.0), jump=st.booleans())
def test_the_search_ends_where_nothing_is_short_and_hardly_later(
    least: float, first: float, high: float, jump: bool
) -> None:
    """The root is known to a twentieth of a hair of ``least`` and ``first`` each, on either side; no more is added."""

    def excess(t: float) -> float:
        return (-3.0 if t < least else 0.5) if jump else t - least or math.ulp(least)

    found = _least(excess, first, high)
    assert excess(found) > 0
    assert found - least <= 1.01 * 2 * _MARGIN / 20 * (least + first)


def test_without_parity_rows_everyone_is_awaited() -> None:
    """All who have points: 7, none and 1."""
    three = ReplyChances(*(np.repeat(value, 3) for value in vars(one()).values()))
    found = allocate(three, np.array([7, 0, 1]), 0)
    assert (found.deadline, found.loads.tolist(), found.chances.tolist()) == (math.inf, [7, 0, 1], [1.0, 0.0, 1.0])


@pytest.mark.parametrize("rows", [10, 12])
def test_enough_parity_rows_make_every_device_idle(rows: int) -> None:
    found: Allocation = allocate(one(), np.array([10]), rows)
    assert (found.deadline, found.loads.tolist(), found.loads @ found.chances) == (0.0, [0], 0.0)


def test_delays_without_chance_by_hand() -> None:
    """No loss, no setup: 7 points take 0.07 + 0.14 + 7 * 0.01 = 0.28 s; then the chance is 1, a hair sooner 0."""
    device = one(ratio=0.0, loss=0.0)
    found = allocate(device, np.array([10]), 3)
    assert found.deadline == pytest.approx(0.28, rel=1e-8)
    assert (found.loads.tolist(), found.chances.tolist()) == ([7], [1.0])
    assert found.deadline > 0.28
    assert chance(device, 0.28 * (1 - 1e-9), 7) == 0


def test_messages_that_take_no_time() -> None:
    """What is left is work and setup: 1 - exp(-(t - l a) / (ratio l a))."""
    device = one(down=0.0, up=0.0)
    assert chance(device, 0.5, 20) == pytest.approx(1 - math.exp(-(0.5 - 0.2) / 0.1), abs=16 * EPS)


def test_tries_up_and_the_setup_may_fall_off_alike() -> None:
    """A try is lost with 1/2, and ln 2 seconds of one halve what is left of a setup of mean 1: all terms are alike."""
    device = one(point=0.001, ratio=0.0, setup=1.0, up=math.log(2), loss=0.5)
    assert chance(device, 5.0, 1) == pytest.approx(summed(device, 5.0, 1), abs=64 * EPS)


@pytest.mark.parametrize("setup", [0.002, 0.014, 0.03])
def test_after_thousands_of_tries_a_reply_is_certain(setup: float) -> None:
    """Each takes a hundredth of a second of twenty; 0.8^500 is below 1e-48, and so is exp(-10/setup)."""
    device = one(point=0.001, ratio=0.0, setup=setup, down=0.01, up=0.01, loss=0.8)
    assert chance(device, 20.0, 1) == pytest.approx(1, abs=64 * EPS)


def test_a_single_point_is_worth_waiting_for() -> None:
    """0.07 + 0.14 + 0.01 s for it, with parity rows for the nine others."""
    found = allocate(one(ratio=0.0, loss=0.0), np.array([10]), 9)
    assert found.deadline == pytest.approx(0.22, rel=1e-8)
    assert (found.loads.tolist(), found.chances.tolist()) == ([1], [1.0])


def test_who_has_no_points_does_not_matter_where_messages_take_no_time() -> None:
    """7 of 10 points take 0.07 s; the other device is done at 0 s, which is no bound on the deadline."""
    chances = ReplyChances(*(np.repeat(value, 2) for value in vars(one(ratio=0.0, down=0.0, up=0.0)).values()))
    found = allocate(chances, np.array([10, 0]), 3)
    assert found.deadline == pytest.approx(0.07, rel=1e-8)
    assert (found.loads.tolist(), found.chances.tolist()) == ([7, 0], [1.0, 0.0])


def test_a_deadline_that_is_found_exactly_is_hardly_put_off() -> None:
    """A straight line from -2 to 2: only a twentieth of a hair of 2 and of ``first``, 1, is added."""
    assert _least(lambda t: t - 2, 1.0, 4.0) - 2 == pytest.approx((2 + 1) * _MARGIN / 20, rel=1e-4)


@pytest.mark.parametrize(("ratio", "at_once"), [(0.0, 1.0), (0.5, 0.0)])
def test_nobody_replies_before_the_work_is_done(ratio: float, at_once: float) -> None:
    """20 points take 5 s, and messages no time: without setup the reply is there at 5 s, with setup only later."""
    device = one(point=0.25, ratio=ratio, down=0.0, up=0.0)
    assert chance(device, 4.5, 20) == 0
    assert chance(device, 5.0, 20) == at_once


def test_the_papers_fleet_expects_what_is_not_in_the_parity_data() -> None:
    """Slower devices are given no more than faster ones, and the slowest the least."""
    paper = load("paper")
    delays = DelayModel.create(paper.fleet, paper.links)
    chances = ReplyChances.create(delays, point_macs=2 * 2000 * 10, down_bits=640_000, up_bits=640_000)
    found = allocate(chances, np.full(25, 480), 1200)
    assert found.loads @ found.chances == pytest.approx(12_000 - 1200, abs=1e-3)
    assert np.all(np.diff(found.loads) <= 0)
    assert found.loads[0] == 480 > found.loads[-1] > 0
