"""From costs to times: the epochs of a training in many timing draws, and 95% bands.

A training whose model does not depend on who replies first is computed once and timed many times: the costs of its
rounds are known, so a draw is a sum of random delays. Where devices share data, who leaves when differs from draw to
draw, the model does not: every draw replays the sharing policy. A training that follows the timing is repeated instead.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from codedfl.network import Clock, DelayModel, Draws, OverlappingStage, RoundCosts, TransferCosts
from codedfl.schemes.contract import Scheme
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.task import Problem
from codedfl.training import History
from codedfl.training.costs import SharedCosts, measure

_ENOUGH_FOR_QUANTILES = 40
_BLOCK = 500_000
"""Replies that are timed at once: few enough for caches, many enough that Python costs nothing."""


@dataclass(frozen=True)
class Band:
    """A mean, and the range that holds 95% of single values."""

    mean: float
    low: float
    high: float


def band(values: Float[np.ndarray, "draws"]) -> Band:
    """Summarise draws: quantiles where there are many, else Student's prediction interval for one more value."""
    mean = float(np.mean(values))
    if len(values) >= _ENOUGH_FOR_QUANTILES:
        low, high = np.quantile(values, [0.025, 0.975])
    elif len(values) > 1:
        from scipy.special import stdtrit

        factor = stdtrit(len(values) - 1, 0.975) * np.sqrt(1 + 1 / len(values))
        half = factor * np.std(values, ddof=1)
        low, high = max(mean - half, 0.0), mean + half
    else:
        low, high = float("nan"), float("nan")
    return Band(mean, float(low), float(high))


@dataclass(frozen=True, eq=False)
class Variant:
    """A way to share: its costs, its policy at the beginning, and the stages of its set-up."""

    costs: SharedCosts
    policy: Callable[[], SharingPolicy]
    parallel: bool = False
    set_up: Sequence[Sequence[OverlappingStage]] = ()

    @classmethod
    def create(
        cls, scheme: Scheme[Any], problem: Problem, history: History, *, first_offline: bool
    ) -> "Variant | None":
        """Measure the costs of a scheme that shares; return None for others."""
        if scheme.sharing is None:
            return None
        set_up = history.overlapping_after(0)
        costs = measure(scheme, problem, first_offline=first_offline)
        return cls(costs, scheme.sharing.policy, scheme.sharing.parallel, set_up)


@dataclass(frozen=True, eq=False)
class ReplayedEpoch:
    """An epoch in all draws: when it ends, and who was asked (None: all in the costs); hand-overs of the first draw.

    Where devices share data: how many are active in the epoch, and how many supports are left for its stragglers.
    """

    ends: Float[np.ndarray, "draws"]
    rounds: Sequence[tuple[RoundCosts, Bool[np.ndarray, "draws asked"] | None]]
    handovers: Sequence[TransferCosts] = ()
    active: Int[np.ndarray, "draws"] | None = None
    supports: Float[np.ndarray, "draws"] | None = None


def epoch_ends(
    courses: Sequence[History | Variant],
    delays: DelayModel,
    *,
    epochs: int,
    seed: int,
    draws: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Float[np.ndarray, "courses draws epochs"]:
    """Return when each epoch ends in each draw of each course; all courses meet the same random delays."""
    drawn = Draws(delays, seed=seed, count=draws)
    ends = np.empty((len(courses), draws, epochs))
    side_by_side = zip(*(replay(course, drawn) for course in courses), strict=False)
    for epoch, played in enumerate(itertools.islice(side_by_side, epochs)):
        for course, each in enumerate(played):
            ends[course, :, epoch] = each.ends
        progress(epoch + 1, epochs)
    return ends


def replay(course: History | Variant, draws: Draws) -> Iterator[ReplayedEpoch]:
    """Go through the epochs of a recorded training, or of one that shares data (without end)."""
    return _replay_sharing(course, draws) if isinstance(course, Variant) else _replay_rounds(course, draws)


def _replay_rounds(history: History, draws: Draws) -> Iterator[ReplayedEpoch]:
    """Put recorded questions; who is asked in standing rounds differs: in each draw, whoever has replied."""
    standing = any(costs.standing for costs in history.rounds)
    return _replay_standing(history, draws) if standing else _replay_blocks(history, draws)


def _replay_standing(history: History, draws: Draws) -> Iterator[ReplayedEpoch]:
    clock, each = Clock(draws), reply_costs(history, draws.delays.devices)
    for epoch, numbers in enumerate(history.questions(), start=1):
        rounds = []
        for question, number in enumerate(numbers):
            costs, asked = history.rounds[number], None
            if costs.standing:
                costs = dataclasses.replace(each, quorum=costs.quorum, server_macs=costs.server_macs, standing=True)
                asked = clock.idle
            clock.ask(epoch, question, costs, asked)
            clock.charge(costs.server_macs)
            rounds.append((costs, asked))
        yield ReplayedEpoch(clock.now, rounds)


def _replay_blocks(history: History, draws: Draws) -> Iterator[ReplayedEpoch]:
    """Time many epochs at once: no question is open when an epoch begins, so it lasts as long whenever it does."""
    questions, ends = history.questions(), np.zeros(draws.count)
    size = max(1, _BLOCK // (draws.count * draws.delays.devices))
    for first in range(0, len(questions), size):
        block = questions[first : first + size]
        for place, took in enumerate(_durations(history, draws, first, block)):
            ends = ends + took
            yield ReplayedEpoch(ends, [(history.rounds[number], None) for number in block[place]])


def _durations(
    history: History, draws: Draws, first: int, block: Sequence[Sequence[int]]
) -> Float[np.ndarray, "epochs draws"]:
    """Return how long each epoch of a block lasts: its questions, then the stages before it."""
    epochs = range(first + 1, first + len(block) + 1)
    took = np.zeros((len(block), draws.count))
    for question in range(max(map(len, block))):
        number = np.array([numbers[question] if question < len(numbers) else -1 for numbers in block])
        drawn = draws.block(epochs, question)
        for each in np.unique(number[number >= 0]):
            own = number == each
            lasts = drawn.durations(history.rounds[each], np.repeat(own, draws.count))
            took[own] += lasts.reshape(-1, draws.count)
    for place, epoch in enumerate(epochs):
        for stages in history.overlapping_after(epoch - 1):
            took[place] += draws.stages(stages).seconds
    return took


def _replay_sharing(variant: Variant, draws: Draws) -> Iterator[ReplayedEpoch]:
    """Hand-overs after an epoch delay the next one."""
    clock, fleet = Clock(draws), _Fleet(variant, draws)
    for stages in variant.set_up:
        clock.stages(stages)
    seconds, rounds = np.zeros(fleet.active.shape), []
    for question, (first, beforehand) in enumerate(variant.costs.first_questions):
        replies = clock.ask(1, question, first)
        clock.charge(first.server_macs)
        if beforehand is not None:
            replies = replies + clock.durations(1, question, beforehand)
        seconds[:, first.asked] += replies
        rounds.append((first, None))
    yield fleet.share(1, seconds, clock, rounds)
    for epoch in itertools.count(2):
        seconds, rounds = np.zeros(fleet.active.shape), []
        for questions, rows in fleet.groups():
            asked = fleet.active & rows[:, None]
            for question, costs in enumerate(questions):
                replies = clock.ask(epoch, question, costs, asked)
                clock.charge(costs.server_macs, rows)
                seconds += np.where(rows[:, None], replies, 0.0)
                rounds.append((costs, asked))
        yield fleet.share(epoch, seconds, clock, rounds)


class _Fleet:
    """Who is active, and the sharing policy, in each draw of a variant."""

    def __init__(self, variant: Variant, draws: Draws) -> None:
        self._variant = variant
        self._policies = [variant.policy() for _ in range(draws.count)]
        self.active = np.ones((draws.count, draws.delays.devices), bool)
        self._forwards = np.zeros_like(self.active)
        self._grouped: list[tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]] | None = None
        """What :meth:`groups` returns, until somebody leaves."""
        self._grants = np.array([policy.may_grant for policy in self._policies])
        self._supports = np.array([policy.supports_left for policy in self._policies], np.float64)

    def groups(self) -> list[tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]]:
        """Return the questions that an epoch has, and in which draws it has them."""
        if self._grouped is not None:
            return self._grouped
        counts = self.active.sum(axis=1)
        found: dict[Any, tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]] = {}
        for count in np.unique(counts):
            questions = self._variant.costs.questions(int(count))
            key = tuple(costs.key() for costs in questions)
            before = found[key][1] if key in found else False
            found[key] = questions, before | (counts == count)
        self._grouped = list(found.values())
        return self._grouped

    def share(
        self,
        epoch: int,
        seconds: Float[np.ndarray, "draws n"],
        clock: Clock,
        rounds: Sequence[tuple[RoundCosts, Bool[np.ndarray, "draws asked"] | None]],
    ) -> ReplayedEpoch:
        """End an epoch, and let stragglers hand over if they are looked for."""
        ends, active, supports = clock.now, self.active.sum(axis=1), self._supports.copy()
        handovers = self._hand_over(epoch, seconds, clock) if self._policies[0].detects(epoch) else ()
        return ReplayedEpoch(ends, rounds, handovers, active, supports)

    def _hand_over(self, epoch: int, seconds: Float[np.ndarray, "draws n"], clock: Clock) -> Sequence[TransferCosts]:
        """Let stragglers hand over, in draws where the policy can move anything; return those of the first draw."""
        if not (self._grants.any() or self._forwards.any()):
            return ()
        fastest = np.where(self.active, seconds, np.inf).min(axis=1)
        straggling = self.active & (seconds > (fastest + self._policies[0].delta)[:, None])
        acting = straggling.any(axis=1) & (self._grants | (straggling & self._forwards).any(axis=1))
        draws = np.flatnonzero(acting)
        if not len(draws):
            return ()
        self._grouped = None
        transfers = [self._decide(draw, seconds[draw]) for draw in draws.tolist()]
        clock.hand_over(epoch, transfers, parallel=self._variant.parallel, rows=draws)
        return transfers[0] if acting[0] else ()

    def _decide(self, draw: int, seconds: Float[np.ndarray, "n"]) -> list[TransferCosts]:
        policy = self._policies[draw]
        decision = policy.after_epoch({device: float(seconds[device]) for device in policy.active})
        self.active[draw] = False
        self.active[draw, list(policy.active)] = True
        self._forwards[draw] = False
        self._forwards[draw, [device for device in policy.active if policy.may_forward(device)]] = True
        self._grants[draw] = policy.may_grant
        self._supports[draw] = policy.supports_left
        return [self._variant.costs.of(handover) for handover in decision.handovers]


def reply_costs(history: History, devices: int) -> RoundCosts:
    """Collect what a reply costs each device from standing rounds, each of which asks some devices."""
    down, macs, up = (np.zeros(devices, np.int64) for _ in range(3))
    for costs in (costs for costs in history.rounds if costs.standing):
        down[costs.asked], macs[costs.asked], up[costs.asked] = costs.down_bits, costs.macs, costs.up_bits
    return RoundCosts(np.arange(devices), down, macs, up, quorum=devices, server_macs=0)


def first_epoch(scores: Sequence[float] | Float[np.ndarray, "epochs"], target: float) -> int | None:
    """Return the first epoch (counted from 1) whose score reaches the target, or None."""
    reached = np.flatnonzero(np.asarray(scores) >= target)
    return int(reached[0]) + 1 if len(reached) else None


def time_to(
    scores: Sequence[float] | Float[np.ndarray, "epochs"],
    seconds: Float[np.ndarray, "draws epochs"],
    target: float,
) -> Float[np.ndarray, "draws"] | None:
    """Return when the target is reached in each draw, or None if it never is."""
    epoch = first_epoch(scores, target)
    return None if epoch is None else seconds[:, epoch - 1]
