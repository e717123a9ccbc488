"""Rounds and stages: what a server asks, whom it awaits, and what devices send each other.

:class:`Checks` is the part of a server's contract that finds wrong replies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import EngineError
from codedfl.network import RoundCosts, TransferCosts, TransferTable
from codedfl.schemes.messages import Layout, Message
from codedfl.schemes.sharing.policy import SharingPolicy

SERVER = -1
"""The recipient number of an upload."""


@dataclass(frozen=True)
class Round:
    """One request to each of some devices, and how many replies the server awaits; it may ask no device.

    >>> request = {"model": np.zeros((8, 2))}
    >>> everyone = Round.same(1, [0, 1, 2], request)
    >>> everyone.quorum, everyone.least
    (3, 3)
    >>> fastest = Round.same(1, [0, 1, 2], request, quorum=2, least=1, deadline=5.0)
    >>> fastest.quorum, fastest.least
    (2, 1)
    """

    epoch: int
    requests: Mapping[int, Message] = field(repr=False)
    point: Float[np.ndarray, "d c"] | None = field(default=None, repr=False)
    """The model at which devices compute the gradient, if it is not the given model in the scenario's precision."""
    quorum: int = -1
    """How many replies finish the round; by default, one for each request."""
    least: int = -1
    """How many replies suffice after the deadline or when devices are lost; by default, the quorum."""
    deadline: float | None = None
    """Seconds after the request; from then on the server continues as soon as it has ``least`` replies."""
    standing: bool = False
    """Whether unanswered requests of earlier rounds stay open, so that their replies may arrive in this round."""
    expected: Mapping[int, Layout] | None = field(default=None, repr=False)
    """Layout of each device's reply, which engines on real sites enforce; None if it is not declared."""
    needed: int | None = None
    """How many replies determine all others, so that any further reply checks them; None if replies do not."""

    def __post_init__(self) -> None:
        if self.quorum < 0:
            object.__setattr__(self, "quorum", len(self.requests))
        if self.least < 0:
            object.__setattr__(self, "least", self.quorum)

    @classmethod
    def same(
        cls, epoch: int, devices: Sequence[int], request: Message, reply: Layout | None = None, **more: Any
    ) -> "Round":
        """Make a round that sends the same request to several devices and expects replies of one layout."""
        expected = None if reply is None else dict.fromkeys(devices, reply)
        return cls(epoch, dict.fromkeys(devices, request), expected=expected, **more)


@dataclass(frozen=True)
class Transfer:
    """A device sends a parcel to another device or to the server; the server's ``grant`` enables it.

    A ``relayed`` parcel takes the sender's uplink to the server and the recipient's downlink from there.
    """

    sender: int
    recipient: int
    grant: Message = field(repr=False)
    relayed: bool = False


@dataclass(frozen=True)
class Stage:
    """Transfers that run side by side; unless it says otherwise, a stage begins when the previous one has ended."""

    transfers: Sequence[Transfer]
    retires: bool = False
    """Whether the transfers are hand-overs, after which the senders hold no data and retire."""
    parallel: bool = False
    """Whether a recipient of hand-overs receives several parcels at once instead of one after the other."""
    after: tuple[int, ...] | None = None
    """For a stage of the set-up that may overlap with those before it: which of them, by their numbers in the set-up, a
    device must have received its parcels of, and made its own of, before it sends any. None: the stage begins when all
    others have ended. An engine may also carry out such stages one after the other."""
    counted: Callable[[], Sequence[TransferCosts]] | None = field(default=None, repr=False)
    """Returns what the transfers will cost, where that is known beforehand."""


@dataclass(frozen=True, eq=False)
class CountedCosts:
    """Costs without a run: of the rounds of the first epochs, and of the stages of the set-up.

    Rounds of the first epoch are counted as if nothing was computed beforehand.
    """

    epochs: Sequence[Sequence[RoundCosts]]
    stages: Sequence[TransferTable] = ()
    after: Sequence[tuple[int, ...] | None] = ()
    """Of each stage, as :attr:`Stage.after`; empty: none overlaps with another."""


@dataclass(frozen=True)
class Restored:
    """What an engine replays when it restores a server: stages after those of the set-up, and open rounds."""

    stages: Sequence[Stage] = ()
    rounds: Sequence[Round] = ()
    """Each has the epoch in which it began."""


class Checks:
    """What a server whose replies check each other can do; by default nothing is checked."""

    def check(self, question: Round, replies: Mapping[int, Message]) -> tuple[int, ...] | None:
        """Return whose replies to a round with ``needed`` are wrong, given more than it needs.

        It is empty if all replies agree, and None if some are wrong and there are too few to tell whose.
        """
        return ()

    def defer(self, question: Round, replies: Mapping[int, Message]) -> Message | None:
        """Remember a round that no spare reply has checked, for :meth:`audit`; return what changes in the state.

        None if the round cannot be remembered; then it is asked again.
        """
        return None

    def audit(self, epoch: int) -> Round | None:
        """Return one round whose replies check all deferred ones; None if there are none."""
        return None

    def audited(self, replies: Mapping[int, Message]) -> Sequence[int] | None:
        """Return the epochs that the replies to :meth:`audit` confirm, None if one of them is wrong; forget them."""
        return ()

    def rewind(self, state: Message) -> None:
        """Go back to an earlier state of the training; which devices hold what, or are lost, stays as it is."""
        raise EngineError(f"{type(self).__name__} cannot go back; choose another scheme")


def _one_round(active: int, alone: RoundCosts, reply: Message) -> Sequence[RoundCosts]:
    return (alone,)


@dataclass(frozen=True)
class Sharing:
    """How devices hand data over. The cost of a reply must not depend on the parcels that the device received."""

    policy: Callable[[], SharingPolicy]
    """Makes a sharing policy in its initial state."""
    parallel: bool = False
    """Whether a device receives several parcels at once."""
    rounds: Callable[[int, RoundCosts, Message], Sequence[RoundCosts]] = _one_round
    """Returns the costs of the rounds of an epoch. Its arguments: the number of active devices; the costs of the
    single round that is run when one device is active, given for all devices; and the reply of that round."""
