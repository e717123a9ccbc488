"""Epochs of trainings that share data, timed in blocks: who is active in each draw, and until when an epoch lasts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from codedfl.network import Clock, Draws, RoundCosts, StageCosts, TransferCosts
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.training.costs import SharedCosts


@final
class SharingFleet:
    """Who is active, and the sharing policy, in each draw."""

    def __init__(
        self, costs: SharedCosts, policy: Callable[[], SharingPolicy], draws: Draws, *, parallel: bool
    ) -> None:
        self.costs, self.parallel = costs, parallel
        self._policies = [policy() for _ in range(draws.count)]
        self.active = np.ones((draws.count, draws.delays.devices), bool)
        self.forwards = np.zeros_like(self.active)
        self._grouped: list[tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]] | None = None
        """What :meth:`groups` returns, until somebody leaves."""
        self.grants = np.array([policy.may_grant for policy in self._policies])
        self.supports = np.array([policy.supports_left for policy in self._policies], np.float64)
        self.delta, self.detects = self._policies[0].delta, self._policies[0].detects

    def groups(self) -> list[tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]]:
        """Return the questions that an epoch has, and in which draws it has them."""
        if self._grouped is not None:
            return self._grouped
        counts = self.active.sum(axis=1)
        found: dict[Any, tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]] = {}
        for count in np.unique(counts):
            questions = self.costs.questions(int(count))
            key = tuple(costs.key() for costs in questions)
            before = found[key][1] if key in found else False
            found[key] = questions, before | (counts == count)
        self._grouped = list(found.values())
        return self._grouped

    def hand_over(self, epoch: int, seconds: Float[np.ndarray, "draws n"], clock: Clock) -> Sequence[TransferCosts]:
        """Let stragglers hand over, in draws where the policy can move anything; return those of the first draw."""
        if not self.detects(epoch) or not (self.grants.any() or self.forwards.any()):
            return ()
        fastest = np.where(self.active, seconds, np.inf).min(axis=1)
        straggling = self.active & (seconds > (fastest + self.delta)[:, None])
        acting = straggling.any(axis=1) & (self.grants | (straggling & self.forwards).any(axis=1))
        draws = np.flatnonzero(acting)
        if not len(draws):
            return ()
        self._grouped = None
        transfers = [self.decide(draw, seconds[draw]) for draw in draws.tolist()]
        clock.hand_over(epoch, transfers, parallel=self.parallel, rows=draws)
        return transfers[0] if acting[0] else ()

    def decide(self, draw: int, seconds: Float[np.ndarray, "n"]) -> list[TransferCosts]:
        """Let a draw's stragglers hand over, given when each device replied; return the costs."""
        policy = self._policies[draw]
        decision = policy.after_replies(seconds)
        self.active[draw] = policy.is_active
        self.forwards[draw] = policy.forwards
        self.grants[draw] = policy.may_grant
        self.supports[draw] = policy.supports_left
        return [self.costs.of(handover) for handover in decision.handovers]


@dataclass(frozen=True, eq=False)
class SharedEpochs:
    """Consecutive epochs in all draws: when each ends, and the active devices and supports left at its beginning.

    ``elsewhere`` has when they end on other channels between devices.
    """

    ends: Float[np.ndarray, "epochs draws"]
    active: Int[np.ndarray, "epochs draws"]
    supports: Float[np.ndarray, "epochs draws"]
    elsewhere: tuple[Float[np.ndarray, "epochs draws"], ...] = ()


@final
class BlockDelays:
    """Seconds of replies in some epochs, by device, epoch and draw; replays of the same draws share them."""

    def __init__(self, draws: Draws, epochs: range) -> None:
        self.epochs, self.draws = epochs, draws
        self._known: dict[Any, Float[np.ndarray, "n epochs draws"]] = {}

    def replies(self, question: int, costs: RoundCosts) -> Float[np.ndarray, "n epochs draws"]:
        """Return when replies arrive, in seconds after the request; made on first use."""
        key = question, costs.key()
        if key not in self._known:
            seconds = self.draws.block(self.epochs, question).replies(costs)
            shape = (seconds.shape[1], len(self.epochs), self.draws.count)
            self._known[key] = np.ascontiguousarray(seconds.T).reshape(shape)
        return self._known[key]


@final
class SharingReplay:
    """The replay of a variant, many epochs at once, to the bits of a replay of one epoch after the other.

    Draws do not depend on each other, and who is active changes rarely. So the epochs of a block are timed as if nobody
    left, up to the first one in which somebody does, and for the draws where it happens again from there on. An epoch
    lasts as long whenever it begins: rounding is monotonous, so that the latest of sums is the sum with the latest.
    """

    def __init__(
        self,
        fleet: SharingFleet,
        draws: Draws,
        now: Float[np.ndarray, "draws"],
        elsewhere: Sequence[tuple[Draws, Float[np.ndarray, "draws"]]] = (),
    ) -> None:
        """Go on after the first epoch, at the times ``now``; ``elsewhere`` has other channels between devices.

        Replies do not use these channels, so that the same devices hand over after the same epochs on all of them.
        """
        self._fleet, self._draws, self._now = fleet, draws, now
        self._channels = [other for other, _ in elsewhere]
        self._times = [begun for _, begun in elsewhere]
        self._questions: dict[int, Sequence[RoundCosts]] = {}

    def begin(self, delays: BlockDelays) -> None:
        """Time the epochs of a block as if nobody left."""
        fleet, shape = self._fleet, (len(delays.epochs), self._draws.count)
        self._delays, self._steps = delays, np.zeros((shape[0], 3, shape[1]))  # a round, the server's work, hand-overs
        self._active = np.broadcast_to(fleet.active.sum(axis=1), shape).copy()
        self._supports = np.broadcast_to(fleet.supports, shape).copy()
        self._elsewhere = np.zeros((len(self._channels), *shape))  # hand-overs on the other channels
        self._next = np.empty(shape[1], np.int64)
        self._time(np.arange(shape[1]), 0)

    @property
    def next(self) -> int:
        """The place in the block of the next epoch after which somebody leaves; the size of the block if none does."""
        return int(self._next.min())

    def hand_over(self, place: int) -> None:
        """Let stragglers hand over after an epoch, in the draws where they do, and time the rest of the block again."""
        fleet, epoch = self._fleet, self._delays.epochs[place]
        rows = np.flatnonzero(self._next == place)
        transfers = []
        for draw in rows.tolist():
            questions = self._asked(int(self._active[place, draw]))
            replies = (self._delays.replies(*each)[:, place, draw] for each in enumerate(questions))
            transfers.append(fleet.decide(draw, sum(replies, np.zeros(fleet.active.shape[1]))))
        if any(transfers):
            costs = StageCosts.create(*transfers)
            channels = zip((self._draws, *self._channels), (self._steps[:, -1], *self._elsewhere), strict=True)
            for draws, seconds in channels:
                times = draws.handover_times(epoch, costs, parallel=fleet.parallel, rows=rows)
                seconds[place, rows] = times.seconds
        self._active[place + 1 :, rows] = fleet.active[rows].sum(axis=1)
        self._supports[place + 1 :, rows] = fleet.supports[rows]
        self._time(rows, place + 1)

    def finish(self) -> SharedEpochs:
        """Return the epochs of the block."""
        steps, elsewhere = self._steps, []
        self._now, ends = _added(self._now, steps)
        for number, seconds in enumerate(self._elsewhere):
            steps[:, -1] = seconds
            self._times[number], other = _added(self._times[number], steps)
            elsewhere.append(other)
        return SharedEpochs(ends, self._active, self._supports, tuple(elsewhere))

    def _asked(self, active: int) -> Sequence[RoundCosts]:
        if active not in self._questions:
            self._questions[active] = self._fleet.costs.questions(active)
        return self._questions[active]

    def _time(self, rows: Int[np.ndarray, "rows"], start: int) -> None:
        """Time the epochs from ``start`` on in some draws, with the devices that are active now."""
        self._next[rows] = len(self._steps)
        if start == len(self._steps):
            return
        groups: dict[Any, tuple[Sequence[RoundCosts], list[int]]] = {}
        for row, count in zip(rows.tolist(), self._fleet.active[rows].sum(axis=1).tolist(), strict=True):
            questions = self._asked(count)
            groups.setdefault(tuple(map(id, questions)), (questions, []))[1].append(row)
        for questions, chosen in groups.values():
            self._time_alike(questions, np.array(chosen), start)

    def _time_alike(self, questions: Sequence[RoundCosts], rows: Int[np.ndarray, "rows"], start: int) -> None:
        """Time draws whose epochs have the same questions, and find the first epoch after which somebody leaves."""
        fleet, rate = self._fleet, self._draws.delays.server_mac_rate
        if 2 * len(questions) + 1 > self._steps.shape[1]:
            wider = np.zeros((len(self._steps), 2 * len(questions) + 1, self._draws.count))
            wider[:, : self._steps.shape[1] - 1] = self._steps[:, :-1]
            wider[:, -1] = self._steps[:, -1]
            self._steps = wider
        absent = np.where(fleet.active[rows].T, 0.0, np.inf)[:, None]
        every = len(rows) == self._draws.count
        seconds = np.zeros(())
        self._steps[start:, :-1, rows] = 0.0
        for question, costs in enumerate(questions):
            replies = self._delays.replies(question, costs)[:, start:]
            replies = replies if every else replies[..., rows]
            self._steps[start:, 2 * question, rows] = _last_awaited(replies, absent, costs.quorum)
            self._steps[start:, 2 * question + 1, rows] = costs.server_macs / rate
            seconds = replies if len(questions) == 1 else seconds + replies
        limit = (seconds + absent).min(axis=0) + fleet.delta
        leaves = (seconds - absent).max(axis=0) > limit
        if not fleet.grants[rows].all():
            kept = np.where(fleet.forwards[rows].T, 0.0, np.inf)[:, None]
            leaves &= fleet.grants[rows] | ((seconds - kept).max(axis=0) > limit)
        leaves[[not fleet.detects(epoch) for epoch in self._delays.epochs[start:]]] = False
        self._next[rows] = np.where(leaves.any(axis=0), start + leaves.argmax(axis=0), len(self._steps))


def _added(
    now: Float[np.ndarray, "draws"], steps: Float[np.ndarray, "epochs steps draws"]
) -> tuple[Float[np.ndarray, "draws"], Float[np.ndarray, "epochs draws"]]:
    """Return when the last step ends, and when each epoch does, before its hand-overs."""
    begun = np.concatenate([now[None], steps.reshape(-1, steps.shape[2])])
    ends = np.add.accumulate(begun, axis=0)  # one after the other, as a clock adds
    return ends[-1], ends[1:].reshape(steps.shape)[:, -2]


def _last_awaited(
    replies: Float[np.ndarray, "n epochs rows"], absent: Float[np.ndarray, "n 1 rows"], quorum: int
) -> Float[np.ndarray, "epochs rows"]:
    """Return when the last awaited reply arrives; ``absent`` is infinite for devices that are not asked."""
    present = np.count_nonzero(absent == 0, axis=0)
    if quorum >= present.max():
        return np.asarray((replies - absent).max(axis=0))
    place = np.broadcast_to(np.minimum(present, quorum) - 1, replies.shape[1:])[None]
    return np.asarray(np.take_along_axis(np.sort(replies + absent, axis=0), place, axis=0)[0])


def replay_side_by_side(replays: Sequence[SharingReplay], delays: BlockDelays) -> list[SharedEpochs]:
    """Play a block of epochs; hand-overs after the same epoch follow each other, since they share random numbers."""
    for each in replays:
        each.begin(delays)
    while (place := min(each.next for each in replays)) < len(delays.epochs):
        for each in replays:
            if each.next == place:
                each.hand_over(place)
    return [each.finish() for each in replays]
