"""The whole Gram matrix from one parcel and the public key, by linear algebra alone.

An error matrix of rank beta leaves d - beta combinations of the rows of C free of errors, and the public key shows
them: the left kernel of C P, with P the projection that removes codewords. They give as many combinations of the
rows of A; A is symmetric, so beta (beta + 1) / 2 numbers stay unknown, and those follow from the other rows, where
errors are few and therefore outliers.

Sources: the syndrome of an interleaved code has the rank of the error, Metzner and Kapturowski, "A general decoding
technique applicable to replicated file disagreement location and concatenated code decoding", IEEE Trans. Inf. Theory
36 (1990); range by random sketch, Halko, Martinsson and Tropp, SIAM Review 53 (2011); sum of lengths instead of
squares, Boyd and Vandenberghe, "Convex Optimization" (2004), section 6.1.

Expected at the paper's size (n = 4000, k = 2000, beta = 4, t = 64 or 128, float32): relative error below 1e-6, the
support exactly, in a few seconds.
"""

from typing import final

import numpy as np
from jaxtyping import Bool, Float64

from codedfl.security.attacks.supports.geometry import KeyGeometry, geometry_of
from codedfl.security.attacks.supports.syndrome import Syndrome, find_syndrome
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ParcelView

PASSES = 100
"""Largest number of reweighting rounds; outliers lose weight geometrically, so far fewer are needed."""
SETTLED = 1e-3
"""Change of the residuals, against their median, at which reweighting ends."""
OUTLIER = 50.0
"""Residuals this many times the median are no rounding: one Gaussian in 10^9 is beyond 9 medians, and the rounding of
a column goes with the length of that column of A G, which strays from its median by a factor of about 5."""


@final
class LeftKernel(Attack[ParcelView]):
    """Recover A and the error support from (G, C); works for every rank of the errors well below the redundancy."""

    name = "left-kernel"
    view_type = ParcelView
    aim = "the Gram matrix from one parcel"

    def run(self, view: ParcelView, rng: np.random.Generator) -> Finding:
        """Attack one parcel."""
        geometry = geometry_of(view.G)
        coordinates = geometry.coordinates(view.words)
        if geometry.redundancy == 0:
            remark = "no redundancy to exploit: words read as they are"
            return Finding(gram=geometry.messages(coordinates), remark=remark)
        syndrome = find_syndrome(geometry, view.words, view.beta, rng)
        if syndrome.full:
            remark = f"errors of rank {syndrome.rank} leave no row combination free of them: words read as they are"
            return Finding(gram=geometry.messages(coordinates), remark=remark)
        if view.words.shape[0] != geometry.k:
            return Finding(remark=f"{view.words.shape[0]} rows of {geometry.k} numbers are no symmetric matrix")
        gram, outliers = _complete(geometry, syndrome, view, coordinates)
        return Finding(gram, np.flatnonzero(outliers), remark=f"errors of rank {syndrome.rank}")


def _complete(
    geometry: KeyGeometry, syndrome: Syndrome, view: ParcelView, coordinates: Float64[np.ndarray, "d k"]
) -> tuple[Float64[np.ndarray, "d d"], Bool[np.ndarray, "n"]]:
    """Return A = V A + U (V A U)^T + U (U^T A U) U^T and the outliers; U spans the errors, V projects away from it."""
    U = syndrome.left
    coordinates -= U @ (U.T @ coordinates)
    gram = geometry.messages(coordinates)
    cross = gram @ U
    gram += U @ cross.T
    encoded = (U.T @ geometry.factor) @ geometry.frame
    unexplained = geometry.combine(U, view.words) - (cross.T @ geometry.factor) @ geometry.frame
    block, outliers = robust_regression(unexplained, encoded, floor=syndrome.rounding / np.sqrt(geometry.n))
    gram += U @ (block + block.T) @ U.T / 2
    gram += gram.T.copy()
    gram /= 2
    return gram, outliers


def robust_regression(
    y: Float64[np.ndarray, "r n"], x: Float64[np.ndarray, "r n"], floor: float
) -> tuple[Float64[np.ndarray, "r r"], Bool[np.ndarray, "n"]]:
    """Return M with y = M x in all columns but a few outliers, and the outliers.

    Minimises the sum of the lengths of the columns of y - M x by reweighted least squares, then fits the columns that
    are no outliers once more; columns shorter than ``floor`` are never outliers.
    """
    lengths = np.linalg.norm(y, axis=0)
    for _ in range(PASSES):
        # a weight without bound would tie the fit to single columns
        weights = 1 / np.maximum(lengths, max(np.median(lengths), np.finfo(np.float64).tiny))
        before, lengths = lengths, np.linalg.norm(y - _fit(y, x, weights) @ x, axis=0)
        if np.abs(lengths - before).max() <= SETTLED * np.median(lengths):
            break
    block = _fit(y, x, np.where(_outliers(lengths, floor), 0.0, 1.0))
    return block, _outliers(np.linalg.norm(y - block @ x, axis=0), floor)


def _fit(
    y: Float64[np.ndarray, "r n"], x: Float64[np.ndarray, "r n"], weights: Float64[np.ndarray, "n"]
) -> Float64[np.ndarray, "r r"]:
    """Solve weighted least squares by normal equations; x is as well conditioned as G D, or better."""
    weighted = x * (weights / weights.max())
    return np.asarray(np.linalg.solve(weighted @ x.T, weighted @ y.T).T)


def _outliers(lengths: Float64[np.ndarray, "n"], floor: float) -> Bool[np.ndarray, "n"]:
    return np.asarray(lengths > max(OUTLIER * float(np.median(lengths)), floor))
