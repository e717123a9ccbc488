"""Stages that overlap, by hand: a device sends on what is complete, and nobody waits for a busy device."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.network import Draws, OverlappingStage, TransferCosts, pipeline, sending_order
from network.test_stages import model, parcel

# A parcel of 32 bits takes 3 s between devices, and 6 s from or to device 3; devices compute 8 multiplications a
# second, device 3 computes 4.


def times(*stages: tuple[list[TransferCosts], tuple[int, ...]], channel: str = "parallel") -> list[list[float]]:
    """Begin of each parcel, by stage, and the end of all."""
    listed = [OverlappingStage(number, costs, after) for number, (costs, after) in enumerate(stages)]
    found = Draws(model(d2d_channel=channel), seed=0).stages(listed)  # type: ignore[arg-type]
    begins, place = [], 0
    for costs, _ in stages:
        begins.append(found.begin[0, place : place + len(costs)].tolist())
        place += len(costs)
    return [*begins, [float(found.seconds[0])]]


def test_a_device_sends_on_before_others_have_everything() -> None:
    """Device 1 has its parcel after 3 s, device 2 after 6 s: each begins with stage 1 when its own is there."""
    first = [parcel(0, 1), parcel(0, 2)]
    assert times((first, ()), ([parcel(1, 0), parcel(2, 1)], (0,))) == [[0.0, 3.0], [3.0, 6.0], [9.0]]


def test_who_receives_nothing_begins_at_once() -> None:
    assert times(([parcel(0, 1)], ()), ([parcel(2, 0)], (0,))) == [[0.0], [0.0], [3.0]]


def test_a_sender_whose_first_recipient_is_busy_serves_another_one() -> None:
    """Device 2 finds device 1 busy until 3 s, and sends to device 0 meanwhile; in one stage alone it would wait."""
    stage = [parcel(0, 1), parcel(2, 1), parcel(2, 0)]
    empty: list[TransferCosts] = [parcel(1, 2)]
    assert times((stage, ()), (empty, (0,)))[0] == [0.0, 3.0, 0.0]
    assert Draws(model(), seed=0).stage(0, stage).begin[0].tolist() == [0.0, 3.0, 6.0]


def test_the_order_of_parcels_is_that_in_which_they_begin() -> None:
    """As before: device 2 serves device 0 first; what comes after parcels that take no time comes after them."""
    stage = [parcel(0, 1), parcel(2, 1), parcel(2, 0)]
    listed = [OverlappingStage(0, stage), OverlappingStage(1, [parcel(1, 2)], (0,))]
    assert sending_order(model(), listed, seed=0, draw=0) == [0, 2, 1, 3]
    empty = [parcel(sender, recipient, parcel_bits=0) for sender, recipient in ((0, 1), (1, 2), (2, 0))]
    chain = [OverlappingStage(place, [each], (place - 1,) if place else ()) for place, each in enumerate(empty)]
    assert sending_order(model(), chain, seed=0, draw=0) == [0, 1, 2]


def test_earlier_stages_go_first() -> None:
    """At 3 s device 0 has parcels of two stages for device 1, which is free."""
    found = times(([parcel(2, 0), parcel(2, 1)], ()), ([parcel(0, 1)], (0,)), ([parcel(0, 1)], (0,)))
    assert found == [[0.0, 3.0], [6.0], [9.0], [12.0]]


def test_work_before_sending_and_after_receiving_one_at_a_time() -> None:
    """8 multiplications take a second: device 0 prepares stage 0, then stage 2; device 1 absorbs before it sends."""
    first = [parcel(0, 1, export_macs=8, absorb_macs=16)]
    later = [parcel(0, 2, export_macs=8)]
    assert times((first, ()), ([parcel(1, 2, export_macs=8)], (0,)), (later, ())) == [[1.0], [7.0], [4.0], [10.0]]


def test_work_of_none_waits_for_nothing() -> None:
    """Device 0 computes for 10 s what stage 1 needs, and passes on what stage 2 needs no work for."""
    assert times(([parcel(1, 0)], ()), ([parcel(0, 1, export_macs=80)], ()), ([parcel(0, 2)], (0,))) == [
        [0.0],
        [10.0],
        [3.0],
        [13.0],
    ]


def test_grants_come_first_and_slow_links_take_longer() -> None:
    """A grant of 128 bits takes 128 * 1.5/64 = 3 s; from device 3 a parcel takes 6 s."""
    assert times(([parcel(3, 0, grant_bits=128)], ()), ([parcel(0, 1)], (0,))) == [[3.0], [9.0], [12.0]]


def test_grants_take_as_many_tries_as_are_expected() -> None:
    """On links that lose every second message, 3 s become 6 s in every draw."""
    listed = [OverlappingStage(0, [parcel(0, 1, grant_bits=128)]), OverlappingStage(1, [parcel(1, 0)], (0,))]
    found = Draws(model(loss=0.5, d2d_loss=0.0), seed=0, count=2).stages(listed)
    assert found.begin.tolist() == [[6.0, 9.0]] * 2


def test_a_shared_channel_takes_one_parcel_at_a_time_in_the_given_order() -> None:
    first = [parcel(0, 1), parcel(2, 3)]
    found = times((first, ()), ([parcel(1, 0)], (0,)), channel="shared")
    assert found == [[0.0, 3.0], [9.0], [12.0]]


def test_parcels_over_the_server_are_refused() -> None:
    for costs in (parcel(0, -1), parcel(0, 1, relayed=True)):
        with pytest.raises(ValueError, match="stage 0 sends parcels over the server"):
            times(([parcel(1, 2), costs], ()), ([parcel(1, 0)], (0,)))


@given(st.integers(0, 2**16), st.integers(2, 5), st.sampled_from(["parallel", "shared"]))
def test_laws_of_every_draw(seed: int, count: int, channel: str) -> None:
    """Nobody sends or receives two parcels at once, no parcel begins before what it comes after, none is late for ever;
    draws do not depend on each other."""
    rng = np.random.default_rng(seed)
    stages = []
    for number in range(count):
        pairs = [rng.choice(4, 2, replace=False) for _ in range(rng.integers(1, 8))]
        costs = [
            parcel(int(a), int(b), parcel_bits=int(rng.integers(1, 99)), export_macs=int(rng.integers(0, 9)))
            for a, b in pairs
        ]
        after = tuple(int(each) for each in np.flatnonzero(rng.random(number) < 0.5))
        stages.append(OverlappingStage(number, costs, after))
    delays = model(loss=0.4, d2d_channel=channel)  # type: ignore[arg-type]
    few = Draws(delays, seed=seed, count=3).stages(stages)
    with mock.patch.object(pipeline, "_LEAST_THREADED_PARCELS", 0):  # on all cores
        found = Draws(delays, seed=seed, count=3).stages(stages)
    for name, expected in vars(few).items():
        assert np.array_equal(getattr(found, name), expected), name
    alone = Draws(delays, seed=seed, first=2).stages(stages)
    assert np.array_equal(alone.begin[0], found.begin[2])
    flat = [(stage, costs) for stage in stages for costs in stage.transfers]
    begin, end = found.begin[0], found.end[0]
    for one, (stage, costs) in enumerate(flat):
        for other, (earlier, sent) in enumerate(flat):
            together = costs.sender == sent.sender or costs.recipient == sent.recipient or channel == "shared"
            if one != other and together:
                assert end[one] <= begin[other] or end[other] <= begin[one]
            if earlier.number in stage.after and sent.recipient == costs.sender:
                assert begin[one] >= end[other]
    assert found.seconds[0] >= end.max()


def test_what_could_begin_at_once_is_computed_in_the_order_of_stages() -> None:
    """The first six stages bring device 0 nothing, so what comes after each can begin at 0; each takes it a second."""
    first = [([parcel(1, 2, parcel_bits=0)], ()) for _ in range(6)]
    later = [([parcel(0, 3, parcel_bits=0, export_macs=8)], (number,)) for number in range(6)]
    assert times(*first, *later)[6:] == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [6.0]]
