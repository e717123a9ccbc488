"""The remote engine by hand: sites that answer when they are told to, go silent, or cannot be reached."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import SiteRequest
from codedfl.schemes import Round
from deploy.server.scripted import REPLY, Fleet, devices, made_fleets, question


@pytest.fixture
def make() -> Iterator[Callable[..., Fleet]]:
    yield from made_fleets()


def test_replies_and_costs_are_what_came_back(make: Callable[..., Fleet]) -> None:
    """Three float32 rows of four down (128 bits each), two float64 up (128 bits), 20 MAC each in epoch 2."""
    fleet = make()
    answer = fleet.ask(question(2, [2, 0]), 2)
    assert devices(answer) == {0, 2}
    assert all(reply.message["answer"].tolist() == [2.0, 2.0] for reply in answer.replies)
    costs = answer.costs
    assert (costs.asked.tolist(), costs.down_bits.tolist()) == ([2, 0], [128, 128])
    assert (costs.up_bits.tolist(), costs.macs.tolist()) == ([128, 128], [20, 20])
    assert (answer.lost, fleet.hosts[1].asked, fleet.channel.refused) == ((), [], [])


def test_records_hold_every_question(make: Callable[..., Fleet]) -> None:
    """Bits as carried are more than the payload; who was not awaited has no seconds."""
    fleet = make(2)
    fleet.hosts[1].hold(1)
    fleet.ask(question(1, [0, 1]), 1)
    records = fleet.engine.records
    assert (records["epoch"].tolist(), records["device"].tolist()) == ([1, 1], [0, 1])
    assert (np.isnan(records["seconds"]).tolist(), records["up_bits"][1], records["macs"][1]) == ([False, True], 0, 0)
    assert (records["working_seconds"][0], records["macs"][0]) == (0.5, 10)
    assert min(records["down_bits"]) > 128 < records["up_bits"][0]


def test_enough_is_enough_and_late_answers_are_no_offence(make: Callable[..., Fleet]) -> None:
    fleet = make()
    gate = fleet.hosts[1].hold(1)
    assert devices(fleet.ask(question(1, [0, 1, 2]), 2)) == {0, 2}
    gate.set()
    second = fleet.ask(question(2, [0, 1, 2]), 3)
    assert [reply.message["answer"].tolist() for reply in second.replies] == [[2.0, 2.0]] * 3
    assert (fleet.channel.refused, second.lost) == ([], ())


def test_open_questions_are_answered_in_a_standing_round(make: Callable[..., Fleet]) -> None:
    fleet = make(2)
    gate = fleet.hosts[1].hold(1)
    fleet.ask(question(1, [0, 1]), 1)
    fleet.ask(question(2, [0], standing=True), 1)
    gate.set()
    answer = fleet.ask(question(3, [0], standing=True), 2)
    assert {reply.device: reply.message["answer"][0] for reply in answer.replies} == {0: 3.0, 1: 1.0}


def test_an_answer_between_rounds_is_not_lost(make: Callable[..., Fleet]) -> None:
    """Both are open when the first has replied; the second reply arrives while the server does other things."""
    fleet = make(2)
    gate = fleet.hosts[1].hold(1)
    fleet.ask(question(1, [0, 1]), 1)
    gate.set()
    fleet.channel.ask_all({0: SiteRequest("reply", {"epoch": 9}, {}, REPLY)})
    while fleet.channel.awaited(1):
        fleet.channel.poll()
    answer = fleet.ask(question(2, [], standing=True), 1)
    assert [(reply.device, reply.message["answer"][0]) for reply in answer.replies] == [(1, 1.0)]


def test_a_deadline_ends_a_round_with_the_replies_that_are_there(make: Callable[..., Fleet]) -> None:
    fleet = make()
    fleet.hosts[1].hold(1)
    answer = fleet.ask(question(1, [0, 1, 2], deadline=0.3), 3)
    assert devices(answer) == {0, 2}
    assert (answer.costs.deadline, answer.lost, fleet.channel.lost) == (0.3, (), {})
    assert fleet.engine.now == 0.3


def test_after_the_deadline_the_least_is_awaited(make: Callable[..., Fleet]) -> None:
    """Nobody is there at the deadline; device 1 answers when it has been pinged, long after."""
    fleet = make(2)
    for host in fleet.hosts:
        host.hold(1)
    fleet.hosts[1].open_at_ping = 1
    assert devices(fleet.ask(question(1, [0, 1], deadline=0.01), 2, least=1)) == {1}
    assert fleet.engine.now > 0.01


def test_a_question_to_nobody_ends_at_once(make: Callable[..., Fleet]) -> None:
    answer = make().ask(Round(1, {}), 0)
    assert (answer.replies, len(answer.costs.asked)) == ((), 0)


def test_a_resumed_run_goes_on_with_its_time_and_open_questions(make: Callable[..., Fleet]) -> None:
    """Asked again 60 s after it was first asked (at 40 s, now it is 100 s): the seconds count from there."""
    fleet = make(2, now=100.0)
    assert fleet.engine.now >= 100.0
    fleet.engine.reopen(question(3, [1]), 40.0)
    answer = fleet.ask(question(4, [0], standing=True), 2)
    by_device = {reply.device: reply for reply in answer.replies}
    assert by_device[1].message["answer"].tolist() == [3.0, 3.0]
    assert by_device[1].seconds >= 60.0 > by_device[0].seconds


def test_scaled_time_counts_in_the_seconds_of_the_scenario(make: Callable[..., Fleet]) -> None:
    """What took 0.5 s of work on a machine that is a hundred times faster than the emulated one took 50."""
    fleet = make(1, now=7.0, time_scale=0.01)
    fleet.ask(question(1, [0]), 1)
    assert fleet.engine.records["working_seconds"].tolist() == [50.0]
    assert fleet.engine.now >= 7.0


def test_a_site_that_cannot_be_reached_is_lost_and_not_asked_again(make: Callable[..., Fleet]) -> None:
    fleet = make()
    fleet.faults.unreachable.add("site-1")
    answer = fleet.ask(question(1, [0, 1, 2]), 3)
    assert (devices(answer), answer.lost) == ({0, 2}, (1,))
    fleet.faults.unreachable.clear()
    again = fleet.ask(question(2, [0, 1, 2]), 3)
    assert (devices(again), again.lost, again.costs.asked.tolist()) == ({0, 2}, (1,), [0, 2])
    assert fleet.hosts[1].asked == []


def test_a_silent_site_is_lost_and_a_slow_one_is_not(make: Callable[..., Fleet]) -> None:
    """Both owe an answer for longer than the patience; one of them answers pings."""
    fleet = make(patience=1.0)
    fleet.faults.silent.add("site-1")
    fleet.hosts[2].hold(1)
    fleet.hosts[2].open_at_ping = 20
    answer = fleet.ask(question(1, [0, 1, 2]), 3)
    assert (devices(answer), answer.lost) == ({0, 2}, (1,))
    assert fleet.engine.now > 2.0
    assert "no sign of life" in fleet.channel.lost[1]


def test_a_loss_is_shown_while_others_are_awaited(make: Callable[..., Fleet]) -> None:
    shown: list[list[str]] = []

    def show(table: dict[str, Any]) -> None:
        if not gate.is_set():
            shown.append([row["state"] for row in table["devices"]])

    fleet = make(patience=1.0, board=Board(["site-0", "site-1", "site-2"], show))
    fleet.faults.silent.add("site-1")
    gate = fleet.hosts[2].hold(1)
    fleet.hosts[2].open_at_ping = 20
    fleet.ask(question(1, [0, 1, 2]), 3)
    assert shown[-1] == ["replied", "lost", "working"]


def test_who_answers_pings_for_ever_and_nothing_else_is_lost(make: Callable[..., Fleet]) -> None:
    fleet = make(2, patience=1.0, longest=1.5)
    fleet.hosts[1].hold(1)
    assert fleet.ask(question(1, [0, 1]), 2).lost == (1,)
    assert "no answer for 1.5 s" in fleet.channel.lost[1]


def test_a_request_of_several_steps_may_take_as_long_as_all_of_them(make: Callable[..., Fleet]) -> None:
    fleet = make(2, patience=1.0, longest=1.5)
    fleet.hosts[1].hold(1)
    assert fleet.channel.ask_all({1: SiteRequest("reply", {"epoch": 1}, steps=4)}) == {}
    assert "no answer for 6 s" in fleet.channel.lost[1]


@pytest.mark.parametrize("stops", [True, False])
def test_a_request_that_is_given_up_is_awaited_no_longer_than_patience(stops: bool, make: Callable[..., Fleet]) -> None:
    """One site cannot be reached; the other is told to stop, and answers that or nothing but pings.

    It may have to finish what it computes; a site that does not even answer what takes no time is lost.
    """
    fleet = make(2, patience=1.0, longest=3600.0)
    fleet.faults.unreachable.add("site-0")
    fleet.hosts[1].hold(1)
    if not stops:
        fleet.hosts[1].hold(2)
    request, stop = SiteRequest("reply", {"epoch": 1}, steps=1000), SiteRequest("reply", {"epoch": 2}, steps=0)
    assert fleet.channel.ask_all({0: request, 1: request}, if_one_fails={1: stop}) == {}
    assert fleet.channel.lost.get(1) == (None if stops else "no answer for 1 s")
    assert fleet.clock() < 3.0
    fleet.hosts[1].close()
    with fleet.carrier._changed:
        assert fleet.carrier._changed.wait_for(lambda: not fleet.carrier._requests, timeout=60)
    fleet.channel.poll()
    assert fleet.channel.refused == [], "what is late was given up, and nobody is to blame for it"


def test_a_question_within_another_is_over_when_its_site_is_lost(make: Callable[..., Fleet]) -> None:
    """Other sites are still working on the first one, and wait for the lost site."""
    fleet, looks = make(2, patience=1.0, longest=1000.0), []
    for host in fleet.hosts:
        host.hold(1)

    def look() -> None:
        fleet.faults.silent.add("site-1")
        looks.append(fleet.channel.ask_all({1: SiteRequest("reply", {"epoch": 2}, steps=0)}))

    request, stop = SiteRequest("reply", {"epoch": 1}), SiteRequest("reply", {"epoch": 3}, steps=0)
    assert fleet.channel.ask_all({0: request, 1: request}, if_one_fails={0: stop, 1: stop}, if_quiet=look) == {}
    assert looks == [{}]
    assert fleet.clock() < 5.0
    assert [*fleet.channel.lost] == [1]


def test_a_site_that_goes_silent_unawaited_is_noticed_in_later_rounds(make: Callable[..., Fleet]) -> None:
    """Nobody waits for it, every round is over in no time, and still its silence adds up."""
    fleet = make(2, patience=0.5)
    fleet.faults.silent.add("site-1")
    for epoch in range(1, 10):
        fleet.ask(question(epoch, [0, 1]), 1)
        fleet.clock.advance(0.1)
    assert (list(fleet.channel.lost), fleet.hosts[0].asked) == ([1], list(range(1, 10)))
    assert 1 not in fleet.engine.records["device"][-2:], "the lost are not asked again"


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_that_was_busy_itself_loses_nobody_for_it(answers: bool, make: Callable[..., Fleet]) -> None:
    """It awaits one of two and computes for an hour; the other has answered meanwhile, or is still at work."""
    fleet = make(2, patience=30.0, longest=1e5)
    gate = fleet.hosts[1].hold(1)
    fleet.ask(question(1, [0, 1]), 1)
    if answers:
        gate.set()
    fleet.clock.advance(3600.0)
    fleet.hosts[1].open_at_ping = 1
    assert devices(fleet.ask(question(2, [0, 1]), 2)) == {0, 1}
    assert fleet.channel.lost == {}


def test_farewell_is_said_to_all_who_were_asked_and_are_there(make: Callable[..., Fleet]) -> None:
    fleet = make(3)
    fleet.ask(question(1, [0, 1]), 2)
    told: list[Any] = []

    def ear(site: str, tag: int, payload: bytes) -> bytes | None:
        frame = decode(payload)
        told.append((site, frame.kind, frame.fields.get("stage")))
        return encode(Frame("ping", frame.fields))

    fleet.faults.question = ear
    fleet.channel.mark_lost(1, "gone")
    fleet.channel.end_session()
    assert told == [("site-0", "forget", None)]
