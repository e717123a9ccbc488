"""The contract of a scheme: what devices hold and reply, and what the server asks, awaits and combines.

A scheme never reads a clock and opens no socket: an engine carries its messages and tells it who replied.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import Ring
from codedfl.errors import EngineError, ScenarioError
from codedfl.network import DelayModel, RoundCosts
from codedfl.scenario import SchemeOptions
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.task import Shard

Options = TypeVar("Options", bound=SchemeOptions)

SERVER = -1
"""The recipient of what a device uploads."""

ReplySum = Callable[[int, Message], Ring | float]
"""Takes an epoch and a request; returns the ring of the replies, or a bound on the entries of their sum."""


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
    """One question of an epoch: a request for each asked device, of which there may be none."""

    epoch: int
    requests: Mapping[int, Message] = field(repr=False)
    point: Float[np.ndarray, "d c"] | None = field(default=None, repr=False)
    """The model whose gradient will come back, where it is not the given one in the format of the scenario."""
    quorum: int = -1
    """How many replies finish the round; as many as there are requests unless given."""
    least: int = -1
    """How many replies suffice when the deadline has passed or devices are lost; the quorum unless given."""
    deadline: float | None = None
    """Seconds after the request when the server goes on if ``least`` replies are there."""
    standing: bool = False
    """Whether requests of earlier rounds that have no reply yet stay open, so that it may come in this round."""
    expected: Mapping[int, Layout] | None = field(default=None, repr=False)
    """Layout of each device's reply, for engines that do not trust what they carry; None: not given."""

    def __post_init__(self) -> None:
        if self.quorum < 0:
            object.__setattr__(self, "quorum", len(self.requests))
        if self.least < 0:
            object.__setattr__(self, "least", self.quorum)

    @classmethod
    def same(
        cls, epoch: int, devices: Sequence[int], request: Message, reply: Layout | None = None, **more: Any
    ) -> "Round":
        """Send one request to several devices, whose replies have one layout."""
        expected = None if reply is None else dict.fromkeys(devices, reply)
        return cls(epoch, dict.fromkeys(devices, request), expected=expected, **more)


@dataclass(frozen=True)
class Transfer:
    """A device sends a parcel to another, or to the server; ``grant`` is what it needs for that.

    What is ``relayed`` goes up to the server and down to the recipient, on those links.
    """

    sender: int
    recipient: int
    grant: Message = field(repr=False)
    relayed: bool = False


@dataclass(frozen=True)
class Stage:
    """Transfers that run side by side; a stage begins when the one before is over."""

    transfers: Sequence[Transfer]
    retires: bool = False
    """Whether the transfers are hand-overs: senders hold nothing after them and retire."""
    parallel: bool = False
    """Whether a recipient of hand-overs takes several parcels at once instead of one after the other."""


@dataclass(frozen=True)
class Restored:
    """What follows from a server's state: stages to replay after those of the set-up, and rounds that are open."""

    stages: Sequence[Stage] = ()
    rounds: Sequence[Round] = ()
    """Each under the epoch in which it began."""


class Device(ABC):
    """The device's side; it is made from the shard it holds."""

    @abstractmethod
    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the server's request of an epoch (counted from 1)."""

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel for another device or the server."""
        raise EngineError(f"{type(self).__name__} sends no parcels; choose another scheme")

    def absorb(self, parcel: Message, work: Work) -> None:
        """Take in another device's parcel."""
        raise EngineError(f"{type(self).__name__} takes no parcels; choose another scheme")


class Server(ABC):
    """The server's side; it knows the public facts and what it is sent."""

    @abstractmethod
    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Return which devices are asked in an epoch, and what."""

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Return a further round of the same epoch, given the replies to the one before, or None to combine."""
        return None

    @abstractmethod
    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the gradient of the data term (mean over data points, without the ridge term) in float64.

        The replies are those to the last round of the epoch.
        """

    def set_up(self) -> Sequence[Stage]:
        """Return the stages before the first epoch."""
        return ()

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Return a stage of hand-overs or repairs, given when each device replied and who was lost.

        It is called again after that stage, with no reply times and with the devices that the stage missed, until it
        returns None. A stage that misses a device is not carried out, so an export of a repair must leave its sender
        as it was.
        """
        return None

    def receive(self, sender: int, parcel: Message) -> None:
        """Take in what a device uploads in a stage, again in a resumed run."""
        raise EngineError(f"{type(self).__name__} takes no parcels; choose another scheme")

    def state(self) -> Message:
        """Return what a resumed run needs beside the model."""
        return {}

    def restore(self, state: Message) -> Restored:
        """Take back a state."""
        return Restored()

    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]] | None:
        """Return the sums of all A_i = X_i^T X_i and all B_i = X_i^T Y_i in float64, if the server knows them."""
        return None


def check_at_most(devices: int, key: str, value: int | None) -> None:
    """Refuse a setting that exceeds the number of devices."""
    if value is not None and value > devices:
        raise ScenarioError(f"{key} = {value} must be at most {devices}, the number of devices")


def _one_round(active: int, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
    return (alone,)


@dataclass(frozen=True)
class Sharing:
    """How a scheme moves data between devices. What a reply costs does not depend on what a device has absorbed."""

    policy: Callable[[], SharingPolicy]
    """Makes the sharing policy at its beginning."""
    parallel: bool = False
    """Whether a device takes in several parcels at once."""
    rounds: Callable[[int, RoundCosts, Message], Sequence[RoundCosts]] = _one_round
    """Takes the number of active devices, the costs of the only round when one device is active (given for all
    devices) and its reply; returns the costs of the rounds of an epoch."""


class Scheme(ABC, Generic[Options]):
    """A scheme makes the two sides, and says what it promises and what it gives away.

    What is true of it are properties of the instance: a wrapper's follow from the schemes inside it. An instance is
    not checked until :meth:`check` is called, so one made from nominal facts can be asked before data are loaded.
    """

    name: ClassVar[str]
    options_type: ClassVar[type[SchemeOptions]]

    @final
    def __init__(self, public: Public, options: Options, *wrapped: "Scheme[Any]") -> None:
        self.public = public
        self.options = options
        self.wrapped = wrapped

    @final
    def with_public(self, public: Public) -> "Scheme[Options]":
        """Return the same scheme for other public facts."""
        return type(self)(public, self.options, *(each.with_public(public) for each in self.wrapped))

    def check(self) -> None:
        """Refuse options that do not fit the fleet or the data."""

    @abstractmethod
    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device."""

    @abstractmethod
    def server(self) -> Server:
        """Prepare the server."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the gradient of every epoch is that of all data, each point counted once."""

    @property
    def follows_timing(self) -> bool:
        """Whether the model depends on who replies first, so that every timing draw trains another model."""
        return False

    @property
    def survives_losses(self) -> int:
        """How many devices may vanish for good without stopping the run."""
        return 0

    @property
    def sums(self) -> bool:
        """Whether its server knows the :meth:`Server.totals` once an epoch was combined."""
        return False

    @property
    def adds_up(self) -> bool:
        """Whether the gradient depends on who replied and on the sum of the replies only."""
        return self.reply_sum is not None

    @property
    def averages(self) -> bool:
        """Whether the replies of any devices make a gradient: the mean over their data points."""
        return False

    @property
    def reply_sum(self) -> ReplySum | None:
        """Where replies add up to a sum of known size: the ring of their residues, or a bound on the sum's entries.

        In the second case no device's entry exceeds its share of the bound, by its share of all data points.
        """
        return None

    @property
    def sharing(self) -> Sharing | None:
        """How data move between devices; None if they do not."""
        return None

    @property
    def uploads(self) -> bool:
        """Whether devices send parcels to the server, too; else they refuse to, whoever asks."""
        return False

    @property
    def solver(self) -> str | None:
        """The solver it is made for, where that is not any."""
        return None

    @property
    def unfit_for_sites(self) -> str | None:
        """Why it must not run on real sites, if it must not: in one sentence, with what to do."""
        return None

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What is known of its secrecy, in a word or two."""

    @property
    @abstractmethod
    def verdict_reason(self) -> str:
        """The verdict's reason, in one sentence."""

    @abstractmethod
    def leakage(self) -> Leakage:
        """Return who sees what."""
