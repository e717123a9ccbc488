"""The timeline of small trainings by hand: no delay is left to chance, and powers of two keep all times exact.

A bit comes down in 1.5/64 s, goes up in 1.5/32 s and from device to device in 1.5/16 s; a device computes 8
multiplications a second, the server 1024.
"""

from typing import Any

import numpy as np
import pytest

from codedfl.network import DelayModel, RoundCosts, TransferCosts
from codedfl.scenario import Fleet, Links
from codedfl.training.records import History, StageRecord
from codedfl.training.timeline import timeline

LINKS = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.5, loss=0.0)
FLEET = Fleet(devices=[{"count": 3, "mac_rate": 8.0, "setup_ratio": 0.0}], server_mac_rate=1024.0)
DELAYS = DelayModel.create(FLEET, LINKS)
COLUMNS = ("epoch", "device", "activity", "peer", "begin", "end", "bits", "macs")


def asked(devices: list[int], down: list[int], macs: list[int], up: list[int], quorum: int, **more: Any) -> RoundCosts:
    return RoundCosts(*map(np.array, (devices, down, macs, up)), quorum=quorum, **{"server_macs": 0, **more})


def trained(*epochs: tuple[float, list[RoundCosts]]) -> History:
    """Epochs that end at these times."""
    history = History()
    for end, rounds in epochs:
        history.add_round(*rounds)
        history.columns["time"].append(end)
    return history


def rows(history: History, *, parallel: bool = False, start: float = 0.0) -> list[tuple[Any, ...]]:
    found = timeline(history, DELAYS, seed=0, draw=0, parallel=parallel, start=start)
    assert tuple(found) == COLUMNS
    return list(zip(*(found[name].tolist() for name in COLUMNS), strict=True))


def test_a_run_without_epochs_has_an_empty_timeline() -> None:
    assert rows(History()) == []


def test_rounds_follow_each_other_and_who_is_not_awaited_is_cut_off() -> None:
    """From 10 s on: down 1.5 s, 2 s of work, up 3 s; device 1 works for 8 s and is not awaited. The server computes
    for 1 s, until 17.5, then asks device 2, which has nothing to compute: down 3 s, up 0.75 s, until 21.25.

    Epoch 2 has one question, whose reply of device 1 is cut off on its way down; that of device 0 has no bits.
    """
    first = asked([0, 1], [64, 64], [16, 64], [64, 64], 1, server_macs=1024)
    second = asked([2], [128], [0], [16], 1, server_macs=512)
    third = asked([0, 1], [0, 640], [16, 16], [0, 64], 1)
    assert rows(trained((21.75, [first, second]), (23.75, [third])), start=10.0) == [
        (1, 0, "receive model", -1, 10.0, 11.5, 64, 0),
        (1, 1, "receive model", -1, 10.0, 11.5, 64, 0),
        (1, 0, "compute", -1, 11.5, 13.5, 0, 16),
        (1, 1, "compute", -1, 11.5, 17.5, 0, 64),
        (1, 0, "send reply", -1, 13.5, 16.5, 64, 0),
        (1, 2, "receive model", -1, 17.5, 20.5, 128, 0),
        (1, 2, "send reply", -1, 20.5, 21.25, 16, 0),
        (2, 1, "receive model", -1, 21.75, 23.75, 640, 0),
        (2, 0, "compute", -1, 21.75, 23.75, 0, 16),
    ]


def test_what_begins_when_an_epoch_ends_is_not_done_for_it() -> None:
    """Device 1 would send from 3.5 s on, when the epoch is over."""
    costs = asked([0, 1], [64, 64], [0, 16], [64, 64], 1)
    found = rows(trained((3.5, [costs])))
    assert [row[1:3] for row in found] == [
        (0, "receive model"), (1, "receive model"), (1, "compute"), (0, "send reply"),
    ]  # fmt: skip


def test_replies_to_standing_rounds_are_on_their_way_until_the_run_ends() -> None:
    """Device 1 works for 40 s in epoch 1, which ends after 6.5 s, and the run after 19.5 s."""
    costs = asked([0, 1], [64, 64], [16, 320], [64, 64], 1, standing=True)
    again = asked([0], [64], [16], [64], 1, standing=True)
    found = rows(trained((6.5, [costs]), (13.0, [again]), (19.5, [again])))
    assert (1, 1, "compute", -1, 1.5, 19.5, 0, 320) in found
    assert (2, 0, "send reply", -1, 10.0, 13.0, 64, 0) in found


@pytest.mark.parametrize("parallel", [False, True])
def test_hand_overs_delay_the_next_epoch(parallel: bool) -> None:
    """Epoch 1 ends after 2 s. Device 2 is granted for 1.5 s, prepares for 1 s and sends for 3 s; device 1 sends what it
    has for 6 s, after it unless the recipient takes both at once. Device 0 absorbs 24 multiplications in 3 s.
    """
    upload = asked([0, 1, 2], [0] * 3, [0] * 3, [32] * 3, 3, server_macs=512)
    later = asked([0], [64], [16], [64], 1)
    begins, absorbed = (2.0, 11.0) if parallel else (7.5, 16.5)
    history = trained((2.0, [upload]), (absorbed + 6.5, [later]))
    handed = [TransferCosts(2, 0, 64, 8, 32, 16), TransferCosts(1, 0, 0, 0, 64, 8)]
    history.stages.append(StageRecord(1, handed, retires=True))
    assert rows(history, parallel=parallel)[3:] == [
        (1, 2, "grant", -1, 2.0, 3.5, 64, 0),
        (1, 2, "encrypt", -1, 3.5, 4.5, 0, 8),
        (1, 2, "send", 0, 4.5, 7.5, 32, 0),
        (1, 1, "send", 0, begins, begins + 6.0, 64, 0),
        (1, 0, "absorb", -1, absorbed - 3.0, absorbed, 0, 24),
        (2, 0, "receive model", -1, absorbed, absorbed + 1.5, 64, 0),
        (2, 0, "compute", -1, absorbed + 1.5, absorbed + 3.5, 0, 16),
        (2, 0, "send reply", -1, absorbed + 3.5, absorbed + 6.5, 64, 0),
    ]


def test_stages_before_epochs_delay_them() -> None:
    """Two stages that overlap take 9 s: device 1 sends on what it has after 3 s, while 0 sends to 2. Later a repair."""
    upload = asked([0], [0], [0], [32], 1)
    history = trained((10.5, [upload]), (15.0, [upload]))
    history.stages.append(StageRecord(0, [TransferCosts(0, 1, 0, 0, 32, 0), TransferCosts(0, 2, 0, 0, 32, 0)]))
    history.stages.append(StageRecord(0, [TransferCosts(1, 2, 0, 0, 32, 0)], after=(0,)))
    history.stages.append(StageRecord(1, [TransferCosts(2, 1, 0, 0, 32, 0)]))
    assert rows(history) == [
        (1, 0, "send", 1, 0.0, 3.0, 32, 0),
        (1, 0, "send", 2, 3.0, 6.0, 32, 0),
        (1, 1, "send", 2, 6.0, 9.0, 32, 0),
        (1, 0, "send reply", -1, 9.0, 10.5, 32, 0),
        (2, 2, "send", 1, 10.5, 13.5, 32, 0),
        (2, 0, "send reply", -1, 13.5, 15.0, 32, 0),
    ]
