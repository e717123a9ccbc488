"""The server's correspondence with all sites: numbered questions, and answers of which only proper ones count.

Refused and logged with the site's name: what cannot be read, answers to no open question, second answers, answers of
another session, arrays of another format or shape than expected, numbers that are not finite. A site is lost if it
cannot be reached, answers improperly, or gives no sign of life for ``patience`` seconds while it is asked and the
server listens (who works long is pinged), or takes longer than ``longest`` for one answer, or than ``patience`` after
it has answered another question instead. Lost sites are asked nothing more.
"""

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol.carrier import Carrier, Delivered
from codedfl.deploy.protocol.fields import MOST_COUNTED, words
from codedfl.deploy.protocol.wire import LARGEST_FRAME, Frame, decode, encode
from codedfl.errors import EngineError
from codedfl.schemes.messages import Layout, Message, layout

__all__ = ["Clock", "Correspondence", "Heard", "Question"]

Clock = Callable[[], float]
"""Tells seconds, from whenever on."""

_WORKING = ("prepare", "reply", "export", "absorb")
_MISLED = "it answers another question than the one that is open"

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class Question:
    """What a site is asked."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Message = field(default_factory=dict, repr=False)
    expected: Layout | None = field(default=None, repr=False)


@final
@dataclass(frozen=True)
class Heard:
    """A proper answer to an open question."""

    device: int
    tag: int
    frame: Frame
    seconds: float
    bits: int
    """Of the answer as it was carried."""


@dataclass(frozen=True)
class _Open:
    device: int
    question: Question
    since: float
    misled: float | None = None
    """When the answer to another question came instead."""


@final
class Correspondence:
    """Asks and listens; used from one thread."""

    def __init__(
        self,
        carrier: Carrier,
        sites: Sequence[str],
        *,
        patience: float = 30.0,
        longest: float = 3600.0,
        clock: Clock = time.monotonic,
    ) -> None:
        if not 0 < patience <= longest or len(set(sites)) != len(sites):
            raise ValueError(f"need 0 < patience <= longest and sites that differ; got {patience}, {longest}, {sites}")
        self.sites = tuple(sites)
        self.clock = clock
        self.session = secrets.token_hex(16)
        self.lost: dict[int, str] = {}
        """Devices that are gone for good, and why."""
        self.refused: list[str] = []
        """What was not accepted, in words."""
        self._carrier = carrier
        self._patience = patience
        self._longest = longest
        self._tag = secrets.randbits(40)  # late answers to a session before are not taken for answers to this one
        self._open: dict[int, _Open] = {}
        self._given_up: set[int] = set()
        self._silent_since: dict[int, float] = {}
        self._listened = clock()
        self._addressed: set[int] = set()
        self._early: deque[Heard] = deque()

    def ask(self, device: int, question: Question) -> tuple[int, int]:
        """Put a question to a device; return its number and its size in bits."""
        self._tag += 1
        fields = {**question.fields, "session": self.session, "number": self._tag}
        payload = encode(Frame(question.kind, fields, question.arrays))
        now = self.clock()
        self._open[self._tag] = _Open(device, question, now)
        self._silent_since.setdefault(device, now)
        self._addressed.add(device)
        self._carrier.send(self.sites[device], payload, self._tag)
        return self._tag, 8 * len(payload)

    def awaited(self, device: int) -> bool:
        """Tell whether a device owes an answer."""
        return any(entry.device == device and entry.question.kind != "ping" for entry in self._open.values())

    @property
    def open(self) -> bool:
        """Whether any answer is awaited."""
        return any(entry.question.kind != "ping" for entry in self._open.values())

    def give_up(self) -> None:
        """Await no answer any more; what still comes is no offence, and nothing else."""
        self._early.clear()
        self._given_up |= set(self._open)
        self._open.clear()

    def hear(self, until: float | None) -> Heard | None:
        """Return the next proper answer; None when ``until`` (of the clock) is over or nothing is awaited."""
        self.look_after()
        while True:
            if self._early:
                return self._early.popleft()
            self._look_after()
            if not self.open:
                return None
            now = self.clock()
            wait = self._patience / 4 if until is None else min(self._patience / 4, max(0.0, until - now))
            delivered = self._next(wait)
            if delivered is not None and (heard := self._judge(delivered)) is not None:
                return heard
            if delivered is None and until is not None and self.clock() >= until:
                return None

    def everyone(
        self, questions: Mapping[int, Question], *, if_one_fails: Mapping[int, Question] | None = None
    ) -> dict[int, Heard]:
        """Ask several devices and wait for all; who is not in the result is lost.

        As soon as one of them is lost or answers with an error, the questions ``if_one_fails`` are put as well, for
        others that wait for it.
        """
        asked = [device for device in questions if device not in self.lost]
        tags = {self.ask(device, questions[device])[0] for device in asked}
        further: set[int] = set()
        found: list[Heard] = []
        while any(tag in self._open for tag in tags | further):
            heard = self.hear(None if if_one_fails is None else self.clock() + self._patience / 4)
            found += [] if heard is None else [heard]
            failed = heard is not None and heard.frame.kind == "error"
            if if_one_fails is not None and (failed or any(device in self.lost for device in asked)):
                there = [device for device in if_one_fails if device not in self.lost]
                further = {self.ask(device, if_one_fails[device])[0] for device in there}
                if_one_fails = None
        found += self._early
        self._early = deque(heard for heard in found if heard.tag not in tags | further)
        return {heard.device: heard for heard in found if heard.tag in tags}

    def farewell(self) -> None:
        """Tell all who were asked anything, and are there, that the run is over."""
        self.give_up()
        self.everyone({device: Question("forget", {"stage": None}) for device in sorted(self._addressed)})

    def lose(self, device: int, reason: str) -> None:
        """Give a device up for good."""
        if device not in self.lost:
            self.lost[device] = reason
            _log.warning("%s is lost: %s", self.sites[device], reason)
        gone = [tag for tag, entry in self._open.items() if entry.device == device]
        self._given_up |= set(gone)
        for tag in gone:
            del self._open[tag]
        self._silent_since.pop(device, None)

    def look_after(self) -> None:
        """Take in what has arrived, and see who is silent.

        While the server did something else for long, nobody was pinged, so that time is no silence.
        """
        now = self.clock()
        away = max(0.0, now - self._listened - self._patience / 4)
        for device, since in self._silent_since.items():
            self._silent_since[device] = min(now, since + away)
        while (delivered := self._next(0.0)) is not None:
            if (heard := self._judge(delivered)) is not None:
                self._early.append(heard)
        self._look_after()

    def _next(self, timeout: float) -> Delivered | None:
        delivered = self._carrier.next(timeout)
        self._listened = self.clock()
        return delivered

    def _look_after(self) -> None:
        now = self.clock()
        for device, since in list(self._silent_since.items()):
            if now - since > self._patience:
                self.lose(device, f"no sign of life for {self._patience:g} s")
        for entry in list(self._open.values()):
            if now - entry.since > self._longest:
                self.lose(entry.device, f"no answer for {self._longest:g} s")
            elif entry.misled is not None and now - entry.misled > self._patience:
                self.lose(entry.device, _MISLED)
        pinged = {entry.device for entry in self._open.values() if entry.question.kind == "ping"}
        for device in {entry.device for entry in self._open.values()} - pinged:
            if now - self._silent_since.get(device, now) > self._patience / 4:
                self.ask(device, Question("ping"))

    def _judge(self, delivered: Delivered) -> Heard | None:
        """Return a proper answer to an open question, and note the sign of life."""
        device = self.sites.index(delivered.site) if delivered.site in self.sites else None
        heard = self._proper(device, delivered)
        if device is not None and delivered.payload is not None:
            self._silent_since.pop(device, None)
            if self.awaited(device):
                self._silent_since[device] = self.clock()
        return heard

    def _proper(self, device: int | None, delivered: Delivered) -> Heard | None:
        """Return a proper answer to an open question; refuse everything else."""
        site, entry = delivered.site, self._open.get(delivered.tag)
        if delivered.tag in self._given_up:
            self._given_up.discard(delivered.tag)
            if device is not None and delivered.payload is None:
                self.lose(device, "it cannot be reached")
            return None
        if entry is None or device != entry.device:
            self._refuse(site, "it answers a question that it does not owe an answer to, or answers twice")
            return None
        if delivered.payload is None:
            self.lose(device, "it cannot be reached")
            return None
        try:
            frame = decode(delivered.payload, most=_most(entry.question))
            if (frame.fields.get("session"), frame.fields.get("number")) != (self.session, delivered.tag):
                self._refuse(site, _MISLED)
                self._open[delivered.tag] = replace(
                    entry, misled=self.clock() if entry.misled is None else entry.misled
                )
                return None
            if frame.kind == "repeated":
                self._refuse(site, "the question has come to it twice")  # it is working on the first
                return None
            del self._open[delivered.tag]
            _check(frame, entry.question)
        except EngineError as error:
            self._refuse(site, str(error))
            self.lose(device, str(error))
            return None
        if entry.question.kind == "ping":
            return None
        return Heard(device, delivered.tag, frame, delivered.seconds, 8 * len(delivered.payload))

    def _refuse(self, site: str, reason: str) -> None:
        self.refused.append(f"{site}: {words(reason)}")
        _log.warning("refused what came from %s: %s", site, reason)


def _check(frame: Frame, question: Question) -> None:
    """Refuse an answer that says it is none, or does not look like one."""
    if frame.kind == "superseded":
        raise EngineError("it was asked by another server since")
    if frame.kind == "error" and question.kind == "export" and "unreached" in frame.fields:
        return  # whose fault that is will show
    if frame.kind != "answer":
        raise EngineError(words(frame.fields.get("reason", f"it answered '{frame.kind}'")))
    if not _counts(frame, question):
        raise EngineError("its answer does not say what it took")
    if question.expected is not None and layout(frame.arrays) != dict(question.expected):
        found = {name: f"{dtype.name}{list(shape)}" for name, (dtype, shape) in layout(frame.arrays).items()}
        raise EngineError(f"its answer holds {words(found or 'nothing')}, which is not what was asked for")
    for name, array in frame.arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise EngineError(f"array '{words(name)}' of its answer holds numbers that are not finite")


def _most(question: Question) -> int:
    """Return how many bytes of arrays an answer can have: as said, or as many as there may be in parcels."""
    if question.expected is not None:
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in question.expected.values())
    return LARGEST_FRAME if question.kind in ("reply", "export") else 0


def _counts(frame: Frame, question: Question) -> bool:
    """Tell whether an answer says what it cost, where it should: a number for a reply, one a parcel for stages."""
    if question.kind in _WORKING and not _seconds(frame.fields.get("working_seconds")):
        return False
    if question.kind == "reply":
        return _count(frame.fields.get("macs"))
    for name in {"export": ("macs", "bits"), "absorb": ("macs",)}.get(question.kind, ()):
        values = frame.fields.get(name)
        if not isinstance(values, list) or len(values) != len(question.fields["parcels"]):
            return False
        if not all(_count(value) for value in values):
            return False
    return True


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST_COUNTED


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < MOST_COUNTED
