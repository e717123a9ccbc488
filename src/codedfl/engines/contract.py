"""The contract of an engine: it carries rounds to the devices and brings back enough replies, with their times."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from codedfl.network import RoundCosts, TransferCosts
from codedfl.schemes.contract import Round, Stage
from codedfl.schemes.messages import Message

Receive = Callable[[int, Message], None]
"""Takes the sender and its parcel."""

LATE_ROUNDS = 4
"""How many rounds wait for late replies; an interrupted run computes as many epochs again at most."""


@dataclass(frozen=True)
class Reply:
    """A device's reply, and how many seconds after the request it arrived."""

    device: int
    message: Message
    seconds: float
    offline_seconds: float = 0.0
    """How long the device reports to have computed before the request."""


@dataclass(frozen=True)
class Answer:
    """The replies of a round in the order of their arrival, and what the round cost."""

    replies: tuple[Reply, ...]
    costs: RoundCosts
    lost: tuple[int, ...] = ()
    """Asked devices that are known to be gone for good."""


@dataclass(frozen=True)
class StageOutcome:
    """What a stage cost, or who was missing so that nothing was sent."""

    costs: Sequence[TransferCosts]
    lost: tuple[int, ...] = ()


class Engine(ABC):
    """Computes and waits; knows no mathematics."""

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began."""

    @abstractmethod
    def ask(self, question: Round, *, offline: bool) -> Answer:
        """Send a round's requests and wait for its quorum; what was computed ``offline`` costs no time.

        After the round's deadline, if it has one, its ``least`` replies suffice.
        """

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        """Return replies that have arrived since, to rounds with ``needed`` replies that ended without them.

        With ``wait``, also those that are still to come; time of the run may pass. By default there are none.
        """
        return ()

    def drop(self, device: int, reason: str) -> None:  # noqa: B027 - in virtual time nobody need be told
        """Take note that a device is asked nothing more."""

    @abstractmethod
    def reopen(self, question: Round, began: float) -> None:
        """Go on waiting for the replies to a round that was open when the run was interrupted."""

    @abstractmethod
    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        """Carry out a stage; if a device of it is gone, nothing is sent.

        ``number`` selects the random numbers: the epoch of hand-overs, else the count of earlier stages without them.
        Parcels for the server are given to ``receive``.
        """

    def carry_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> Sequence[StageOutcome]:
        """Carry out stages of the set-up that may overlap, numbered from ``first``; end with one that lacks a device.

        By default one stage after the other.
        """
        outcomes: list[StageOutcome] = []
        for number, stage in enumerate(stages, start=first):
            outcomes.append(self.carry(stage, number, receive))
            if outcomes[-1].lost:
                break
        return outcomes

    @abstractmethod
    def replay(self, stage: Stage, receive: Receive) -> None:
        """Bring the parties of a resumed run to where this stage had brought them; it takes no time of the run."""

    def replay_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> None:
        """Do so for stages that may overlap, numbered from ``first``; by default one after the other."""
        for stage in stages:
            self.replay(stage, receive)

    @property
    def lost(self) -> Set[int] | None:
        """Devices that cannot be asked; None, as by default: those that a resumed training had lost."""
        return None

    def keep(self, own: Message, devices: Iterable[int], *, anew: bool) -> None:  # noqa: B027 - virtual time keeps none
        """Let devices and the server, its ``own``, keep what they hold; ``anew`` after a set-up."""

    def kept(self) -> tuple[Message, Sequence[int]]:
        """Return what the server has kept, and which devices have; nothing by default."""
        return {}, ()

    def recall(self, devices: Sequence[int]) -> None:  # noqa: B027 - virtual time keeps none
        """Let devices take again what they have kept."""

    @abstractmethod
    def charge_server(self, macs: int) -> None:
        """Let the server's own computing take its time."""
