"""The interface between deployments and a network: what an adapter has to provide.

The server's side is a :class:`Carrier`; a device's side calls a :class:`Host` and gives it :class:`Peers`. Carriers
transport bytes and are not trusted: both ends detect loss, duplication, delay and alteration.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivered:
    """The reply to a request, or its failure."""

    site: str
    tag: int
    """As given to :meth:`Carrier.send`."""
    payload: bytes | None = field(repr=False)
    """What the site's host returned; None if the site cannot be reached."""
    seconds: float
    """Since the request was sent."""


class Carrier(ABC):
    """The server's side; its methods are called from one thread."""

    @abstractmethod
    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Wait until every site can be asked; after ``timeout`` raise an ``EngineError`` that names the others."""

    def present(self, sites: Sequence[str], timeout: float) -> Sequence[str]:
        """Return the sites that can be asked, at the latest after ``timeout``; by default all must be."""
        self.ready(sites, timeout)
        return sites

    def returned(self, sites: Sequence[str]) -> Sequence[str]:
        """Return those of some lost sites that can be asked again, without waiting; try to get the others back.

        By default no site comes back while a job runs.
        """
        return ()

    @abstractmethod
    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Send a request and return at once; several may be open per site. :meth:`next` reports failures."""

    @abstractmethod
    def next(self, timeout: float | None) -> Delivered | None:
        """Return the next reply or failure in order of arrival; None after ``timeout`` seconds.

        A timeout of None waits as long as a request is open.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel open requests and release the network; may be called twice."""


class Peers(ABC):
    """A device's way to the other sites; thread-safe."""

    @abstractmethod
    def send(self, site: str, payload: bytes) -> bytes:
        """Pass a parcel to ``Host.handle_peer`` of another site and return the result; raise ``EngineError``."""

    def waiting(self, still: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return a context in which the site waits for parcels of others, as long as ``still`` it has to.

        Nobody need know by default.
        """
        return nullcontext()


class Host(ABC):
    """A device's side, called by the adapter; thread-safe. Errors are in the returned bytes, never raised."""

    @abstractmethod
    def handle(self, payload: bytes) -> bytes:
        """Answer a request of the server; this takes as long as the computing."""

    @abstractmethod
    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Answer another site, which the network has authenticated as ``sender``."""

    @abstractmethod
    def close(self) -> None:
        """Cancel waiting calls and forget all secrets; may be called twice."""
