"""Stages in time, by hand: a device sends one parcel at a time and takes one at a time."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.delays import DelayModel, Step, TransferCosts, stage_seconds, stage_steps
from codedfl.scenario import Fleet, Links

# Powers of two keep every number exact: no loss, no setup, and a bit takes 1.5/16 s between devices.
LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.0)
FLEET = Fleet(
    devices=[
        {"count": 3, "mac_rate": 8.0, "setup_ratio": 0.0},
        {"count": 1, "mac_rate": 4.0, "setup_ratio": 0.0, "d2d_rate": 8.0},
    ]
)


def model(**changes: float) -> DelayModel:
    return DelayModel.create(FLEET, Links(**({**LINKS.to_table(), **changes})))


def parcel(sender: int, recipient: int, **costs: int) -> TransferCosts:
    plain = {"grant_bits": 0, "export_macs": 0, "parcel_bits": 32, "absorb_macs": 0}
    return TransferCosts(sender, recipient, **(plain | costs))


def begins(transfers: list[TransferCosts]) -> list[tuple[float, float]]:
    steps = stage_steps(model(), 0, transfers, seed=0, draw=0)
    assert [(step.device, step.peer, step.bits) for step in steps] == [
        (costs.sender, costs.recipient, costs.parcel_bits) for costs in transfers
    ]
    assert all(step.activity == "send" for step in steps)
    return [(step.begin, step.end) for step in steps]


def lasts(transfers: list[TransferCosts]) -> float:
    return float(stage_seconds(model(), 0, transfers, seed=0, first=0, draws=1)[0])


def test_different_pairs_send_side_by_side() -> None:
    """32 * 1.5/16 = 3 s each."""
    assert begins([parcel(0, 1), parcel(2, 0)]) == [(0.0, 3.0), (0.0, 3.0)]


def test_a_sender_sends_one_after_the_other() -> None:
    assert begins([parcel(0, 1), parcel(0, 2)]) == [(0.0, 3.0), (3.0, 6.0)]


def test_a_recipient_takes_one_after_the_other() -> None:
    assert begins([parcel(0, 2), parcel(1, 2)]) == [(0.0, 3.0), (3.0, 6.0)]


def test_a_parcel_waits_for_both_its_ends() -> None:
    """0 is busy sending till 3, 3 is busy taking till 6 (its link has half the rate): 0 -> 3 lasts from 6 to 12."""
    assert begins([parcel(0, 1), parcel(2, 3), parcel(0, 3)]) == [(0.0, 3.0), (0.0, 6.0), (6.0, 12.0)]


def test_preparing_comes_before_and_absorbing_after() -> None:
    """Grant 64 * 1.5/64 = 1.5; two parcels of 8/8 = 1 s of work; send from 3.5 to 6.5 and 9.5; 16/8 = 2 s to add."""
    first = parcel(0, 1, grant_bits=64, export_macs=8)
    second = parcel(0, 2, export_macs=8, absorb_macs=16)
    assert begins([first, second]) == [(3.5, 6.5), (6.5, 9.5)]
    assert lasts([first, second]) == 11.5


def test_nothing_takes_no_time() -> None:
    assert lasts([]) == 0.0
    assert stage_steps(model(), 0, [], seed=0, draw=0) == []


def test_a_draw_is_the_same_alone_as_among_others() -> None:
    transfers = [parcel(a, b, export_macs=3, absorb_macs=2) for a in range(4) for b in range(4) if a != b]
    delays = model(loss=0.3)
    together = stage_seconds(delays, 1, transfers, seed=5, first=0, draws=20)
    alone = [stage_seconds(delays, 1, transfers, seed=5, first=n, draws=1)[0] for n in range(20)]
    assert np.array_equal(together, alone)
    assert len(set(together.tolist())) > 10
    assert not np.array_equal(together, stage_seconds(delays, 2, transfers, seed=5, first=0, draws=20))


parcels = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 64)).filter(lambda pair: pair[0] != pair[1]),
    min_size=1,
    max_size=12,
)


@given(parcels, st.integers(0, 5))
def test_nobody_sends_or_takes_two_parcels_at_once(listed: list[tuple[int, int, int]], seed: int) -> None:
    transfers = [parcel(sender, recipient, parcel_bits=bits) for sender, recipient, bits in listed]
    delays = model(loss=0.5)
    steps = stage_steps(delays, 0, transfers, seed=seed, draw=3)
    for end in ("device", "peer"):
        for device in range(4):
            own = sorted((s for s in steps if getattr(s, end) == device), key=lambda step: step.begin)
            assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
    last = max(step.end for step in steps)
    assert stage_seconds(delays, 0, transfers, seed=seed, first=3, draws=1)[0] == pytest.approx(last, rel=1e-12)


def test_tries_are_geometric_with_the_senders_loss() -> None:
    """A single parcel of 3 s: the mean is 3 / (1 - p), within four deviations of the mean of 4000 draws."""
    seconds = stage_seconds(model(loss=0.4), 0, [parcel(0, 1)], seed=1, first=0, draws=4000)
    tries = seconds / 3
    deviation = np.sqrt(0.4) / 0.6
    assert abs(tries.mean() - 1 / 0.6) <= 4 * deviation / np.sqrt(4000)
    assert np.allclose(tries, np.round(tries))


def test_steps_are_steps() -> None:
    assert stage_steps(model(), 0, [parcel(0, 1)], seed=0, draw=0) == [Step(0, "send", 1, 0.0, 3.0, 32)]
