"""Random delays of devices and links (section III-B of the paper).

Computing rho multiplications on a device of rate tau takes rho/tau plus an exponential setup time. Sending b bits takes
b * (1 + overhead) / rate per try, and the number of tries is geometric. A message between devices is lost with the
probability of its sender's device-to-device link.

Every (seed, epoch or stage, draw, device) has its own random numbers, independent of the other draws: draw 7 is the
same alone or among a thousand. So a run is one draw of its own band, and can be resumed at any epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.threads import on_all_cores
from codedfl.network.costs import RoundCosts
from codedfl.scenario import Fleet, Links

# Streams of random numbers of an epoch: the first round, hand-overs, further rounds. Stages use those of epoch 0.
_HANDOVERS = 3
_FURTHER = 7
_STAGES = 16
_RELAYED = 1 << 30

_POOL_BYTES = 16
"""A seed that is shorter than the pool of a SeedSequence is padded before the address follows."""
_LEAST_THREADED_NUMBERS = 50_000
"""Fewer logarithms take less time than a second thread needs to begin."""


@dataclass(frozen=True, eq=False)
class Chance:
    """Random part of one round: tries of each transmission, and setup times in units of their mean."""

    down_tries: Float[np.ndarray, "draws n"]
    setup: Float[np.ndarray, "draws n"]
    up_tries: Float[np.ndarray, "draws n"]


@dataclass(frozen=True, eq=False)
class TransferChance:
    """Random part of a stage: tries of grants and setup times by device; tries by parcel (hand-overs: by sender)."""

    grant_tries: Float[np.ndarray, "draws n"]
    export_setup: Float[np.ndarray, "draws n"]
    parcel_tries: Float[np.ndarray, "draws m"]
    absorb_setup: Float[np.ndarray, "draws n"]
    up_tries: Float[np.ndarray, "draws m"]
    """Of the way to the server, for parcels that are uploaded or relayed."""
    relay_tries: Float[np.ndarray, "draws m"]
    """Tries of relayed parcels from the server to the recipient."""


def addressed_seed(seed: int, *address: int) -> np.random.SeedSequence:
    """Return the state of ``SeedSequence(seed, spawn_key=address)``, a fifth of its time; parts are below 2^32.

    >>> found, wanted = addressed_seed(7, 3, 1), np.random.SeedSequence(7, spawn_key=(3, 1))
    >>> bool((found.generate_state(4) == wanted.generate_state(4)).all())
    True
    """
    words = -(-seed.bit_length() // 32)
    parts = (seed.to_bytes(max(_POOL_BYTES, 4 * words), "little"), *(part.to_bytes(4, "little") for part in address))
    return np.random.SeedSequence(np.frombuffer(b"".join(parts), "<u4"))


class RandomBook:
    """Random numbers by address: seed, epoch, stream, draw and device; ``log(1 - u)`` of a uniform number u.

    The negative of the logarithm is an exponential setup time of mean 1, and both kinds of delays begin with it.
    """

    def logarithms(
        self, seed: int, epochs: Sequence[int], stream: int, first: int, draws: int, columns: int
    ) -> Float[np.ndarray, "rows columns"]:
        """Return the numbers of a stream in some epochs, a row a draw."""
        found = np.empty((len(epochs), draws, columns))
        for place, epoch in enumerate(epochs):
            bits = np.random.PCG64(addressed_seed(seed, epoch, stream))
            bits.advance(first * columns)
            np.random.Generator(bits).random(out=found[place])
        flat = found.reshape(-1)

        def some(begin: int, end: int) -> None:
            numbers = flat[begin:end]
            np.log1p(np.negative(numbers, out=numbers), out=numbers)

        if flat.size > _LEAST_THREADED_NUMBERS:
            on_all_cores(some, flat.size)
        else:
            some(0, flat.size)
        return found.reshape(len(epochs) * draws, columns)


_FRESH = RandomBook()


@dataclass(frozen=True, eq=False)
class DelayModel:
    """A fleet and its links as vectors with one entry for each device."""

    mac_rate: Float[np.ndarray, "n"]
    setup_ratio: Float[np.ndarray, "n"]
    setup_seconds: Float[np.ndarray, "n"]
    down_rate: Float[np.ndarray, "n"]
    up_rate: Float[np.ndarray, "n"]
    d2d_rate: Float[np.ndarray, "n"]
    loss: Float[np.ndarray, "n"]
    d2d_loss: Float[np.ndarray, "n"]
    overhead: float
    server_mac_rate: float
    shared_channel: bool = False
    """Whether all direct parcels share one channel."""
    book: RandomBook = _FRESH
    """Where random numbers come from; they are the same from every book."""

    @classmethod
    def create(cls, fleet: Fleet, links: Links, book: RandomBook = _FRESH) -> "DelayModel":
        """Expand the groups of a fleet into vectors; a value that a group leaves unset comes from the links.

        Where neither gives the loss between devices, it is the loss of the device's other links.
        """
        counts, vectors = [group.count for group in fleet.devices], {}
        for name in ("mac_rate", "setup_ratio", "setup_seconds", "down_rate", "up_rate", "d2d_rate", "loss"):
            own = [getattr(group, name) for group in fleet.devices]
            values = [getattr(links, name) if value is None else value for value in own]
            vectors[name] = np.repeat(np.array(values, np.float64), counts)
        given = [links.d2d_loss if group.d2d_loss is None else group.d2d_loss for group in fleet.devices]
        between = np.repeat(np.array(given, np.float64), counts)  # None becomes nan
        vectors["d2d_loss"] = np.where(np.isnan(between), vectors["loss"], between)
        shared = links.d2d_channel == "shared"
        rate = fleet.server_mac_rate
        return cls(**vectors, overhead=links.overhead, server_mac_rate=rate, shared_channel=shared, book=book)

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal for equal delays."""
        values = (getattr(self, each.name) for each in fields(self) if each.name != "book")
        return tuple(value.tobytes() if isinstance(value, np.ndarray) else value for value in values)

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.mac_rate)

    def chance(self, seed: int, epoch: int, first: int, draws: int, question: int = 0) -> Chance:
        """Draw the random part of a round of an epoch, for ``draws`` draws from number ``first`` on."""
        return self.chances(seed, (epoch,), first, draws, question)

    def chances(self, seed: int, epochs: Sequence[int], first: int, draws: int, question: int = 0) -> Chance:
        """Draw the random parts of the same round of several epochs; the rows of an epoch follow each other."""
        stream = _FURTHER + 3 * (question - 1) if question else 0
        down, setup, up = (
            self.book.logarithms(seed, epochs, stream + part, first, draws, self.devices) for part in range(3)
        )
        return Chance(_tries(down, self.loss), -setup, _tries(up, self.loss))

    def handover_chance(self, seed: int, epoch: int, first: int, draws: int) -> TransferChance:
        """Draw the random part of the hand-overs after an epoch."""
        streams = range(_HANDOVERS, _HANDOVERS + 4)
        grant, export, parcel, absorb = (self._logarithms(seed, epoch, s, first, draws, self.devices) for s in streams)
        tries = _tries(parcel, self.d2d_loss)  # none goes over the server
        return TransferChance(_tries(grant, self.loss), -export, tries, -absorb, tries, tries)

    def stage_chance(
        self,
        seed: int,
        stage: int,
        first: int,
        draws: int,
        senders: Int[np.ndarray, "m"],
        relayed_to: Int[np.ndarray, "m"] | None = None,
    ) -> TransferChance:
        """Draw the random part of a stage of the set-up or of repairs, given the sender of each parcel.

        Every parcel has its own numbers, independent of the other senders; relayed parcels have others for the way down
        to the recipients. Grants are short, so their number of tries is replaced by its expectation.
        """
        stream, n, m = _STAGES + 3 * stage, self.devices, len(senders)
        export, absorb = (self._logarithms(seed, 0, stream + part, first, draws, n) for part in range(2))
        parcel = self._logarithms(seed, 0, stream + 2, first, draws, m)
        tries = up = again = _tries(parcel, self.d2d_loss[senders])
        if not np.array_equal(self.d2d_loss, self.loss):
            up = again = _tries(parcel, self.loss[senders])
        if relayed_to is not None:
            again = _tries(self._logarithms(seed, 0, _RELAYED + stage, first, draws, m), self.loss[relayed_to])
        grant = np.broadcast_to(1 / (1 - self.loss), (draws, n))
        return TransferChance(grant, -export, tries, -absorb, up, again)

    def _logarithms(
        self, seed: int, epoch: int, stream: int, first: int, draws: int, columns: int
    ) -> Float[np.ndarray, "draws columns"]:
        return self.book.logarithms(seed, (epoch,), stream, first, draws, columns)

    def reply_seconds(self, costs: RoundCosts, chance: Chance) -> Float[np.ndarray, "draws asked"]:
        """Return when each asked device's reply arrives at the server, in seconds after the request."""
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
        return down, self.work_seconds(costs.macs, chance.setup[:, asked], asked), up

    def send_seconds(
        self, bits: Float[np.ndarray, "..."] | Int[np.ndarray, "..."], rate: Float[np.ndarray, "..."]
    ) -> Float[np.ndarray, "..."]:
        """Return how long it takes to send bits once over links of these rates."""
        return np.asarray(bits * (1 + self.overhead) / rate)

    def work_seconds(
        self,
        macs: Float[np.ndarray, "..."] | Int[np.ndarray, "..."],
        setup: Float[np.ndarray, "..."],
        devices: slice | Int[np.ndarray, "n"] = slice(None),
    ) -> Float[np.ndarray, "..."]:
        """Return how long devices compute, given setup times in units of the mean; without work there is no setup."""
        work = macs / self.mac_rate[devices]
        mean_setup = np.where(macs > 0, self.setup_ratio[devices] * work + self.setup_seconds[devices], 0.0)
        return np.asarray(work + setup * mean_setup)


def _tries(logarithms: Float[np.ndarray, "draws n"], loss: Float[np.ndarray, "n"]) -> Float[np.ndarray, "draws n"]:
    """Map logarithms of uniform numbers to the geometric number of tries of a message."""
    # inversion of P(tries > k) = loss^k; log(0) = -inf gives a single try on a link without loss
    with np.errstate(divide="ignore"):
        tries: Float[np.ndarray, "draws n"] = logarithms / np.log(loss)
    np.floor(tries, out=tries)
    tries += 1
    return tries
