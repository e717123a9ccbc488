"""What an engine does: it carries a round to the devices and brings back enough replies, with their times."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codedfl.network import RoundCosts, TransferCosts
from codedfl.schemes.contract import Message, Round, Transfer

__all__ = ["Answer", "Engine", "Placed", "Receive", "Reply"]

Receive = Callable[[int, Message], None]
"""Takes the sender and its parcel."""


@dataclass(frozen=True)
class Reply:
    """A device's answer, and how many seconds after the broadcast it arrived."""

    device: int
    message: Message
    seconds: float


@dataclass(frozen=True)
class Answer:
    """The replies of a round in the order of their arrival, and what the round cost."""

    replies: tuple[Reply, ...]
    costs: RoundCosts
    lost: tuple[int, ...] = ()
    """Asked devices that are known to be gone for good."""


@dataclass(frozen=True)
class Placed:
    """What a stage of transfers cost when all was done, or who was missing so that nothing was sent."""

    costs: list[TransferCosts]
    lost: tuple[int, ...] = ()


class Engine(ABC):
    """Computes and waits; knows no mathematics."""

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began."""

    @abstractmethod
    def ask(self, question: Round, enough: Callable[[Sequence[int]], bool], *, offline: bool, least: int = 0) -> Answer:
        """Put a question to the devices and wait for enough replies; what was computed ``offline`` costs no time.

        After the deadline of the question, if it has one, ``least`` replies will do.
        """

    @abstractmethod
    def reopen(self, question: Round, began: float) -> None:
        """Go on waiting for the replies to a question that was open when the run was interrupted."""

    @abstractmethod
    def hand_over(self, epoch: int, transfers: Sequence[Transfer], *, parallel: bool) -> list[TransferCosts]:
        """Let devices hand over to each other after an epoch; return what it cost when all is done."""

    @abstractmethod
    def place(self, stage: int, transfers: Sequence[Transfer], receive: Receive) -> Placed:
        """Let devices send to each other before the next epoch; if one of them is gone, nothing is sent.

        What goes to the server is given to ``receive``.
        """

    @abstractmethod
    def replay(self, transfers: Sequence[Transfer], receive: Receive | None = None) -> None:
        """Bring the parties of a resumed run to where these transfers had brought them; their time is over.

        Without ``receive`` they were hand-overs, of which nothing goes to the server.
        """

    @abstractmethod
    def charge_server(self, macs: int) -> None:
        """Let the server's own computing take its time."""
