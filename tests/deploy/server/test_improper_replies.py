"""Answers of sites that must not count: improper, doubled, late, or another's."""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol import wire
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.channel import SiteRequest
from deploy.server.scripted import REPLY, Fleet, devices, made_fleets, question


@pytest.fixture
def make() -> Iterator[Callable[..., Fleet]]:
    yield from made_fleets()


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
PLACED = {"macs": [1], "beforehand": [0], "bits": [8], "working_seconds": 0.5}


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
