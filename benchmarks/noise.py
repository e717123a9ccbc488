"""Noise of a full-size release: how fast it is drawn, and whether it follows the discrete Gaussian.

    python -m benchmarks noise

The sampler is compared with the bare key stream of AES-256 that it consumes. The chi-square test sorts the noise of one
device (2000 features, 10 outputs) into bins of nearly equal probability, which is computed without the sampler.
"""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from benchmarks.measure import best_seconds, show
from codedfl.cipher.seals.pads import PIECE_BYTES, key_stream
from codedfl.privacy import kernels
from codedfl.privacy.noise import noisy
from codedfl.privacy.release import Release
from codedfl.privacy.sampling import discrete_gaussian

SEED = b"seed of thirty-two bytes, fixed."
COUNT = 2_000_000
SIGMA = 1 << 22
WANTED_SECONDS = 1.0
SUMMED = 1 << 20
"""Up to this sigma, probabilities are sums over all integers of a bin; above, integrals, off by 1e-13 at most."""


def bins(sigma: int, count: int, most: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Return integer edges near quantiles and the probabilities of x < e_1, e_1 <= x < e_2, ..., e_last <= x."""
    number = max(2, min(most, count // 20))
    edges = np.unique(np.rint(sigma * scipy.special.ndtri(np.arange(1, number) / number)).astype(np.int64))
    if sigma > SUMMED:  # the midpoint rule
        below = scipy.special.ndtr((edges - 0.5) / sigma)
        return edges, np.diff(below, prepend=0.0, append=1.0)
    ends = [-12 * sigma, *edges.tolist(), 12 * sigma + 1]
    weights = [np.exp(-((np.arange(a, b) / sigma) ** 2) / 2).sum() for a, b in pairwise(ends)]
    return edges, np.array(weights) / np.sum(weights)


def chi_square(samples: np.ndarray, sigma: int) -> float:
    """Return the p-value of Pearson's test of the samples against the discrete Gaussian."""
    edges, law = bins(sigma, samples.size)
    found = np.bincount(np.searchsorted(edges, samples, side="right"), minlength=law.size)
    return float(scipy.stats.chisquare(found, law * samples.size).pvalue)


def full_size() -> Release:
    """Return the release of the paper's size: MNIST on 25 devices, epsilon 1."""
    return Release.plan(
        epsilon=1.0,
        delta=1e-5,
        clip_features=1.0,
        clip_targets=1.0,
        features=2000,
        outputs=10,
        devices=25,
        largest_rows=2400,
        records=60_000,
    )


def places(gram: np.ndarray, moments: np.ndarray, release: Release) -> dict[str, tuple[np.ndarray, int]]:
    """Return the entries of noise of each kind in steps, and what sigma they should have."""
    steps = np.ldexp(gram, release.gram_bits)
    right = np.ldexp(moments, release.moments_bits).ravel()
    return {
        "off-diagonal": (steps[np.triu_indices(len(steps), 1)], release.off_diagonal_steps),
        "diagonal": (np.diag(steps), release.diagonal_steps),
        "right-hand side": (right, release.moments_steps),
    }


def speed() -> dict[str, float]:
    """Draw two million numbers, against the key stream that they use."""
    words = words_a_number()
    zeros = bytes(PIECE_BYTES)

    def bare() -> None:
        stream = key_stream(bytes(32), 0)
        for _ in range(round(8 * words * COUNT / PIECE_BYTES)):
            stream.update(zeros)

    release = full_size()
    empty = np.zeros((release.features,) * 2), np.zeros((release.features, release.outputs))
    times = best_seconds(
        {
            "sampler": lambda: discrete_gaussian(SIGMA, COUNT, SEED),
            "stream": bare,
            "release": lambda: noisy(*empty, release, SEED),
        },
        clock=time.thread_time,
    )
    show(f"{COUNT} numbers at sigma 2^22, one core", times["sampler"], WANTED_SECONDS, "s")
    show("numbers / the key stream of AES-256 they use", times["sampler"] / times["stream"])
    show("64-bit words of key stream a number", words)
    show("noise of one device, 2000 features and 10 outputs", times["release"], unit="s")
    return {f"{name}_seconds": seconds for name, seconds in times.items()} | {"words_a_number": words}


def words_a_number(sample: int = 100_000) -> float:
    """Count the 64-bit words that a number takes on average."""
    words = np.frombuffer(key_stream(bytes(32), 0).update(bytes(800 * sample)), np.uint64)
    filled, used = kernels.fill(words, np.uint64(SIGMA), np.empty(sample, np.int64))
    assert filled == sample
    return float(used) / sample


def law() -> dict[str, float]:
    """Test the noise of one device at full size, drawn with the operating system's randomness."""
    release = full_size()
    gram, moments = noisy(np.zeros((2000, 2000)), np.zeros((2000, 10)), release)
    values = {name: chi_square(*part) for name, part in places(gram, moments, release).items()}
    for name, value in values.items():
        show(f"chi-square of the noise, {name}: p-value", value)
    return values


def main() -> dict[str, Any]:
    """All measurements, as one dictionary."""
    return {"speed": speed(), "p_values": law()}


if __name__ == "__main__":
    main()
