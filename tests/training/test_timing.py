"""Many draws of one training: bands against scipy, times against the event engine."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import DelayModel, Draws, RoundCosts
from codedfl.scenario import Fleet
from codedfl.training import History, timing
from codedfl.training.timing import Variant, band, epoch_ends, first_epoch, replay, reply_costs, time_to
from tiny import gamma, problem, scenario, trained
from training.test_sharing_draws import COSTS, FLEET, LINKS, by_hand

# --- bands ---


@pytest.mark.parametrize("count", [2, 3, 5, 39])
def test_few_values_make_students_prediction_interval(count: int) -> None:
    """For one more value the spread is s * sqrt(1 + 1/n), with n - 1 degrees of freedom."""
    values = np.random.default_rng(count).uniform(100, 110, count)
    mean, spread = values.mean(), values.std(ddof=1) * np.sqrt(1 + 1 / count)
    low, high = scipy.stats.t.interval(0.95, count - 1, loc=mean, scale=spread)
    found = band(values)
    assert found.mean == mean
    # the same three factors in another order, added to the mean
    slack = gamma(8, float) * (abs(mean) + (high - low))
    assert abs(found.low - max(low, 0)) <= slack
    assert abs(found.high - high) <= slack


def test_two_values_by_hand() -> None:
    """1000 and 1002: mean 1001, s = sqrt(2), sqrt(1 + 1/2) s = sqrt(3); t of one degree is the Cauchy quantile

    tan(pi * 0.475) = 12.7062..., so the half width is sqrt(3) * tan(0.475 pi) = 22.0078...
    """
    found = band(np.array([1000.0, 1002.0]))
    half = np.sqrt(3) * np.tan(0.475 * np.pi)
    # tan amplifies the rounding of its argument by x (1 + tan^2) / tan, about 240
    assert found.mean == 1001.0
    assert abs(found.high - (1001 + half)) <= 2 * gamma(300, float) * half + gamma(4, float) * 1001
    assert abs((found.high - found.mean) - (found.mean - found.low)) <= gamma(4, float) * 1001


@pytest.mark.parametrize("count", [40, 41, 1000])
def test_many_values_make_quantiles(count: int) -> None:
    """The 2.5% and 97.5% quantiles, between order statistics in proportion (Hazen's is scipy's (0.5, 0.5); this is
    the rule of alphap = betap = 1)."""
    values = np.random.default_rng(count).exponential(10, count)
    low, high = scipy.stats.mstats.mquantiles(values, [0.025, 0.975], alphap=1, betap=1)
    found = band(values)
    assert found.mean == values.mean()
    # both interpolate between two neighbours; the position n * q is rounded to eps * n
    slack = gamma(8 * count, float) * values.max()
    assert abs(found.low - low) <= slack
    assert abs(found.high - high) <= slack


def test_time_is_never_below_zero() -> None:
    assert band(np.array([0.0, 10.0])).low == 0.0


def test_one_value_has_no_band() -> None:
    found = band(np.array([3.0]))
    assert found.mean == 3.0
    assert np.isnan([found.low, found.high]).all()


@given(st.floats(0.1, 1e6), st.integers(2, 100))
def test_equal_values_make_a_band_without_width(value: float, count: int) -> None:
    """The mean of n equal numbers is off by at most gamma_n; so is each deviation from it."""
    found = band(np.full(count, value))
    slack = gamma(count + 2, float) * value * 30  # 12.71 * sqrt(1.5), twice, is the widest of all factors
    assert abs(found.low - value) <= slack
    assert abs(found.high - value) <= slack


# --- epochs that reach a target ---


@pytest.mark.parametrize(
    ("scores", "target", "expected"),
    [
        ([0.1, 0.5, 0.9], 0.5, 2),
        ([0.1, 0.5, 0.9], 0.51, 3),
        ([0.9, 0.1, 0.95], 0.9, 1),
        ([0.1, 0.5], 0.6, None),
        ([], 0.6, None),
        ([float("nan"), 0.7], 0.6, 2),
    ],
)
def test_the_first_epoch_that_reaches_a_target(scores: list[float], target: float, expected: int | None) -> None:
    assert first_epoch(scores, target) == expected
    assert first_epoch(np.array(scores), target) == expected


def test_the_time_to_a_target_is_that_of_its_epoch_in_every_draw() -> None:
    seconds = np.array([[1.0, 2.0, 3.0], [2.0, 5.0, 7.0]])
    found = time_to([0.1, 0.5, 0.9], seconds, 0.4)
    assert found is not None
    assert found.tolist() == [2.0, 5.0]
    assert time_to([0.1, 0.5, 0.9], seconds, 0.99) is None


# --- draws ---


@pytest.mark.parametrize("draw", [0, 6])
@pytest.mark.parametrize("scheme", ["conventional", "minibatch", "drop-slowest"])
def test_a_draw_is_the_run_that_lives_in_it(scheme: str, draw: int) -> None:
    """The costs of a run, timed by vectors, end each epoch when the event queue of the engine did.

    Both add two numbers an epoch, in another order: the clock adds the delay and the server's time to the present,
    the vectors add those two and then to the past. Each addition rounds by at most eps/2 of a time no later than the
    present: after e epochs 2 e roundings each. For drop-slowest the costs hold for the run's own draw.
    """
    epochs = 20
    chosen = scenario(
        {"scheme": scheme, "timing.draw": draw, "timing.seed": 3, "training.epochs": epochs, "links.loss": 0.4}
    )
    history = trained(problem([7] * 25), chosen).history
    delays = DelayModel.create(chosen.fleet, chosen.links)
    (drawn,) = epoch_ends([history], delays, epochs=epochs, seed=3, draws=8)
    assert drawn.shape == (8, epochs)
    times = np.array(history.columns["time"])
    for epoch in range(1, epochs + 1):
        slack = 2 * gamma(2 * epoch, float) * times[epoch - 1]
        assert abs(drawn[draw, epoch - 1] - times[epoch - 1]) <= slack
    others = np.delete(drawn, draw, axis=0)
    assert np.all(others[:, -1] != times[-1])


def test_draws_add_up_epoch_by_epoch() -> None:
    """Two epochs by hand from the numbers of each draw: an offline upload, then a whole round; the slowest counts."""
    chosen = scenario(
        {"scheme": "conventional", "training.epochs": 2, "fleet.devices": [{"count": 3, "mac_rate": 10.0}]}
    )
    history = trained(problem([6, 6, 6]), chosen).history
    delays = DelayModel.create(chosen.fleet, chosen.links)
    (drawn,) = epoch_ends([history], delays, epochs=2, seed=0, draws=50)
    first, second = delays.chance(0, 1, 0, 50), delays.chance(0, 2, 0, 50)
    bits = 6 * 3 * 64 * 1.1
    work = 6 * 6 * 3 / 10.0
    one = (first.up_tries * bits / 5e6).max(axis=1)
    two = second.down_tries * bits / 10e6 + work * (1 + second.setup / 2) + second.up_tries * bits / 5e6
    expected = np.stack([one, one + two.max(axis=1)], axis=1)
    assert np.all(abs(drawn - expected) <= gamma(20, float) * expected)
    assert np.array_equal(epoch_ends([history], delays, epochs=2, seed=0, draws=10)[0], drawn[:10])


def test_progress_is_told_epoch_by_epoch() -> None:
    history = trained(problem([6] * 25), scenario()).history
    told: list[tuple[int, int]] = []
    delays = DelayModel.create(scenario().fleet, scenario().links)
    epoch_ends([history], delays, epochs=5, seed=0, draws=2, progress=lambda *at: told.append(at))
    assert told == [(epoch, 5) for epoch in range(1, 6)]


def test_epochs_that_are_timed_one_by_one_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a single epoch has more replies than are timed at once."""
    history = trained(problem([6] * 4), scenario({"scheme": "conventional"})).history
    courses: list[History | Variant] = [history, by_hand(2)]
    delays = DelayModel.create(FLEET, LINKS)
    wanted = epoch_ends(courses, delays, epochs=5, seed=0, draws=3)
    monkeypatch.setattr(timing, "_BLOCK", 1)
    assert np.array_equal(epoch_ends(courses, delays, epochs=5, seed=0, draws=3), wanted)


def test_a_replay_tells_what_is_asked_of_whom() -> None:
    """Of everybody in the first epoch, in later ones of those who are active: two of four leave after the second."""
    epochs = replay(by_hand(2), Draws(DelayModel.create(FLEET, LINKS), seed=0, count=2))
    ((first, everybody),), *later = (next(epochs).rounds for _ in range(3))
    assert first.key() == COSTS.first.key()
    assert everybody is None
    for rounds, active in zip(later, ([True] * 4, [True, True, False, False]), strict=True):
        ((costs, asked),) = rounds
        assert costs.key() == COSTS.other.key()
        assert asked is not None
        assert asked.tolist() == [active] * 2


def standing(devices: list[int]) -> RoundCosts:
    """The first reply is awaited, while earlier requests stay open."""
    each = np.ones(len(devices), np.int64)
    return RoundCosts(np.array(devices), 64 * each, 16 * each, 64 * each, quorum=1, server_macs=1024, standing=True)


def test_standing_rounds_by_hand() -> None:
    """Down 64 * 1.5/64 = 1.5; 16 MAC take 2 s on device 0 and 16 s on 1; up 64 * 1.5/32 = 3; server 1024/1024 = 1.

    Epoch 1 asks both: device 0 replies at 6.5 -> 7.5. Epoch 2 asks 0 again, which replies 6.5 later -> 15. Epoch 3 asks
    it once more, but 1 replies to its first question at 20.5 -> 21.5.
    """
    groups = [{"count": 1, "mac_rate": rate, "setup_ratio": 0.0} for rate in (8.0, 1.0)]
    delays = DelayModel.create(Fleet(devices=groups, server_mac_rate=1024.0), LINKS)
    history = History()
    for devices in ([0, 1], [0], [0]):
        history.add_round(standing(devices))
    assert epoch_ends([history], delays, epochs=3, seed=0, draws=2).tolist() == [[[7.5, 15.0, 21.5]] * 2]
    asked = [who for epoch in replay(history, Draws(delays, seed=0, count=1)) for _, who in epoch.rounds]
    assert [None if who is None else who.tolist() for who in asked] == [
        [[True, True]],
        [[True, False]],
        [[True, False]],
    ]


def test_costs_of_a_reply_are_those_of_the_devices() -> None:
    history = History()
    history.add_round(standing([0, 2]))
    everyone = np.arange(3)
    history.add_round(RoundCosts(everyone, everyone, everyone, everyone, quorum=3, server_macs=7))
    found = reply_costs(history, 3)
    assert (found.asked.tolist(), found.quorum, found.server_macs) == ([0, 1, 2], 3, 0)
    assert [each.tolist() for each in (found.down_bits, found.macs, found.up_bits)] == [
        [64, 0, 64],
        [16, 0, 16],
        [64, 0, 64],
    ]
