"""The clock of sites in one process runs exactly while nobody works, whoever waits, is woken, or dies meanwhile."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from codedfl.deploy.protocol.carrier import Delivered, Host
from codedfl.testing.in_process import InProcessCarrier, StillClock

REAL_SECONDS = 20.0
"""After these a carrier counts as stuck; none takes them unless it is."""


class Waiting(Host):
    """Answers a request when it is told to, and until then waits for parcels that change nothing."""

    def __init__(self, carrier: InProcessCarrier) -> None:
        self._peers = carrier.peers("site")
        self.told, self.runs, self.waits = (defaultdict[bytes, threading.Event](threading.Event) for _ in range(3))
        """By request: whether it need not wait any more, whether its thread goes on, and whether it waits."""

    def handle(self, payload: bytes) -> bytes:
        with self._peers.waiting(lambda: not self.told[payload].is_set()):
            self.waits[payload].set()
            self.runs[payload].wait()
        return payload

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        return payload

    def go_on(self, payload: bytes) -> None:
        self.told[payload].set()
        self.runs[payload].set()

    def close(self) -> None:
        for payload in list(self.waits):
            self.go_on(payload)


class Given:
    """A carrier on a still clock, and its only site."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.carrier = InProcessCarrier(clock=self.clock)
        self.host = Waiting(self.carrier)
        self.carrier.attach("site", self.host)

    def ask(self, *requests: bytes) -> None:
        """Send requests, and see them wait."""
        for tag, request in enumerate(requests):
            self.carrier.send("site", request, tag)
            assert self.host.waits[request].wait(REAL_SECONDS)

    def next(self, meanwhile: Callable[[], None] = lambda: None) -> bytes | None:
        """Return the next reply within a second of the clock; fail where that would wait for ever."""
        found: list[Delivered | None] = []
        thread = threading.Thread(target=lambda: found.append(self.carrier.next(1.0)), daemon=True)
        thread.start()
        meanwhile()
        thread.join(REAL_SECONDS)
        assert found, "the carrier takes somebody to work for ever"
        return None if found[0] is None else found[0].payload


@pytest.fixture
def given() -> Iterator[Given]:
    made = Given()
    yield made
    made.carrier.close()


@pytest.mark.parametrize("first", [0, 1])
def test_two_requests_of_one_site_that_wait_at_once_are_counted_apart(first: int, given: Given) -> None:
    """As the request of an abandoned session, which ends late, beside that of the next one."""
    requests = [b"old", b"new"]
    given.ask(*requests)
    assert given.next() is None
    for number, request in enumerate([requests[first], requests[1 - first]]):
        given.host.go_on(request)
        assert given.next() == request
        assert given.clock() == 1.0 + number
        assert given.next() is None
        assert given.clock() == 2.0 + number


def test_a_parcel_that_wakes_nobody_lets_the_clock_run(given: Given) -> None:
    """As one to a site whose session is over, or was replaced."""
    given.ask(b"request")
    assert given.carrier.relay("other", "site", b"parcel") == b"parcel"
    assert given.next() is None
    assert given.clock() == 1.0


def test_no_time_passes_until_a_site_goes_on_that_need_not_wait_any_more(given: Given) -> None:
    """However long its thread takes to run again."""
    given.ask(b"request")
    given.host.told[b"request"].set()
    late = threading.Timer(0.3, given.host.runs[b"request"].set)
    assert given.next(late.start) == b"request"
    assert given.clock() == 0.0


def test_one_may_wait_within_a_wait_and_threads_of_no_request_do_not_count(given: Given) -> None:
    carrier, host = given.carrier, given.host
    with carrier.at_rest(lambda: False), carrier.at_rest():
        given.ask(b"request")
        assert given.next() is None

    inner, left, outer = (threading.Event() for _ in range(3))

    def question(site: str, tag: int, payload: bytes) -> None:
        with carrier.at_rest(lambda: not outer.is_set()):
            with carrier.at_rest(lambda: not inner.is_set()):
                left.wait(2 * REAL_SECONDS)
            outer.wait(2 * REAL_SECONDS)

    carrier.faults.question = question
    carrier.send("site", b"nested", 1)
    assert given.next() is None
    inner.set()
    assert given.next(threading.Timer(0.1, left.set).start) is None
    outer.set()
    host.go_on(b"request")
    assert given.next() == b"request"
    assert given.next() is None


def test_a_hook_that_fails_while_it_waits_leaves_nobody_behind(given: Given) -> None:
    carrier = given.carrier

    def question(site: str, tag: int, payload: bytes) -> bytes:
        with carrier.at_rest(lambda: False):
            raise RuntimeError("hook")

    carrier.faults.question = question
    carrier.send("site", b"request", 1)
    with pytest.raises(RuntimeError, match="hook"):
        carrier.next(1.0)
    carrier._failed = None
    assert given.next() is None


def test_a_carrier_that_is_closed_counts_no_further_request(given: Given) -> None:
    given.carrier.close()
    with pytest.raises(RuntimeError):
        given.carrier.send("site", b"request", 1)
    assert given.next() is None
