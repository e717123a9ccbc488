"""Both ends of the transport over FLARE: :class:`FlareCarrier` at the server, :class:`FlarePeers` at a device.

How a single message travels is left to a :class:`Route`. Whether a silent site is lost is decided by the server's
channel, which pings sites over the same carrier.
"""

import math
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.protocol.carrier import Carrier, Delivered, Peers
from codedfl.errors import EngineError

PING, REQUEST = "ping", "question"
"""Topics of the server's messages: whether the site's host is running, and requests for it."""

PEER, PRESENCE = "peer", "there"
"""Topics of other devices' messages: a parcel, and whether the site is running."""

POLL = 0.2
"""Seconds between checks whether the job was aborted."""

LONGEST_REQUEST = 86400.0
"""Seconds after which FLARE gives up a request."""

RESTART_EVERY, LONGEST_WAIT = 3.0, 10.0
"""Seconds between two requests to start the job's process at a lost site again, and at most between two pings."""

FIRST_RESTART = 20.0
"""Seconds in which FLARE should have started the job's process at every site."""

PING_EVERY, MISSES, LONGEST_PING = 10.0, 3, 30.0
"""Seconds between pings of a recipient, how many must fail in a row, and how long one may take behind parcels."""


@final
@dataclass(eq=False)
class Stop:
    """Cancels a waiting request; FLARE reads ``triggered``."""

    triggered: bool = False


@dataclass(frozen=True)
class RouteReply:
    """What a site returned: bytes, or the reason why it cannot, or neither without an answer."""

    payload: bytes | None = field(default=None, repr=False)
    problem: str | None = None


class Route(ABC):
    """Carries one message to a site and its answer back; thread-safe."""

    @abstractmethod
    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> RouteReply:
        """Send a message and wait for the answer; never raise."""

    def restart(self, site: str) -> None:  # noqa: B027 - not every network can
        """Ask for the job's process at a site to be started if it does not run; never raise."""


@final
class FlareCarrier(Carrier):
    """Carries requests over a route, one thread each; ``aborted`` tells whether the job was aborted."""

    def __init__(self, route: Route, aborted: Callable[[], bool]) -> None:
        self.route = route
        self._aborted = aborted
        self._lock = threading.Lock()
        self._open: set[Stop] = set()
        self._arrived: queue.Queue[Delivered] = queue.Queue()
        self._closed = threading.Event()
        self._awaited: set[str] = set()
        """Lost sites that are pinged in a thread each, and those of them that have answered."""
        self._back: set[str] = set()

    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Ping every site until it answers."""
        until = time.monotonic() + timeout
        with ThreadPoolExecutor(max_workers=max(1, len(sites))) as pool:
            replies = list(pool.map(lambda site: self._first_answer(site, until), sites))
        self._raise_if_aborted()
        if problems := [
            f"{site} ({reply.problem})" for site, reply in zip(sites, replies, strict=True) if reply.problem
        ]:
            raise EngineError(f"these sites cannot start: {'; '.join(problems)}")
        if missing := [site for site, reply in zip(sites, replies, strict=True) if reply.payload is None]:
            raise EngineError(f"no answer within {timeout:g} seconds from {', '.join(missing)}; start them")

    def present(self, sites: Sequence[str], timeout: float) -> Sequence[str]:
        """Ping every site until it answers, or the time is over."""
        until = time.monotonic() + timeout
        with ThreadPoolExecutor(max_workers=max(1, len(sites))) as pool:
            replies = list(pool.map(lambda site: self._first_answer(site, until), sites))
        self._raise_if_aborted()
        return [site for site, reply in zip(sites, replies, strict=True) if reply.payload is not None]

    def returned(self, sites: Sequence[str]) -> Sequence[str]:
        """Return lost sites that answer pings; the job's processes of the others are started meanwhile."""
        self._raise_if_aborted()
        with self._lock:
            back = [site for site in sites if site in self._back]
            self._back -= set(back)
            new = set(sites) - set(back) - self._awaited
            self._awaited |= new
        for site in new:
            threading.Thread(target=self._bring_back, args=(site,), name=f"await {site}", daemon=True).start()
        return back

    def _bring_back(self, site: str) -> None:
        """Ping a lost site until it answers, and have its process started."""
        asked, pause = -math.inf, POLL
        while not self._closed.is_set() and not self._aborted():
            reply = self.route.ask(site, PING, b"", 1.0, Stop())
            if reply.payload is not None:
                with self._lock:
                    self._back.add(site)
                    self._awaited.discard(site)
                return
            if time.monotonic() - asked >= RESTART_EVERY:
                self.route.restart(site)
                asked = time.monotonic()
            self._closed.wait(pause)
            pause = min(1.1 * pause, LONGEST_WAIT)

    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Send a request in a thread of its own."""
        stop = Stop()
        with self._lock:
            self._open.add(stop)
        arguments = (site, payload, tag, stop, time.monotonic())
        threading.Thread(target=self._carry, args=arguments, name=f"ask {site}", daemon=True).start()

    def next(self, timeout: float | None) -> Delivered | None:
        """Wait for the next delivery; raise an ``EngineError`` if the job was aborted."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._raise_if_aborted()
            with self._lock:
                left = POLL if until is None and self._open else 0.0
            if until is not None:
                left = max(0.0, min(POLL, until - time.monotonic()))
            try:
                return self._arrived.get(block=left > 0, timeout=left or None)
            except queue.Empty:
                if left == 0:
                    return None

    def close(self) -> None:
        """Cancel all open requests."""
        self._closed.set()
        with self._lock:
            for stop in self._open:
                stop.triggered = True
            self._open.clear()

    def _carry(self, site: str, payload: bytes, tag: int, stop: Stop, began: float) -> None:
        reply = self.route.ask(site, REQUEST, payload, LONGEST_REQUEST, stop)
        with self._lock:
            if stop in self._open:  # else the carrier was closed
                self._open.remove(stop)
                self._arrived.put(Delivered(site, tag, reply.payload, time.monotonic() - began))

    def _first_answer(self, site: str, until: float) -> RouteReply:
        """Ping a site until it answers; one that was killed before it could is started again."""
        reply, restart = RouteReply(), time.monotonic() + FIRST_RESTART
        while reply == RouteReply() and not self._aborted() and (left := until - time.monotonic()) > 0:
            began = time.monotonic()
            reply = self.route.ask(site, PING, b"", min(left, 1.0), Stop())
            if reply == RouteReply() and began > restart:
                self.route.restart(site)
                restart = time.monotonic() + RESTART_EVERY
            if reply.payload is None and self._closed.wait(max(0.0, POLL - (time.monotonic() - began))):
                break
        return reply

    def _raise_if_aborted(self) -> None:
        if self._aborted():
            raise EngineError("the job was aborted; rerun the same command to resume it")


@final
class FlarePeers(Peers):
    """The other devices of a job, which FLARE reaches through the server.

    FLARE reports nothing if the recipient dies before it answers, so it is pinged meanwhile.
    """

    def __init__(self, route: Route, patience: float, *, ping_every: float = PING_EVERY, misses: int = MISSES) -> None:
        self.route = route
        self._patience = patience
        self._ping_every, self._misses = ping_every, misses

    def send(self, site: str, payload: bytes) -> bytes:
        """Send a parcel and wait for the answer."""
        stop, answered = Stop(), threading.Event()
        threading.Thread(target=self._watch, args=(site, stop, answered), name=f"watch {site}", daemon=True).start()
        try:
            reply = self.route.ask(site, PEER, payload, self._patience, stop)
        finally:
            answered.set()
        if reply.payload is None:
            raise EngineError(f"{site} did not accept a parcel; check that it is running")
        return reply.payload

    def _watch(self, site: str, stop: Stop, answered: threading.Event) -> None:
        """Cancel a parcel when its recipient no longer answers pings."""
        missed = 0
        while missed < self._misses:
            if answered.wait(self._ping_every):
                return
            reply = self.route.ask(site, PRESENCE, b"", LONGEST_PING, Stop())
            missed = 0 if reply.payload is not None else missed + 1
        stop.triggered = True
