"""Estimates of the delay model from observed delays: maximum likelihood, with delays that were cut off.

A transmission of b bits takes K b s seconds, K a geometric number of tries and s the seconds per bit of a try. The
shortest time per bit estimates s, and failures / (failures + successes) the loss p, so that the mean b s / (1 - p) is
the observed one. Times that are no multiples of a try (real networks) count as fractions of tries.

Work of m multiplications takes m/tau + Exp(mean A m + B) seconds. The shortest time per multiplication estimates 1/tau,
less the mean excess of a minimum, and A and B maximise the likelihood of the rest; the mean is the observed one. What
was cut off counts as time that passed without an end.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

_WHOLE = 1e-6
"""A time within this relative distance of a whole number of tries ended with the last of them."""
_ITERATIONS = 300
_UNLIKE = 2.0
"""Amounts of work that differ by this factor tell a delay per multiplication from one per request."""
_NORMAL_QUANTILE = 3.0902323  # of 0.999


@final
@dataclass(frozen=True, eq=False)
class Observed:
    """Delays of devices: the bits or multiplications of each, its seconds, and whether it was seen to end."""

    device: Int[np.ndarray, "rows"]
    amount: Float[np.ndarray, "rows"]
    seconds: Float[np.ndarray, "rows"]
    ended: Bool[np.ndarray, "rows"]

    def of(self, device: int) -> "Observed":
        """Return the delays of one device."""
        own = self.device == device
        return Observed(self.device[own], self.amount[own], self.seconds[own], self.ended[own])


@final
@dataclass(frozen=True, eq=False)
class LinkEstimate:
    """Of each device: seconds per bit of one try (NaN if nothing was seen to end), and tries by outcome."""

    bit_seconds: Float[np.ndarray, "n"]
    failures: Float[np.ndarray, "n"]
    successes: Float[np.ndarray, "n"]


@final
@dataclass(frozen=True, eq=False)
class WorkEstimate:
    """Of each device: rate (NaN if nothing was seen to end), mean setup by computing times and in seconds, ends."""

    mac_rate: Float[np.ndarray, "n"]
    setup_ratio: Float[np.ndarray, "n"]
    setup_seconds: Float[np.ndarray, "n"]
    ends: Int[np.ndarray, "n"]


def estimate_links(sent: Observed, devices: int) -> LinkEstimate:
    """Estimate the links of each device from transmissions."""
    base, failures, successes = np.full(devices, np.nan), np.zeros(devices), np.zeros(devices)
    for device in range(devices):
        own = sent.of(device)
        if own.ended.any():
            per_bit = own.seconds / own.amount
            base[device] = per_bit[own.ended].min()
            failures[device], successes[device] = count_tries(per_bit / base[device], own.ended)
    return LinkEstimate(base, failures, successes)


def count_tries(tries: Float[np.ndarray, "rows"], ended: Bool[np.ndarray, "rows"]) -> tuple[float, int]:
    """Return failed and successful tries, given how many tries fit into each time."""
    whole = (abs(tries - np.round(tries)) <= _WHOLE * tries) & (np.round(tries) >= 1)
    ended, tries = ended | whole, np.where(whole, np.round(tries), tries)
    failed = np.where(ended, np.maximum(tries - 1, 0), np.floor(tries))
    return float(failed.sum()), int(ended.sum())


def estimate_pairs(
    sent: Observed, recipient: Int[np.ndarray, "rows"], devices: int
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return rate per bit, failures and successes of links between devices, whose slower end decides.

    A device is as fast as its fastest transmission, to whomever; a rate is NaN if it took part in none.
    """
    rate, failures, successes = np.zeros(devices), np.zeros(devices), np.zeros(devices)
    with np.errstate(divide="ignore"):
        seen = sent.amount / sent.seconds
    for party in (sent.device, recipient):
        np.maximum.at(rate, party[sent.ended], seen[sent.ended])
    for device in range(devices):
        own = sent.device == device
        slower = np.minimum(rate[device], rate[recipient[own]])
        failures[device], successes[device] = count_tries(slower / seen[own], sent.ended[own])
    return np.where(rate > 0, rate, np.nan), failures, successes


def estimate_work(done: Observed, devices: int) -> WorkEstimate:
    """Estimate the speed of each device from computations.

    Where all amounts of work are alike, delays per multiplication and per request cannot be told apart: all count as
    the first. So they do where a delay per request does not explain significantly more.
    """
    found = np.full((3, devices), np.nan)
    ends = np.zeros(devices, np.int64)
    for device in range(devices):
        own = done.of(device)
        ends[device] = own.ended.sum()
        if ends[device]:
            found[:, device] = _one_device(own)
    rate, ratio, seconds = found
    return WorkEstimate(rate, ratio, seconds, ends)


def _one_device(own: Observed) -> tuple[float, float, float]:
    shortest = float((own.seconds / own.amount)[own.ended].min())
    slope, constant = _setup(own, shortest)
    mean = slope * own.amount + constant
    if own.ended.sum() > 1 and mean[own.ended].min() > 0:  # the mean excess of the shortest of so many
        shortest = max(shortest - 1 / float((own.amount / mean)[own.ended].sum()), shortest / 2)
        slope, constant = _setup(own, shortest)
    return 1 / shortest, slope / shortest, constant


def _setup(own: Observed, mac_seconds: float) -> tuple[float, float]:
    """Return the mean of the exponential rest: per multiplication, and per request."""
    excess = np.maximum(own.seconds - own.amount * mac_seconds, 0.0)
    if not (excess.sum() > 0 and own.ended.any()):
        return 0.0, 0.0
    amounts = own.amount[own.ended]
    single = float(np.sum(excess / own.amount)) / len(amounts)
    if amounts.max() < _UNLIKE * amounts.min():
        return single, 0.0
    slope, constant = single / 2, float(excess.mean()) / 2
    for _ in range(_ITERATIONS):  # multiplicative updates never lower the likelihood, and stay positive
        mean = slope * own.amount + constant
        slope *= float(np.sum(own.amount * excess / mean**2) / np.sum((own.amount / mean)[own.ended]))
        mean = slope * own.amount + constant
        constant *= float(np.sum(excess / mean**2) / np.sum((1 / mean)[own.ended]))
    better = _setup_likelihood(own, excess, slope, constant) - _setup_likelihood(own, excess, single, 0.0)
    return (single, 0.0) if _likely(2 * better, 1) else (slope, constant)


def _setup_likelihood(own: Observed, excess: Float[np.ndarray, "rows"], slope: float, constant: float) -> float:
    mean = slope * own.amount + constant
    return -float(np.sum(np.log(mean)[own.ended]) + np.sum(excess / mean))


def alike_losses(failures: Float[np.ndarray, "n"], successes: Float[np.ndarray, "n"]) -> bool:
    """Tell whether one loss explains the tries of all devices: likelihood ratio test at 0.1%."""
    tried = (failures + successes) > 0
    own = _log_likelihood(failures[tried], successes[tried]).sum()
    return _likely(2 * float(own - _log_likelihood(failures.sum(), successes.sum())), int(tried.sum()) - 1)


def alike_setups(ratio: Float[np.ndarray, "n"], ends: Int[np.ndarray, "n"]) -> bool:
    """Tell whether one setup ratio explains the work of all devices: likelihood ratio test at 0.1%."""
    known = (ends > 1) & (ratio > 0)
    if known.sum() < (ends > 1).sum():
        return False
    weight = ends[known] - 1.0  # one of them gave the rate
    pooled = float(weight @ ratio[known]) / max(float(weight.sum()), 1.0)
    statistic = 2 * float(weight.sum() * np.log(pooled) - weight @ np.log(ratio[known])) if known.any() else 0.0
    return _likely(statistic, int(known.sum()) - 1)


def _log_likelihood(
    failures: Float[np.ndarray, "..."] | np.float64, successes: Float[np.ndarray, "..."] | np.float64
) -> Float[np.ndarray, "..."]:
    total = failures + successes
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [np.where(part > 0, part * np.log(part / total), 0.0) for part in (failures, successes)]
    return np.asarray(terms[0] + terms[1])


def _likely(statistic: float, degrees: int) -> bool:
    """Compare with the quantile of chi-squared, by the cube root of Wilson and Hilferty (1931)."""
    if degrees < 1:
        return True
    part = 2 / (9 * degrees)
    return bool(statistic <= degrees * (1 - part + _NORMAL_QUANTILE * part**0.5) ** 3)
