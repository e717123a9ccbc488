"""The server's channel to all sites: numbered requests, and replies of which only valid ones count.

Refused and logged with the site's name: unreadable replies, replies to no open request or of another session,
duplicates, arrays of an unexpected format or shape, numbers that are not finite. A site is lost if it is unreachable,
sends an invalid reply, does not answer for ``patience`` seconds although it is pinged, takes longer than ``longest``
for one step of a request, or than ``patience`` for one that takes no time or after it has answered another instead.
"""

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol.carrier import Carrier, Delivered
from codedfl.deploy.protocol.fields import is_count, is_real, one_line
from codedfl.deploy.protocol.wire import LARGEST_FRAME, Frame, decode, encode
from codedfl.errors import EngineError, NoSessionError
from codedfl.schemes.messages import Layout, Message, layout

Clock = Callable[[], float]
"""Returns seconds since some fixed time."""

_WORKING = ("prepare", "reply", "export", "absorb", "carry")
_MISMATCH = "it answers another request than the open one"
_UNREACHABLE = "it cannot be reached"
_RESTARTED = "it was started again, or serves another session"

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class SiteRequest:
    """A request to a site, with the layout of the arrays that are expected back."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Message = field(default_factory=dict, repr=False)
    expected: Layout | None = field(default=None, repr=False)
    steps: int = 1
    """How many steps it has, each of which may take ``longest``; 0: a site answers at once, within ``patience``."""


@final
@dataclass(frozen=True)
class SiteReply:
    """A valid reply to an open request; ``bits`` is its size as transmitted."""

    device: int
    tag: int
    frame: Frame
    seconds: float
    bits: int


@dataclass
class _OpenRequest:
    device: int
    request: SiteRequest
    since: float
    mismatched_since: float | None = None
    """When a reply to another request came instead."""


@final
class Channel:
    """Sends requests and receives replies; not thread-safe."""

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
        self.run = f"run-{secrets.token_hex(8)}"
        """The name of the run in the records of sites; a resumed run keeps it."""
        self.lost: dict[int, str] = {}
        """Lost devices and the reasons."""
        self.silent: set[int] = set()
        """Those of them that were not heard of any more, so that they may come back."""
        self.refused: list[str] = []
        """Refused messages, with sites and reasons."""
        self._carrier = carrier
        self._patience = patience
        self.longest = longest
        self._tag = secrets.randbits(40)  # late replies of an earlier session must not match
        self._open: dict[int, _OpenRequest] = {}
        self._discarded: set[int] = set()
        self._late: dict[int, _OpenRequest] = {}
        """Requests that nobody awaits, whose replies are kept if they come nevertheless."""
        self._kept: list[SiteReply] = []
        self._silent_since: dict[int, float] = {}
        self._listened = clock()
        self._asked: set[int] = set()
        self._early: deque[SiteReply] = deque()

    def new_session(self) -> None:
        """Begin another session; what is still open belongs to the one before."""
        self.discard_open()
        self.session = secrets.token_hex(16)

    def ask(self, device: int, request: SiteRequest) -> tuple[int, int]:
        """Send a request; return its number and its size in bits."""
        self._tag += 1
        fields = {**request.fields, "session": self.session, "number": self._tag}
        payload = encode(Frame(request.kind, fields, request.arrays))
        now = self.clock()
        self._open[self._tag] = _OpenRequest(device, request, now)
        self._silent_since.setdefault(device, now)
        self._asked.add(device)
        self._carrier.send(self.sites[device], payload, self._tag)
        return self._tag, 8 * len(payload)

    def awaited(self, device: int) -> bool:
        """Return whether a device has an open request."""
        return any(entry.device == device and entry.request.kind != "ping" for entry in self._open.values())

    @property
    def open(self) -> bool:
        """Whether any request is open."""
        return any(entry.request.kind != "ping" for entry in self._open.values())

    def discard_open(self) -> None:
        """Ignore the replies to all open requests."""
        self._early.clear()
        self._discard(set(self._open))
        self._late.clear()
        self._kept.clear()

    def _discard(self, tags: Set[int]) -> None:
        """Ignore the replies to those of some requests that are open."""
        self._discarded |= tags & self._open.keys()
        self._open = {tag: entry for tag, entry in self._open.items() if tag not in tags}

    def stop_waiting(self, most: int) -> None:
        """Await no reply to open requests of rounds; keep those that come nevertheless, of the last ``most`` requests.

        Such a reply counts only if it is valid; else it is ignored, as one to a discarded request is.
        """
        self._discarded |= set(self._open)
        self._late |= {tag: entry for tag, entry in self._open.items() if entry.request.kind == "reply"}
        self._open.clear()
        self._late = dict(list(self._late.items())[-most:])

    def late(self) -> list[SiteReply]:
        """Return the replies that have come since nobody awaited them."""
        self.poll()
        kept, self._kept = [*self._kept, *self._early], []
        self._early.clear()
        return kept

    def receive(self, until: float | None) -> SiteReply | None:
        """Return the next valid reply; None at the time ``until`` of the clock, or if no request is open."""
        self.poll()
        while not self._early:
            if not self.open:
                return None
            wait = self._patience / 4 if until is None else min(self._patience / 4, max(0.0, until - self.clock()))
            delivered = self._next(wait)
            if delivered is not None and (reply := self._accept(delivered)) is not None:
                return reply
            if delivered is None and until is not None and self.clock() >= until:
                return None
            self._check_silence()
        return self._early.popleft()

    def ask_all(
        self,
        requests: Mapping[int, SiteRequest],
        *,
        if_one_fails: Mapping[int, SiteRequest] | None = None,
        if_quiet: Callable[[], None] = lambda: None,
    ) -> dict[int, SiteReply]:
        """Ask several devices and wait for all replies, which are in the order of arrival; others are lost.

        As soon as one of them is lost or replies with an error, the requests ``if_one_fails`` are sent as well, to
        release others that wait for it. Until then ``if_quiet`` is called whenever no reply comes for a while; it may
        ask the same devices, and mark some as lost. Afterwards replies are awaited for ``patience`` only: a device may
        have to finish what it computes, and is not lost.
        """
        asked = [device for device in requests if device not in self.lost]
        tags = {self.ask(device, requests[device])[0] for device in asked}
        further: set[int] = set()
        found: list[SiteReply] = []
        given_up = math.inf
        """When requests that are given up are not awaited any more."""
        while self._open.keys() & (tags | further if self.clock() < given_up else further):
            # look again soon: a device may be lost meanwhile, and requests to others be open that nobody answers here
            reply = self.receive(self.clock() + self._patience / 4)
            found += [] if reply is None else [reply]
            if reply is None and if_one_fails is not None:
                if_quiet()
            failed = reply is not None and reply.frame.kind == "error"
            if if_one_fails is not None and (failed or any(device in self.lost for device in asked)):
                reachable = [device for device in if_one_fails if device not in self.lost]
                further = {self.ask(device, if_one_fails[device])[0] for device in reachable}
                if_one_fails, given_up = None, self.clock() + self._patience
        self._discard(tags)
        found += self._early
        self._early = deque(reply for reply in found if reply.tag not in tags | further)
        return {reply.device: reply for reply in found if reply.tag in tags}

    def end_session(self) -> dict[int, SiteReply]:
        """End the session at all sites that were asked and are not lost; return their answers."""
        self.discard_open()
        answers = self.ask_all(dict.fromkeys(sorted(self._asked), SiteRequest("forget", {"stage": None})))
        self._asked.clear()
        return answers

    def readmit(self, device: int) -> None:
        """Ask a device again that is back; its session is over, so another one must begin."""
        self.lost.pop(device, None)
        self.silent.discard(device)

    def mark_lost(self, device: int, reason: str, *, silent: bool = False) -> None:
        """Mark a device as lost, and discard its open requests; one that is only ``silent`` may come back."""
        if device not in self.lost:
            self.lost[device] = one_line(reason)
            self.silent |= {device} if silent else set()
            _log.warning("%s is lost: %s", self.sites[device], one_line(reason))
        self._discard({tag for tag, entry in self._open.items() if entry.device == device})
        self._silent_since.pop(device, None)

    def poll(self) -> None:
        """Accept what has arrived, and check for silent sites.

        Time in which the server did not listen, and so did not ping, does not count as silence.
        """
        now = self.clock()
        away = max(0.0, now - self._listened - self._patience / 4)
        for device, since in self._silent_since.items():
            self._silent_since[device] = min(now, since + away)
        while (delivered := self._next(0.0)) is not None:
            if (reply := self._accept(delivered)) is not None:
                self._early.append(reply)
        self._check_silence()

    def _next(self, timeout: float) -> Delivered | None:
        delivered = self._carrier.next(timeout)
        self._listened = self.clock()
        return delivered

    def _check_silence(self) -> None:
        """Mark devices lost whose time is over, and ping those that have been silent for long."""
        now = self.clock()
        for device, since in list(self._silent_since.items()):
            if now - since > self._patience:
                self.mark_lost(device, f"no sign of life for {self._patience:g} s", silent=True)
        for entry in list(self._open.values()):
            if now - entry.since > (longest := self.longest * entry.request.steps or self._patience):
                self.mark_lost(entry.device, f"no answer for {longest:g} s", silent=True)
            elif entry.mismatched_since is not None and now - entry.mismatched_since > self._patience:
                self.mark_lost(entry.device, _MISMATCH)
        pinged = {entry.device for entry in self._open.values() if entry.request.kind == "ping"}
        for device in {entry.device for entry in self._open.values()} - pinged:
            if now - self._silent_since.get(device, now) > self._patience / 4:
                self.ask(device, SiteRequest("ping"))

    def _accept(self, delivered: Delivered) -> SiteReply | None:
        """Return a valid reply to an open request; any message shows that its sender is alive."""
        device = self.sites.index(delivered.site) if delivered.site in self.sites else None
        reply = self._validated(device, delivered)
        if device is not None and delivered.payload is not None:
            self._silent_since.pop(device, None)
            if self.awaited(device):
                self._silent_since[device] = self.clock()
        return reply

    def _validated(self, device: int | None, delivered: Delivered) -> SiteReply | None:
        """Return a valid reply to an open request; refuse everything else."""
        site, entry = delivered.site, self._open.get(delivered.tag)
        if delivered.tag in self._discarded:
            self._discarded.remove(delivered.tag)
            if device is not None and delivered.payload is None:
                self.mark_lost(device, _UNREACHABLE, silent=True)
            elif (late := self._late.pop(delivered.tag, None)) is not None and late.device == device:
                self._keep(late, delivered)
            return None
        if entry is None or device != entry.device:
            self._refuse(site, "it answers a request that is not open, or answers twice")
            return None
        if delivered.payload is None:
            self.mark_lost(device, _UNREACHABLE, silent=True)
            return None
        try:
            frame = decode(delivered.payload, most=_largest_arrays(entry.request))
            if (frame.fields.get("session"), frame.fields.get("number")) != (self.session, delivered.tag):
                self._refuse(site, _MISMATCH)
                entry.mismatched_since = self.clock() if entry.mismatched_since is None else entry.mismatched_since
                return None
            if frame.kind == "repeated":
                self._refuse(site, "the request has come to it twice")  # it is working on the first
                return None
            del self._open[delivered.tag]
            _check(frame, entry.request)
        except EngineError as error:
            self._refuse(site, str(error))
            self.mark_lost(device, str(error), silent=isinstance(error, NoSessionError))
            return None
        if entry.request.kind == "ping":
            return None
        return SiteReply(device, delivered.tag, frame, delivered.seconds, 8 * len(delivered.payload))

    def _keep(self, entry: _OpenRequest, delivered: Delivered) -> None:
        """Keep a valid reply that nobody awaits."""
        payload = delivered.payload or b""
        with suppress(EngineError):
            frame = decode(payload, most=_largest_arrays(entry.request))
            if (frame.fields.get("session"), frame.fields.get("number")) == (self.session, delivered.tag):
                _check(frame, entry.request)
                self._kept.append(SiteReply(entry.device, delivered.tag, frame, delivered.seconds, 8 * len(payload)))

    def _refuse(self, site: str, reason: str) -> None:
        self.refused.append(f"{one_line(site)}: {one_line(reason)}")
        _log.warning("refused a message from %s: %s", one_line(site), one_line(reason))


def _check(frame: Frame, request: SiteRequest) -> None:
    """Refuse errors and invalid replies."""
    if frame.kind == "superseded":
        raise EngineError("another server has taken it over")
    if frame.kind == "error" and request.kind in ("export", "carry") and "unreached" in frame.fields:
        return  # sender or recipient may be at fault; the stage decides
    if frame.fields.get("no_session") is True:
        raise NoSessionError(_RESTARTED)
    if frame.kind != "answer":
        raise EngineError(one_line(frame.fields.get("reason", f"it answered '{frame.kind}'")))
    if not _has_costs(frame, request):
        raise EngineError("its reply lacks valid costs")
    if request.expected is not None and layout(frame.arrays) != dict(request.expected):
        found = {name: f"{dtype.name}{list(shape)}" for name, (dtype, shape) in layout(frame.arrays).items()}
        raise EngineError(f"its reply holds {one_line(found or 'nothing')}, which is not what was requested")
    for name, array in frame.arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise EngineError(f"array '{one_line(name)}' of its answer holds numbers that are not finite")


def _largest_arrays(request: SiteRequest) -> int:
    """Return the largest size of a reply's arrays in bytes."""
    if request.expected is not None:
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in request.expected.values())
    return LARGEST_FRAME if request.kind in ("reply", "export") else 0


def _has_costs(frame: Frame, request: SiteRequest) -> bool:
    """Return whether a reply has its costs: one number for a round, one per parcel for stages."""
    if request.kind in _WORKING and not is_real(frame.fields.get("working_seconds")):
        return False
    if request.kind == "reply":
        return is_count(frame.fields.get("macs")) and is_real(frame.fields.get("offline_seconds", 0))
    exported, absorbed = ("macs", "beforehand", "bits"), ("macs", "beforehand")
    if request.kind == "carry":
        made, taken = (sum(len(each[name]) for each in request.fields["stages"]) for name in ("export", "absorb"))
        lengths = dict.fromkeys(exported, made) | dict.fromkeys((f"absorb_{name}" for name in absorbed), taken)
    else:
        names = {"export": exported, "absorb": absorbed}.get(request.kind, ())
        lengths = dict.fromkeys(names, len(request.fields["parcels"])) if names else {}
    for name, length in lengths.items():
        values = frame.fields.get(name)
        if not isinstance(values, list) or len(values) != length or not all(map(is_count, values)):
            return False
    return True
