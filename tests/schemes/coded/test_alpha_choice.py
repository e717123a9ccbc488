"""How many parts a device holds: what matters pulls the choice its way, and it is the best where chance is absent."""

from functools import cache

import numpy as np
import pytest

from codedfl.schemes import Public
from codedfl.schemes.coded.worker_choice import UNKNOWN, choose_alpha
from codedfl.studies.plan import Shapes, predict, probe
from schemes.coded.test_worker_choice import FOREVER, known
from tiny import PAPER_FLEET, scenario

RATES = (4e5, 2e5, 2e5, 1e5, 5e4, 2e4, 1e4)
GROUPS = [{"count": 1, "mac_rate": rate, "setup_ratio": 0.0, "setup_seconds": 0.0} for rate in RATES]


def chosen(public: Public, *, relayed: bool = True, expected_epochs: int = FOREVER) -> int:
    return choose_alpha(public, 48, relayed=relayed, expected_epochs=expected_epochs)


def test_a_set_up_that_weighs_nothing_makes_copies_of_everything() -> None:
    """The first reply of all is always the soonest."""
    assert chosen(known(PAPER_FLEET)) == 25


def test_a_set_up_that_weighs_everything_is_left_out() -> None:
    assert chosen(known(PAPER_FLEET, features=2000), expected_epochs=1) == 1


@pytest.mark.parametrize("channel", ["parallel", "shared"])
def test_a_shared_channel_weighs_all_parcels(channel: str) -> None:
    """Without chance and without work of devices, by hand: 7 parcels of a turn side by side, or one after the other.

    Words of 48 bits take 1.1 * 48 / 5e6 s to a device. An epoch is that of the (N - alpha + 1)-th fastest.
    """
    groups = [{"count": 1, "mac_rate": rate * 1e3, "setup_ratio": 0.0} for rate in RATES]
    d, c, epochs = 90, 9, 1000
    public = known(groups, features=d, outputs=c, loss=0.0, d2d_channel=channel)
    parcel = (d * (d + 1) / 2 + c * d) * 1.1 * 48 / 5e6
    turn = parcel * (7 if channel == "shared" else 1)
    replies = sorted(c * d * d / (rate * 1e3) for rate in RATES)
    times = [turn * (alpha - 1) / epochs + replies[7 - alpha] for alpha in range(1, 8)]
    assert chosen(public, relayed=False, expected_epochs=epochs) == 1 + int(np.argmin(times))


@pytest.mark.parametrize("relayed", [False, True])
def test_work_on_own_data_weighs_twice_and_on_each_parcel_once(relayed: bool) -> None:
    """Without chance and on links that take no time, by hand: the slowest device pads its data, then adds alpha parts.

    The first alpha that is not 1 pays off when epochs are many enough, and so does each of the next.
    """
    d, c = 90, 1
    public = known(GROUPS, features=d, outputs=c, loss=0.0, **dict.fromkeys(("up_rate", "down_rate", "d2d_rate"), 1e15))
    part = (d * (d + 1) / 2 + c * d) / min(RATES)
    replies = sorted(c * d * d / rate for rate in RATES)
    found = []
    for epochs in range(1, 40):
        times = [part * (1 + alpha) * (alpha > 1) / epochs + replies[7 - alpha] for alpha in range(1, 8)]
        found.append(chosen(public, relayed=relayed, expected_epochs=epochs))
        assert found[-1] == 1 + int(np.argmin(times))
    assert found[0] == 1 and len(set(found)) > 3


def test_work_takes_its_mean_time_in_the_set_up() -> None:
    """By hand, of the slowest device: work that chance makes ten times longer saves one epoch of 8100 products at most,
    and the set-up needs three times 4185."""
    groups = [{**group, "setup_ratio": 9.0} for group in GROUPS]
    links = dict.fromkeys(("up_rate", "down_rate", "d2d_rate"), 1e15)
    assert chosen(known(groups, features=90, outputs=1, loss=0.0, **links), expected_epochs=1) == 1


def test_a_shared_channel_makes_fewer_copies() -> None:
    """Of parcels that are relayed it says nothing."""
    counts = {
        (channel, relayed): chosen(
            known(PAPER_FLEET, features=2000, d2d_channel=channel), relayed=relayed, expected_epochs=100
        )
        for channel in ("parallel", "shared")
        for relayed in (False, True)
    }
    assert counts["shared", False] < counts["parallel", False]
    assert counts["shared", True] == counts["parallel", True]


def test_where_nothing_is_known() -> None:
    assert chosen(Public((5,) * 25, 10, 2, np.dtype("float64"))) == UNKNOWN
    assert chosen(Public((5,) * 6, 10, 2, np.dtype("float64"))) == 6


@cache
def simulated(sharing: str) -> tuple[dict[int, float], dict[int, float]]:
    """The set-up and one epoch for every alpha, by the simulator; chance is absent."""
    base = scenario({"scheme": "coded-padded", "fleet.devices": GROUPS, "features.dimension": 90, "links.loss": 0.0})
    hollow = Shapes((5,) * len(RATES), 90, 9).hollow(base)
    set_ups, epochs = {}, {}
    for alpha in range(1, len(RATES) + 1):
        wanted = base.with_settings({"schemes.coded-padded": {"alpha": alpha, "sharing": sharing}})
        _, second, third = predict(probe(wanted, hollow), wanted, epochs=3, draws=1)[0]
        epochs[alpha] = third - second
        set_ups[alpha] = second - epochs[alpha]
    return set_ups, epochs


@pytest.mark.parametrize("sharing", ["relay", "direct"])
@pytest.mark.parametrize("epochs", [3, 10, 30, 100, 1000])
def test_without_chance_the_choice_is_the_best_of_all(epochs: int, sharing: str) -> None:
    """Devices differ in speed only; then predictions of the set-up leave nothing out but the grants and the owner.

    Those are 320 and 32 bits against parcels of 48 * 4905: below 0.2% of the set-up, on both sides of a comparison.
    """
    set_ups, each = simulated(sharing)
    times = {alpha: set_ups[alpha] + epochs * each[alpha] for alpha in each}
    public = known(GROUPS, features=90, outputs=9, loss=0.0)
    found = chosen(public, relayed=sharing == "relay", expected_epochs=epochs)
    assert times[found] <= min(times.values()) + 2 * 0.002 * set_ups[len(RATES)]
    assert min(times.values()) < 0.9 * max(times.values()), "the choice matters here"
