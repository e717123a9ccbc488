"""Greedy search for few positions that explain a space of syndromes: the core of two attacks.

With one syndrome this is orthogonal matching pursuit with exact normalisation (Tropp and Gilbert, "Signal recovery from
random measurements via orthogonal matching pursuit", IEEE Trans. Inf. Theory 53, 2007); with several it is rank-aware
order-recursive matching pursuit (Davies and Eldar, "Rank awareness in joint sparse recovery", IEEE Trans. Inf. Theory
58, 2012), which weights all directions of the remaining space equally.
"""

import numpy as np
from jaxtyping import Float64, Int

from codedfl.security.attacks.supports.geometry import KeyGeometry

SPARE = 2
"""Positions tried for each expected one; the wrong ones are dropped at the end."""


def pursue(
    geometry: KeyGeometry, space: Float64[np.ndarray, "n r"], expected: int, tolerance: float
) -> tuple[Int[np.ndarray, "t"], float]:
    """Return at most ``expected`` positions whose atoms span the orthonormal ``space``, and the norm of the residual.

    Positions are added until the residual is below ``tolerance``, but no fewer than expected; those of largest
    coefficients are kept.
    """
    if not expected or not space.any():
        return np.array([], dtype=np.int64), float(space.any())
    most = min(SPARE * expected, geometry.redundancy)
    rows = np.empty((most, geometry.n))
    chosen: list[int] = []
    freedom, rest = geometry.freedom.copy(), space.copy()
    limit = tolerance * float(np.sqrt(space.shape[1]))  # the Frobenius norm of that much in every direction
    least = float(np.finfo(np.float64).eps) * geometry.condition
    while len(chosen) < most and (len(chosen) < expected or np.linalg.norm(rest) > limit):
        gains = np.where(freedom > least, _energy(rest, tolerance), 0) / np.maximum(freedom, least)
        if not gains.any():
            break
        position = int(np.argmax(gains))
        direction = _orthogonal(geometry.atom(position), rows[: len(chosen)])
        rows[len(chosen)] = direction
        chosen.append(position)
        rest -= np.outer(direction, direction @ rest)
        freedom -= direction**2
        freedom[position] = 0
    return _largest(geometry, space, np.array(chosen, dtype=np.int64), expected)


def _energy(rest: Float64[np.ndarray, "n r"], tolerance: float) -> Float64[np.ndarray, "n"]:
    """Return the squared length of each unit vector inside the remaining space, up to rounding."""
    squares, turn = np.linalg.eigh(rest.T @ rest)
    kept = squares > min(tolerance**2, squares[-1] / 2)
    basis = (rest @ turn[:, kept]) / np.sqrt(squares[kept])
    return np.asarray(np.einsum("ij,ij->i", basis, basis))


def _orthogonal(vector: Float64[np.ndarray, "n"], rows: Float64[np.ndarray, "s n"]) -> Float64[np.ndarray, "n"]:
    """Return the normalised part of a vector orthogonal to rows; subtracted twice against cancellation."""
    for _ in range(2):
        vector = vector - (rows @ vector) @ rows
    return np.asarray(vector / np.linalg.norm(vector))


def _largest(
    geometry: KeyGeometry, space: Float64[np.ndarray, "n r"], chosen: Int[np.ndarray, "s"], expected: int
) -> tuple[Int[np.ndarray, "t"], float]:
    """Return the positions of largest coefficients, and the norm of the space they leave unexplained."""
    square = _atoms_at(geometry, chosen)
    coefficients = np.linalg.lstsq(square, space[chosen], rcond=None)[0]
    kept = np.sort(chosen[np.argsort(np.linalg.norm(coefficients, axis=1))[chosen.size - min(expected, chosen.size) :]])
    coefficients = np.linalg.lstsq(_atoms_at(geometry, kept), space[kept], rcond=None)[0]
    full = np.zeros_like(space)
    full[kept] = coefficients
    return kept, float(np.linalg.norm(space - geometry.free_part(full), 2))


def _atoms_at(geometry: KeyGeometry, positions: Int[np.ndarray, "s"]) -> Float64[np.ndarray, "s s"]:
    inside = np.ascontiguousarray(geometry.frame[:, positions])
    return np.asarray(np.eye(positions.size) - inside.T @ inside)
