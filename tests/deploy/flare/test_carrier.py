"""The carrier over a route in memory: order, failures, who is slow and who is gone, and giving up."""

import threading
from collections.abc import Callable
from typing import final

import pytest

from codedfl.deploy.flare.carrier import PING, FlareCarrier, Heard, Route, Stop
from codedfl.deploy.flare.executor import THERE, FlarePeers
from codedfl.deploy.protocol.carrier import Delivered
from codedfl.errors import EngineError

BEAT = 0.02


@final
class Memory(Route):
    """A route whose sites are functions; a site that is not there never answers, and waits until it is told to stop."""

    def __init__(self, **sites: Callable[[bytes], Heard]) -> None:
        self.sites = {name.replace("_", "-"): answer for name, answer in sites.items()}
        self.pinged: list[str] = []
        self.stopped = threading.Semaphore(0)

    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> Heard:
        if topic in (PING, THERE):
            self.pinged.append(site)
            return Heard(b"") if site in self.sites else Heard()
        if site in self.sites:
            return self.sites[site](payload)
        while not stop.triggered:
            threading.Event().wait(BEAT)
        self.stopped.release()
        return Heard()


def echo(payload: bytes) -> Heard:
    return Heard(payload)


def carrier(route: Route, ended: Callable[[], bool] = lambda: False) -> FlareCarrier:
    return FlareCarrier(route, ended, beat=BEAT, misses=2)


def strip(delivered: Delivered | None) -> tuple[str, int, bytes | None]:
    assert delivered is not None
    assert delivered.seconds >= 0
    return delivered.site, delivered.tag, delivered.payload


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

    def wait_for(event: threading.Event) -> Callable[[bytes], Heard]:
        return lambda payload: Heard(payload) if event.wait() else Heard()

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
    carry = carrier(Memory(broken=lambda _: Heard(), wordy=lambda _: Heard(problem="no")))
    carry.send("broken", b"?", 3)
    assert strip(carry.next(None)) == ("broken", 3, None)
    carry.send("wordy", b"?", 4)
    assert strip(carry.next(None)) == ("wordy", 4, None)
    carry.close()


def test_who_answers_pings_is_slow_and_who_does_not_is_gone() -> None:
    finish = threading.Event()
    route = Memory(slow=lambda payload: Heard(payload) if finish.wait() else Heard())
    carry = carrier(route)
    carry.send("slow", b"1", 0)
    carry.send("gone", b"2", 0)
    carry.send("gone", b"3", 1)
    assert {strip(carry.next(None)), strip(carry.next(None))} == {("gone", 0, None), ("gone", 1, None)}
    assert route.stopped.acquire(timeout=30)  # the request that waited was told to give up
    while route.pinged.count("slow") < 5:
        assert carry.next(BEAT) is None
    finish.set()
    assert strip(carry.next(None)) == ("slow", 0, b"1")
    assert carry.next(0) is None
    carry.close()


def test_a_reply_after_giving_up_is_not_delivered() -> None:
    finish, done = threading.Event(), threading.Event()

    def answer(payload: bytes) -> Heard:
        finish.wait()
        done.set()
        return Heard(payload)

    route = Memory(site=answer)
    carry = carrier(route)
    carry.send("site", b"1", 0)
    answers = route.sites.copy()
    route.sites.clear()  # pings are no longer answered
    assert strip(carry.next(None)) == ("site", 0, None)
    route.sites.update(answers)
    finish.set()
    assert done.wait(30)
    assert carry.next(5 * BEAT) is None
    carry.close()


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
        def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> Heard:
            return Heard(problem="its data is not there") if site == "two" else Heard(b"")

    with pytest.raises(EngineError, match=r"cannot start: two \(its data is not there\)"):
        carrier(Unfit()).ready(["one", "two"], 60)


def test_a_job_that_was_ended_raises() -> None:
    ended = threading.Event()
    carry = carrier(Memory(), ended.is_set)
    carry.send("gone", b"", 0)
    ended.set()
    with pytest.raises(EngineError, match="ended from outside"):
        carry.next(None)
    with pytest.raises(EngineError, match="ended from outside"):
        carry.ready(["gone"], 60)
    carry.close()


def test_closing_gives_up_what_is_open_and_may_be_done_twice() -> None:
    route = Memory()
    carry = FlareCarrier(route, lambda: False, beat=60.0)
    carry.send("gone", b"", 0)
    carry.close()
    carry.close()
    assert route.stopped.acquire(timeout=30)
    assert carry.next(None) is None


def peers(route: Route) -> FlarePeers:
    return FlarePeers(route, 3600.0, beat=BEAT, misses=2)


def test_a_parcel_to_who_is_gone_is_given_up() -> None:
    route = Memory()
    with pytest.raises(EngineError, match="one did not take a parcel"):
        peers(route).send("one", b"parcel")
    assert route.pinged == ["one", "one"]


def test_a_parcel_to_who_is_slow_is_not() -> None:
    route = Memory()

    def slowly(payload: bytes) -> Heard:
        while len(route.pinged) < 5:
            threading.Event().wait(BEAT)
        return Heard(payload)

    route.sites["one"] = slowly
    assert peers(route).send("one", b"parcel") == b"parcel"
    asked = len(route.pinged)
    threading.Event().wait(5 * BEAT)
    assert len(route.pinged) <= asked + 1, "nobody is looked at any more"
