"""The remote engine by hand: sites that answer when they are told to, and answers that must not count."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol import wire
from codedfl.deploy.protocol.carrier import Host
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel, SiteRequest
from codedfl.deploy.server.remote import RemoteEngine
from codedfl.engines.contract import Answer
from codedfl.schemes import Round, layout
from codedfl.testing.in_process import Faults, InProcessCarrier, StillClock


class Scripted(Host):
    """Answers the epoch it was asked in, as soon as its gate for that epoch is open."""

    def __init__(self, carrier: InProcessCarrier) -> None:
        self._carrier = carrier
        self.closed_gates: dict[int, threading.Event] = {}
        self.asked: list[int] = []
        self.pings = 0
        self.open_at_ping = 0

    def hold(self, epoch: int) -> threading.Event:
        """Let the answer to an epoch wait until the event that is returned."""
        return self.closed_gates.setdefault(epoch, threading.Event())

    def handle(self, payload: bytes) -> bytes:
        frame = decode(payload)
        echo = {name: frame.fields[name] for name in ("session", "number")}
        if frame.kind == "ping":
            self.pings += 1
            if self.pings == self.open_at_ping:
                self.close()
            return encode(Frame("answer", echo))
        epoch = int(frame.fields["epoch"])
        self.asked.append(epoch)
        if epoch in self.closed_gates:
            with self._carrier.at_rest():
                self.closed_gates[epoch].wait()
        fields = {**echo, "macs": 10 * epoch, "working_seconds": 0.5}
        return encode(Frame("answer", fields, {"answer": np.full(2, epoch, np.float64)}))

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        raise AssertionError("nobody sends parcels here")

    def close(self) -> None:
        for gate in self.closed_gates.values():
            gate.set()


class Fleet:
    """An engine on scripted sites."""

    def __init__(self, count: int = 3, *, patience: float = 30.0, longest: float = 60.0, **options: Any) -> None:
        self.sites = [f"site-{number}" for number in range(count)]
        self.faults, self.clock = Faults(), StillClock()
        self.carrier = InProcessCarrier(self.faults, clock=self.clock)
        self.hosts = [Scripted(self.carrier) for _ in self.sites]
        for site, host in zip(self.sites, self.hosts, strict=True):
            self.carrier.attach(site, host)
        self.channel = Channel(self.carrier, self.sites, patience=patience, longest=longest, clock=self.clock)
        self.engine = RemoteEngine(self.channel, **options)

    def ask(self, question: Round, count: int, *, least: int = 0) -> Answer:
        return self.engine.ask(dataclasses.replace(question, quorum=count, least=least), offline=False)


@pytest.fixture
def make() -> Any:
    fleets: list[Fleet] = []

    def made(*arguments: Any, **options: Any) -> Fleet:
        fleets.append(Fleet(*arguments, **options))
        return fleets[-1]

    yield made
    for each in fleets:
        each.carrier.close()


REPLY = layout({"answer": np.zeros(2)})


def question(epoch: int, devices: Sequence[int], **more: Any) -> Round:
    requests = {device: {"request": np.zeros(4, np.float32)} for device in devices}
    return Round(epoch, requests, expected=dict.fromkeys(devices, REPLY), **more)


def devices(answer: Answer) -> set[int]:
    return {reply.device for reply in answer.replies}


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


def changed(**changes: Any) -> Callable[[bytes], list[bytes]]:
    """Return what alters a frame: ``kind``, ``fields`` (added) or ``arrays``."""

    def change(payload: bytes) -> list[bytes]:
        frame = decode(payload)
        fields = {**frame.fields, **changes.get("fields", {})}
        arrays = changes.get("arrays", frame.arrays)
        return [encode(Frame(changes.get("kind", frame.kind), fields, arrays))]

    return change


IMPROPER = {
    "garbage": lambda payload: [b"garbage"],
    "empty": lambda payload: [b""],
    "cut": lambda payload: [payload[:-1]],
    "longer": lambda payload: [payload + b"\0"],
    "error": changed(kind="error", fields={"reason": "it has no data"}),
    "another kind": changed(kind="superseded"),
    "wrong shape": changed(arrays={"answer": np.zeros((1, 2))}),
    "one number": changed(arrays={"answer": np.zeros(1)}),
    "wrong format": changed(arrays={"answer": np.zeros(2, np.float32)}),
    "wrong name": changed(arrays={"other": np.zeros(2)}),
    "one too many": changed(arrays={"answer": np.zeros(2), "more": np.zeros(2)}),
    "nothing": changed(arrays={}),
    "not a number": changed(arrays={"answer": np.array([0.0, np.nan])}),
    "infinite": changed(arrays={"answer": np.array([0.0, -np.inf])}),
    "no work": changed(fields={"macs": None}),
    "negative work": changed(fields={"macs": -1}),
    "work in words": changed(fields={"working_seconds": "long"}),
    "no time": changed(fields={"working_seconds": None}),
    "all time": changed(fields={"working_seconds": 10**400}),
    "boundless work": changed(fields={"macs": 1 << 60}),
    "far too long": changed(arrays={"answer": np.zeros(1 << 20)}),
}


@pytest.mark.parametrize("kind", IMPROPER)
def test_an_improper_answer_counts_as_none_and_loses_the_site(
    kind: str, make: Callable[..., Fleet], caplog: pytest.LogCaptureFixture
) -> None:
    fleet = make()
    fleet.faults.reply = lambda site, tag, payload: IMPROPER[kind](payload) if site == "site-1" else [payload]
    with caplog.at_level(logging.WARNING):
        answer = fleet.ask(question(1, [0, 1, 2]), 3)
    assert (devices(answer), answer.lost) == ({0, 2}, (1,))
    assert len(fleet.channel.refused) == 1
    assert fleet.channel.refused[0].startswith("site-1: ")
    assert "site-1" in caplog.text


def test_a_second_answer_is_refused(make: Callable[..., Fleet]) -> None:
    fleet = make()
    fleet.hosts[2].hold(1)
    fleet.hosts[2].open_at_ping = 1
    fleet.faults.reply = lambda site, tag, payload: [payload, payload] if site == "site-1" else [payload]
    answer = fleet.ask(question(1, [0, 1, 2]), 3)
    assert sorted(reply.device for reply in answer.replies) == [0, 1, 2]
    assert ["answers twice" in reason for reason in fleet.channel.refused] == [True]


def test_a_question_that_came_twice_is_answered_once(make: Callable[..., Fleet]) -> None:
    """A network doubles it: the site says so of the second, and the answer to the first counts."""
    fleet = make(2)
    twice = changed(kind="repeated", arrays={})
    fleet.faults.reply = lambda site, tag, payload: [*twice(payload), payload] if site == "site-1" else [payload]
    assert devices(fleet.ask(question(1, [0, 1]), 2)) == {0, 1}
    assert ["come to it twice" in reason for reason in fleet.channel.refused] == [True]


def test_what_sites_say_is_kept_in_one_short_line(make: Callable[..., Fleet]) -> None:
    fleet = make(2)
    loud = changed(kind="error", fields={"reason": "first\nsecond \ud800" + "x" * 10**6})
    fleet.faults.reply = lambda site, tag, payload: loud(payload) if site == "site-1" else [payload]
    fleet.ask(question(1, [0, 1]), 2)
    assert fleet.channel.lost[1].startswith("first second ?xxx")
    assert max(len(fleet.channel.lost[1]), len(fleet.channel.refused[0])) < 400


def test_an_answer_to_an_older_question_is_refused_and_the_right_one_taken(make: Callable[..., Fleet]) -> None:
    fleet = make()
    old: list[bytes] = []

    def stale(site: str, tag: int, payload: bytes) -> list[bytes]:
        if site == "site-1":
            old.append(payload)
            return [old[0], payload] if len(old) > 1 else [payload]
        return [payload]

    fleet.faults.reply = stale
    fleet.ask(question(1, [0, 1, 2]), 3)
    answer = fleet.ask(question(2, [0, 1, 2]), 3)
    assert {reply.message["answer"][0] for reply in answer.replies} == {2.0}
    assert ["another request" in reason for reason in fleet.channel.refused] == [True]


def test_who_answers_another_question_only_is_not_awaited_for_ever(make: Callable[..., Fleet]) -> None:
    """It goes on answering pings; the right answer may still come for as long as the patience lasts."""
    fleet = make(2, patience=1.0, longest=1000.0)
    other = changed(fields={"number": 0})
    fleet.faults.reply = lambda site, tag, payload: (
        other(payload) if site == "site-1" and "macs" in decode(payload).fields else [payload]
    )
    answer = fleet.ask(question(1, [0, 1]), 2)
    assert (devices(answer), answer.lost) == ({0}, (1,))
    assert 1.0 < fleet.engine.now < 10.0
    assert "another request" in fleet.channel.lost[1]


def test_an_answer_of_another_session_is_refused(make: Callable[..., Fleet]) -> None:
    fleet = make(2, patience=1.0, longest=1.0)
    other = changed(fields={"session": "0" * 32})
    fleet.faults.reply = lambda site, tag, payload: other(payload) if site == "site-1" else [payload]
    assert devices(fleet.ask(question(1, [0, 1]), 2)) == {0}
    assert "another request" in fleet.channel.refused[0]


def test_a_site_cannot_answer_for_another(make: Callable[..., Fleet]) -> None:
    """The carrier brings site-1's answer under the tag of site-0's question."""
    fleet = make(2)
    gate = fleet.hosts[0].hold(1)
    bring = fleet.carrier.next

    def swapped(timeout: float | None) -> Any:
        delivered = bring(timeout)
        if delivered is not None and delivered.site == "site-1" and not gate.is_set():
            gate.set()
            return dataclasses.replace(delivered, tag=delivered.tag - 1)
        return delivered

    fleet.carrier.next = swapped  # type: ignore[method-assign]
    answer = fleet.ask(question(1, [0, 1]), 1)
    assert (devices(answer), len(fleet.channel.refused)) == ({0}, 1)
    assert "is not open" in fleet.channel.refused[0]


WORKED = {"macs": 1, "working_seconds": 0.5}
PLACED = {"macs": [1], "bits": [8], "working_seconds": 0.5}


@pytest.mark.parametrize(
    ("asked", "fields", "most"),
    [
        (SiteRequest("reply", {"epoch": 1}, {}, REPLY), WORKED, 16),
        (SiteRequest("describe", {"epoch": 1}), {}, 0),
        (SiteRequest("prepare", {"epoch": 1}), WORKED, 0),
        (SiteRequest("absorb", {"epoch": 1, "parcels": [0]}), PLACED, 0),
        (SiteRequest("reply", {"epoch": 1}), WORKED, None),
        (SiteRequest("export", {"epoch": 1, "parcels": [0]}), PLACED, None),
    ],
    ids=["reply", "describe", "prepare", "absorb", "any reply", "export"],
)
@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_is_no_larger_than_what_was_asked_for(
    make: Callable[..., Fleet], asked: SiteRequest, fields: dict[str, Any], most: int | None, more: int
) -> None:
    """Two float64, no array, or parcels of any size; beside a header of its largest size, one byte more is too many."""
    fleet = make(1)

    def full(site: str, tag: int, payload: bytes) -> list[bytes]:
        echo = {name: decode(payload).fields[name] for name in ("session", "number")}
        answer = {} if most == 0 else {"answer": np.zeros(2)}
        bare = len(encode(Frame("answer", {**echo, **fields, "filler": ""}, answer)))
        room = 8 + wire._LARGEST_HEADER + (16 if most is None else most) - bare
        return [encode(Frame("answer", {**echo, **fields, "filler": "x" * room}, answer)) + bytes(more)]

    fleet.faults.reply = full
    heard = fleet.channel.ask_all({0: asked})
    assert heard.keys() == ({0} if more == 0 else set())
    if more and most is not None:
        assert "bytes are not a message" in fleet.channel.lost[0], "refused before it is read"
    elif more:
        assert "1 bytes too many" in fleet.channel.lost[0], "read, as any size may come"


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
