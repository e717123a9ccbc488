"""An audit from below: how large epsilon must be, given what canaries show of themselves in one release.

Canaries are records that an auditor makes up; each is in the data or not by the throw of a fair coin. From the release
the auditor guesses the coins of those canaries that show most. If the release is (epsilon, delta)-differentially
private, then v right of r guesses on m canaries have a probability of at most

    beta + 2 m delta alpha,    beta = P[V >= v],    alpha = max over i = 1 ... v of P[v - i <= V < v] / i,

where V is binomial with r trials of probability e^epsilon / (1 + e^epsilon) (Steinke, Nasr and Jagielski, "Privacy
auditing with one (1) training run", NeurIPS 2023, theorem 5.2). The largest epsilon at which this is below 5% is a
lower bound with a confidence of 95%.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import final

import numpy as np
import scipy
from jaxtyping import Bool, Float, Float64

from codedfl.privacy.accounting import epsilon_of
from codedfl.privacy.release import Release

CONFIDENCE = 0.95
SHARES = (1, 2, 4, 8, 16, 32, 64)
"""Guesses are made on all canaries, on a half, on a quarter ...; each has its part of the probability to err."""
_COIN = 0.25
"""Variance of a fair coin."""


def probability_of(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses under (epsilon, delta)-differential privacy."""
    law = scipy.stats.binom(guesses, 1 / (1 + exp(-epsilon)))
    below = np.cumsum(law.pmf(np.arange(right - 1, -1, -1)))
    alpha = float(np.max(below / np.arange(1, right + 1), initial=0.0))
    return min(1.0, float(law.sf(right - 1)) + 2 * canaries * delta * alpha)


def epsilon_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest epsilon that so many right guesses refute; 0 if they refute none.

    >>> round(epsilon_bound(1000, 100, 90, 1e-5), 2)
    1.63
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} right of {guesses} guesses on {canaries} canaries cannot be")

    def refuted(epsilon: float) -> bool:
        return probability_of(canaries, guesses, right, epsilon, delta) < 1 - confidence

    low, high = 0.0, 1.0
    if not refuted(low):
        return 0.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


@final
@dataclass(frozen=True)
class Audit:
    """What one release shows of the canaries."""

    bound: float
    """Lower bound on epsilon, at 95% confidence."""
    canaries: int
    guesses: int
    """How many guesses the bound follows from, and how many of them are right."""
    right: int
    estimate: float
    """Epsilon by the noise in the directions of the canaries, taken for Gaussian: no bound."""


@final
@dataclass(frozen=True, eq=False)
class Canaries:
    """Records of the norms that are clipped to, in directions as different as random ones are."""

    x: Float64[np.ndarray, "m d"]
    y: Float64[np.ndarray, "m c"]

    @classmethod
    def draw(cls, count: int, features: int, outputs: int, rng: np.random.Generator) -> "Canaries":
        """Draw random directions, of norm 1; the target of each is one of the outputs."""
        x = rng.standard_normal((count, features))
        y = np.eye(outputs)[rng.integers(outputs, size=count)]
        return cls(x / np.linalg.norm(x, axis=1, keepdims=True), y)

    def audit(
        self,
        gram: Float[np.ndarray, "d d"],
        moments: Float[np.ndarray, "d c"],
        included: Bool[np.ndarray, "m"],
        release: Release,
    ) -> Audit:
        """Guess from noisy sums, less all else that is in them, which canaries they include, and score the guesses.

        In units of the noise, products of the canaries with the sums are t = K b + noise of covariance K, with b the
        coins. The best linear guess of fair coins is 1/2 + (K + 4)^-1 (t - K/2).
        """
        s, t = release.least_gram_std, release.least_moments_std
        norms = self.x @ self.x.T
        covariance = norms**2 / (2 * s**2) + norms * (self.y @ self.y.T) / t**2
        products = np.einsum("md,md->m", self.x @ gram, self.x) / (2 * s**2)
        products += np.einsum("md,md->m", self.x, self.y @ moments.T) / t**2
        centred = products - covariance.sum(axis=1) / 2
        coins = np.linalg.solve(covariance + np.eye(len(covariance)) / _COIN, centred)
        rest = products - covariance @ included
        # a chi-square variable with as many degrees as there are canaries, if the noise is what the release says
        size = float(rest @ np.linalg.solve(covariance, rest))
        estimate = epsilon_of(release.mu * sqrt(len(rest) / size), release.delta)
        return Audit(*_scored(coins, included, release.delta), estimate)


def _scored(
    coins: Float64[np.ndarray, "m"], included: Bool[np.ndarray, "m"], delta: float
) -> tuple[float, int, int, int]:
    """Return the best bound of several numbers of guesses, each with its part of the probability to err."""
    order, confidence = np.argsort(-np.abs(coins)), 1 - (1 - CONFIDENCE) / len(SHARES)
    right = np.cumsum((coins > 0)[order] == included[order])
    count, found = len(coins), []
    for guesses in (max(1, count // share) for share in SHARES):
        bound = epsilon_bound(count, guesses, int(right[guesses - 1]), delta, confidence)
        found.append((bound, count, guesses, int(right[guesses - 1])))
    return max(found)
