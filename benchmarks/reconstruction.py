"""Images of a device from its Gram matrix and the public feature map.

Features are phi(x) = sqrt(2/d) cos(x W + b) with public W and b. With eigenvalues l and eigenvectors v of A, and r what
noise may make of an eigenvalue (see ``membership``), the share of phi(x) that A does not explain is

    g(x) = 1 - sum_i l_i / (l_i + r) (v_i phi(x))^2 / ||phi(x)||^2.

A device with fewer points than features leaves directions without data: g is about r there for each of its points and
far larger elsewhere, and p pixels have to satisfy far more than p equations, so minima of g are the points themselves.
Starting from any public image, log g is minimised over the pixels (L-BFGS-B: Byrd, Lu, Nocedal and Zhu, "A limited
memory algorithm for bound constrained optimization", SIAM J. Sci. Comput. 16, 1995).

Limits: with 600 points and d = 2000 features, starts end at members (docs/membership.png, drawn by ``draw`` in
benchmarks/inference.py); with more points than features, as the 2400 of the paper's
devices, minima need not lie nearer to members than to strangers. There, membership is told all the
same: an attacker with candidates ranks them.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy
from jaxtyping import Bool, Float, Float64

from codedfl.data import FeatureMap
from codedfl.security.attacks.membership import RECOVERED_ERROR, noise_floor

__all__ = ["Ranked", "Rebuilt", "Unexplained", "figure", "ranking", "reconstruct"]

ITERATIONS = 500
"""Steps of the minimisation; members are reached in one or two hundred."""


@final
class Unexplained:
    """g(x), with its gradient in the pixels."""

    def __init__(self, gram: Float[np.ndarray, "d d"], features: FeatureMap, error: float = RECOVERED_ERROR) -> None:
        if features.kind != "rbf":
            raise ValueError(f"images are rebuilt through cosine features, not through the kind {features.kind!r}")
        values, vectors = np.linalg.eigh(gram.astype(np.float64))
        floor = noise_floor(gram, error)
        seen = values > floor
        self._explained = vectors[:, seen] * np.sqrt(values[seen] / (values[seen] + floor))
        # a map in float32 is held in turns
        unit = 2 * np.pi if features.dtype == np.float32 else 1.0
        self._weights = unit * features.weights.astype(np.float64)
        self._offset = unit * features.offset.astype(np.float64)

    def share(self, image: Float64[np.ndarray, "p"]) -> float:
        """Return g(x), between 0 and 1."""
        return float(np.exp(self.logarithm(image)[0]))

    def logarithm(self, image: Float64[np.ndarray, "p"]) -> tuple[float, Float64[np.ndarray, "p"]]:
        """Return log g(x) and its gradient; the scale sqrt(2/d) cancels."""
        angles = image @ self._weights + self._offset
        phi = np.cos(angles)
        square = phi @ phi
        inside = self._explained.T @ phi
        share = max(1 - inside @ inside / square, np.finfo(np.float64).eps)
        slope = 2 * ((1 - share) * phi - self._explained @ inside) / square
        return float(np.log(share)), self._weights @ (slope * -np.sin(angles)) / share


def reconstruct(
    gram: Float[np.ndarray, "d d"],
    features: FeatureMap,
    starts: Float[np.ndarray, "m p"],
    *,
    error: float = RECOVERED_ERROR,
    iterations: int = ITERATIONS,
) -> Float64[np.ndarray, "m p"]:
    """Return one image for each start: where the search for something that A explains ends, pixels in [0, 1]."""
    target = Unexplained(gram, features, error)
    bounds = scipy.optimize.Bounds(np.zeros(starts.shape[1]), np.ones(starts.shape[1]))
    options = {"maxiter": iterations, "maxfun": 2 * iterations}
    images = [
        scipy.optimize.minimize(target.logarithm, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        for start in np.clip(starts.astype(np.float64), 0, 1)
    ]
    return np.array(images).reshape(starts.shape)


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Rebuilt images, and what lies nearest among the device's own images and among as many of others."""

    starts: Float[np.ndarray, "m p"]
    images: Float[np.ndarray, "m p"]
    members: Float[np.ndarray, "m p"]
    strangers: Float[np.ndarray, "m p"]
    member_distances: Float[np.ndarray, "m"]
    """Euclidean distance of each image to the nearest member."""
    stranger_distances: Float[np.ndarray, "m"]
    points: int
    """Number of images that the device holds."""


@dataclass(frozen=True, eq=False)
class Ranked:
    """Candidates by their score: the most and the least likely, and all scores apart for members and strangers."""

    most: Float[np.ndarray, "shown p"]
    most_are_members: Bool[np.ndarray, "shown"]
    least: Float[np.ndarray, "shown p"]
    least_are_members: Bool[np.ndarray, "shown"]
    member_scores: Float[np.ndarray, "inside"]
    stranger_scores: Float[np.ndarray, "outside"]


def figure(
    starts: Float[np.ndarray, "m p"],
    images: Float[np.ndarray, "m p"],
    members: Float[np.ndarray, "inside p"],
    strangers: Float[np.ndarray, "outside p"],
) -> Rebuilt:
    """Hold rebuilt images against the truth and against a control; drawing is for ``benchmarks.pictures``."""
    own, own_distances = _nearest(images, members)
    other, other_distances = _nearest(images, strangers)
    return Rebuilt(starts, images, own, other, own_distances, other_distances, len(members))


def ranking(
    candidates: Float[np.ndarray, "m p"], scores: Float[np.ndarray, "m"], inside: Bool[np.ndarray, "m"], shown: int
) -> Ranked:
    """Return the ``shown`` candidates at either end of the scores, most likely and least likely first."""
    order = np.argsort(-scores, kind="stable")
    most, least = order[:shown], order[::-1][:shown]
    return Ranked(candidates[most], inside[most], candidates[least], inside[least], scores[inside], scores[~inside])


def _nearest(
    images: Float[np.ndarray, "m p"], pool: Float[np.ndarray, "size p"]
) -> tuple[Float[np.ndarray, "m p"], Float64[np.ndarray, "m"]]:
    distances = scipy.spatial.distance.cdist(images, pool)
    return pool[distances.argmin(axis=1)], np.asarray(distances.min(axis=1))
