"""The noise of one device: Gram matrix and right-hand side, rounded to their grids, plus a discrete Gaussian."""

import numpy as np
from jaxtyping import Float64, Int64

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals.pads import Seed
from codedfl.errors import DataError, UsageError
from codedfl.privacy.release import Release
from codedfl.privacy.sampling import discrete_gaussian

_SLACK = 1 + 1e-9  # rounding of sums


def noisy(
    gram: Float64[np.ndarray, "d d"],
    moments: Float64[np.ndarray, "d c"],
    release: Release,
    seed: bytes | None = None,
    number: int = 0,
) -> tuple[Float64[np.ndarray, "d d"], Float64[np.ndarray, "d c"]]:
    """Return both with the device's share of noise, as exact multiples of their steps.

    Parameters
    ----------
    gram, moments
        Of one device, whose rows are clipped.
    release
        The noise and the grids.
    seed
        32 bytes that only this device knows, of one run; None takes them from the operating system.
    number
        Which of the run's releases this is: each draws fresh noise.

    Raises
    ------
    DataError
        If an entry is larger than clipped rows allow.
    UsageError
        If the budget covers fewer releases.
    """
    if not 0 <= number < release.releases:
        raise UsageError(f"release {number + 1} is not covered: the privacy budget was planned for {release.releases}")
    C, T = release.clip_features, release.clip_targets
    upper = np.triu(in_steps(gram, release.gram_bits, release.rows * C**2))
    right = in_steps(moments, release.moments_bits, release.rows * C * T)
    steps = release.off_diagonal_steps, release.diagonal_steps, release.moments_steps
    secret = fresh_seed(seed)
    _add_noise(steps, upper, right, secret, number)
    if any(release.spare_steps):
        _add_noise(release.spare_steps, upper, right, spare_seed(secret), number)
    return _whole(upper, right, release)


def spare_seed(seed: bytes) -> bytes:
    """Return the seed of the noise for devices that may be lost, which tells nothing of the seed of all noise."""
    return Seed(seed).derive(b"codedfl spare noise 1")


def spare_noise(
    release: Release, seed: bytes, number: int = 0
) -> tuple[Float64[np.ndarray, "d d"], Float64[np.ndarray, "d c"]]:
    """Return the noise of one device that a spare seed stands for, to be subtracted."""
    upper, right = np.zeros((release.features,) * 2), np.zeros((release.features, release.outputs))
    _add_noise(release.spare_steps, upper, right, seed, number)
    return _whole(upper, right, release)


def _add_noise(
    steps: tuple[int, int, int],
    upper: Float64[np.ndarray, "d d"],
    right: Float64[np.ndarray, "d c"],
    seed: bytes,
    number: int,
) -> None:
    """Add noise in whole steps to an upper triangle and to a right-hand side, in place."""
    secret, d = Seed(seed), len(upper)

    def drawn(place: str, sigma: int, count: int) -> Int64[np.ndarray, "count"]:
        return discrete_gaussian(sigma, count, secret.derive(f"codedfl noise 1 {place} {number}".encode()))

    upper[np.triu_indices(d, 1)] += drawn("off-diagonal", steps[0], d * (d - 1) // 2)
    upper[np.diag_indices(d)] += drawn("diagonal", steps[1], d)
    right += drawn("right-hand side", steps[2], right.size).reshape(right.shape)


def _whole(
    upper: Float64[np.ndarray, "d d"], right: Float64[np.ndarray, "d c"], release: Release
) -> tuple[Float64[np.ndarray, "d d"], Float64[np.ndarray, "d c"]]:
    """Return both in units of the data, the lower triangle filled."""
    return np.ldexp(upper + np.triu(upper, 1).T, -release.gram_bits), np.ldexp(right, -release.moments_bits)


def in_steps(values: Float64[np.ndarray, "d k"], bits: int, bound: float) -> Float64[np.ndarray, "d k"]:
    """Round what a device adds up to whole steps, and refuse more than its clipped rows can reach."""
    if not np.all(np.abs(values) <= bound * _SLACK):
        raise DataError(
            f"an entry is larger than {bound:g}, which rows within the clips of privacy cannot reach: clip rows before "
            "noise is added"
        )
    steps: Float64[np.ndarray, "d k"] = np.rint(np.ldexp(values, bits))
    return steps
