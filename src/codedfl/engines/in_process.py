"""Sites as threads of this process, over bytes only: for tests, and for a whole emulated fleet on one machine.

Faults can be put in at three places: what reaches a site, what comes back from it, and what sites send each other.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

from codedfl.engines.carrier import Carrier, Delivered, Host, Peers
from codedfl.errors import EngineError

__all__ = ["Faults", "InProcessCarrier", "Recording"]


@final
@dataclass
class Faults:
    """What goes wrong; hooks are called in the thread of the site and may sleep."""

    silent: set[str] = field(default_factory=set)
    """Sites that are gone without a word."""
    unreachable: set[str] = field(default_factory=set)
    """Sites that the carrier knows to be gone."""
    question: Callable[[str, int, bytes], bytes | None] = lambda site, tag, payload: payload
    """Takes site, tag and payload of a question; returns what reaches the site, None for nothing."""
    reply: Callable[[str, int, bytes], Sequence[bytes]] = lambda site, tag, payload: [payload]
    """Takes site, tag and payload of an answer; returns all that reaches the server under this tag."""
    parcel: Callable[[str, str, bytes], bytes | None] = lambda sender, recipient, payload: payload
    """Takes sender, recipient and payload of a parcel; returns what reaches the recipient, None for nothing."""


@final
@dataclass
class Recording:
    """Every byte that passed: what the server sent and received, and what it relayed from whom to whom."""

    sent: list[tuple[str, bytes]] = field(default_factory=list)
    received: list[tuple[str, bytes]] = field(default_factory=list)
    relayed: list[tuple[str, str, bytes]] = field(default_factory=list)


@final
class InProcessCarrier(Carrier):
    """Calls hosts in threads of their own; each question has one, so that a site can be asked while it works."""

    def __init__(self, faults: Faults | None = None, recording: Recording | None = None) -> None:
        self.faults = faults or Faults()
        self._recording = recording
        self._hosts: dict[str, Host] = {}
        self._arrived: queue.SimpleQueue[Delivered] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()

    def peers(self, site: str) -> Peers:
        """Return a site's way to the others, to make its host with."""
        return _InProcessPeers(self, site)

    def attach(self, site: str, host: Host) -> None:
        """Let a host answer for a site; one that did so before is gone."""
        self._hosts[site] = host

    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Say who is missing; nobody else will come."""
        gone = self.faults.silent | self.faults.unreachable
        missing = [site for site in sites if site not in self._hosts or site in gone]
        if missing:
            raise EngineError(f"{', '.join(missing)} did not answer within {timeout:g} s; start them and try again")

    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Let a thread bring the question to the site."""
        if self._recording is not None:
            self._recording.sent.append((site, payload))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._ask, args=(site, payload, tag, time.monotonic()), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ask(self, site: str, payload: bytes, tag: int, began: float) -> None:
        faults = self.faults
        if site in faults.unreachable or site not in self._hosts:
            self._arrived.put(Delivered(site, tag, None, time.monotonic() - began))
            return
        reaching = faults.question(site, tag, payload)
        if reaching is None or site in faults.silent:
            return
        answer = self._hosts[site].handle(reaching)
        for coming in faults.reply(site, tag, answer):
            if site in faults.silent or self._closed.is_set():
                return
            if self._recording is not None:
                self._recording.received.append((site, coming))
            self._arrived.put(Delivered(site, tag, coming, time.monotonic() - began))

    def relay(self, sender: str, recipient: str, payload: bytes) -> bytes:
        """Bring a parcel from one site to another."""
        if self._recording is not None:
            self._recording.relayed.append((sender, recipient, payload))
        gone = self.faults.silent | self.faults.unreachable
        coming = self.faults.parcel(sender, recipient, payload)
        if coming is None or recipient not in self._hosts or {sender, recipient} & gone:
            raise EngineError(f"{recipient} did not answer; see that it is running")
        return self._hosts[recipient].handle_peer(sender, coming)

    def next(self, timeout: float | None) -> Delivered | None:
        """Return what arrives next."""
        try:
            if timeout is not None and timeout <= 0:
                return self._arrived.get_nowait()
            return self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close all hosts and wait for the threads."""
        self._closed.set()
        for host in self._hosts.values():
            host.close()
        for thread in self._threads:
            thread.join()


@final
class _InProcessPeers(Peers):
    def __init__(self, carrier: InProcessCarrier, site: str) -> None:
        self._carrier = carrier
        self._site = site

    def send(self, site: str, payload: bytes) -> bytes:
        """Bring a parcel to another site."""
        return self._carrier.relay(self._site, site, payload)
