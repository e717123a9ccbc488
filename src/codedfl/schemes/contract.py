"""The contract of a scheme: what devices hold and reply, and what the server requests, awaits and combines.

A scheme reads no clock and opens no socket. An engine carries its messages and tells it which devices replied.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import Ring
from codedfl.errors import EngineError, ScenarioError
from codedfl.scenario import Privacy, SchemeOptions
from codedfl.schemes.identity import Identity
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.rounds import SERVER, Checks, CountedCosts, Restored, Round, Sharing, Stage, Transfer
from codedfl.schemes.secrecy import Leakage, Secrecy, all_cells
from codedfl.task import Problem, Shard

__all__ = [
    "SERVER",
    "Checks",
    "CountedCosts",
    "Device",
    "Leakage",
    "Options",
    "ReplySum",
    "Restored",
    "Round",
    "Scheme",
    "Server",
    "Sharing",
    "Stage",
    "Transfer",
    "check_at_most",
]

Options = TypeVar("Options", bound=SchemeOptions)

ReplySum = Callable[[int, Message], Ring | float]
"""Maps an epoch and a request to the ring of the replies, or to a bound on the entries of their sum."""


class Device(ABC):
    """The device's side of a scheme, made from the device's own shard.

    A device refuses what its scheme never asks for, with a :class:`CodedflError`. A refusal changes nothing.
    """

    def identify(self, identity: Identity) -> None:  # noqa: B027
        """Take the keys of a real site, before the first request; by default a device signs nothing."""

    def opens(self, request: Message) -> Sequence[int] | None:
        """Return the devices whose sum a reply to the request opens; None if it opens none, as by default."""
        return None

    @abstractmethod
    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply to a request of the server.

        Parameters
        ----------
        epoch : int
            Number of the epoch, counted from 1.
        request : Message
            What the server sends to this device in this round.
        work : Work
            Counter of the device's multiplications.
        """

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel that the grant enables, for another device or the server."""
        raise EngineError(f"{type(self).__name__} sends no parcels; choose another scheme")

    def absorb(self, parcel: Message, work: Work) -> None:
        """Receive another device's parcel."""
        raise EngineError(f"{type(self).__name__} takes no parcels; choose another scheme")

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Receive the parcel of a known sender, which says whose data it contains; engines call this method."""
        self.absorb(parcel, work)

    def owners(self, grant: Message) -> Set[int]:
        """Return whose data the parcel of a grant contains, so that its recipient knows; by default it is not told."""
        return frozenset()

    def keep(self) -> Message | None:
        """Return what it holds of all devices' data for a run that is resumed; None if it holds nothing, by default."""
        return None

    def recall(self, kept: Message) -> None:
        """Take again what :meth:`keep` returned in a session before; its own data are then of no more use."""
        raise EngineError(f"{type(self).__name__} keeps nothing; choose another scheme")

    def covers(self, epoch: int) -> Set[int]:
        """Return whose data the reply in an epoch is computed from, if hand-overs change this."""
        return frozenset()


class Server(Checks, ABC):
    """The server's side of a scheme; it knows what is public and what devices send to it."""

    @abstractmethod
    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Return the first round of an epoch: the request to each device, and how many replies to await."""

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        """Return another round of the same epoch, given the replies to the previous one; None if there is none."""
        return None

    @abstractmethod
    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the gradient of the data term in float64: the mean over data points, without the ridge term.

        Parameters
        ----------
        epoch : int
            Number of the epoch, counted from 1.
        replies : Mapping[int, Message]
            Replies to the last round of the epoch, by device.
        work : Work
            Counter of the server's multiplications.
        """

    def set_up(self) -> Sequence[Stage]:
        """Return the stages before the first epoch."""
        return ()

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Return a stage of hand-overs or repairs, or None.

        The engine calls it again after each stage, with no reply times and with the devices lost in that stage, until
        it returns None. If a device of a stage is lost, the stage has no effect. So the export of a repair must not
        change the state of its sender.

        Parameters
        ----------
        epoch : int
            Number of the epoch that has ended.
        reply_seconds : Mapping[int, float]
            When each device replied, in seconds after the request.
        lost : Sequence[int]
            Devices lost since the previous call.
        """
        return None

    def losses_left(self, promised: int, lost: Set[int]) -> int:
        """Return how many more devices may be lost at once, given those that are; the scheme ``promised`` so many."""
        return max(0, promised - len(lost))

    def receive(self, sender: int, parcel: Message) -> None:
        """Receive a device's upload; a resumed run receives it again."""
        raise EngineError(f"{type(self).__name__} takes no parcels; choose another scheme")

    def state(self) -> Message:
        """Return the state that a resumed run needs beside the model."""
        return {}

    def restore(self, state: Message) -> Restored:
        """Restore a state returned by :meth:`state`."""
        return Restored()

    def keep(self) -> Message:
        """Return what it needs beside :meth:`state` to go on with what devices keep; empty if that does not suffice."""
        return {}

    def resume(self, state: Message, kept: Message, holders: Sequence[int], present: Set[int]) -> Restored | None:
        """Restore a state without repeating the set-up; None if what devices have kept does not suffice.

        Parameters
        ----------
        state : Message
            As returned by :meth:`state`.
        kept : Message
            As returned by :meth:`keep`.
        holders : Sequence[int]
            Present devices that have what :meth:`Device.keep` returned.
        present : Set[int]
            Devices that can be asked.
        """
        return None

    def totals(self) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]] | None:
        """Return the sums of all Gram matrices A_i and right-hand sides B_i in float64, if the server knows them."""
        return None


def check_at_most(devices: int, key: str, value: int | None) -> None:
    """Refuse a setting that exceeds the number of devices."""
    if value is not None and value > devices:
        raise ScenarioError(f"{key} = {value} must be at most {devices}, the number of devices")


class Scheme(ABC, Generic[Options]):
    """Makes both sides of a scheme, and states what it promises and what it reveals.

    Statements about a scheme are properties of the instance, because those of a wrapper depend on the scheme inside.
    An instance is unchecked until :meth:`check` is called. So an instance made from nominal facts can be queried
    before data are loaded.

    Examples
    --------
    >>> from codedfl.scenario import SchemeOptions
    >>> from codedfl.schemes.plain.conventional import Conventional
    >>> public = Public(samples=(60, 40), features=8, outputs=2, dtype=np.dtype("float32"))
    >>> scheme = Conventional(public, SchemeOptions())
    >>> scheme.check()
    >>> scheme.exact, scheme.survives_losses, scheme.verdict
    (True, 0, 'not encrypted')
    >>> scheme.server().ask(1, np.zeros((8, 2))).quorum
    2
    """

    name: ClassVar[str]
    options_type: ClassVar[type[SchemeOptions]]
    needs: ClassVar[tuple[str, ...]] = ()
    """Libraries of the extra ``study`` that its devices use."""

    @final
    def __init__(self, public: Public, options: Options, *wrapped: "Scheme[Any]") -> None:
        self.public = public
        self.options = options
        self.wrapped = wrapped

    @final
    def with_public(self, public: Public) -> "Scheme[Options]":
        """Return the same scheme with other public facts."""
        return type(self)(public, self.options, *(each.with_public(public) for each in self.wrapped))

    def check(self) -> None:
        """Refuse options that do not fit the fleet or the data."""

    def announcement(self) -> Message:
        """Return what every real site is told before its device is made, such as the server's public key."""
        return {}

    @property
    def announcement_layout(self) -> Layout:
        """Layout of the announcement; sites refuse any other."""
        return {}

    def parcels(self, index: int) -> Sequence[Layout] | None:
        """Return the layouts of parcels that a device may receive, which sites enforce; None: not declared."""
        return None

    @property
    def parcels_at_once(self) -> int:
        """How many parcels of one device another may have to hold, because stages overlap."""
        return 1

    @abstractmethod
    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device."""

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare the devices of a simulation in which nobody reads single replies; they may be summed together.

        By default as for any other use. ``epochs`` is how many are trained at most.
        """
        return [self.device(index, shard) for index, shard in enumerate(problem.shards)]

    @abstractmethod
    def server(self) -> Server:
        """Prepare the server."""

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts | None:
        """Return what the set-up and the first epochs cost, where that follows from sizes without running all devices.

        It must equal what a run counts in which no device is lost. None, as by default: only a run tells.
        """
        return None

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the gradient of every epoch is that of all data, with each data point counted once."""

    @property
    def rounding(self) -> Rounding | None:
        """How far gradients may be from the plaintext ones, if the scheme is exact and states it."""
        return None

    @property
    def follows_timing(self) -> bool:
        """Whether the model depends on the order of replies, so that every timing draw trains another model."""
        return False

    @property
    def survives_losses(self) -> int:
        """How many devices may be lost without stopping the run."""
        return 0

    @property
    def decode_failures(self) -> int:
        """How many times its decoder failed: on sets of erasures that were then drawn again."""
        return sum(each.decode_failures for each in self.wrapped)

    @property
    def memory(self) -> int:
        """A bound on the bytes of matrices that all devices hold in one process, beside rows and Gram matrices."""
        return sum(each.memory for each in self.wrapped)

    @property
    def sums(self) -> bool:
        """Whether its server knows :meth:`Server.totals` after the first epoch."""
        return False

    @property
    def adds_up(self) -> bool:
        """Whether the gradient depends only on the sum of the replies and on which devices replied."""
        return self.reply_sum is not None

    @property
    def averages(self) -> bool:
        """Whether the replies of any set of devices give a gradient: the mean over their data points."""
        return False

    @property
    def reply_sum(self) -> ReplySum | None:
        """If only the sum of the replies is used: their ring, or a bound on its entries, shared out by data points."""
        return None

    @property
    def sharing(self) -> Sharing | None:
        """How devices hand data over; None if they do not."""
        return None

    @property
    def chosen_by_delays(self) -> Hashable:
        """What it chooses by the delays of the fleet; with equal choices its costs are equal. By default all delays."""
        return None if self.public.delays is None else self.public.delays.key()

    @property
    def uploads(self) -> bool:
        """Whether devices send parcels to the server; if not, they refuse such transfers."""
        return False

    @property
    def opens_sums(self) -> bool:
        """Whether rounds open sums of those devices that take part, so that none may be repeated with others."""
        return False

    @property
    def repeats_epochs(self) -> bool:
        """Whether an epoch may be computed again, because all replies concern one sum that the set-up has fixed."""
        return False

    @property
    def solver(self) -> str | None:
        """The solver that the scheme requires; None if any solver works."""
        return None

    @property
    def uses_rows(self) -> bool:
        """Whether devices can compute gradients from rows, for losses without Gram matrix and for clipped residuals."""
        return False

    def refuses_noise(self, privacy: Privacy) -> str | None:
        """Return why noise for differential privacy would not protect here, as part of a sentence; None if it does."""
        return "its server sees more than sums over all devices, where the noise of a single device hides little"

    @property
    def unfit_for_sites(self) -> str | None:
        """If it must not run on real sites: one sentence with the reason and advice; else None."""
        return None

    @property
    @abstractmethod
    def verdict(self) -> str:
        """Its secrecy in a few words, such as those of ``codedfl.schemes.secrecy``; the table is :meth:`secrecy`."""

    @property
    @abstractmethod
    def verdict_reason(self) -> str:
        """The verdict's reason, in one sentence."""

    def secrecy(self) -> tuple[Secrecy, ...]:
        """Return what each adversary may learn of each asset; by default nothing is examined."""
        return all_cells({})

    @property
    def allowed_if(self) -> str:
        """What must be acceptable to whoever allows the scheme for private data: the rest of "allow it if"."""
        return "you have examined it: its author has not said what it reveals"

    @abstractmethod
    def leakage(self) -> Leakage:
        """Return what each party sees."""
