"""How long computing and sending take (section III-B of the paper).

Computing rho multiplications on a device of rate tau takes rho/tau plus an exponential setup time; sending b bits
takes b * (1 + overhead) / rate for each try, and the number of tries is geometric.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from codedfl.scenario import DeviceGroup, Fleet, Links

__all__ = ["Chance", "DelayModel", "RoundCosts", "Step", "TransferChance", "TransferCosts"]

_FURTHER = 7
"""The first stream of random numbers of an epoch's second question; those below belong to the first and hand-overs."""


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """What one question costs each asked device, taken from the arrays that were sent and multiplied.

    The server goes on with ``quorum`` replies; after the ``deadline`` (in seconds) with ``least``. A question that is
    ``standing`` leaves earlier ones open.
    """

    asked: Int[np.ndarray, "n"]
    down_bits: Int[np.ndarray, "n"]
    macs: Int[np.ndarray, "n"]
    up_bits: Int[np.ndarray, "n"]
    quorum: int
    server_macs: int
    least: int = 0
    deadline: float = math.inf
    standing: bool = False

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal for equal costs."""
        arrays = (self.asked, self.down_bits, self.macs, self.up_bits)
        scalars = (self.quorum, self.server_macs, self.least, self.deadline, self.standing)
        return (*(array.tobytes() for array in arrays), *scalars)


@dataclass(frozen=True, eq=False)
class Chance:
    """Random part of one epoch: tries of each transmission and setup times in units of their mean."""

    down_tries: Float[np.ndarray, "draws n"]
    setup: Float[np.ndarray, "draws n"]
    up_tries: Float[np.ndarray, "draws n"]


@dataclass(frozen=True)
class TransferCosts:
    """What one parcel costs: the server's grant, the sender's work, the parcel, the recipient's work.

    The recipient -1 is the server; a parcel that is ``relayed`` goes up to the server and down to the recipient.
    """

    sender: int
    recipient: int
    grant_bits: int
    export_macs: int
    parcel_bits: int
    absorb_macs: int
    relayed: bool = False

    @property
    def uploaded(self) -> bool:
        """Whether the parcel goes to the server."""
        return self.recipient < 0

    def bits(self) -> dict[str, int]:
        """Return what goes over which kind of link: down (the grant to the sender, too), up, device to device."""
        relayed = self.parcel_bits if self.relayed else 0
        uploaded = self.parcel_bits if self.uploaded else 0
        direct = self.parcel_bits - relayed - uploaded
        return {"down": self.grant_bits + relayed, "up": relayed + uploaded, "d2d": direct}


@dataclass(frozen=True, eq=False)
class TransferChance:
    """Random part of the hand-overs after one epoch, by sender (and by recipient for its setup)."""

    grant_tries: Float[np.ndarray, "draws n"]
    export_setup: Float[np.ndarray, "draws n"]
    parcel_tries: Float[np.ndarray, "draws n"]
    absorb_setup: Float[np.ndarray, "draws n"]


@dataclass(frozen=True)
class Step:
    """One thing a device does: from when to when, in seconds after the hand-overs began."""

    device: int
    activity: str
    peer: int | None
    begin: float
    end: float
    bits: int


@dataclass(frozen=True, eq=False)
class DelayModel:
    """A fleet and its links as vectors, one entry a device."""

    mac_rate: Float[np.ndarray, "n"]
    setup_ratio: Float[np.ndarray, "n"]
    setup_seconds: Float[np.ndarray, "n"]
    down_rate: Float[np.ndarray, "n"]
    up_rate: Float[np.ndarray, "n"]
    d2d_rate: Float[np.ndarray, "n"]
    loss: Float[np.ndarray, "n"]
    overhead: float
    server_mac_rate: float

    @classmethod
    def create(cls, fleet: Fleet, links: Links) -> "DelayModel":
        """Spread the groups of a fleet into vectors; what a group leaves open is taken from the links."""

        def vector(name: str) -> Float[np.ndarray, "n"]:
            return np.repeat([_value(group, links, name) for group in fleet.devices], [g.count for g in fleet.devices])

        names = ("mac_rate", "setup_ratio", "setup_seconds", "down_rate", "up_rate", "d2d_rate", "loss")
        vectors = {name: vector(name) for name in names}
        return cls(**vectors, overhead=links.overhead, server_mac_rate=fleet.server_mac_rate)

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.mac_rate)

    def chance(self, seed: int, epoch: int, first: int, draws: int, question: int = 0) -> Chance:
        """Draw the random part of a question of an epoch for ``draws`` draws, counted from number ``first``.

        Every (seed, epoch, draw, device) has its own numbers, whatever else is drawn: draw 7 is the same alone as
        among a thousand, so a run lives in one draw of its own band and can be resumed at any epoch.
        """
        stream = _FURTHER + 3 * (question - 1) if question else 0
        down, setup, up = (self.uniform(seed, epoch, stream + part, first, draws) for part in range(3))
        return Chance(self.tries(down), -np.log1p(-setup), self.tries(up))

    def transfer_chance(self, seed: int, epoch: int, first: int, draws: int) -> TransferChance:
        """Draw the random part of the hand-overs after an epoch, like :meth:`chance`."""
        grant, export, parcel, absorb = (self.uniform(seed, epoch, stream, first, draws) for stream in range(3, 7))
        return TransferChance(self.tries(grant), -np.log1p(-export), self.tries(parcel), -np.log1p(-absorb))

    def uniform(
        self, seed: int, epoch: int, stream: int, first: int, draws: int, columns: int | None = None
    ) -> Float[np.ndarray, "draws columns"]:
        """Draw uniform numbers, one for each device unless told how many, the same for a draw whatever its company."""
        width = self.devices if columns is None else columns
        bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch, stream)))
        bits.advance(first * width)
        return np.random.Generator(bits).random((draws, width))

    def tries(
        self, uniform: Float[np.ndarray, "draws columns"], senders: Int[np.ndarray, "columns"] | None = None
    ) -> Float[np.ndarray, "draws columns"]:
        """Turn uniform numbers into how often each of these devices (all, unless told) sends until it arrives."""
        loss = self.loss if senders is None else self.loss[senders]
        # inversion of P(tries > k) = loss^k; log(0) = -inf rightly gives a single try on a link without loss
        with np.errstate(divide="ignore"):
            return np.asarray(1 + np.floor(np.log1p(-uniform) / np.log(loss)))

    def reply_seconds(self, costs: RoundCosts, chance: Chance) -> Float[np.ndarray, "draws asked"]:
        """Return when each asked device's reply is at the server, counted from the broadcast."""
        down, work, up = self.reply_parts(costs, chance)
        return np.asarray(down + work + up)

    def reply_parts(
        self, costs: RoundCosts, chance: Chance
    ) -> tuple[Float[np.ndarray, "draws asked"], Float[np.ndarray, "draws asked"], Float[np.ndarray, "draws asked"]]:
        """Return how long each asked device receives, computes and sends."""
        everyone = np.array_equal(costs.asked, np.arange(self.devices))
        asked = slice(None) if everyone else costs.asked  # a slice copies nothing
        down = chance.down_tries[:, asked] * self.send_seconds(costs.down_bits, self.down_rate[asked])
        up = chance.up_tries[:, asked] * self.send_seconds(costs.up_bits, self.up_rate[asked])
        work = costs.macs / self.mac_rate[asked]
        mean_setup = np.where(costs.macs > 0, self.setup_ratio[asked] * work + self.setup_seconds[asked], 0.0)
        return down, work + chance.setup[:, asked] * mean_setup, up

    def send_seconds(self, bits: Int[np.ndarray, "n"], rate: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return the time of one try."""
        return np.asarray(bits * (1 + self.overhead) / rate)

    def transfer_steps(
        self, transfers: Sequence[TransferCosts], chance: TransferChance, row: int, *, parallel: bool
    ) -> list[Step]:
        """Lay out hand-overs in time.

        Senders get their grant and prepare side by side. A recipient takes parcels one after the other, in the order
        given (at once if ``parallel``), and adds them up when the last one is there.
        """
        steps: list[Step] = []
        free: dict[int, float] = {}
        sums: dict[int, int] = {}
        for costs in transfers:
            steps += (prepared := self._prepare(costs, chance, row))
            ready = max((step.end for step in prepared), default=0.0)
            begin = ready if parallel else max(ready, free.get(costs.recipient, 0.0))
            rate = min(self.d2d_rate[costs.sender], self.d2d_rate[costs.recipient])
            tries = float(chance.parcel_tries[row, costs.sender])
            end = begin + tries * costs.parcel_bits * (1 + self.overhead) / rate
            steps.append(Step(costs.sender, "send", costs.recipient, begin, end, costs.parcel_bits))
            free[costs.recipient] = max(end, free.get(costs.recipient, 0.0))
            sums[costs.recipient] = sums.get(costs.recipient, 0) + costs.absorb_macs
        for recipient, macs in sums.items():
            seconds = self.work_seconds(recipient, macs, float(chance.absorb_setup[row, recipient]))
            steps.append(Step(recipient, "absorb", None, free[recipient], free[recipient] + seconds, 0))
        return steps

    def _prepare(self, costs: TransferCosts, chance: TransferChance, row: int) -> list[Step]:
        sender = costs.sender
        tries = float(chance.grant_tries[row, sender])
        granted = tries * costs.grant_bits * (1 + self.overhead) / self.down_rate[sender]
        work = self.work_seconds(sender, costs.export_macs, float(chance.export_setup[row, sender]))
        steps = [
            Step(sender, "grant", None, 0.0, granted, costs.grant_bits),
            Step(sender, "encrypt", None, granted, granted + work, 0),
        ]
        return [step for step in steps if step.end > step.begin]

    def work_seconds(self, device: int, macs: int, setup: float) -> float:
        """Return how long a device computes, given its setup time in units of the mean."""
        if macs == 0:
            return 0.0
        work = macs / self.mac_rate[device]
        return float(work + setup * (self.setup_ratio[device] * work + self.setup_seconds[device]))

    def server_seconds(self, macs: int) -> float:
        """Return the time the server needs for its own computing."""
        return macs / self.server_mac_rate

    def epoch_seconds(self, costs: RoundCosts, chance: Chance) -> Float[np.ndarray, "draws"]:
        """Return how long a question takes in each draw: until enough replies are there, and the server is done."""
        replies = self.reply_seconds(costs, chance)
        last = _smallest(replies, costs.quorum)
        if costs.deadline < math.inf:
            last = np.minimum(last, np.maximum(costs.deadline, _smallest(replies, costs.least)))
        return np.asarray(last + self.server_seconds(costs.server_macs))


def _smallest(seconds: Float[np.ndarray, "draws n"], count: int) -> Float[np.ndarray, "draws"]:
    """Return when the ``count``-th comes; the first of none comes at once."""
    if count == 0:
        return np.zeros(len(seconds))
    return np.asarray(np.partition(seconds, count - 1, axis=1)[:, count - 1])


def _value(group: DeviceGroup, links: Links, name: str) -> float:
    own = getattr(group, name)
    return float(own if own is not None else getattr(links, name))
