"""Load allocation: how many data points each device works on (its load), and how long the server waits.

A device with load l replies after K_d T_d + K_u T_u + l a + Exp(mean mu(l)) seconds. K_d and K_u are geometric numbers
of tries down and up of T_d and T_u seconds each; a is the time per data point; mu(l) = ratio * l a + seconds is the
mean setup time (``DelayModel``). The probability that the reply arrives by t is therefore

    P(t; l) = sum_k (1-p) p^(k-1) Q(t - l a - k T_d),
    Q(x) = sum_{k=1..M} (1-p) p^(k-1) (1 - exp(-(x - k T_u) / mu)),   M = floor(x / T_u),

with loss probability p. Q is a closed form (two geometric series). The sum over tries down is truncated when the
remainder P(K_d > k) = p^k is at most 2^-60.

The expected return by t is E[R(t; l)] = l P(t; l) data points. The deadline t* is the least t with

    sum_i max_l E[R_i(t; l)] >= m - c,

for m points in total and c rows of parity data, which replace the rest (Prakash et al., "Coded computing for
low-latency federated learning over wireless edge networks", IEEE JSAC 39, 2021; there with one rate for both directions
and no constant setup time). The search for l and t* needs only monotonicity: P decreases with l and increases with t.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from codedfl.network.delays import DelayModel

_REMAINDER_BITS = 60
"""The sum over tries down is truncated at a remainder of at most 2^-60."""
_MARGIN = 2.0**-30
"""Relative margin of the deadline above the least one, so that rounding of delays does not make a reply late."""


@final
@dataclass(frozen=True, eq=False)
class ReplyChances:
    """The distribution of reply times: parameters in seconds, as vectors with one entry per device."""

    point_seconds: Float[np.ndarray, "n"]
    setup_ratio: Float[np.ndarray, "n"]
    setup_seconds: Float[np.ndarray, "n"]
    down_seconds: Float[np.ndarray, "n"]
    up_seconds: Float[np.ndarray, "n"]
    loss: Float[np.ndarray, "n"]

    @classmethod
    def create(cls, delays: DelayModel, *, point_macs: int, down_bits: int, up_bits: int) -> "ReplyChances":
        """Compute the times of a data point and of the two messages."""
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
        """Return the probability of a reply by t, for each load and its device (by default all, in order)."""
        which = np.arange(len(self.loss)) if devices is None else devices
        work = loads * self.point_seconds[which]
        mean = np.where(loads > 0, self.setup_ratio[which] * work + self.setup_seconds[which], 0.0)
        one_try, loss = self.down_seconds[which], np.where(self.down_seconds > 0, self.loss, 0.0)[which]
        tries = np.arange(1, self._tries(t) + 1)
        left = (t - work)[:, None] - tries * one_try[:, None]
        arrive = _by_up_tries(left, mean[:, None], self.up_seconds[which][:, None], self.loss[which][:, None])
        return np.asarray(np.sum((1 - loss)[:, None] * loss[:, None] ** (tries - 1) * arrive, axis=1))

    def _tries(self, t: float) -> int:
        """Return after how many tries the sum over tries down is truncated."""
        most = 1
        for loss, seconds in set(zip(self.loss.tolist(), self.down_seconds.tolist(), strict=True)):
            if loss > 0 and seconds > 0:
                enough = math.ceil(_REMAINDER_BITS * math.log(2) / -math.log(loss))
                most = max(most, min(enough, math.floor(t / seconds) + 1))
        return most

    def best_loads(self, t: float, points: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Return the load with the largest expected return by t, at most ``points``, and that return, for each device.

        Branch and bound over intervals of loads: no load in lo..hi has an expected return above hi P(t; lo). An
        interval is split until its bound is no better than the best return found, so the integer maximum is exact.
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
        """Return the distinct devices, their points, and which of them each device equals."""
        columns = (*vars(self).values(), points)
        rows, kind = np.unique(np.stack(columns, axis=1).astype(np.float64), axis=0, return_inverse=True)
        return ReplyChances(*rows.T[:-1]), rows[:, -1].astype(np.int64), kind.reshape(-1)


def _by_up_tries(
    left: Float[np.ndarray, "m tries"],
    mean: Float[np.ndarray, "m 1"],
    one_try: Float[np.ndarray, "m 1"],
    loss: Float[np.ndarray, "m 1"],
) -> Float[np.ndarray, "m tries"]:
    """Return Q: the probability that setup and all tries up fit into the time ``left``.

    The second series has ratio q = p exp(T_u / mu); it is summed from its largest term, so that nothing overflows.
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
    """The deadline in seconds after the request, each device's load, and the probability that it replies by then."""

    deadline: float
    loads: Int[np.ndarray, "n"]
    chances: Float[np.ndarray, "n"]


def allocate(chances: ReplyChances, points: Int[np.ndarray, "n"], parity_rows: int) -> Allocation:
    """Return the least deadline with an expected return of all points but ``parity_rows``, and the loads.

    Without parity rows every device works on all its points and the deadline is infinite.
    """
    wanted = int(points.sum()) - parity_rows
    if wanted <= 0:
        return Allocation(0.0, np.zeros(len(points), np.int64), np.zeros(len(points)))
    if parity_rows == 0:
        return Allocation(math.inf, points.astype(np.int64), np.where(points > 0, 1.0, 0.0))
    each, most, kind = chances.kinds(points)
    count = np.bincount(kind, minlength=len(most))

    def excess(t: float) -> float:
        # never zero: the root finder could stop at any point of a plateau of zeros, not at its beginning
        return float(count @ each.best_loads(t, most)[1]) - wanted or math.ulp(wanted)

    sending = each.down_seconds + each.up_seconds
    first, full_load = (
        float(pick(sending + load * each.point_seconds)) for pick, load in ((np.min, 1), (np.max, most))
    )
    deadline = _least(excess, first, full_load) * (1 + _MARGIN)
    loads, returns = each.best_loads(deadline, most)
    reached = returns / np.maximum(loads, 1)
    return Allocation(deadline, loads[kind], reached[kind])


def _least(excess: Callable[[float], float], first: float, high: float) -> float:
    """Return the least time at which ``excess`` is positive, at most a tenth of the margin later.

    ``excess`` does not decrease. No reply arrives before ``first``; ``high`` is the first guess of an upper bound.
    """
    from scipy.optimize import brentq

    while excess(high) < 0:
        high *= 2
    tolerance = _MARGIN / 20
    found = brentq(excess, 0.0, high, xtol=tolerance * first, rtol=tolerance)
    return float(found + tolerance * (found + first))
