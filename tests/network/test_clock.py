"""The clock: exact timelines of rounds, ties, deadlines and open questions."""

import dataclasses
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl.network import Clock, DelayModel, Draws, OverlappingStage, RoundCosts
from codedfl.network.clock import waiting_seconds
from codedfl.scenario import Fleet, Links
from network.test_delays import chance, costs, model

ASKED = ([0, 1, 2, 3], [64] * 4, [16, 16, 8, 64], [32, 32, 64, 128])
LUCK = chance([1, 3, 1, 2], [1, 0, 4, 0.5], [2, 1, 1, 4])


def waited(given_costs: RoundCosts) -> tuple[list[int], float]:
    """Who replies in time and when, with the luck of ``test_reply_times_by_hand``: replies at 7.5, 8, 16.5 and 9.5."""
    with patch.object(DelayModel, "chance", return_value=LUCK):
        clock = Clock(Draws(model(), seed=0))
        clock.ask(2, 0, given_costs)
    return clock.arrived[0].tolist(), float(clock.now[0])


@pytest.mark.parametrize(("quorum", "expected"), [(1, 7.5), (2, 8.0), (3, 9.5), (4, 16.5)])
def test_a_round_lasts_until_enough_replies_are_there(quorum: int, expected: float) -> None:
    assert waited(costs(*ASKED, quorum)) == ([0, 1, 3, 2][:quorum], expected)


def test_more_replies_than_devices_are_not_waited_for() -> None:
    assert waited(costs(*ASKED, 5)) == ([0, 1, 3, 2], 16.5)


def test_the_server_computes_afterwards() -> None:
    """512/1024 = 0.5 s, in the draws that are named."""
    clock = Clock(Draws(model(), seed=0, count=2), now=4.0)
    clock.charge(512)
    clock.charge(512, np.array([False, True]))
    assert clock.now.tolist() == [4.5, 5.0]


@given(st.integers(0, 2**32), st.integers(1, 50), st.integers(1, 4))
def test_a_round_ends_with_the_reply_that_makes_the_quorum(seed: int, draws: int, quorum: int) -> None:
    clock = Clock(Draws(model(), seed=seed, count=draws))
    replies = clock.ask(3, 0, costs(*ASKED, quorum))
    assert replies.shape == (draws, 4)
    assert clock.now.tolist() == [sorted(row)[quorum - 1] for row in replies.tolist()]


def test_a_block_of_epochs_is_one_epoch_after_the_other() -> None:
    """A block that begins or ends with the same epoch as the one before has draws of its own."""
    draws, alone = Draws(model(), seed=3, count=2), Draws(model(), seed=3, count=2)
    for epochs in ([2, 3, 4], [2, 3], [3], [3, 4], [2, 3, 4]):
        for question in (1, 0):
            found = draws.block(epochs, question).replies(costs(*ASKED))
            expected = [alone.replies(epoch, question, costs(*ASKED)) for epoch in epochs]
            assert np.array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("quorum", [1, 3, 4])
def test_rounds_of_a_block_last_as_long_as_alone(quorum: int) -> None:
    """Until the last awaited reply, and 512/1024 = 0.5 s of the server's work; in all epochs, some or none of them."""
    awaited, draws = costs(*ASKED, quorum, server=512), Draws(model(), seed=3)
    block = draws.block(range(2, 8), 1)
    alone = []
    for epoch in range(2, 8):
        clock = Clock(draws)
        clock.ask(epoch, 1, awaited)
        clock.charge(512)
        alone.append(clock.now[0])
    assert len(set(alone)) == 6
    for rows in (None, np.full(6, True), np.arange(6) % 3 == 1, np.full(6, False)):
        assert np.array_equal(block.durations(awaited, rows), np.array(alone)[slice(None) if rows is None else rows])


def test_rounds_of_a_block_that_ask_nobody_last_as_long_as_the_server_computes() -> None:
    nobody = dataclasses.replace(work({}, 0), server_macs=512)
    assert Draws(model(), seed=3).block([2, 3], 0).durations(nobody).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("deadline", "least", "replied", "expected"),
    [
        (7.0, 0, 0, 7.0),
        (7.0, 1, 1, 7.5),
        (7.5, 0, 1, 7.5),
        (7.75, 1, 1, 7.75),
        (9.0, 3, 3, 9.5),
        (9.0, 1, 2, 9.0),
        (100.0, 0, 4, 16.5),
    ],
)
def test_a_deadline_ends_a_round_if_the_least_replies_are_there(
    deadline: float, least: int, replied: int, expected: float
) -> None:
    """The replies arrive at 7.5, 8, 9.5 and 16.5 again."""
    given_costs = dataclasses.replace(costs(*ASKED), deadline=deadline, least=least)
    assert waited(given_costs) == ([0, 1, 3, 2][:replied], expected)


def test_a_deadline_passes_where_the_quorum_is_not_there() -> None:
    assert waited(dataclasses.replace(costs(*ASKED, 5), deadline=20.0)) == ([0, 1, 3, 2], 20.0)


when_due = st.integers(1, 9) | st.just(math.inf)


@given(
    due=st.lists(st.lists(when_due, min_size=7, max_size=7), min_size=1, max_size=12),
    quorum=st.integers(0, 8),
    least=st.integers(0, 7),
    deadline=st.integers(1, 9) | st.just(math.inf),
    began=st.integers(0, 3),
)
@example(
    due=[[math.inf] * number + [1, 2, 3, 4, 5, 6, 7][number:] for number in range(8)],
    quorum=7,
    least=0,
    deadline=math.inf,
    began=0,
)
def test_whom_a_draw_awaits_does_not_depend_on_others(
    due: list[list[float]], quorum: int, least: int, deadline: float, began: int
) -> None:
    """Replies one after the other: those up to the quorum, and after the deadline only up to the least number."""
    given_costs = dataclasses.replace(costs(*ASKED), quorum=quorum, least=least, deadline=deadline)
    ended, taken = waiting_seconds(np.array(due, float), given_costs, np.full(len(due), float(began)))
    for row, end, count in zip(due, ended.tolist(), taken.tolist(), strict=True):
        arrivals = sorted(each for each in row if each < math.inf)[:quorum]
        used = [each for place, each in enumerate(arrivals) if place < least or each <= began + deadline]
        over = began + deadline if len(used) < quorum and deadline < math.inf else began
        assert (end, count) == (max([began, over, *used]), len(used))


def test_a_round_that_asks_nobody_takes_no_time() -> None:
    nobody = RoundCosts(*(np.zeros(0, np.int64) for _ in range(4)), quorum=0, server_macs=0)
    clock = Clock(Draws(model(), seed=0, count=3))
    clock.ask(2, 0, nobody)
    assert clock.now.tolist() == [0.0] * 3


# --- without chance: every device below receives in 1.5 s, works as many seconds as it has MAC, sends in 3 s ---


def clock_of(devices: int, draws: int = 1) -> Clock:
    fleet = Fleet(devices=[{"count": devices, "mac_rate": 1.0, "setup_ratio": 0.0}], server_mac_rate=4.0)
    links = Links(down_rate=32.0, up_rate=16.0, d2d_rate=16.0, overhead=0.5, loss=0.0)
    return Clock(Draws(DelayModel.create(fleet, links), seed=0, count=draws))


def work(macs: dict[int, int], quorum: int, *, standing: bool = False) -> RoundCosts:
    each = np.full(len(macs), 32)
    devices, numbers = (np.array(list(column), np.int64) for column in (macs.keys(), macs.values()))
    return RoundCosts(devices, each, numbers, each, quorum, server_macs=0, standing=standing)


def test_replies_at_the_same_time_arrive_in_the_order_of_asking() -> None:
    clock = clock_of(4)
    clock.ask(1, 0, work({2: 4, 0: 4, 3: 4, 1: 4}, 3))
    assert clock.arrived[0].tolist() == [2, 0, 3]


def test_ties_between_old_and_new_questions() -> None:
    clock = clock_of(3)
    clock.ask(1, 0, work({0: 0, 2: 9}, 1))  # the reply of 2 is due at 13.5
    clock.ask(2, 0, work({1: 0, 0: 9}, 1, standing=True))  # at 4.5: that of 1 at 9, that of 0 at 18
    assert clock.now.tolist() == [9.0]
    clock.ask(3, 0, work({1: 0}, 2, standing=True))  # at 9: that of 1 at 13.5, too
    assert clock.arrived[0].tolist() == [2, 1]
    assert clock.idle.tolist() == [[False, True, True]]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_who_is_asked_again_arrives_after_who_was_asked_before(order: tuple[int, ...]) -> None:
    """The reply of 2 is due at 13.5. The others are asked at 4.5 + 2/4 = 5, and reply at 13.5, too."""
    clock = clock_of(3)
    clock.ask(1, 0, work({0: 0, 1: 0, 2: 9}, 2))
    clock.charge(2)
    asked = np.array([[device != 2 for device in order]])
    clock.ask(2, 0, work(dict.fromkeys(order, 4), 3, standing=True), asked)
    assert clock.arrived[0].tolist() == [2, *(device for device in order if device != 2)]
    assert clock.now.tolist() == [13.5]


def test_the_newest_order_of_asking_counts() -> None:
    clock = clock_of(3)
    for order in ([2, 0, 1], [0, 1, 2], [1, 2, 0]):
        clock.ask(1, 0, work(dict.fromkeys(order, 4), 3))
        assert clock.arrived[0].tolist() == order


def test_a_reply_is_used_once() -> None:
    """That of device 0 came at 4.5; the next round, of another device, does not end with it."""
    clock = clock_of(2)
    clock.ask(1, 0, work({0: 0}, 1))
    clock.ask(2, 0, work({1: 0}, 1, standing=True))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([1], [9.0])


def test_a_fleet_of_one() -> None:
    clock = clock_of(1)
    assert clock.durations(1, 0, work({0: 2}, 1)).tolist() == [[6.5]]
    assert clock.now.tolist() == [0.0], "no time passes"
    clock.ask(1, 0, work({0: 0}, 1))
    clock.ask(2, 0, work({0: 1}, 1))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([0], [10.0])


def test_what_arrives_while_the_server_computes_is_taken_when_it_is_done() -> None:
    clock = clock_of(2)
    clock.ask(1, 0, work({0: 0, 1: 1}, 1))
    clock.charge(40)  # 10 s: it is 14.5, and the reply of 1 was due at 5.5
    clock.ask(2, 0, work({0: 0}, 1, standing=True))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([1], [14.5])


def test_questions_that_do_not_stand_are_dropped() -> None:
    clock = clock_of(2)
    clock.ask(1, 0, work({0: 0, 1: 9}, 1))
    clock.ask(2, 0, work({0: 0}, 1))
    assert clock.now.tolist() == [9.0]
    clock.ask(3, 0, work({0: 9}, 1, standing=True))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([0], [22.5]), "1 was due at 13.5"


def test_dropped_devices_never_reply() -> None:
    clock = clock_of(2)
    clock.ask(1, 0, work({0: 0, 1: 9}, 1))
    clock.drop([1])
    clock.ask(2, 0, work({0: 9}, 2, standing=True))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([0], [18.0])


def test_dropping_closes_no_other_question() -> None:
    """Replies are due at 4.5 (taken), 5.5 and 6.5; the device of the first is dropped afterwards."""
    clock = clock_of(3)
    clock.ask(1, 0, work({0: 0, 1: 1, 2: 2}, 1))
    clock.drop([0])
    clock.ask(2, 0, work({}, 2, standing=True))
    assert (clock.arrived[0].tolist(), clock.now.tolist()) == ([1, 2], [6.5])


def test_who_is_asked_may_differ_from_draw_to_draw() -> None:
    clock = clock_of(3, draws=3)
    asked = np.array([[True, False, False], [False, True, True], [False, False, False]])
    clock.ask(2, 0, work({0: 1, 1: 2, 2: 3}, 3), asked)
    assert clock.now.tolist() == [5.5, 7.5, 0.0]
    assert [row.tolist() for row in clock.arrived] == [[0], [1, 2], []]


def test_time_of_an_end_does_not_change_afterwards() -> None:
    """Ends of epochs are kept; later hand-overs must not move them."""
    from network.test_transfers import forward
    from network.test_transfers import model as sharing

    clock = Clock(Draws(sharing(), seed=0, count=2), now=1.0)
    ends = clock.now
    clock.hand_over(2, [[forward(0, 1)]], parallel=False, rows=np.array([1]))
    assert ends.tolist() == [1.0, 1.0]
    assert clock.now[0] == 1.0
    assert clock.now[1] > 1.0


def test_time_passes_where_something_is_handed_over() -> None:
    """In the first of two draws: 3 s on the way and 1 s to add, with no loss and no setup."""
    from network.test_stages import model as lossless
    from network.test_transfers import forward

    clock = Clock(Draws(lossless(), seed=0, count=2), now=1.0)
    clock.hand_over(2, [[forward(0, 1)], []], parallel=False)
    assert clock.now.tolist() == [5.0, 1.0]


def test_time_passes_with_stages() -> None:
    """A parcel of 3 s alone, then two that overlap: 3 s and, after it, 3 s."""
    from network.test_stages import model as lossless
    from network.test_stages import parcel

    clock = Clock(Draws(lossless(), seed=0, count=2), now=1.0)
    clock.stages([OverlappingStage(0, [parcel(0, 1)])])
    assert clock.now.tolist() == [4.0, 4.0]
    clock.stages([OverlappingStage(1, [parcel(0, 1)]), OverlappingStage(2, [parcel(1, 2)], (1,))])
    assert clock.now.tolist() == [10.0, 10.0]
