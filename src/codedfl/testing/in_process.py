"""Sites as threads of one process, connected by bytes, with faults on demand.

Faults can be injected into requests, replies and parcels.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.protocol.carrier import Carrier, Delivered, Host, Peers
from codedfl.deploy.site.agreement import Agreement
from codedfl.errors import EngineError
from codedfl.schemes import SCHEMES

_MOST_THREADS = 4096
"""Upper bound of open requests; threads are created on demand."""


def any_terms(sites: Sequence[str]) -> Agreement:
    """Return the agreement of an owner who takes part in whatever these sites do."""
    return Agreement(cohort=tuple(sites), least=1, schemes=tuple(SCHEMES))


@final
@dataclass
class Faults:
    """Faults; hooks are called in the thread of the site."""

    silent: set[str] = field(default_factory=set)
    """Sites that do not answer."""
    unreachable: set[str] = field(default_factory=set)
    """Sites that the carrier reports as unreachable."""
    returns: bool = False
    """Whether a site that was silent or unreachable can be asked again when it is no more."""
    question: Callable[[str, int, bytes], bytes | None] = lambda site, tag, payload: payload
    """Takes site, tag and payload of a request; returns what reaches the site, None for nothing."""
    reply: Callable[[str, int, bytes], Sequence[bytes]] = lambda site, tag, payload: [payload]
    """Takes site, tag and payload of a reply; returns all that reaches the server under this tag."""
    parcel: Callable[[str, str, bytes], bytes | None] = lambda sender, recipient, payload: payload
    """Takes sender, recipient and payload of a parcel; returns what reaches the recipient, None for nothing."""


@final
@dataclass
class Recording:
    """All bytes that the server sent, received, and relayed (with sender and recipient)."""

    sent: list[tuple[str, bytes]] = field(default_factory=list)
    received: list[tuple[str, bytes]] = field(default_factory=list)
    relayed: list[tuple[str, str, bytes]] = field(default_factory=list)


@final
class StillClock:
    """A clock that stops while any site works, so that timeouts do not depend on the speed of the machine."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self._now += seconds


@final
class InProcessCarrier(Carrier):
    """Calls hosts in threads, one per request, so that a site can be asked while it works."""

    def __init__(
        self, faults: Faults | None = None, recording: Recording | None = None, clock: StillClock | None = None
    ) -> None:
        """``clock`` replaces the clock of the machine."""
        self.faults = faults or Faults()
        self._recording = recording
        self._clock = clock
        self._hosts: dict[str, Host] = {}
        self._changed = threading.Condition()
        self._arrived: deque[Delivered] = deque()
        self._requests: dict[int, Callable[[], bool] | None] = {}
        """Open requests: None while the site works on one; while it waits, a function that tells whether it still does.
        An entry lives from :meth:`send` to the end of the thread, and only that thread changes it."""
        self._serial = itertools.count()
        self._own = threading.local()
        """The request that a thread answers."""
        self._threads = ThreadPoolExecutor(_MOST_THREADS)
        self._failed: Exception | None = None
        self._closed = threading.Event()

    def peers(self, site: str) -> Peers:
        """Return the peers of a site, for its host."""
        return _InProcessPeers(self, site)

    def attach(self, site: str, host: Host) -> None:
        """Let a host answer for a site, instead of an earlier one."""
        self._hosts[site] = host

    def host(self, site: str) -> Host:
        """Return the host of a site."""
        return self._hosts[site]

    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Raise if a site is missing."""
        gone = self.faults.silent | self.faults.unreachable
        missing = [site for site in sites if site not in self._hosts or site in gone]
        if missing:
            raise EngineError(f"{', '.join(missing)} did not answer within {timeout:g} s; start them and try again")

    def present(self, sites: Sequence[str], timeout: float) -> Sequence[str]:
        """Return those that are attached and no fault keeps away."""
        gone = self.faults.silent | self.faults.unreachable
        return [site for site in sites if site in self._hosts and site not in gone]

    def returned(self, sites: Sequence[str]) -> Sequence[str]:
        """Return the same, if sites may come back at all."""
        return self.present(sites, 0.0) if self.faults.returns else ()

    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Pass a request to the site in a thread."""
        if self._recording is not None:
            self._recording.sent.append((site, payload))
        request = next(self._serial)
        with self._changed:
            self._threads.submit(self._work, request, site, payload, tag, time.monotonic())
            self._requests[request] = None  # the thread comes to it after this lock

    def _work(self, request: int, site: str, payload: bytes, tag: int, began: float) -> None:
        self._own.request = request
        try:
            for coming in self._answers(site, payload, tag):
                delivered = Delivered(site, tag, coming, time.monotonic() - began)
                with self._changed:
                    self._arrived.append(delivered)
                    self._changed.notify_all()
        except Exception as error:  # of a hook: hosts raise nothing
            self._failed = error
        finally:
            del self._own.request
            with self._changed:
                del self._requests[request]
                self._changed.notify_all()

    def _answers(self, site: str, payload: bytes, tag: int) -> Iterator[bytes | None]:
        faults = self.faults
        if site in faults.unreachable or site not in self._hosts:
            yield None
            return
        reaching = faults.question(site, tag, payload)
        if reaching is None or site in faults.silent:
            return
        for coming in faults.reply(site, tag, self._hosts[site].handle(reaching)):
            if site in faults.silent or self._closed.is_set():
                return
            if self._recording is not None:
                self._recording.received.append((site, coming))
            yield coming

    @contextmanager
    def at_rest(self, still: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Let the clock run while a site or a hook waits in the thread of a request.

        ``still`` tells whether it has to go on waiting. Once it has not, the clock stands still, also before its thread
        runs again; so no time passes between a parcel that arrives and the work on it. Other threads are not counted.
        """
        request: int | None = getattr(self._own, "request", None)
        if request is None:
            yield
            return
        with self._changed:
            before, self._requests[request] = self._requests[request], still
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._requests[request] = before
                self._changed.notify_all()  # who waited within a wait may be at rest again

    def _busy(self) -> bool:
        """Return whether any site works, or is about to."""
        return any(still is None or not still() for still in self._requests.values())

    def relay(self, sender: str, recipient: str, payload: bytes) -> bytes:
        """Pass a parcel from one site to another."""
        if self._recording is not None:
            self._recording.relayed.append((sender, recipient, payload))
        gone = self.faults.silent | self.faults.unreachable
        try:
            coming = self.faults.parcel(sender, recipient, payload)
        except Exception as error:  # an error in the hook is not the sender's
            self._failed = error
            raise EngineError(f"the relay failed ({type(error).__name__}); fix the hook") from error
        if coming is None or recipient not in self._hosts or {sender, recipient} & gone:
            raise EngineError(f"{recipient} did not answer; see that it is running")
        return self._hosts[recipient].handle_peer(sender, coming)

    def next(self, timeout: float | None) -> Delivered | None:
        """Return the next delivery."""
        with self._changed:
            if self._clock is None:
                self._changed.wait_for(lambda: self._arrived or (timeout is None and not self._requests), timeout)
            elif timeout is None or timeout > 0:
                self._changed.wait_for(lambda: self._arrived or not self._busy())
                if not self._arrived:
                    self._clock.advance(timeout or 0.0)
            if self._failed is not None:
                raise self._failed
            return self._arrived.popleft() if self._arrived else None

    def close(self) -> None:
        """Close all hosts and wait for the threads."""
        self._closed.set()
        for host in self._hosts.values():
            host.close()
        self._threads.shutdown()


@final
class _InProcessPeers(Peers):
    def __init__(self, carrier: InProcessCarrier, site: str) -> None:
        self._carrier = carrier
        self._site = site

    def send(self, site: str, payload: bytes) -> bytes:
        """Pass a parcel to another site."""
        return self._carrier.relay(self._site, site, payload)

    def waiting(self, still: Callable[[], bool]) -> AbstractContextManager[None]:
        """Let the clock run while the site waits for parcels."""
        return self._carrier.at_rest(still)
