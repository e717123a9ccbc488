"""Blocks of epochs of trainings that share data: to the bits of a replay of one epoch after the other."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.network import DelayModel, Draws, RoundCosts, TransferCosts
from codedfl.scenario import Fleet, Links
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.training import timing
from codedfl.training.costs import SharedCosts
from codedfl.training.timing import Variant, epoch_ends, replay, sharing_blocks

DEVICES = 7
FLEET = Fleet(
    devices=[
        {"count": 3, "mac_rate": 9.0, "setup_ratio": 0.5},
        {"count": 2, "mac_rate": 4.0, "setup_ratio": 0.5},
        {"count": 2, "mac_rate": 1.0, "setup_ratio": 0.3},
    ],
    server_mac_rate=1000.0,
)


def rounds(down: int, macs: int, up: int, server: int, quorum: int = DEVICES) -> RoundCosts:
    each = np.ones(DEVICES, dtype=np.int64)
    return RoundCosts(np.arange(DEVICES), down * each, macs * each, up * each, quorum=quorum, server_macs=server)


COSTS = SharedCosts(
    first=rounds(0, 0, 31, 500),
    other=rounds(64, 17, 64, 1023),
    granted=TransferCosts(0, 0, grant_bits=64, export_macs=4, parcel_bits=33, absorb_macs=7),
    forwarded=TransferCosts(0, 0, grant_bits=0, export_macs=0, parcel_bits=33, absorb_macs=7),
    doubled=TransferCosts(0, 0, grant_bits=128, export_macs=8, parcel_bits=33, absorb_macs=7),
)


def several(active: int) -> Sequence[RoundCosts]:
    """Two questions, dearer the more devices are active; the second has one question more among few."""
    more = [rounds(3, 2, 1, 7)] if active < 4 else []
    return [rounds(active, 5, 9, 11), rounds(10, 17 + active, 20, 900), *more]


CASES = {
    "one question": COSTS,
    "several questions": dataclasses.replace(COSTS, by_active=several),
    "not all are awaited": dataclasses.replace(COSTS, other=rounds(64, 17, 64, 1023, quorum=3)),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25, deadline=None)
@given(
    supports=st.integers(0, 9),
    delta=st.floats(0, 12),
    supply=st.sampled_from(["once", "reissued"]),
    odd_set=st.sampled_from(["partner", "two-errors"]),
    detect_from=st.integers(1, 5),
    channel=st.sampled_from(["parallel", "shared"]),
    parallel=st.booleans(),
    seed=st.integers(0, 1000),
    first=st.integers(0, 3),
)
def test_blocks_have_the_bits_of_single_epochs(
    case: str,
    supports: int,
    delta: float,
    supply: str,
    odd_set: str,
    detect_from: int,
    channel: str,
    parallel: bool,
    seed: int,
    first: int,
) -> None:
    options: dict[str, Any] = {"delta": delta, "supply": supply, "odd_set": odd_set, "detect_from": detect_from}
    policy = partial(SharingPolicy, devices=DEVICES, supports=supports, **options)
    variant = Variant(CASES[case], policy, parallel)
    links = Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.1, loss=0.1, d2d_channel=channel)
    delays, epochs, draws = DelayModel.create(FLEET, links), 30, 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_BLOCK", 13 * draws * DEVICES)  # several blocks, of 8 epochs and of 13
        blocks = list(sharing_blocks([variant], Draws(delays, seed=seed, first=first, count=draws), epochs))
    single = list(islice(replay(variant, Draws(delays, seed=seed, first=first, count=draws)), epochs))
    assert len(blocks) > 3
    for name in ("ends", "active", "supports"):
        found = np.concatenate([getattr(block, name) for (block,) in blocks])
        assert np.array_equal(found, np.stack([getattr(epoch, name) for epoch in single])), name


def test_somebody_leaves_in_the_cases_above() -> None:
    """Without hand-overs, and without draws that differ, the property would say little."""
    policy = partial(SharingPolicy, devices=DEVICES, supports=6, delta=3.0, supply="once")
    delays = DelayModel.create(FLEET, Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.1, loss=0.1))
    for costs in CASES.values():
        blocks = sharing_blocks([Variant(costs, policy)], Draws(delays, seed=1, count=6), 30)
        active = np.concatenate([block.active for (block,) in blocks])
        assert active.min() < DEVICES
        assert len(set(map(tuple, active.T.tolist()))) > 1


def test_hand_overs_that_are_told_are_those_of_the_first_draw() -> None:
    """Also in epochs after which only others hand over, or only the last draw does not."""
    policy = partial(SharingPolicy, devices=DEVICES, supports=6, delta=3.0, supply="once")
    delays = DelayModel.create(FLEET, Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.1, loss=0.1))

    def told(first: int, count: int) -> list[Sequence[TransferCosts]]:
        epochs = replay(Variant(COSTS, policy), Draws(delays, seed=1, first=first, count=count))
        return [epoch.handovers for epoch in islice(epochs, 12)]

    alone = [told(first, 1) for first in range(6)]
    for first in range(4):
        assert told(first, 3) == alone[first]
    moved = np.array([[len(costs) > 0 for costs in draw] for draw in alone])
    assert np.any(moved[:4] & ~moved[2:]) and np.any(~moved[:4] & moved[2:]), "first and last of three differ"


def test_courses_of_both_kinds_keep_their_places() -> None:
    """A round with a deadline is replayed epoch by epoch, beside variants that are not."""
    policy = partial(SharingPolicy, devices=DEVICES, supports=6, delta=3.0, supply="once")
    hurried = dataclasses.replace(COSTS, other=dataclasses.replace(COSTS.other, deadline=5.0, least=2))
    delays = DelayModel.create(FLEET, Links(down_rate=64.0, up_rate=32.0, d2d_rate=16.0, overhead=0.1, loss=0.1))
    variants = [Variant(COSTS, policy), Variant(hurried, policy), Variant(CASES["several questions"], policy)]
    ends = epoch_ends(variants, delays, epochs=12, seed=2, draws=3)
    for variant, found in zip(variants, ends, strict=True):
        single = islice(replay(variant, Draws(delays, seed=2, count=3)), 12)
        assert np.array_equal(found, np.stack([epoch.ends for epoch in single], axis=1))


def test_no_epochs_and_no_variants_give_no_blocks() -> None:
    delays = DelayModel.create(FLEET, Links())
    policy = partial(SharingPolicy, devices=DEVICES, supports=2, delta=1.0, supply="once")
    assert not list(sharing_blocks([], Draws(delays, seed=0, count=2), 5))
    assert not list(sharing_blocks([Variant(COSTS, policy)], Draws(delays, seed=0, count=2), 0))
