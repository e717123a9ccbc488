"""The delay model: reply times by hand, how the random part is drawn, and its distributions."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import Chance, DelayModel, RoundCosts
from codedfl.network import delays as delays_module
from codedfl.network.delays import RandomBook
from codedfl.scenario import Fleet, Links

# Powers of two keep every number below exact: overhead 1/2, so that 1 bit takes 1.5 / rate seconds.
LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.25)
FLEET = Fleet(
    devices=[
        {"count": 2, "mac_rate": 8.0},
        {"count": 1, "mac_rate": 4.0, "setup_ratio": 0.25, "setup_seconds": 2.0, "loss": 0.0},
        {"count": 1, "mac_rate": 16.0, "down_rate": 128.0, "up_rate": 256.0, "d2d_rate": 8.0},
    ],
    server_mac_rate=1024.0,
)


def model() -> DelayModel:
    return DelayModel.create(FLEET, LINKS)


def costs(
    asked: list[int], down: list[int], macs: list[int], up: list[int], quorum: int | None = None, server: int = 0
) -> RoundCosts:
    return RoundCosts(*map(np.array, (asked, down, macs, up)), quorum=quorum or len(asked), server_macs=server)


def chance(down: list[float], setup: list[float], up: list[float]) -> Chance:
    return Chance(*(np.array([row], dtype=float) for row in (down, setup, up)))


def uniform(devices: int, *, loss: float) -> DelayModel:
    return DelayModel.create(Fleet(devices=[{"count": devices, "mac_rate": 1.0}]), Links(loss=loss))


def test_groups_are_spread_and_overrides_win_over_the_links() -> None:
    delays = model()
    assert delays.devices == 4
    assert delays.mac_rate.tolist() == [8, 8, 4, 16]
    assert delays.setup_ratio.tolist() == [0.5, 0.5, 0.25, 0.5]
    assert delays.setup_seconds.tolist() == [0, 0, 2, 0]
    assert delays.down_rate.tolist() == [64, 64, 64, 128]
    assert delays.up_rate.tolist() == [32, 32, 32, 256]
    assert delays.d2d_rate.tolist() == [16, 16, 16, 8]
    assert delays.loss.tolist() == [0.25, 0.25, 0, 0.25], "a loss of zero is an override too"
    assert delays.overhead == 0.5


@pytest.mark.parametrize(
    ("own", "of_links", "expected"),
    [
        ([None, None], None, [0.25, 0.5]),
        ([None, None], 0.125, [0.125, 0.125]),
        ([0.0, None], None, [0.0, 0.5]),
        ([None, 0.75], 0.0, [0.0, 0.75]),
    ],
)
def test_a_loss_between_devices_wins_over_the_loss_of_all_links(
    own: list[float | None], of_links: float | None, expected: list[float]
) -> None:
    """That of the group first, then that of the links; else the device's other loss."""
    groups = [{"mac_rate": 8.0, "d2d_loss": own[0]}, {"mac_rate": 8.0, "loss": 0.5, "d2d_loss": own[1]}]
    delays = DelayModel.create(Fleet(devices=groups), Links(loss=0.25, d2d_loss=of_links))
    assert delays.d2d_loss.tolist() == expected
    assert delays.loss.tolist() == [0.25, 0.5]


def test_the_loss_between_devices_changes_direct_parcels_only() -> None:
    """The tries of parcels between devices are those of another loss; everything else stays to the last bit."""
    fleet = Fleet(devices=[{"count": 4, "mac_rate": 8.0}])
    plain, other, lossless = (DelayModel.create(fleet, Links(loss=0.4, d2d_loss=loss)) for loss in (None, 0.7, 0.0))
    alike = DelayModel.create(fleet, Links(loss=0.7))
    everyone, where = np.arange(4), {"seed": 1, "first": 3, "draws": 500}
    for one, two, three, four in (
        [delays.handover_chance(epoch=2, **where) for delays in (plain, other, alike, lossless)],
        [
            delays.stage_chance(stage=1, senders=everyone, relayed_to=everyone, **where)
            for delays in (plain, other, alike, lossless)
        ],
    ):
        for name in ("grant_tries", "export_setup", "absorb_setup"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
        assert np.array_equal(two.parcel_tries, three.parcel_tries)
        assert np.all(two.parcel_tries >= one.parcel_tries)
        assert not np.array_equal(two.parcel_tries, one.parcel_tries)
        assert np.all(four.parcel_tries == 1)
    for name in ("up_tries", "relay_tries"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert np.array_equal(one.up_tries, one.parcel_tries), "the numbers behind them are the same"
    replies = [vars(delays.chance(1, 2, 0, 9)) for delays in (plain, other)]
    assert all(np.array_equal(replies[0][name], replies[1][name]) for name in replies[0])


@pytest.mark.parametrize("name", [each.name for each in fields(DelayModel) if each.name != "book"])
def test_delays_that_differ_in_anything_have_another_key(name: str) -> None:
    """Except for the book: the numbers of all books are the same."""
    delays, value = model(), getattr(model(), name)
    assert delays.key() == DelayModel.create(FLEET, LINKS, RandomBook()).key()
    change: dict[str, Any] = {name: not value if isinstance(value, bool) else value / 2 + 0.1}
    assert delays.key() != replace(delays, **change).key()


def test_reply_times_by_hand() -> None:
    """Down, compute, set up, up.

    device 0: 1 * 64 * 1.5/64 = 1.5; 16/8 = 2; 1 * (0.5 * 2) = 1; 2 * 32 * 1.5/32 = 3          -> 7.5
    device 1: 3 * 64 * 1.5/64 = 4.5; 16/8 = 2; 0 * (0.5 * 2) = 0; 1 * 32 * 1.5/32 = 1.5        -> 8
    device 2: 1 * 64 * 1.5/64 = 1.5; 8/4 = 2; 4 * (0.25 * 2 + 2) = 10; 1 * 64 * 1.5/32 = 3     -> 16.5
    device 3: 2 * 64 * 1.5/128 = 1.5; 64/16 = 4; 0.5 * (0.5 * 4) = 1; 4 * 128 * 1.5/256 = 3    -> 9.5
    """
    given_costs = costs([0, 1, 2, 3], [64] * 4, [16, 16, 8, 64], [32, 32, 64, 128])
    luck = chance([1, 3, 1, 2], [1, 0, 4, 0.5], [2, 1, 1, 4])
    assert model().reply_seconds(given_costs, luck).tolist() == [[7.5, 8.0, 16.5, 9.5]]


def test_only_asked_devices_reply_and_keep_their_own_chance() -> None:
    """The same numbers as above for devices 3 and 1 alone, in the order they were asked in."""
    given_costs = costs([3, 1], [64, 64], [64, 16], [128, 32])
    luck = chance([1, 3, 1, 2], [1, 0, 4, 0.5], [2, 1, 1, 4])
    assert model().reply_seconds(given_costs, luck).tolist() == [[9.5, 8.0]]


def test_no_work_needs_no_setup() -> None:
    """Device 2 has a setup time of its own, but not for nothing: 0 + 0 + 0 + 2 * 64 * 1.5/32 = 6.

    A single multiplication has it: 1/4, and 4 * (0.25 * 0.25 + 2) = 8.25.
    """
    luck = chance([5] * 4, [4] * 4, [2] * 4)
    assert model().reply_seconds(costs([2], [0], [0], [64]), luck).tolist() == [[6.0]]
    assert model().reply_seconds(costs([2], [0], [1], [64]), luck).tolist() == [[0.25 + 8.25 + 6.0]]


def test_one_try_takes_the_bits_and_their_overhead() -> None:
    """32 * 1.5 / 16 = 3."""
    assert model().send_seconds(np.array([32]), np.array([16.0])).tolist() == [3.0]


# --- the random part ---


def drawn(luck: Chance) -> np.ndarray:
    return np.stack([luck.down_tries, luck.setup, luck.up_tries])


@given(seed=st.integers(0, 2**64), epoch=st.integers(1, 10**6), first=st.integers(0, 10**9), draws=st.integers(1, 20))
def test_a_draw_is_the_same_alone_as_among_others(seed: int, epoch: int, first: int, draws: int) -> None:
    delays = model()
    together = drawn(delays.chance(seed, epoch, first, draws))
    assert together.shape == (3, draws, 4)
    for number in {0, draws // 2, draws - 1}:
        alone = drawn(delays.chance(seed, epoch, first + number, 1))
        assert np.array_equal(together[:, number], alone[:, 0])


def test_many_numbers_are_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = drawn(model().chances(7, (1, 2, 5), 3, 11))
    monkeypatch.setattr(delays_module, "_LEAST_THREADED_NUMBERS", 0)  # on all cores
    assert np.array_equal(drawn(model().chances(7, (1, 2, 5), 3, 11)), few)


@given(st.integers(0, 2**64), st.integers(1, 10**6))
def test_every_seed_epoch_and_draw_has_numbers_of_its_own(seed: int, epoch: int) -> None:
    delays = model()
    one = delays.chance(seed, epoch, 0, 1).setup
    assert np.array_equal(one, delays.chance(seed, epoch, 0, 1).setup)
    for other in (
        delays.chance(seed + 1, epoch, 0, 1),
        delays.chance(seed, epoch + 1, 0, 1),
        delays.chance(seed, epoch, 1, 1),
    ):
        assert not np.any(one == other.setup)


def test_a_link_without_loss_needs_one_try() -> None:
    luck = uniform(50, loss=0.0).chance(0, 1, 0, 100)
    assert np.all(luck.down_tries == 1)
    assert np.all(luck.up_tries == 1)


SAMPLES = 1000 * 50
FIVE_SIGMA = 5 / math.sqrt(SAMPLES)


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.5, 0.9])
def test_tries_are_geometric(loss: float) -> None:
    """Mean 1/(1-p), variance p/(1-p)^2; P(more than k tries) = p^k, of variance p^k (1 - p^k). Five sigma each."""
    luck = uniform(50, loss=loss).chance(1, 2, 0, 1000)
    for tries in (luck.down_tries, luck.up_tries):
        assert np.all(tries == np.floor(tries))
        assert tries.min() == 1
        assert abs(tries.mean() - 1 / (1 - loss)) < FIVE_SIGMA * math.sqrt(loss) / (1 - loss)
        for k in (1, 2, 3):
            more = loss**k
            assert abs(np.mean(tries > k) - more) < FIVE_SIGMA * math.sqrt(more * (1 - more))


@pytest.mark.parametrize("when", ["round", "export of a hand-over", "absorb of a hand-over", "export", "absorb"])
def test_setup_times_are_exponential_in_units_of_their_mean(when: str) -> None:
    """Mean 1, variance 1; P(above x) = exp(-x). Five sigma each."""
    delays = uniform(50, loss=0.1)
    handed, staged = delays.handover_chance(1, 2, 0, 1000), delays.stage_chance(1, 2, 0, 1000, np.arange(50))
    setup = {
        "round": delays.chance(1, 2, 0, 1000).setup,
        "export of a hand-over": handed.export_setup,
        "absorb of a hand-over": handed.absorb_setup,
        "export": staged.export_setup,
        "absorb": staged.absorb_setup,
    }[when]
    assert setup.min() >= 0
    assert abs(setup.mean() - 1) < FIVE_SIGMA
    for x in (0.5, 1.0, 3.0):
        above = math.exp(-x)
        assert abs(np.mean(setup > x) - above) < FIVE_SIGMA * math.sqrt(above * (1 - above))


def test_ways_devices_and_draws_are_independent() -> None:
    """The correlation of n independent pairs has standard deviation 1/sqrt(n)."""
    luck = uniform(50, loss=0.5).chance(1, 2, 0, 1000)
    pairs = [
        (luck.down_tries, luck.up_tries),
        (luck.down_tries, luck.setup),
        (luck.setup, luck.up_tries),
        (luck.setup[:, :-1], luck.setup[:, 1:]),
        (luck.setup[:-1], luck.setup[1:]),
        (luck.setup, uniform(50, loss=0.5).chance(1, 3, 0, 1000).setup),
    ]
    for one, other in pairs:
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 5 / math.sqrt(one.size)
