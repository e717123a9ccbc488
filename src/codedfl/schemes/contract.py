"""What a scheme is: what devices hold and reply, and what the server asks, awaits and combines.

A scheme never reads a clock and opens no socket: an engine carries its messages and tells it who replied.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import Ring
from codedfl.network import DelayModel, RoundCosts
from codedfl.scenario import SchemeOptions
from codedfl.schemes.messages import Layout, Message, Work, layout, message_bits
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.security.transcript import Exposure, Transcript
from codedfl.task import Shard

__all__ = [
    "SERVER",
    "AddingScheme",
    "Device",
    "Exposure",
    "Layout",
    "Leakage",
    "Message",
    "PlacingServer",
    "Public",
    "Round",
    "Scheme",
    "Server",
    "SharingDevice",
    "SharingScheme",
    "SharingServer",
    "StandingServer",
    "SummedServer",
    "Transcript",
    "Transfer",
    "Work",
    "layout",
    "message_bits",
]

Options = TypeVar("Options", bound=SchemeOptions)

SERVER = -1
"""The recipient of what a device uploads before the first epoch."""


@dataclass(frozen=True)
class Public:
    """What every party knows before the first epoch."""

    samples: tuple[int, ...]
    features: int
    outputs: int
    dtype: "np.dtype[Any]"
    largest_feature: float = 1.0
    """A bound on the magnitude of every feature, agreed on beforehand; devices refuse data beyond it."""
    largest_target: float = 1.0
    """The same for targets."""
    delays: DelayModel | None = None
    """What is known of the fleet and its links, declared or measured; None: nothing."""

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.samples)

    @property
    def model_layout(self) -> tuple["np.dtype[Any]", tuple[int, int]]:
        """Format and shape of a model or gradient as devices send it."""
        return self.dtype, (self.features, self.outputs)


@dataclass(frozen=True)
class Leakage:
    """Who sees what beyond the model and the sizes of the shards, in words."""

    server: str
    devices: str
    eavesdropper: str

    def to_table(self) -> dict[str, str]:
        """Return the words by party."""
        return {"server": self.server, "devices": self.devices, "eavesdropper": self.eavesdropper}


@dataclass(frozen=True)
class Round:
    """One question of an epoch: a message for each asked device, which may be none."""

    epoch: int
    requests: Mapping[int, Message] = field(repr=False)
    point: Float[np.ndarray, "d c"] | None = field(default=None, repr=False)
    """The model whose gradient will come back, where it is not the given one in the format of the scenario."""
    deadline: float | None = None
    """Seconds after the broadcast when the server goes on with what is there, if that is ``Server.least`` replies."""
    standing: bool = False
    """Whether questions of earlier rounds that have no reply yet stay open, so that it may come in this round."""
    expected: Mapping[int, Layout] | None = field(default=None, repr=False)
    """What a proper reply of each device looks like, for engines that must not trust what they carry; None: unsaid."""


class Device(ABC):
    """The device's side; it is made from the shard it holds."""

    @abstractmethod
    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the server's question of an epoch (counted from 1)."""


class Server(ABC):
    """The server's side; it knows the public facts and what it is sent."""

    @abstractmethod
    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Say which devices are asked in an epoch, and what."""

    @property
    @abstractmethod
    def quorum(self) -> int:
        """How many replies make an epoch's gradient."""

    @final
    def enough(self, replied: Sequence[int]) -> bool:
        """Say whether the replies that have arrived make the gradient."""
        return len(replied) >= self.quorum

    @property
    def least(self) -> int:
        """How many replies will do when no more come: the deadline has passed, or devices are lost."""
        return self.quorum

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Return a further question of the same epoch, given the replies to the one before, or None to combine.

        ``quorum`` and ``least`` are read anew for every question.
        """
        return None

    @abstractmethod
    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the gradient of the data term (mean over data points, without the ridge term) in float64.

        The replies are those to the last question of the epoch.
        """


class SummedServer(Server):
    """A server that learns the sums over all data, and so can solve in one go."""

    @abstractmethod
    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]]:
        """Return the sums of all A_i = X_i^T X_i and of all B_i = X_i^T Y_i in float64, once an epoch was combined."""


class StandingServer(Server):
    """A server that goes on while questions are open, and takes the replies when they come."""

    @abstractmethod
    def memory(self) -> Message:
        """Return what the server must remember to go on after an interruption."""

    @abstractmethod
    def reopen(self, memory: Message) -> Sequence[Round]:
        """Take back what was remembered; return the questions that are open, under the epoch each was asked in."""


@dataclass(frozen=True)
class Transfer:
    """A device is told to send to another; ``grant`` is what it needs for that. One that hands over leaves.

    What is ``relayed`` goes up to the server and down to the recipient, on those links.
    """

    sender: int
    recipient: int
    support: int | None
    grant: Message = field(repr=False)
    relayed: bool = False


class SharingDevice(Device):
    """A device that can hand over what it holds, and take in what others hand over."""

    @abstractmethod
    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel for another device; after this, the device holds nothing."""

    @abstractmethod
    def absorb(self, parcel: Message, work: Work) -> None:
        """Take in another device's parcel."""


class SharingServer(Server):
    """A server that moves data from slow devices to others between epochs."""

    @abstractmethod
    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Sequence[Transfer]:
        """Say who hands over to whom, given when each asked device replied."""

    @abstractmethod
    def memory(self) -> Message:
        """Return what the server must remember beside the hand-overs to go on after an interruption."""

    @abstractmethod
    def resume(self, moved: Sequence[tuple[int, int, int | None]], memory: Message) -> Sequence[Transfer]:
        """Take over the (sender, recipient, support) of earlier epochs; return the transfer of each, in order."""


class PlacingServer(Server):
    """A server that has devices send to each other or to itself before the first epoch, and when devices are lost."""

    @abstractmethod
    def stages(self) -> Sequence[Sequence[Transfer]]:
        """Return the transfers of the set-up: a stage begins when the one before is over."""

    def receive(self, sender: int, parcel: Message) -> None:
        """Take in what a device uploads in a stage, again in a resumed run."""
        raise NotImplementedError(f"{type(self).__name__} asks for no uploads")

    @abstractmethod
    def repair(self, lost: Sequence[int]) -> Sequence[Transfer]:
        """Take note of devices that are gone for good; return a stage of transfers that makes up for one, if any can.

        It is called again after that stage: with none lost if all was sent, else with whom the stage was missing, and
        then nothing of it was sent. So an export of such a stage must leave its sender as it was.
        """

    @abstractmethod
    def memory(self) -> Message:
        """Return what the server must remember to go on after an interruption."""

    @abstractmethod
    def recall(self, memory: Message) -> Sequence[Sequence[Transfer]]:
        """Take back what was remembered; return the transfers beside the set-up that led there."""


class Scheme(ABC, Generic[Options]):
    """A scheme: makes the two sides, and says what it promises and what it gives away."""

    name: ClassVar[str]
    options_type: ClassVar[type[SchemeOptions]]
    exact: ClassVar[bool]
    """Whether the gradient of every epoch is that of all data, each point counted once."""
    follows_timing: ClassVar[bool]
    """Whether the model depends on who replies first, so that every timing draw trains another model."""
    sums: ClassVar[bool] = False
    """Whether its server is a :class:`SummedServer`."""
    adds_up: ClassVar[bool] = False
    """Whether the gradient depends on who replied and on the sum of the replies only."""
    uploads: ClassVar[bool] = False
    """Whether devices send parcels to the server, too; else they refuse to, whoever asks."""
    solver: ClassVar[str | None] = None
    """The solver it is made for, where that is not any."""
    verdict: ClassVar[str]
    """What is known of its secrecy, in a word or two."""
    because: ClassVar[str]
    """The verdict's reason, in one sentence."""

    @final
    def __init__(self, public: Public, options: Options) -> None:
        self.public = public
        self.options = options
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Refuse options that do not fit the fleet or the data."""

    @abstractmethod
    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device."""

    @abstractmethod
    def server(self) -> Server:
        """Prepare the server."""

    @property
    def unfit_for_sites(self) -> str | None:
        """Why it must not run on real sites, if it must not: in one sentence, with what to do."""
        return None

    @property
    @abstractmethod
    def survives_losses(self) -> int:
        """How many devices may vanish for good without stopping the run."""

    @abstractmethod
    def leakage(self) -> Leakage:
        """Say who sees what."""

    @abstractmethod
    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Return the views that parties had in a run, one of each kind, with the truth under them."""


class AddingScheme(Scheme[Options]):
    """A scheme whose replies may be added up before they are combined, and that knows how large the sum can get."""

    adds_up = True
    averages: ClassVar[bool] = False
    """Whether the replies of any devices make a gradient: the mean over their data points."""

    @abstractmethod
    def reply_sum(self, epoch: int, request: Message) -> Ring | float:
        """Return the ring that replies to a question are residues of, or what no entry of their sum exceeds.

        In the second case no device's entry exceeds its share of that, by its share of all data points.
        """


class SharingScheme(Scheme[Options]):
    """A scheme that moves data between devices. What a device's reply costs does not depend on what it has absorbed."""

    @abstractmethod
    def policy(self) -> SharingPolicy:
        """Return the sharing policy at its beginning."""

    @property
    @abstractmethod
    def parallel_reception(self) -> bool:
        """Whether a device takes in several parcels at once instead of one after the other."""

    def questions(self, active: int, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
        """Return what the questions of an epoch cost when so many devices are active.

        ``alone`` is what the only question costs when one device is left, told for all devices, and ``reply`` the reply
        to it. Unless a scheme says otherwise, it costs as much with more devices, and is the only one.
        """
        return (alone,)
