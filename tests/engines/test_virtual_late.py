"""The virtual engine by hand: late replies, reopened questions with chance, and stages of devices that are gone."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import SERVER, Round
from engines.test_virtual import LINKS, Carrier, Stub, ask, engine, question, stage

# Every device takes 1.5 s to receive one number, works for as many seconds as it has MAC, and sends for 3 s.


def checked(epoch: int, count: int) -> Round:
    """A round that one reply determines, to so many devices."""
    return dataclasses.replace(question(epoch, dict.fromkeys(range(count), 1)), needed=1)


def found(virtual: VirtualEngine, *, wait: bool = False) -> list[tuple[int, int, float]]:
    """Epoch, device and seconds of the late replies."""
    return [(asked.epoch, reply.device, reply.seconds) for asked, reply in virtual.late(wait=wait)]


def waiting(*macs: int, now: float = 0.0) -> VirtualEngine:
    return engine([Stub(1, count) for count in macs], [1.0] * len(macs), now)


def test_late_replies_are_there_once_they_have_arrived() -> None:
    """Replies are due 5.5, 8.5, 14.5 and 24.5 s after 100; the server then computes 4 MAC a second."""
    virtual = waiting(1, 4, 10, 20, now=100.0)
    assert [reply.device for reply in ask(virtual, checked(1, 4), 1).replies] == [0]
    virtual.charge_server(11)
    assert (virtual.now, found(virtual)) == (108.25, [])
    virtual.charge_server(1)
    assert (virtual.now, found(virtual)) == (108.5, [(1, 1, 8.5)])
    assert found(virtual) == []
    virtual.charge_server(25)
    assert found(virtual) == [(1, 2, 14.5)]
    assert found(virtual, wait=True) == [(1, 3, 24.5)]
    assert found(virtual, wait=True) == []


def test_late_replies_of_several_rounds_come_round_by_round() -> None:
    """Device 0 replies at 5.5 and 11 s; device 1 would reply 8.5 s after each question."""
    virtual = waiting(1, 4)
    for epoch in (1, 2):
        ask(virtual, checked(epoch, 2), 1)
    assert virtual.now == 11
    assert found(virtual) == [(1, 1, 8.5)]
    assert found(virtual, wait=True) == [(2, 1, 8.5)]


def test_four_rounds_wait_for_late_replies() -> None:
    virtual = waiting(1, 1000)
    for epoch in range(1, 7):
        ask(virtual, checked(epoch, 2), 1)
    assert [epoch for epoch, *_ in found(virtual, wait=True)] == [3, 4, 5, 6]


def test_replies_that_check_nothing_are_never_late() -> None:
    virtual = waiting(1, 4)
    ask(virtual, question(1, {0: 1, 1: 1}), 1)
    assert found(virtual, wait=True) == []


def test_replies_to_a_round_before_check_nothing() -> None:
    """Device 1 never answers the question of epoch 1, and is not asked in epoch 2."""
    virtual = waiting(1, 4, 4)
    ask(virtual, question(1, {0: 1, 1: 1}), 1)
    ask(virtual, dataclasses.replace(question(2, {0: 1, 2: 1}), needed=1), 1)
    assert found(virtual, wait=True) == [(2, 2, 8.5)]


def chance() -> DelayModel:
    return DelayModel.create(Fleet(devices=[{"count": 3, "mac_rate": 2.0}]), Links(loss=0.5))


def test_a_reopened_question_meets_the_delays_that_it_met() -> None:
    """Where links lose packets: the same replies at the same times as without an interruption, to the last bit."""
    first, everyone = question(4, dict.fromkeys(range(3), 1)), {0: 1, 1: 1, 2: 1}
    whole = VirtualEngine([Stub(1, 8)] * 3, chance(), seed=5, draw=11, now=2.0)
    (quickest,) = ask(whole, first, 1).replies
    again = VirtualEngine([Stub(1, 8)] * 3, chance(), seed=5, draw=11, now=whole.now)
    again.reopen(Round(4, {i: request for i, request in first.requests.items() if i != quickest.device}), 2.0)
    pair = [
        ask(each, dataclasses.replace(question(5, {quickest.device: 1}), standing=True), len(everyone))
        for each in (whole, again)
    ]
    heard = [[(reply.device, reply.seconds) for reply in answer.replies] for answer in pair]
    assert len(heard[0]) == 3
    assert heard[0] == heard[1]
    assert whole.now == again.now


def test_what_devices_cost_holds_no_work_of_the_server() -> None:
    costs = ask(waiting(3, 4), question(1, {0: 1, 1: 1}), 2).costs
    assert (costs.server_macs, costs.macs.tolist()) == (0, [3, 4])


def test_how_long_devices_computed_beforehand_is_told() -> None:
    """Only their own work, 8 MAC at 1, 4 and 8 a second; a round that is not offline tells nothing."""
    virtual = engine([Stub(1, 8)] * 3, [1.0, 4.0, 8.0])
    asked = {0: 1, 1: 1, 2: 1}
    for offline, expected in ((True, [8.0, 2.0, 1.0]), (False, [0.0, 0.0, 0.0])):
        answer = ask(virtual, question(2 - offline, asked), 3, offline=offline)
        told = {reply.device: reply.offline_seconds for reply in answer.replies}
        assert [told[device] for device in range(3)] == expected


def leaving(last_epochs: Mapping[int, int], devices: int = 3) -> tuple[VirtualEngine, list[tuple[str, int, int]]]:
    """Devices that leave after these epochs, and what they send and take."""
    log: list[tuple[str, int, int]] = []
    carriers = [Carrier(1, 1, log=log, number=number) for number in range(devices)]
    delays = DelayModel.create(Fleet(devices=[{"count": devices, "mac_rate": 1.0, "setup_ratio": 0.0}]), LINKS)
    return VirtualEngine(carriers, delays, seed=0, draw=0, last_epochs=last_epochs), log


@pytest.mark.parametrize(
    ("parcels", "lost"),
    [
        ([(0, 1, 1), (1, 0, 1)], ()),
        ([(0, 2, 1)], (2,)),
        ([(2, 0, 1)], (2,)),
        ([(2, SERVER, 1)], (2,)),
        ([(0, 1, 1), (2, 3, 1), (3, 0, 1)], (2, 3)),
    ],
)
def test_a_stage_of_a_device_that_is_gone_moves_nothing(
    parcels: Sequence[tuple[int, int, int]], lost: tuple[int, ...]
) -> None:
    """Devices 3 and 2 are gone once epoch 1 has begun, whichever else take part; device 4 stays for one more."""
    virtual, log = leaving({3: 0, 2: 1, 4: 2}, devices=5)
    ask(virtual, question(1, {0: 1}), 1)
    before = virtual.now
    outcome = virtual.carry(stage([*parcels, (4, 0, 1)], None), 1, lambda *_: None)
    assert outcome.lost == lost
    assert (len(log), len(outcome.costs), virtual.now == before) == (
        (0, 0, True) if lost else (2 * (len(parcels) + 1), len(parcels) + 1, False)
    )


def test_a_hand_over_counts_on_devices_until_they_are_asked_again() -> None:
    """Who has replied in its last epoch can still hand its data over."""
    virtual, log = leaving({1: 1})
    ask(virtual, question(1, {0: 1, 1: 1}), 2)
    retiring = dataclasses.replace(stage([(1, 0, 1)], None), retires=True)
    assert virtual.carry(retiring, 1, lambda *_: None).lost == ()
    assert [what for what, *_ in log] == ["sends", "takes"]


@pytest.mark.parametrize(("parallel", "seconds"), [(False, 10.0), (True, 7.0)])
def test_hand_overs_take_the_time_of_the_delay_model(parallel: bool, seconds: float) -> None:
    """Grants take 3 s, the work 1 s and parcels 3 s each, one after the other at the recipient or at once."""
    virtual, _ = leaving({})
    ask(virtual, question(1, {0: 1}), 1)
    before = virtual.now
    retiring = dataclasses.replace(stage([(1, 0, 1), (2, 0, 1)], None), retires=True, parallel=parallel)
    virtual.carry(retiring, 1, lambda *_: None)
    assert virtual.now - before == seconds


def test_overlapping_stages_end_with_the_one_that_lacks_a_device() -> None:
    """Of four stages the second and the last lack device 2: only the first is moved, and nothing takes time."""
    virtual, log = leaving({2: 0, 1: 1})
    stages = [stage([pair], ()) for pair in [(0, 1, 1), (0, 2, 2), (1, 0, 3), (2, 1, 4)]]
    outcomes = virtual.carry_overlapping(stages, 0, lambda *_: None)
    assert [outcome.lost for outcome in outcomes] == [(), (2,)]
    assert [size for what, _, size in log if what == "sends"] == [1]


def test_stages_that_overlap_take_the_time_of_the_delay_model() -> None:
    """A grant of 64 bits takes 3 s down, a parcel of one 32-bit number 3 s from device to device after 1 MAC.

    Two stages run side by side. Where device 1 waits for the parcel of the first, which is there at 3 + 1 + 3 = 7 s,
    it then computes for 1 s and sends for 3 s.
    """
    for after, seconds in (((), 7.0), ((3,), 11.0)):
        virtual, _ = leaving({}, devices=4)
        stages = [stage([(0, 1, 1)], ()), stage([(1, 2, 1)], after)]
        virtual.carry_overlapping(stages, 3, lambda *_: None)
        assert virtual.now == seconds


def test_a_single_stage_takes_as_long_as_if_it_might_overlap() -> None:
    first, second = (leaving({})[0] for _ in range(2))
    first.carry(stage([(0, 1, 2)], None), 0, lambda *_: None)
    second.carry_overlapping([stage([(0, 1, 2)], ())], 0, lambda *_: None)
    assert first.now == second.now > 0


def test_stages_that_came_before_the_first_are_over() -> None:
    """Numbers below the first are of stages that were carried out earlier, and nobody waits for those."""
    virtual, log = leaving({})
    stages = [stage([(1, 0, 1), (0, 1, 2)], (2, 4)), stage([(0, 1, 3)], (0,)), stage([(0, 1, 4)], (5, 6))]
    virtual.carry_overlapping(stages, 5, lambda *_: None)
    assert [size for what, _, size in log if what == "sends"] == [2, 3, 1, 4]


def test_a_replay_moves_everything_again_in_no_time() -> None:
    virtual, log = leaving({})
    virtual.replay(stage([(1, 0, 1), (0, 1, 2)], None), lambda *_: None)
    virtual.replay_overlapping([stage([(0, 1, 3)], ()), stage([(1, 2, 4)], (0,))], 0, lambda *_: None)
    assert [size for what, _, size in log if what == "sends"] == [1, 2, 3, 4]
    assert virtual.now == 0


def test_numbers_of_arrays_are_those_of_the_asked() -> None:
    """Three devices of which the second is gone from epoch 2 on: it is asked nothing, and told as lost once asked."""
    virtual, _ = leaving({1: 1})
    everyone = question(1, dict.fromkeys(range(3), 1))
    assert ask(virtual, everyone, 3).lost == ()
    answer = ask(virtual, dataclasses.replace(everyone, epoch=2), 3)
    assert (answer.lost, answer.costs.asked.tolist()) == ((1,), [0, 2])
    assert np.array_equal(answer.costs.down_bits, [32, 32])
