"""Exact samples of the discrete Gaussian P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers, without floating point.

Random words are the key stream of AES-256 in counter mode under a key derived from a seed. The time depends on the
samples, so it must not be observed from outside.
"""

import numpy as np
from jaxtyping import Int64

from codedfl.cipher.seals.pads import PIECE_BYTES, Seed, key_stream
from codedfl.errors import UsageError

LARGEST_SIGMA = 1 << 26
"""2 sigma^2, a denominator of the sampler, must be small against 2^64, or many words are skipped."""


def discrete_gaussian(sigma: int, count: int, seed: bytes | None = None) -> Int64[np.ndarray, "count"]:
    """Draw independent integers x of probability proportional to exp(-x^2 / (2 sigma^2)).

    Parameters
    ----------
    sigma
        Scale parameter, a whole number from 1 to 2^26; the standard deviation equals it but for exp(-2 pi^2 sigma^2).
    count
        How many to draw.
    seed
        32 bytes that nobody else may know; None takes them from the operating system.

    Examples
    --------
    >>> discrete_gaussian(1000, 4, seed=bytes(32)).tolist()
    [299, -963, 1099, 182]
    """
    from codedfl.privacy import kernels  # numba is slow to import

    if not 1 <= sigma <= LARGEST_SIGMA:
        raise UsageError(f"a noise of {sigma} steps cannot be drawn: choose a grid of 1 to 2^26 steps of noise")
    if count < 0:
        raise UsageError(f"{count} numbers cannot be drawn: ask for 0 or more")
    stream = key_stream(Seed(seed).derive(b"codedfl discrete Gaussian 1 " + sigma.to_bytes(8, "big")), 0)
    samples, zeros = np.empty(count, np.int64), bytes(PIECE_BYTES)
    filled, left = 0, np.empty(0, np.uint64)
    while filled < count:
        fresh = np.frombuffer(stream.update(zeros), "<u8").astype(np.uint64, copy=False)
        words = np.concatenate([left, fresh])
        more, used = kernels.fill(words, np.uint64(sigma), samples[filled:])
        filled, left = filled + more, words[used:]
    return samples
