"""Load allocation: how many data points each device works on, and until when the server waits.

A device with l points replies after K_d T_d + K_u T_u + l a + Exp(mean mu(l)) seconds: K_d, K_u geometric tries of T_d
and T_u seconds each, a seconds a point, and setup time of mean mu(l) = ratio * l a + seconds (``DelayModel``). So

    P(t; l) = sum_k (1-p) p^(k-1) Q(t - l a - k T_d),
    Q(x) = sum_{k=1..M} (1-p) p^(k-1) (1 - exp(-(x - k T_u) / mu)),   M = floor(x / T_u),

is the chance that the reply is there by t. Q is summed in closed form (two geometric series). Of the tries down, as
many are summed as leave out less than 2^-60: P(K_d > k) = p^k.

E[R(t; l)] = l P(t; l) points are expected by t. The deadline t* is the least t with

    sum_i max_l E[R_i(t; l)] >= m - c,

m points in all and c rows of parity data that stand for the rest (Prakash et al., "Coded computing for low-latency
federated learning over wireless edge networks", IEEE JSAC 39, 2021; there with one rate for both ways and no constant
setup time). Both sides of the search rest on monotony alone: P falls with l and grows with t.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from codedfl.network.delays import DelayModel

_LEFT_OUT = 60
"""Tries down are summed until the chance of more is at most 2^-60."""
_HAIR = 2.0**-30
"""The deadline is later than the least one by this share, so that rounding of sums of delays decides nothing."""


@final
@dataclass(frozen=True, eq=False)
class ReplyChances:
    """When devices reply, in seconds, as vectors with one entry for each device."""

    point_seconds: Float[np.ndarray, "n"]
    setup_ratio: Float[np.ndarray, "n"]
    setup_seconds: Float[np.ndarray, "n"]
    down_seconds: Float[np.ndarray, "n"]
    up_seconds: Float[np.ndarray, "n"]
    loss: Float[np.ndarray, "n"]

    @classmethod
    def create(cls, delays: DelayModel, *, point_macs: int, down_bits: int, up_bits: int) -> "ReplyChances":
        """Compute how long a data point and the two messages take."""
        each = np.ones(delays.devices, dtype=np.int64)
        return cls(
            point_macs / delays.mac_rate,
            delays.setup_ratio,
            delays.setup_seconds,
            delays.send_seconds(down_bits * each, delays.down_rate),
            delays.send_seconds(up_bits * each, delays.up_rate),
            delays.loss,
        )

    def by(
        self, t: float, loads: Int[np.ndarray, "m"], devices: Int[np.ndarray, "m"] | None = None
    ) -> Float[np.ndarray, "m"]:
        """Return the chance that a reply is there by t, for each load and the device that has it (all, in order)."""
        which = np.arange(len(self.loss)) if devices is None else devices
        work = loads * self.point_seconds[which]
        mean = np.where(loads > 0, self.setup_ratio[which] * work + self.setup_seconds[which], 0.0)
        one_try, loss = self.down_seconds[which], np.where(self.down_seconds > 0, self.loss, 0.0)[which]
        tries = np.arange(1, self._tries(t) + 1)
        left = (t - work)[:, None] - tries * one_try[:, None]
        arrive = _by_up_tries(left, mean[:, None], self.up_seconds[which][:, None], self.loss[which][:, None])
        return np.asarray(np.sum((1 - loss)[:, None] * loss[:, None] ** (tries - 1) * arrive, axis=1))

    def _tries(self, t: float) -> int:
        """Return how many tries down are summed."""
        most = 1
        for loss, seconds in set(zip(self.loss.tolist(), self.down_seconds.tolist(), strict=True)):
            if loss > 0 and seconds > 0:
                enough = math.ceil(_LEFT_OUT * math.log(2) / -math.log(loss))
                most = max(most, min(enough, math.floor(t / seconds) + 1))
        return most

    def best_loads(self, t: float, points: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Return the load of at most so many points whose return by t is largest, and that return, for each device.

        Branch and bound over intervals of loads: no load of lo..hi returns more than hi P(t; lo). An interval is cut
        in two until its bound is no better than what was found, so the maximum over whole numbers is exact.
        """
        loads, returns = np.zeros(len(points), np.int64), np.zeros(len(points))
        devices = np.flatnonzero(points > 0)
        low, high = np.ones(len(devices), np.int64), points[devices].astype(np.int64)
        while len(devices):
            chance = self.by(t, low, devices)
            found = low * chance
            before = returns.copy()
            np.maximum.at(returns, devices, found)
            better = (found == returns[devices]) & (found > before[devices])
            loads[devices[better]] = low[better]
            open_ = (high > low) & (high * chance > returns[devices])
            devices, low, high = devices[open_], low[open_] + 1, high[open_]
            middle = (low + high) // 2
            second = middle < high
            devices = np.concatenate([devices, devices[second]])
            low, high = np.concatenate([low, middle[second] + 1]), np.concatenate([middle, high[second]])
        return loads, returns

    def kinds(self, points: Int[np.ndarray, "n"]) -> tuple["ReplyChances", Int[np.ndarray, "k"], Int[np.ndarray, "n"]]:
        """Return one device of each kind, its points, and which kind each device is of."""
        columns = (*vars(self).values(), points)
        rows, kind = np.unique(np.stack(columns, axis=1).astype(np.float64), axis=0, return_inverse=True)
        return ReplyChances(*rows.T[:-1]), rows[:, -1].astype(np.int64), kind.reshape(-1)


def _by_up_tries(
    left: Float[np.ndarray, "m tries"],
    mean: Float[np.ndarray, "m 1"],
    one_try: Float[np.ndarray, "m 1"],
    loss: Float[np.ndarray, "m 1"],
) -> Float[np.ndarray, "m tries"]:
    """Return Q: the chance that setup and all tries up fit into the time that is left.

    The second series has the ratio q = p exp(T_u / mu); it is summed from its larger end, so that nothing overflows.
    """
    loss = np.where(one_try > 0, loss, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tries = np.where(one_try > 0, np.floor(left / one_try), 1.0)
        log_loss = np.log(loss)
        log_ratio = log_loss + one_try / mean
        rising = _series(-log_ratio, tries) * np.exp((tries - 1) * log_loss - (left - tries * one_try) / mean)
        falling = _series(log_ratio, tries) * np.exp(-(left - one_try) / mean)
        set_up = np.where(mean > 0, np.where(log_ratio > 0, rising, falling), 0.0)
        chance = 1 - loss**tries - (1 - loss) * set_up
    return np.asarray(np.where((left >= 0) & (tries >= 1), chance, 0.0))


def _series(log_ratio: Float[np.ndarray, "m 1"], terms: Float[np.ndarray, "m tries"]) -> Float[np.ndarray, "m tries"]:
    """Return 1 + q + ... + q^(terms - 1) for a ratio of at most 1."""
    summed = np.expm1(terms * log_ratio) / np.expm1(log_ratio)
    return np.asarray(np.where(log_ratio == 0, terms, summed))


@final
@dataclass(frozen=True, eq=False)
class Allocation:
    """The deadline in seconds after the broadcast, each device's load, and the chance that its reply is in time."""

    deadline: float
    loads: Int[np.ndarray, "n"]
    chances: Float[np.ndarray, "n"]


def allocate(chances: ReplyChances, points: Int[np.ndarray, "n"], parity_rows: int) -> Allocation:
    """Return the least deadline by which all points but ``parity_rows`` are expected, and the loads that do it.

    Without parity rows everyone works on everything and is awaited: the deadline is infinite.
    """
    wanted = int(points.sum()) - parity_rows
    if wanted <= 0:
        return Allocation(0.0, np.zeros(len(points), np.int64), np.zeros(len(points)))
    if parity_rows == 0:
        return Allocation(math.inf, points.astype(np.int64), np.where(points > 0, 1.0, 0.0))
    each, most, kind = chances.kinds(points)
    count = np.bincount(kind, minlength=len(most))

    def excess(t: float) -> float:
        # never zero, or the search would end wherever just enough is there, not where it begins to be
        return float(count @ each.best_loads(t, most)[1]) - wanted or math.ulp(wanted)

    sending = each.down_seconds + each.up_seconds
    first, all_of_it = (
        float(pick(sending + load * each.point_seconds)) for pick, load in ((np.min, 1), (np.max, most))
    )
    deadline = _least(excess, first, all_of_it) * (1 + _HAIR)
    loads, returns = each.best_loads(deadline, most)
    reached = returns / np.maximum(loads, 1)
    return Allocation(deadline, loads[kind], reached[kind])


def _least(excess: Callable[[float], float], first: float, high: float) -> float:
    """Return the least time without a shortage, or a tenth of a hair later; a later time has no less.

    Nothing is there before ``first``; the search begins below ``high``.
    """
    from scipy.optimize import brentq

    while excess(high) < 0:
        high *= 2
    tolerance = _HAIR / 20
    found = brentq(excess, 0.0, high, xtol=tolerance * first, rtol=tolerance)
    return float(found + tolerance * (found + first))
