"""The server's side of the carrying: one thread a question, and a look now and then at who owes an answer.

FLARE reports nothing when a device vanishes while it owes an answer, so a site that lets a question wait is pinged;
one that answers pings is slow, one that does not is gone. How a message travels is left to a :class:`Route`.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.protocol.carrier import Carrier, Delivered
from codedfl.errors import EngineError

__all__ = ["PING", "QUESTION", "FlareCarrier", "Heard", "Route", "Stop"]

PING, QUESTION = "ping", "question"
"""What a message is: only whether the site is there, or for its host."""

LOOK = 0.2
"""Seconds between looks at whether the job was ended from outside."""


@final
class Stop:
    """Tells a waiting request to give up; FLARE looks at ``triggered``."""

    def __init__(self) -> None:
        self.triggered = False

    def trigger(self) -> None:
        """Give up."""
        self.triggered = True


@dataclass(frozen=True)
class Heard:
    """What a site returned: bytes, or a sentence that says why it cannot, or neither if nothing came."""

    payload: bytes | None = field(default=None, repr=False)
    problem: str | None = None


class Route(ABC):
    """How one message gets to a site and its answer back; may be used from several threads at once."""

    @abstractmethod
    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> Heard:
        """Ask and wait; raise nothing."""


@dataclass(eq=False)
class Question:
    """A question that is open."""

    site: str
    tag: int
    began: float
    stop: Stop = field(default_factory=Stop)


@final
class FlareCarrier(Carrier):
    """Carries questions over a route.

    A site that owes an answer is pinged every ``beat`` seconds; it is gone when ``misses`` pings in turn bring
    nothing. No question waits longer than ``longest`` seconds.
    """

    def __init__(
        self,
        route: Route,
        ended: Callable[[], bool],
        *,
        beat: float = 5.0,
        misses: int = 3,
        longest: float = 86400.0,
    ) -> None:
        self.route = route
        self._ended = ended
        self._beat, self._misses, self._longest = beat, misses, longest
        self._lock = threading.Lock()
        self._open: set[Question] = set()
        self._missed: dict[str, int] = {}
        self._arrived: queue.Queue[Delivered] = queue.Queue()
        self._closed = threading.Event()
        self._watching = False

    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Ping until every site has answered."""
        until = time.monotonic() + timeout
        with ThreadPoolExecutor(max_workers=max(1, len(sites))) as pool:
            answers = list(pool.map(lambda site: self._until_it_answers(site, until), sites))
        self._raise_if_ended()
        missing = [site for site, heard in zip(sites, answers, strict=True) if heard.payload is None]
        if not missing:
            return
        problems = [f"{site} ({heard.problem})" for site, heard in zip(sites, answers, strict=True) if heard.problem]
        raise EngineError(
            f"these sites cannot start: {'; '.join(problems)}"
            if problems
            else f"no answer within {timeout:g} seconds from {', '.join(missing)}; start them, or leave them out"
        )

    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Put a question in a thread of its own."""
        question = Question(site, tag, time.monotonic())
        with self._lock:
            self._open.add(question)
            watching, self._watching = self._watching, True
        if not watching:
            threading.Thread(target=self._watch, name="watch", daemon=True).start()
        threading.Thread(target=self._carry, args=(question, payload), name=f"ask {site}", daemon=True).start()

    def next(self, timeout: float | None) -> Delivered | None:
        """Wait for the next delivery; if the job was ended from outside, raise an ``EngineError``."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._raise_if_ended()
            with self._lock:
                nothing_to_wait_for = until is None and not self._open
            left = LOOK if until is None else min(LOOK, until - time.monotonic())
            try:
                if nothing_to_wait_for or left <= 0:
                    return self._arrived.get_nowait()
                return self._arrived.get(timeout=left)
            except queue.Empty:
                if nothing_to_wait_for or left <= 0:
                    return None

    def close(self) -> None:
        """Give up what is open."""
        self._closed.set()
        with self._lock:
            questions, self._open = self._open, set()
        for question in questions:
            question.stop.trigger()

    def _carry(self, question: Question, payload: bytes) -> None:
        heard = self.route.ask(question.site, QUESTION, payload, self._longest, question.stop)
        self._deliver(question, heard.payload)

    def _deliver(self, question: Question, payload: bytes | None) -> None:
        with self._lock:
            if question not in self._open:
                return  # given up before
            self._open.remove(question)
            self._arrived.put(Delivered(question.site, question.tag, payload, time.monotonic() - question.began))

    def _until_it_answers(self, site: str, until: float) -> Heard:
        heard = Heard()
        while heard.payload is None and heard.problem is None and not self._closed.is_set() and not self._ended():
            if (left := until - time.monotonic()) <= 0:
                break
            began = time.monotonic()
            heard = self.route.ask(site, PING, b"", min(left, 1.0), Stop())
            if heard.payload is None:
                self._closed.wait(max(0.0, LOOK - (time.monotonic() - began)))
        return heard

    def _watch(self) -> None:
        while not self._closed.wait(self._beat):
            waiting_since = time.monotonic() - self._beat
            with self._lock:
                slow = {question.site for question in self._open if question.began <= waiting_since}
                self._missed = {site: missed for site, missed in self._missed.items() if site in slow}
            pings = [threading.Thread(target=self._ping, args=(site,), daemon=True) for site in slow]
            for ping in pings:
                ping.start()
            for ping in pings:
                ping.join()

    def _ping(self, site: str) -> None:
        heard = self.route.ask(site, PING, b"", self._beat, Stop())
        with self._lock:
            missed = self._missed[site] = 0 if heard.payload is not None else self._missed.get(site, 0) + 1
            lost = [question for question in self._open if question.site == site] if missed >= self._misses else []
        for question in lost:
            question.stop.trigger()
            self._deliver(question, None)

    def _raise_if_ended(self) -> None:
        if self._ended():
            raise EngineError("the job was ended from outside; give the same command again to go on where it stopped")
