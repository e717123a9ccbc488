"""The space that an error matrix spans, seen through the public key: C D P = E D P has the rank of E.

Halko, Martinsson and Tropp, "Finding structure with randomness: probabilistic algorithms for constructing approximate
matrix decompositions", SIAM Review 53 (2011): a few random combinations span the range of a matrix of small rank.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.security.attacks.supports.geometry import KeyGeometry

OVERSAMPLING = 8
"""Combinations beyond the expected rank; Halko et al. (section 4.2) advise 5 to 10."""
ROUNDS = 2
"""Passes over the words; each turns the random combinations towards the errors."""


@final
@dataclass(frozen=True, eq=False)
class Syndrome:
    """C D P up to rounding: left @ diag(values) @ right^T, with orthonormal columns, values decreasing."""

    left: Float64[np.ndarray, "d r"]
    right: Float64[np.ndarray, "n r"]
    values: Float64[np.ndarray, "r"]
    rounding: float
    """Threshold for zero: every value is above it."""
    most: int
    """The largest rank that can be observed."""

    @property
    def rank(self) -> int:
        """Rank of the error matrix."""
        return int(self.values.size)

    @property
    def tilt(self) -> float:
        """Sine of the angle by which rounding may have turned either space (Wedin), at most 1."""
        return min(1.0, self.rounding / float(self.values[-1])) if self.rank else 0.0

    @property
    def full(self) -> bool:
        """Whether the errors have the largest observable rank, so that no row combination is free of them."""
        return self.rank >= self.most


def find_syndrome(
    geometry: KeyGeometry, words: Float[np.ndarray, "d n"], expected: int, rng: np.random.Generator
) -> Syndrome:
    """Find the range of C D P; a rank above the expected one is found in another try."""
    rounding = geometry.rounding(words)
    most = min(words.shape[0], geometry.redundancy)
    size = min(expected + OVERSAMPLING, most)
    while True:
        left, values, right = _range(geometry, words, size, rng)
        rank = int(np.count_nonzero(values > rounding))
        if rank < size or size == most:
            return Syndrome(left[:, :rank], right[:, :rank], values[:rank], rounding, most)
        size = min(2 * size, most)


def _range(
    geometry: KeyGeometry, words: Float[np.ndarray, "d n"], size: int, rng: np.random.Generator
) -> tuple[Float64[np.ndarray, "d s"], Float64[np.ndarray, "s"], Float64[np.ndarray, "n s"]]:
    directions = geometry.free_part(rng.standard_normal((geometry.n, size)))
    for _ in range(ROUNDS):
        right, _ = np.linalg.qr(directions)
        left, _ = np.linalg.qr(geometry.apply(words, right))
        directions = geometry.free_part(geometry.combine(left, words).T)
    right, values, turned = np.linalg.svd(directions, full_matrices=False)
    return left @ turned.T, values, right
