"""The carrier and peers over a route in memory: order, failures, cancellation, and recipients that are gone."""

import threading
from collections.abc import Callable
from typing import final

import pytest

from codedfl.deploy.flare import carrier as module
from codedfl.deploy.flare.carrier import PING, PRESENCE, FlareCarrier, FlarePeers, Route, RouteReply, Stop
from codedfl.deploy.protocol.carrier import Delivered
from codedfl.errors import EngineError

BEAT = 0.02


@final
class Memory(Route):
    """A route whose sites are functions; a site that is not there never answers, and waits until it is told to stop."""

    def __init__(self, **sites: Callable[[bytes], RouteReply]) -> None:
        self.sites = {name.replace("_", "-"): answer for name, answer in sites.items()}
        self.pinged: list[str] = []
        self.stopped = threading.Semaphore(0)
        self.restarted: list[str] = []

    def restart(self, site: str) -> None:
        """A site that is told to start does, and answers from then on."""
        self.restarted.append(site)
        if len(self.restarted) > 1:
            self.sites[site] = echo

    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> RouteReply:
        if topic in (PING, PRESENCE):
            self.pinged.append(site)
            return RouteReply(b"") if site in self.sites else RouteReply()
        if site in self.sites:
            return self.sites[site](payload)
        while not stop.triggered:
            threading.Event().wait(BEAT)
        self.stopped.release()
        return RouteReply()


def echo(payload: bytes) -> RouteReply:
    return RouteReply(payload)


def carrier(route: Route, ended: Callable[[], bool] = lambda: False) -> FlareCarrier:
    return FlareCarrier(route, ended)


def strip(delivered: Delivered | None) -> tuple[str, int, bytes | None]:
    assert delivered is not None
    assert delivered.seconds >= 0
    return delivered.site, delivered.tag, delivered.payload


def test_a_lost_site_is_started_again_and_told_once_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_EVERY", 0.0)
    monkeypatch.setattr(module, "POLL", BEAT)
    route = Memory(one=echo)
    carry = carrier(route)
    assert carry.present(["one", "two"], BEAT) == ["one"]
    assert carry.returned(["two"]) == []
    found: list[str] = []
    while not found:
        found += carry.returned(["two"])
    assert (found, route.restarted) == (["two"], ["two", "two"])
    carry.close()


def test_every_question_is_answered_once_with_its_own_tag() -> None:
    carry = carrier(Memory(one=echo, two=echo))
    questions = {("one", 1, b"a"), ("one", 2, b"b"), ("two", 1, b"c"), ("two", 7, b"")}
    for site, tag, payload in questions:
        carry.send(site, payload, tag)
    assert {strip(carry.next(None)) for _ in questions} == questions
    assert carry.next(None) is None
    assert carry.next(0) is None
    carry.close()


def test_replies_come_in_the_order_of_their_arrival() -> None:
    late, early = threading.Event(), threading.Event()

    def wait_for(event: threading.Event) -> Callable[[bytes], RouteReply]:
        return lambda payload: RouteReply(payload) if event.wait() else RouteReply()

    carry = carrier(Memory(late=wait_for(late), early=wait_for(early)))
    carry.send("late", b"1", 0)
    carry.send("early", b"2", 0)
    assert carry.next(0) is None
    early.set()
    assert strip(carry.next(None)) == ("early", 0, b"2")
    assert carry.next(BEAT) is None
    late.set()
    assert strip(carry.next(None)) == ("late", 0, b"1")
    carry.close()


def test_a_site_that_cannot_be_reached_is_reported() -> None:
    carry = carrier(Memory(broken=lambda _: RouteReply(), wordy=lambda _: RouteReply(problem="no")))
    carry.send("broken", b"?", 3)
    assert strip(carry.next(None)) == ("broken", 3, None)
    carry.send("wordy", b"?", 4)
    assert strip(carry.next(None)) == ("wordy", 4, None)
    carry.close()


def test_a_reply_after_closing_is_not_delivered() -> None:
    finish, done = threading.Event(), threading.Event()

    def answer(payload: bytes) -> RouteReply:
        finish.wait()
        done.set()
        return RouteReply(payload)

    carry = carrier(Memory(site=answer))
    carry.send("site", b"1", 0)
    carry.close()
    finish.set()
    assert done.wait(30)
    assert carry.next(5 * BEAT) is None


def test_ready_waits_for_sites_that_come_later() -> None:
    route = Memory(one=echo)
    threading.Timer(3 * BEAT, lambda: route.sites.update(two=echo)).start()
    carry = carrier(route)
    carry.ready(["one", "two"], 60)
    carry.close()


def test_ready_names_who_is_missing() -> None:
    with pytest.raises(EngineError, match=r"no answer within .* from two, three;"):
        carrier(Memory(one=echo)).ready(["one", "two", "three"], 5 * BEAT)


def test_ready_says_why_a_site_cannot_start() -> None:
    @final
    class Unfit(Route):
        def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> RouteReply:
            return RouteReply(problem="its data is not there") if site == "two" else RouteReply(b"")

    with pytest.raises(EngineError, match=r"cannot start: two \(its data is not there\)"):
        carrier(Unfit()).ready(["one", "two"], 60)


def test_a_job_that_was_ended_raises() -> None:
    ended = threading.Event()
    carry = carrier(Memory(), ended.is_set)
    carry.send("gone", b"", 0)
    ended.set()
    with pytest.raises(EngineError, match="job was aborted"):
        carry.next(None)
    with pytest.raises(EngineError, match="job was aborted"):
        carry.ready(["gone"], 60)
    carry.close()


def test_closing_gives_up_what_is_open_and_may_be_done_twice() -> None:
    route = Memory()
    carry = carrier(route)
    carry.send("gone", b"", 0)
    carry.close()
    carry.close()
    assert route.stopped.acquire(timeout=30)
    assert carry.next(None) is None


def peers(route: Route) -> FlarePeers:
    return FlarePeers(route, 3600.0, ping_every=BEAT, misses=2)


def test_a_parcel_to_who_is_gone_is_given_up() -> None:
    route = Memory()
    with pytest.raises(EngineError, match="one did not accept a parcel"):
        peers(route).send("one", b"parcel")
    assert route.pinged == ["one", "one"]


def test_a_parcel_to_who_is_slow_is_not() -> None:
    route = Memory()

    def slowly(payload: bytes) -> RouteReply:
        while len(route.pinged) < 5:
            threading.Event().wait(BEAT)
        return RouteReply(payload)

    route.sites["one"] = slowly
    assert peers(route).send("one", b"parcel") == b"parcel"
    asked = len(route.pinged)
    threading.Event().wait(5 * BEAT)
    assert len(route.pinged) <= asked + 1, "nobody is looked at any more"
