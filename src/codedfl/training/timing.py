"""From costs to times: the epochs of a training in many timing draws, and 95% bands.

A training whose model does not depend on who replies first is computed once and timed many times: the costs of its
rounds are known, so a draw is a sum of random delays. Where devices share data, who leaves when differs from draw to
draw, the model does not: every draw replays the sharing policy. A training that follows the timing is repeated instead.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool, Float, Int

from codedfl.network import Clock, DelayModel, Draws, OverlappingStage, RoundCosts, TransferCosts
from codedfl.schemes.contract import Scheme
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.task import Problem
from codedfl.training import History
from codedfl.training.costs import SharedCosts, measure
from codedfl.training.sharing_blocks import BlockDelays, SharedEpochs, SharingFleet, SharingReplay, replay_side_by_side

_ENOUGH_FOR_QUANTILES = 40
_BLOCK = 500_000
"""Replies that are timed at once: few enough for caches, many enough that Python costs nothing."""
_FIRST_BLOCK = 8
"""Epochs of the first block where devices hand over: most do so early, and then the rest of a block is timed again."""


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

    def fleet(self, draws: Draws) -> SharingFleet:
        """Return who is active in each draw, at the beginning."""
        return SharingFleet(self.costs, self.policy, draws, parallel=self.parallel)


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
    ends = np.full((len(courses), draws, epochs), np.nan)
    variants = {place: each for place, each in enumerate(courses) if _in_blocks(each)}
    others = [place for place in range(len(courses)) if place not in variants]
    done = 0
    for block in sharing_blocks(list(variants.values()), drawn, epochs):
        for place, played in zip(variants, block, strict=True):
            ends[place, :, done : done + len(played.ends)] = played.ends.T
        for _ in range(len(block[0].ends)):
            done += 1
            progress(done, epochs)
    side_by_side = zip(*(replay(courses[place], drawn) for place in others), strict=False)
    for epoch, each in enumerate(itertools.islice(side_by_side, epochs)):
        for place, one in zip(others, each, strict=True):
            ends[place, :, epoch] = one.ends
        if not variants:
            progress(epoch + 1, epochs)
    return ends


def _in_blocks(course: History | Variant) -> TypeGuard[Variant]:
    """Tell whether no question depends on when it is put, so that many epochs can be timed at once."""
    return isinstance(course, Variant) and not (course.costs.other.standing or np.isfinite(course.costs.other.deadline))


def sharing_blocks(
    variants: Sequence[Variant], draws: Draws, epochs: int, elsewhere: Sequence[Draws] = ()
) -> Iterator[list[SharedEpochs]]:
    """Go through the epochs of variants, block by block, side by side so that they share random numbers.

    ``elsewhere`` has the same draws with other channels between devices.
    """
    if not (variants and epochs):
        return
    replays, firsts = [], []
    for variant in variants:
        begun = []
        for channel in (draws, *elsewhere):
            clock, fleet = Clock(channel), variant.fleet(channel)
            begun.append((fleet, _first_epoch(variant, clock, fleet), clock.now))
        (fleet, first, now), *others = begun
        assert first.active is not None and first.supports is not None  # noqa: S101 - who shares has both
        ends = tuple(other.ends[None] for _, other, _ in others)
        firsts.append(SharedEpochs(first.ends[None], first.active[None], first.supports[None], ends))
        later = (each for _, _, each in others)
        replays.append(SharingReplay(fleet, draws, now, list(zip(elsewhere, later, strict=True))))
    yield firsts
    largest = max(1, _BLOCK // (draws.count * draws.delays.devices))
    start, size = 2, min(_FIRST_BLOCK, largest)
    while start <= epochs:
        yield replay_side_by_side(replays, BlockDelays(draws, range(start, min(start + size, epochs + 1))))
        start, size = start + size, min(2 * size, largest)


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
    clock, fleet = Clock(draws), variant.fleet(draws)
    yield _first_epoch(variant, clock, fleet)
    for epoch in itertools.count(2):
        seconds, rounds = np.zeros(fleet.active.shape), []
        for questions, rows in fleet.groups():
            asked = fleet.active & rows[:, None]
            for question, costs in enumerate(questions):
                replies = clock.ask(epoch, question, costs, asked)
                clock.charge(costs.server_macs, rows)
                seconds += np.where(rows[:, None], replies, 0.0)
                rounds.append((costs, asked))
        yield _share(fleet, epoch, seconds, clock, rounds)


def _share(
    fleet: SharingFleet,
    epoch: int,
    seconds: Float[np.ndarray, "draws n"],
    clock: Clock,
    rounds: Sequence[tuple[RoundCosts, Bool[np.ndarray, "draws asked"] | None]],
) -> ReplayedEpoch:
    """End an epoch, and let stragglers hand over if they are looked for."""
    ends, active, supports = clock.now, fleet.active.sum(axis=1), fleet.supports.copy()
    return ReplayedEpoch(ends, rounds, fleet.hand_over(epoch, seconds, clock), active, supports)


def _first_epoch(variant: Variant, clock: Clock, fleet: SharingFleet) -> ReplayedEpoch:
    """Let the set-up and the first epoch pass."""
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
    return _share(fleet, 1, seconds, clock, rounds)


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
