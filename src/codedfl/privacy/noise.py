"""The noise of one device: Gram matrix and right-hand side, rounded to their grids, plus a discrete Gaussian."""

import numpy as np
from jaxtyping import Float64, Int64

from codedfl.cipher.seals.pads import Seed
from codedfl.errors import DataError
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
    """
    C, T, d = release.clip_features, release.clip_targets, release.features
    upper = np.triu(_in_steps(gram, release.gram_bits, release.rows * C**2))
    right = _in_steps(moments, release.moments_bits, release.rows * C * T)
    secret = Seed(seed)

    def drawn(place: str, sigma: int, count: int) -> Int64[np.ndarray, "count"]:
        return discrete_gaussian(sigma, count, secret.derive(f"codedfl noise 1 {place} {number}".encode()))

    upper[np.triu_indices(d, 1)] += drawn("off-diagonal", release.off_diagonal_steps, d * (d - 1) // 2)
    upper[np.diag_indices(d)] += drawn("diagonal", release.diagonal_steps, d)
    right += drawn("right-hand side", release.moments_steps, moments.size).reshape(moments.shape)
    return np.ldexp(upper + np.triu(upper, 1).T, -release.gram_bits), np.ldexp(right, -release.moments_bits)


def _in_steps(values: Float64[np.ndarray, "d k"], bits: int, bound: float) -> Float64[np.ndarray, "d k"]:
    """Round to whole steps; scaling by a power of two is exact."""
    if not np.all(np.abs(values) <= bound * _SLACK):
        raise DataError(
            f"an entry is larger than {bound:g}, which rows within privacy.clip_features and privacy.clip_targets "
            "cannot reach: clip rows before noise is added"
        )
    steps: Float64[np.ndarray, "d k"] = np.rint(np.ldexp(values, bits))
    return steps
