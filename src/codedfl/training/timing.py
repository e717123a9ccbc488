"""From costs to times: many timing draws of one training, and 95% bands.

A training whose model does not depend on who replies first is computed once and timed many times: the costs of its
rounds are known, so a draw is a sum of random delays. A training that follows the timing is repeated instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float, Int

from codedfl.network import DelayModel, RoundCosts, stage_seconds
from codedfl.training import History

__all__ = ["Band", "band", "cumulative_seconds", "first_epoch", "reply_costs", "standing_seconds", "time_to"]

_ENOUGH_FOR_QUANTILES = 40


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
        factor = scipy.special.stdtrit(len(values) - 1, 0.975) * np.sqrt(1 + 1 / len(values))
        half = factor * np.std(values, ddof=1)
        low, high = max(mean - half, 0.0), mean + half
    else:
        low, high = float("nan"), float("nan")
    return Band(mean, float(low), float(high))


def cumulative_seconds(
    history: History,
    delays: DelayModel,
    *,
    seed: int,
    draws: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Float[np.ndarray, "draws epochs"]:
    """Return when each epoch ends in each draw."""
    if any(costs.standing for costs in history.rounds):
        return standing_seconds(history, delays, seed=seed, draws=draws)[0]
    seconds = np.zeros((draws, len(history)))
    for epoch, numbers in enumerate(history.questions(), start=1):
        for question, number in enumerate(numbers):
            chance = delays.chance(seed, epoch, 0, draws, question)
            seconds[:, epoch - 1] += delays.epoch_seconds(history.rounds[number], chance)
        for stage, transfers in history.stages_after(epoch - 1):
            seconds[:, epoch - 1] += stage_seconds(delays, stage, transfers, seed=seed, first=0, draws=draws)
        progress(epoch, len(history))
    return np.cumsum(seconds, axis=1)


def standing_seconds(
    history: History, delays: DelayModel, *, seed: int, draws: int
) -> tuple[Float[np.ndarray, "draws epochs"], Int[np.ndarray, "draws n"]]:
    """Return the same where questions stay open, and how often each device is asked in standing rounds.

    Who is asked is chance: whoever has replied is asked again. What a reply costs a device is not.
    """
    each = reply_costs(history, delays.devices)
    idle = np.ones((draws, delays.devices), bool)
    arrival, asked, since = np.zeros(idle.shape), np.zeros(idle.shape, np.int64), np.zeros(idle.shape, np.int64)
    ends, now = np.empty((draws, len(history))), np.zeros(draws)
    for epoch, number in enumerate(history.round_of_epoch, start=1):
        costs, chance = history.rounds[number], delays.chance(seed, epoch, 0, draws)
        if costs.standing:
            arrival = np.where(idle, now[:, None] + delays.reply_seconds(each, chance), arrival)
            since = np.where(idle, epoch, since)
            asked += idle
            # of those who reply at the same time, the one asked first comes first, as on the clock of an engine
            first = np.lexsort((since, arrival), axis=1)[:, : costs.quorum]
            last = np.take_along_axis(arrival, first[:, -1:], axis=1)[:, 0]
            idle = np.zeros_like(idle)
            np.put_along_axis(idle, first, values=True, axis=1)
            # what came while the server was computing is taken up when it is done
            now = np.maximum(now, last) + delays.server_seconds(costs.server_macs)
        else:
            now = now + delays.epoch_seconds(costs, chance)
        ends[:, epoch - 1] = now
    return ends, asked


def reply_costs(history: History, devices: int) -> RoundCosts:
    """Put together what a reply costs each device from standing rounds, which ask some of them."""
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
