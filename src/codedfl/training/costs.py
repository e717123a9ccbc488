"""What each device receives, sends and multiplies, and what replies and hand-overs of schemes that share cost."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Int

from codedfl.engines.virtual import move
from codedfl.network import RoundCosts, TransferCosts, TransferTable
from codedfl.schemes.contract import Device, Round, Scheme, Server
from codedfl.schemes.messages import Message, Work, message_bits
from codedfl.schemes.sharing.policy import Handover
from codedfl.task import Problem, Shard
from codedfl.training import History

LINKS = ("down", "up", "d2d")
"""Received from the server, sent to it, sent to other devices."""

Spent = dict[str, Int[np.ndarray, "n"]]
"""Bits by link, and multiplications (``macs``), by device."""


def nothing(devices: int) -> Spent:
    """Return the zeros that costs are added to."""
    return {name: np.zeros(devices, np.int64) for name in (*LINKS, "macs")}


def spent_in(history: History, devices: int) -> Spent:
    """Return what each device spent in a training."""
    spent = nothing(devices)
    numbers = [number for questions in history.questions() for number in questions]
    for number, times in zip(*np.unique(numbers, return_counts=True), strict=True):
        add_round(spent, history.rounds[number], times=int(times))
    for stage in history.stages:
        add_transfers(spent, stage.costs)
    return spent


def add_round(
    spent: Spent, costs: RoundCosts, places: slice | Int[np.ndarray, "k"] = slice(None), times: int = 1
) -> None:
    """Add a question that was put so many times; ``places`` says to whom of the asked devices."""
    asked = costs.asked[places]
    spent["down"][asked] += times * costs.down_bits[places]
    spent["up"][asked] += times * costs.up_bits[places]
    spent["macs"][asked] += times * costs.macs[places]


def add_transfers(spent: Spent, transfers: Sequence[TransferCosts]) -> None:
    """Add parcels: what is relayed comes down to its recipient, the rest counts for the sender."""
    table = TransferTable.of(transfers)
    sent, sender, recipient = table.bits(), table.column("sender"), table.column("recipient")
    np.add.at(spent["down"], sender, table.column("grant_bits"))
    np.add.at(spent["up"], sender, sent["up"])
    np.add.at(spent["d2d"], sender, sent["d2d"])
    np.add.at(spent["macs"], sender, table.sender_macs)
    np.add.at(spent["down"], recipient[table.relayed], table.column("parcel_bits")[table.relayed])
    np.add.at(spent["macs"], recipient[~table.uploaded], table.recipient_macs[~table.uploaded])


def mean_and_largest(each: Int[np.ndarray, "n"]) -> dict[str, float]:
    """Return the mean and the largest of all devices."""
    return {"mean": float(each.mean()), "largest": float(each.max())}


@dataclass(frozen=True, eq=False)
class SharedCosts:
    """What the first epoch, any other epoch, a hand-over with a new support and a forwarding cost.

    Where an epoch has several questions, or costs depend on how many devices are active, ``by_active`` returns them.
    ``doubled`` is a hand-over with two new supports. ``opening`` has the questions of the first epoch, each as it is
    charged and what devices computed for it beforehand.
    """

    first: RoundCosts
    other: RoundCosts
    granted: TransferCosts
    forwarded: TransferCosts
    by_active: Callable[[int], Sequence[RoundCosts]] | None = None
    doubled: TransferCosts | None = None
    opening: Sequence[tuple[RoundCosts, RoundCosts | None]] = ()
    _known: dict[tuple[int, int, int], TransferCosts] = field(default_factory=dict, init=False, repr=False)
    """Hand-overs by number of supports, sender and recipient: replays of many draws need the same ones often."""

    @property
    def first_questions(self) -> Sequence[tuple[RoundCosts, RoundCosts | None]]:
        """The questions of the first epoch: ``first`` alone, with nothing computed beforehand, without ``opening``."""
        return self.opening or ((self.first, None),)

    def questions(self, active: int) -> Sequence[RoundCosts]:
        """Return the costs of the questions of an epoch after the first, each for all devices."""
        return (self.other,) if self.by_active is None else self.by_active(active)

    def of(self, handover: Handover) -> TransferCosts:
        """Return the costs of a hand-over."""
        key = len(handover.supports), handover.sender, handover.recipient
        if key not in self._known:
            kind = (self.forwarded, self.granted, self.doubled)[key[0]]
            if kind is None:
                raise ValueError(f"device {handover.sender} has two supports, and their costs were not measured")
            self._known[key] = dataclasses.replace(kind, sender=handover.sender, recipient=handover.recipient)
        return self._known[key]


def measure(scheme: Scheme[Any], problem: Problem, *, first_offline: bool) -> SharedCosts:
    """Let a few devices of their own reply and hand over for real, and count what it takes."""
    if scheme.sharing is None:
        raise TypeError(f"scheme '{scheme.name}' does not share")
    shard = _zeros_like(problem.shards[0])
    # epoch, sender, recipient, support: device 1 hands over to 0 with a new support, then 0 forwards to 2
    moved, size = [(2, 1, 0, 0), (3, 0, 2, -1)], 3
    if scheme.sharing.policy().may_double:
        moved, size = [*moved, (4, 3, 2, 0), (4, 3, 2, 1)], 4
    # a fleet of its own: the real one may be smaller, and must not be touched
    probe = scheme.with_public(dataclasses.replace(scheme.public, samples=(shard.samples,) * size))
    devices = [probe.device(number, shard) for number in range(size)]
    server = probe.server()
    for transfer in chain.from_iterable(stage.transfers for stage in server.set_up()):
        move(devices, transfer, server.receive)
    first, first_reply = _first_costs(scheme, devices, server, problem)
    handed_over = server.restore({"moved": np.array(moved)}).stages
    granted, forwarded, *doubled = (move(devices, stage.transfers[0], server.receive) for stage in handed_over)
    # the server's work may grow with the first hand-over; the few operations before it are charged as after it
    question = server.ask(2, np.ones(problem.shape))
    other, reply = _round_costs(devices, server, question, 2, scheme.public.devices)
    rounds = scheme.sharing.rounds
    opening = rounds(len(first.asked), first, first_reply)
    charged = [(each.uploads, each.computing) if first_offline else (each, None) for each in opening]
    return SharedCosts(
        charged[0][0],
        other,
        granted,
        forwarded,
        lambda active: rounds(active, other, reply),
        doubled[0] if doubled else None,
        charged,
    )


def _zeros_like(shard: Shard) -> Shard:
    """Return data of the same shapes: costs follow from sizes, and zeros are within every bound of any fleet."""
    return _zeros(shard.x.shape, shard.y.shape, shard.x.dtype.name, shard.y.dtype.name)


@lru_cache(maxsize=1)  # one object for all that are measured one after the other: a cipher encodes it once
def _zeros(x: tuple[int, int], y: tuple[int, int], x_dtype: str, y_dtype: str) -> Shard:
    return Shard(np.zeros(x, x_dtype), np.zeros(y, y_dtype))


def _first_costs(
    scheme: Scheme[Any], devices: Sequence[Device], server: Server, problem: Problem
) -> tuple[RoundCosts, Message]:
    """Return what the first question costs each asked device without the protocol of a wrapper, and a reply."""
    question = server.ask(1, np.ones(problem.shape))
    everyone = len(question.requests) == len(devices)
    if everyone and scheme.wrapped:  # a wrapper asks a device alone as the scheme inside does
        alone = scheme.with_public(dataclasses.replace(scheme.public, samples=scheme.public.samples[:1]))
        devices, server = [alone.device(0, _zeros_like(problem.shards[0]))], alone.server()
        question = server.ask(1, np.ones(problem.shape))
    return _round_costs(devices, server, question, 0, scheme.public.devices if everyone else 1)


def _round_costs(
    devices: Sequence[Device], server: Server, question: Round, device: int, asked: int
) -> tuple[RoundCosts, Message]:
    work, combining = Work(), Work()
    request = question.requests[device]
    reply = devices[device].reply(question.epoch, request, work)
    server.combine(question.epoch, {device: reply}, combining)
    each = np.ones(asked, dtype=np.int64)
    costs = (message_bits(request) * each, work.macs * each, message_bits(reply) * each)
    return RoundCosts(np.arange(len(each)), *costs, quorum=len(each), server_macs=combining.macs), reply
