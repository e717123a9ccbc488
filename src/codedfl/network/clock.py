"""Time of rounds and stages, vectorised over draws: the only implementation of time. A run is one draw.

A round ends when the awaited replies have arrived and the server has computed. In a stage, a device sends one parcel at
a time and receives one at a time; it may do both at once. Parcels are sent in the given order. A transmission begins
when sender and recipient are both free, and is repeated until it succeeds. The server receives any number of parcels at
once; it relays a parcel when it has fully arrived and the recipient is free. A sender prepares all its parcels before
it sends the first; a recipient absorbs its parcels when the last has arrived. Stages that overlap are timed together
(``codedfl.network.pipeline``).

On a shared channel, direct parcels of the whole network go one at a time, in the given order: each begins when its
sender, its recipient and the channel are free. So the channel waits for a sender that is still preparing, as a
recipient does. Where all parcels are direct, it is never idle after the last sender is prepared, which bounds what
another order could save. Uploads and relayed parcels do not use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast, final

import numpy as np
from jaxtyping import Bool, Float, Int

from codedfl.network.costs import RoundCosts, StageCosts, TransferCosts
from codedfl.network.delays import Chance, DelayModel, TransferChance
from codedfl.network.pipeline import OverlappingStage, PipelineTimes, overlap

Kept = TypeVar("Kept")
_FEW = 4
"""Places up to which selecting them is quicker than sorting."""
_LEAST_COMPILED_PARCELS = 100_000
"""In all draws; fewer take less time than loading compiled code."""


@dataclass(frozen=True)
class Step:
    """One activity of a device, with its begin and end in seconds after the stage began."""

    device: int
    activity: str
    peer: int | None
    begin: float
    end: float
    bits: int


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Times of a stage, in seconds after it began: by device the ends of its activities, by parcel begin and end."""

    granted: Float[np.ndarray, "draws n"]
    prepared: Float[np.ndarray, "draws n"]
    begin: Float[np.ndarray, "draws m"]
    end: Float[np.ndarray, "draws m"]
    taken: Float[np.ndarray, "draws n"]
    absorbed: Float[np.ndarray, "draws n"]
    seconds: Float[np.ndarray, "draws"]
    """How long the stage lasts."""

    def steps(self, transfers: Sequence[TransferCosts], draw: int = 0) -> list[Step]:
        """Return the activities of all devices in one draw."""
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
class DrawnBlock:
    """The random delays of one round in several epochs: a row for each epoch and draw."""

    def __init__(self, delays: DelayModel, chance: Chance) -> None:
        self.delays = delays
        self._chance = chance

    def replies(self, costs: RoundCosts) -> Float[np.ndarray, "rows asked"]:
        """Return when each asked device's reply arrives, in seconds after the request."""
        return self.delays.reply_seconds(costs, self._chance)

    def durations(self, costs: RoundCosts, rows: Bool[np.ndarray, "rows"] | None = None) -> Float[np.ndarray, "chosen"]:
        """Return how long a round lasts that begins with no open request, the server's work included."""
        chance = self._chance
        if rows is not None and not rows.all():
            chance = Chance(chance.down_tries[rows], chance.setup[rows], chance.up_tries[rows])
        lasts = waiting_seconds(self.delays.reply_seconds(costs, chance), costs)[0]
        return lasts + costs.server_macs / self.delays.server_mac_rate


@final
class Draws:
    """The random delays of draws ``first``, ``first`` + 1, ... of a seed; those of the last epoch are cached."""

    def __init__(self, delays: DelayModel, *, seed: int, first: int = 0, count: int = 1) -> None:
        self.delays = delays
        self.count = count
        self._seed = seed
        self._first = first
        self._epoch = 0
        self._known: dict[object, object] = {}
        self._block: tuple[int, int] | None = None
        self._blocks: dict[int, DrawnBlock] = {}

    def chance(self, epoch: int, question: int) -> Chance:
        """Return the random part of a round."""
        draw = partial(self.delays.chance, self._seed, epoch, self._first, self.count, question)
        return self._kept(epoch, question, draw)

    def replies(self, epoch: int, question: int, costs: RoundCosts) -> Float[np.ndarray, "draws asked"]:
        """Return when each asked device's reply arrives, in seconds after the request."""
        make = lambda: self.delays.reply_seconds(costs, self.chance(epoch, question))  # noqa: E731
        return self._kept(epoch, (question, costs), make)

    def block(self, epochs: Sequence[int], question: int) -> "DrawnBlock":
        """Return the random part of the same round of several epochs; that of the newest block is cached."""
        where = (epochs[0], epochs[-1])
        if where != self._block:
            self._block, self._blocks = where, {}
        if question not in self._blocks:
            chance = self.delays.chances(self._seed, epochs, self._first, self.count, question)
            self._blocks[question] = DrawnBlock(self.delays, chance)
        return self._blocks[question]

    def _kept(self, epoch: int, key: object, make: Callable[[], Kept]) -> Kept:
        """Return the cached value of an epoch, made on first use; simulations with the same delays share it."""
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
        """Return the times of the hand-overs after an epoch, given those of each draw (in these ``rows``)."""
        return self.handover_times(epoch, StageCosts.create(*transfers), parallel=parallel, rows=rows)

    def handover_times(
        self, epoch: int, costs: StageCosts, *, parallel: bool, rows: Int[np.ndarray, "rows"] | slice
    ) -> StageTimes:
        """Return :meth:`handovers` of costs that are columns already, as those of several channels are."""
        draw = partial(self.delays.handover_chance, self._seed, epoch, self._first, self.count)
        chance = self._kept(epoch, "hand-overs", draw)
        sender, recipient = costs.sender, costs.recipient
        rate = np.minimum(self.delays.d2d_rate[sender], self.delays.d2d_rate[recipient])
        tries = np.take_along_axis(chance.parcel_tries[rows], sender % self.delays.devices, axis=1)
        way = self.delays.send_seconds(tries * costs.parcel_bits, rate)
        return lay_out(self.delays, costs, chance, way, way, rows=rows, parallel=parallel)

    def stages(self, stages: Sequence[OverlappingStage]) -> PipelineTimes | StageTimes:
        """Return the times of stages of the set-up that overlap, or of a single one."""
        if len(stages) > 1:
            return overlap(self.delays, stages, seed=self._seed, first=self._first, draws=self.count)
        return self.stage(stages[0].number, stages[0].transfers)

    def stage(self, stage: int, transfers: Sequence[TransferCosts]) -> StageTimes:
        """Return the times of a stage of the set-up or of repairs."""
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
    """Return the times of a stage, given the seconds of each parcel on its ``way`` (if relayed, up and then ``down``).

    Only ``rows`` of ``chance`` are used. With ``parallel``, recipients receive several parcels at once.
    """
    n = delays.devices
    granted = delays.send_seconds(chance.grant_tries[rows] * _sums(costs.sender, costs.grant_bits, n), delays.down_rate)
    prepared = granted + delays.work_seconds(_sums(costs.sender, costs.export_macs, n), chance.export_setup[rows])
    work = delays.work_seconds(_sums(costs.recipient, costs.absorb_macs, n), chance.absorb_setup[rows])
    sending, taking = np.zeros((2, len(way), n + 1))  # until when each is busy; the last column is the server's
    sending[:, :n] = prepared
    relayed = np.any(costs.relayed != 0, axis=0)
    direct = ~relayed & np.any(costs.recipient >= 0, axis=0)
    begins, ends, send = np.empty_like(way), np.empty_like(way), _in_turn
    if way.size > _LEAST_COMPILED_PARCELS:
        from codedfl.network.kernels import in_turn as send  # numba is slow to import
    kinds = direct & (not parallel), direct & delays.shared_channel, relayed
    send(costs.sender, costs.recipient, np.stack(kinds), way, down, sending, taking, begins, ends)
    taken = taking[:, :n]
    absorbed = taken + work
    seconds = np.maximum(absorbed, sending[:, :n]).max(axis=1, initial=0.0)
    return StageTimes(granted, prepared, begins, ends, taken, absorbed, seconds)


def _in_turn(
    senders: Int[np.ndarray, "rows m"],
    recipients: Int[np.ndarray, "rows m"],
    kinds: Bool[np.ndarray, "3 m"],
    way: Float[np.ndarray, "draws m"],
    down: Float[np.ndarray, "draws m"],
    sending: Float[np.ndarray, "draws parties"],
    taking: Float[np.ndarray, "draws parties"],
    begins: Float[np.ndarray, "draws m"],
    ends: Float[np.ndarray, "draws m"],
) -> None:
    """Send one parcel after the other in all draws; ``codedfl.network.kernels.in_turn`` is the same, compiled."""
    draws, channel = np.arange(len(way)), np.zeros(len(way))  # until when the shared channel is busy
    for number, (awaited, shared, relayed) in enumerate(kinds.T):
        sender, recipient = (draws, senders[:, number]), (draws, recipients[:, number])
        begin = sending[sender]
        if awaited:
            begin = np.maximum(begin, taking[recipient])
        if shared:
            begin = np.maximum(begin, channel)
        end = begin + way[:, number]
        sending[sender] = end
        if shared:
            channel = end
        if relayed:
            end = np.maximum(end, taking[recipient]) + down[:, number]
        taking[recipient] = np.maximum(end, taking[recipient])
        begins[:, number], ends[:, number] = begin, end


def _sums(
    party: Int[np.ndarray, "rows m"], amounts: Int[np.ndarray, "rows m"], devices: int
) -> Float[np.ndarray, "rows n"]:
    """Add up amounts by device, without those of the server (-1)."""
    total = np.zeros((len(party), devices + 1))
    np.add.at(total, (np.arange(len(party))[:, None], party), amounts)
    return total[:, :devices]


def waiting_seconds(
    due: Float[np.ndarray, "rows n"], costs: RoundCosts, now: Float[np.ndarray, "rows"] | float = 0.0
) -> tuple[Float[np.ndarray, "rows"], Int[np.ndarray, "rows"]]:
    """Return when the awaited replies have arrived, given when each is ``due`` (inf: never), and how many these are.

    The server awaits the quorum, after the deadline ``least`` replies, and never more than are due.
    """
    began = np.broadcast_to(np.asarray(now, np.float64), len(due))
    if due.shape[1] == 0:
        due = np.full((len(due), 1), np.inf)
    if not np.isfinite(costs.deadline) and costs.quorum >= due.shape[1] and np.isfinite(last := due.max(axis=1)).all():
        return np.maximum(began, last), np.full(len(due), due.shape[1], np.int64)
    limit = began[:, None] + costs.deadline
    in_time = np.maximum(np.count_nonzero(due <= limit, axis=1), costs.least)
    number = np.minimum(np.count_nonzero(due < np.inf, axis=1), costs.quorum)
    taken = np.minimum(number, in_time)
    place = np.maximum(taken - 1, 0)
    wanted = np.unique(place)
    ordered = np.partition(due, wanted, axis=1) if len(wanted) <= _FEW else np.sort(due, axis=1)
    last = np.take_along_axis(ordered, place[:, None], axis=1)[:, 0]
    # a reply that arrives while the server computes is used when the server has finished
    ended = np.where(taken > 0, np.maximum(began, last), began)
    if np.isfinite(costs.deadline):
        ended = np.where(taken < costs.quorum, np.maximum(ended, limit[:, 0]), ended)
    return ended, taken


def _earliest(due: Float[np.ndarray, "n"], turn: Float[np.ndarray, "n"], count: int) -> Int[np.ndarray, "replies"]:
    """Return the ``count`` devices that are due first, in order; only those up to the last of them are sorted."""
    if not count:
        return np.zeros(0, np.int64)
    near = np.flatnonzero(due <= np.partition(due, count - 1)[count - 1])
    return near[np.lexsort((turn[near], due[near]))][:count]


@final
class Clock:
    """Virtual time of several draws, in seconds since the run began.

    The next round discards replies that were not awaited, unless that round is standing.
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
        """Start a round and wait for the replies; return when each arrives, in seconds after the request.

        ``asked`` says which devices of ``costs`` get a request in which draw. The server's own work is not included.
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
        """Record when the replies of a round arrive, without waiting."""
        seconds, columns = self._draws.replies(epoch, question, costs), costs.asked
        due, turn = began[:, None] + seconds, self._turns + np.arange(len(columns))
        self._turns += len(turn)
        if len(columns) == self._due.shape[1] and np.array_equal(columns, turn - turn[0]):  # everyone, in place
            np.copyto(self._due, due, where=True if asked is None else asked)
            np.copyto(self._turn, turn, where=True if asked is None else asked)
            return seconds
        self._due[:, columns] = due if asked is None else np.where(asked, due, self._due[:, columns])
        self._turn[:, columns] = turn if asked is None else np.where(asked, turn, self._turn[:, columns])
        return seconds

    def durations(self, epoch: int, question: int, costs: RoundCosts) -> Float[np.ndarray, "draws asked"]:
        """Return how long each asked device takes for a reply of these costs; no time passes."""
        return self._draws.replies(epoch, question, costs)

    @property
    def idle(self) -> Bool[np.ndarray, "draws n"]:
        """Which devices have no open request."""
        self._close()
        return np.asarray(np.isinf(self._due))

    def drop(self, devices: Sequence[int]) -> None:
        """Discard the open requests of devices."""
        self._close()
        self._due[:, list(devices)] = np.inf

    @property
    def arrived(self) -> list[Int[np.ndarray, "replies"]]:
        """The devices whose replies the server used in the last round, in the order of arrival, for each draw.

        Replies that arrive at the same time are in the order of their requests.
        """
        return [_earliest(*row) for row in zip(self._due, self._turn, self._taken.tolist(), strict=True)]

    def _close(self) -> None:
        """Close the requests whose replies were used."""
        for row, devices in enumerate(self.arrived):
            self._due[row, devices] = np.inf
        self._taken = np.zeros_like(self._taken)

    def _wait(self, costs: RoundCosts) -> None:
        """Wait for the quorum, after the deadline for ``least`` replies; never for more than are open."""
        self.now, self._taken = waiting_seconds(self._due, costs, self.now)

    def charge(self, macs: int, rows: Bool[np.ndarray, "draws"] | bool = True) -> None:
        """Advance the time by the server's work, in all draws or in these ``rows``."""
        self.now = np.where(rows, self.now + macs / self._delays.server_mac_rate, self.now)

    def stages(self, stages: Sequence[OverlappingStage]) -> None:
        """Advance the time by a stage of the set-up or of repairs, or by several that overlap."""
        self.now = self.now + self._draws.stages(stages).seconds

    def hand_over(
        self,
        epoch: int,
        transfers: Sequence[Sequence[TransferCosts]],
        *,
        parallel: bool,
        rows: Int[np.ndarray, "rows"] | slice = slice(None),
    ) -> None:
        """Advance the time by the hand-overs after an epoch, given those of each draw (in these ``rows``)."""
        if any(transfers):
            times = self._draws.handovers(epoch, *transfers, parallel=parallel, rows=rows)
            self.now = self.now.copy()
            self.now[rows] += times.seconds
