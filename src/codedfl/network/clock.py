"""Time of rounds and stages: the only implementation, for any number of draws side by side. A run is one draw.

A round lasts until the replies that the server waits for have arrived and the server has computed. In a stage, a device
sends one parcel at a time and takes one at a time (it may do both at once). Parcels leave in the order given; each
begins when its sender and its recipient are both free, and is sent again until it arrives. The server takes any number
at once; a parcel that it relays goes down when it has come up and the recipient is free. A sender first prepares all
its parcels; a recipient works through what it received when the last parcel is there.

On a shared channel, direct parcels of the whole network go one at a time, in the order given: each begins when its
sender, its recipient and the channel are free. So the channel waits for a sender that still prepares, as a recipient
does; where all parcels are direct, it never idles after the last sender is prepared, which bounds what another order
could save. Uploads and relayed parcels do not use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast, final

import numpy as np
from jaxtyping import Bool, Float, Int

from codedfl.network.costs import RoundCosts, StageCosts, TransferCosts
from codedfl.network.delays import Chance, DelayModel, TransferChance

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Step:
    """One thing a device does: from when to when, in seconds after the stage began."""

    device: int
    activity: str
    peer: int | None
    begin: float
    end: float
    bits: int


@dataclass(frozen=True, eq=False)
class StageTimes:
    """A stage in seconds after it began: by device, until when it prepares, takes and works; by parcel, its way."""

    granted: Float[np.ndarray, "draws n"]
    prepared: Float[np.ndarray, "draws n"]
    begin: Float[np.ndarray, "draws m"]
    end: Float[np.ndarray, "draws m"]
    taken: Float[np.ndarray, "draws n"]
    absorbed: Float[np.ndarray, "draws n"]
    seconds: Float[np.ndarray, "draws"]
    """How long the stage lasts."""

    def steps(self, transfers: Sequence[TransferCosts], draw: int = 0) -> list[Step]:
        """Return who does what when in one draw."""
        granted, prepared, begin, end, taken, absorbed = (
            each[draw].tolist()
            for each in (self.granted, self.prepared, self.begin, self.end, self.taken, self.absorbed)
        )
        steps = []
        for number, costs in enumerate(transfers):
            sender = costs.sender
            preparing = (
                Step(sender, "grant", None, 0.0, granted[sender], costs.grant_bits),
                Step(sender, "encrypt", None, granted[sender], prepared[sender], 0),
            )
            steps += [step for step in preparing if step.end > step.begin]
            steps.append(Step(sender, "send", costs.recipient, begin[number], end[number], costs.parcel_bits))
        for recipient in dict.fromkeys(costs.recipient for costs in transfers if not costs.uploaded):
            steps.append(Step(recipient, "absorb", None, taken[recipient], absorbed[recipient], 0))
        return steps


@final
class Draws:
    """The random delays of the draws ``first``, ``first`` + 1, ... of a seed; those of the newest epoch are kept."""

    def __init__(self, delays: DelayModel, *, seed: int, first: int = 0, count: int = 1) -> None:
        self.delays = delays
        self.count = count
        self._seed = seed
        self._first = first
        self._epoch = 0
        self._known: dict[object, object] = {}

    def chance(self, epoch: int, question: int) -> Chance:
        """Return the random part of a question."""
        draw = partial(self.delays.chance, self._seed, epoch, self._first, self.count, question)
        return self._kept(epoch, question, draw)

    def replies(self, epoch: int, question: int, costs: RoundCosts) -> Float[np.ndarray, "draws asked"]:
        """Return when each asked device's reply arrives, counted from the question."""
        make = lambda: self.delays.reply_seconds(costs, self.chance(epoch, question))  # noqa: E731
        return self._kept(epoch, (question, costs), make)

    def _kept(self, epoch: int, key: object, make: Callable[[], Kept]) -> Kept:
        """Return what is made for an epoch; courses that meet the same delays share it."""
        if epoch != self._epoch:
            self._epoch, self._known = epoch, {}
        if key not in self._known:
            self._known[key] = make()
        return cast(Kept, self._known[key])

    def handovers(
        self,
        epoch: int,
        *transfers: Sequence[TransferCosts],
        parallel: bool,
        rows: Int[np.ndarray, "rows"] | slice = slice(None),
    ) -> StageTimes:
        """Lay out the hand-overs after an epoch, given those of each draw (in these ``rows``)."""
        costs = StageCosts.create(*transfers)
        draw = partial(self.delays.handover_chance, self._seed, epoch, self._first, self.count)
        chance = self._kept(epoch, "hand-overs", draw)
        sender, recipient = costs.sender, costs.recipient
        rate = np.minimum(self.delays.d2d_rate[sender], self.delays.d2d_rate[recipient])
        tries = np.take_along_axis(chance.parcel_tries[rows], sender % self.delays.devices, axis=1)
        way = self.delays.send_seconds(tries * costs.parcel_bits, rate)
        return lay_out(self.delays, costs, chance, way, way, rows=rows, parallel=parallel)

    def stage(self, stage: int, transfers: Sequence[TransferCosts]) -> StageTimes:
        """Lay out a stage of the set-up or of repairs."""
        costs = StageCosts.create(transfers)
        (sender,), (recipient,), (relayed,) = costs.sender, costs.recipient, costs.relayed.astype(bool)
        chance = self.delays.stage_chance(
            self._seed, stage, self._first, self.count, sender, recipient if relayed.any() else None
        )
        bits, model, up = costs.parcel_bits * (1 + self.delays.overhead), self.delays, relayed | (recipient < 0)
        rate = np.minimum(model.d2d_rate[sender], model.d2d_rate[recipient])
        rate = np.where(up, model.up_rate[sender], rate)
        tries = np.where(up, chance.up_tries, chance.parcel_tries)
        way, down = tries * bits / rate, chance.relay_tries * bits / model.down_rate[recipient]
        return lay_out(model, costs, chance, way, down)


def lay_out(
    delays: DelayModel,
    costs: StageCosts,
    chance: TransferChance,
    way: Float[np.ndarray, "draws m"],
    down: Float[np.ndarray, "draws m"],
    *,
    rows: Int[np.ndarray, "rows"] | slice = slice(None),
    parallel: bool = False,
) -> StageTimes:
    """Lay out a stage, given how long each parcel is on its way to its recipient, or up and ``down`` by the server.

    ``rows`` of the chance are used. With ``parallel`` reception nobody waits for a recipient that takes other parcels.
    """
    n, draws = delays.devices, np.arange(len(way))
    granted = delays.send_seconds(chance.grant_tries[rows] * _sums(costs.sender, costs.grant_bits, n), delays.down_rate)
    prepared = granted + delays.work_seconds(_sums(costs.sender, costs.export_macs, n), chance.export_setup[rows])
    work = delays.work_seconds(_sums(costs.recipient, costs.absorb_macs, n), chance.absorb_setup[rows])
    sending, taking = np.zeros((2, len(way), n + 1))  # until when each is busy; the last column is the server's
    sending[:, :n] = prepared
    channel = np.zeros(len(way))  # until when the shared channel is busy
    begins, ends = np.empty_like(way), np.empty_like(way)
    relayed = np.any(costs.relayed != 0, axis=0)
    direct = ~relayed & np.any(costs.recipient >= 0, axis=0)
    for number in range(way.shape[1]):
        sender, recipient = (draws, costs.sender[:, number]), (draws, costs.recipient[:, number])
        begin = sending[sender]
        if direct[number] and not parallel:
            begin = np.maximum(begin, taking[recipient])
        if direct[number] and delays.shared_channel:
            begin = np.maximum(begin, channel)
        end = begin + way[:, number]
        sending[sender] = end
        if direct[number]:
            channel = end
        if relayed[number]:
            end = np.maximum(end, taking[recipient]) + down[:, number]
        taking[recipient] = np.maximum(end, taking[recipient])
        begins[:, number], ends[:, number] = begin, end
    taken = taking[:, :n]
    absorbed = taken + work
    seconds = np.maximum(absorbed, sending[:, :n]).max(axis=1, initial=0.0)
    return StageTimes(granted, prepared, begins, ends, taken, absorbed, seconds)


def _sums(
    party: Int[np.ndarray, "rows m"], amounts: Int[np.ndarray, "rows m"], devices: int
) -> Float[np.ndarray, "rows n"]:
    """Add up amounts by device; those of the server (-1) do not count."""
    total = np.zeros((len(party), devices + 1))
    np.add.at(total, (np.arange(len(party))[:, None], party), amounts)
    return total[:, :devices]


@final
class Clock:
    """Virtual time of several draws, in seconds since the run began.

    A reply that nobody waits for any more is dropped with the next question, unless that one is standing.
    """

    def __init__(self, draws: Draws, now: float = 0.0) -> None:
        self._draws = draws
        self._delays = draws.delays
        self.now: Float[np.ndarray, "draws"] = np.full(draws.count, now)
        self._due = np.full((draws.count, self._delays.devices), np.inf)
        self._turn = np.zeros_like(self._due)
        self._turns = 0
        self._taken = np.zeros(draws.count, np.int64)

    def ask(
        self, epoch: int, question: int, costs: RoundCosts, asked: Bool[np.ndarray, "draws asked"] | None = None
    ) -> Float[np.ndarray, "draws asked"]:
        """Put a question and wait for the replies; return when each arrives, counted from the question.

        ``asked`` says who of those in ``costs`` is asked in which draw. The server's work is not waited for.
        """
        if costs.standing:
            self._close()
        else:
            self._due = np.full_like(self._due, np.inf)
        seconds = self.open(epoch, question, costs, self.now, asked)
        self._wait(costs)
        return seconds

    def open(
        self,
        epoch: int,
        question: int,
        costs: RoundCosts,
        began: Float[np.ndarray, "draws"],
        asked: Bool[np.ndarray, "draws asked"] | None = None,
    ) -> Float[np.ndarray, "draws asked"]:
        """Note when replies to a question arrive; wait for none."""
        seconds, columns = self._draws.replies(epoch, question, costs), costs.asked
        due, turn = began[:, None] + seconds, self._turns + np.arange(len(columns))
        self._turns += len(turn)
        self._due[:, columns] = due if asked is None else np.where(asked, due, self._due[:, columns])
        self._turn[:, columns] = turn if asked is None else np.where(asked, turn, self._turn[:, columns])
        return seconds

    @property
    def idle(self) -> Bool[np.ndarray, "draws n"]:
        """Which devices have no open question."""
        self._close()
        return np.asarray(np.isinf(self._due))

    def drop(self, devices: Sequence[int]) -> None:
        """Forget the open questions of devices."""
        self._close()
        self._due[:, list(devices)] = np.inf

    @property
    def arrived(self) -> list[Int[np.ndarray, "replies"]]:
        """The devices whose replies the server took in the newest round, in the order of arrival, for each draw.

        Of replies that arrive at the same time, the one asked for first comes first.
        """
        order = np.lexsort((self._turn, self._due), axis=1)
        return [row[:count] for row, count in zip(order, self._taken, strict=True)]

    def _close(self) -> None:
        """Close the questions whose replies were taken."""
        for row, devices in enumerate(self.arrived):
            self._due[row, devices] = np.inf
        self._taken = np.zeros_like(self._taken)

    def _wait(self, costs: RoundCosts) -> None:
        """Wait for the quorum; from the deadline on for the least; in any case for no more than are open."""
        ordered, limit = np.sort(self._due, axis=1), self.now[:, None] + costs.deadline
        in_time = np.maximum(np.count_nonzero(ordered <= limit, axis=1), costs.least)
        number = np.minimum(np.count_nonzero(ordered < np.inf, axis=1), costs.quorum)
        self._taken = np.minimum(number, in_time)
        last = np.take_along_axis(ordered, np.maximum(self._taken - 1, 0)[:, None], axis=1)[:, 0]
        # a reply that arrived while the server was computing is taken when it is done
        self.now = np.where(self._taken > 0, np.maximum(self.now, last), self.now)
        if np.isfinite(costs.deadline):
            self.now = np.where(self._taken < costs.quorum, np.maximum(self.now, limit[:, 0]), self.now)

    def charge(self, macs: int, rows: Bool[np.ndarray, "draws"] | bool = True) -> None:
        """Let the server compute, in all draws or in those ``rows``."""
        self.now = np.where(rows, self.now + macs / self._delays.server_mac_rate, self.now)

    def stage(self, stage: int, transfers: Sequence[TransferCosts]) -> None:
        """Let a stage of the set-up or of repairs pass."""
        self.now = self.now + self._draws.stage(stage, transfers).seconds

    def hand_over(
        self,
        epoch: int,
        transfers: Sequence[Sequence[TransferCosts]],
        *,
        parallel: bool,
        rows: Int[np.ndarray, "rows"] | slice = slice(None),
    ) -> None:
        """Let the hand-overs after an epoch pass, given those of each draw (in these ``rows``)."""
        if any(transfers):
            times = self._draws.handovers(epoch, *transfers, parallel=parallel, rows=rows)
            self.now = self.now.copy()
            self.now[rows] += times.seconds
