"""What carries bytes between the server and the sites of its devices: all that an adapter to a network has to be.

The server's side is a :class:`Carrier`; a device's side calls a :class:`Host` and gives it :class:`Peers`. Neither
reads what it carries, and neither is trusted: what is lost, doubled, delayed or altered is noticed by both ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Carrier", "Delivered", "Host", "Peers"]


@dataclass(frozen=True)
class Delivered:
    """What came back for a question, or that nothing will."""

    site: str
    tag: int
    """That of the question, as it was given to :meth:`Carrier.send`."""
    payload: bytes | None = field(repr=False)
    """What the site's host returned; None: the site is gone or could not be reached."""
    seconds: float
    """From sending the question to this."""


class Carrier(ABC):
    """The server's side; its methods are called from one thread."""

    @abstractmethod
    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Wait until every site can be asked; after ``timeout`` raise an ``EngineError`` that names who cannot."""

    @abstractmethod
    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Put a question to a site and return at once; a site may have several open questions, each with its own tag.

        Failure to send is reported by :meth:`next`.
        """

    @abstractmethod
    def next(self, timeout: float | None) -> Delivered | None:
        """Wait for the next reply or failure, in the order of their arrival; None if ``timeout`` seconds bring none.

        With a timeout of 0 it only looks; with None it waits for as long as a question is open.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is open and let go of the network; doing so twice does no harm."""


class Peers(ABC):
    """How a device reaches the others; it may be called from several threads at once."""

    @abstractmethod
    def send(self, site: str, payload: bytes) -> bytes:
        """Bring a parcel to ``Host.handle_peer`` of another site, by whatever way, and return what that returned.

        Raise an ``EngineError`` if the site did not answer.
        """


class Host(ABC):
    """A device's side, asked by the adapter; both methods may be called from several threads at once.

    They raise nothing: what is wrong with a question is said in the bytes that come back.
    """

    @abstractmethod
    def handle(self, payload: bytes) -> bytes:
        """Answer a question of the server; this takes as long as the computing does."""

    @abstractmethod
    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Answer another site, which the network says is ``sender``."""

    @abstractmethod
    def close(self) -> None:
        """Let calls that wait return soon, and forget all secrets; doing so twice does no harm."""
