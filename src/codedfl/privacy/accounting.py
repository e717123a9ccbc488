"""What (epsilon, delta) a Gaussian mechanism provides, and several of them together.

A mechanism is described by mu, the L2 sensitivity of what it releases divided by the standard deviation of its noise.
It is (epsilon, delta)-differentially private exactly if

    delta >= Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

(Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8).
"""

from collections.abc import Callable, Iterable
from math import exp, hypot, isfinite, log, sqrt

from codedfl.errors import UsageError

_LEAST = 1e-300
"""Reciprocals and products of smaller numbers leave the range of float64."""


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least delta at which a release of this mu is (epsilon, delta)-differentially private."""
    _check_mu(mu)
    _check_epsilon(epsilon)
    if mu == 0:
        return 0.0
    import scipy.special  # only noise needs it; not installed at small sites

    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # e^epsilon Phi(-far) = density(near) / density(far) Phi(-far), where erfcx(x) = exp(x^2) erfc(x) cannot overflow
    subtracted = exp(-(near**2) / 2) * float(scipy.special.erfcx(far / sqrt(2))) / 2
    return max(0.0, float(scipy.special.ndtr(-near)) - subtracted)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon at which a release of this mu is (epsilon, delta)-differentially private."""
    _check_delta(delta)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # sufficient for every Gaussian mechanism (Bun and Steinke, "Concentrated differential privacy", TCC 2016)
    most = mu**2 / 2 + mu * sqrt(2 * log(1 / delta))
    return _root(lambda epsilon: 1 - delta_of(mu, epsilon) / delta, 0.0, most)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu of a release that is (epsilon, delta)-differentially private."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    if epsilon == 0:  # delta = 2 Phi(mu/2) - 1
        import scipy.special

        return float(2 * sqrt(2) * scipy.special.erfinv(delta))
    # the bound of epsilon_of, solved for mu
    least = sqrt(2) * epsilon / (sqrt(log(1 / delta) + epsilon) + sqrt(log(1 / delta)))
    most = 2 * max(least, _LEAST)
    while delta_of(most, epsilon) < delta:
        most *= 2
    return _root(lambda mu: delta_of(mu, epsilon) / delta - 1, least, most)


def composed(mus: Iterable[float]) -> float:
    """Return the mu of several releases together, each chosen in view of those before: sqrt(sum of mu^2).

    Dong, Roth and Su, "Gaussian differential privacy", 2022, corollary 3.3.
    """
    found = list(mus)
    for mu in found:
        _check_mu(mu)
    return hypot(*found)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that rises from at most zero at ``low`` to at least zero at ``high`` is zero."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:  # the bound itself, to rounding
        return high
    import scipy.optimize

    return float(scipy.optimize.brentq(rising, low, high, xtol=1e-14 * high, rtol=1e-14))


def _check_mu(mu: float) -> None:
    if not (isfinite(mu) and mu >= 0):
        raise UsageError(f"a ratio of sensitivity to noise of {mu} is impossible: give a finite number of at least 0")


def _check_epsilon(epsilon: float) -> None:
    if not (isfinite(epsilon) and epsilon >= 0):
        raise UsageError(f"an epsilon of {epsilon} promises nothing: give a finite number of at least 0")


def _check_delta(delta: float) -> None:
    if not _LEAST <= delta < 1:
        raise UsageError(f"a delta of {delta} cannot be accounted for: give a number of at least {_LEAST} and below 1")
