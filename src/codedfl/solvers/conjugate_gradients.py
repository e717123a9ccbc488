"""Block conjugate gradients: one Krylov space for all outputs.

O'Leary, "The block conjugate gradient algorithm and related methods", Linear Algebra and its Applications, 1980; the
directions are kept orthonormal as in Dubrulle, "Retooling the method of block conjugate gradients", Electronic
Transactions on Numerical Analysis, 2001, so that linearly dependent residuals cause no breakdown.
"""

import math
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.solvers.contract import Solver, check_finite

_MARGIN = 10
"""The error of a gradient must be this factor below the tolerance it is tested against."""
_QUESTIONS = 8
"""Queries at the same model before the gradient of a nearby point is accepted as that of the model."""
_ROUNDS = 4
"""Directions of a search in units of the dimension, at most; one would do without rounding."""


@final
class ConjugateGradients(Solver):
    """Solves H Theta = B/m with H = A/m + lambda I; a product with H is a difference of two gradients.

    gradient(P) - gradient(0) = (A/m) P, so a query is a block of orthonormal search directions (unused columns are
    zero) times a power of two that makes their products about as large as gradient(0), so that neither is lost in the
    rounding of the other. After k such queries the model minimises f over the block Krylov space of dimension up to
    k c; without rounding it is the solution after ceil(d / c) of them.

    Residuals are updated by recurrence. Once they are below the tolerance, or no direction is left, the next query is
    the model itself: its gradient ends the training or restarts the search there. Rounding in the replies thus delays
    the end but never ends the training too early.

    Where rounding keeps the gradient above the tolerance, a restart no longer improves it: a search that does not halve
    the measured gradient is the last, and the better of the two models is kept. A search is measured after directions
    for four times the dimension at the latest, of which one would do without rounding.
    """

    name = "conjugate-gradients"
    needs_exact = True
    asks_at_model = False
    state = (
        *("at_zero", "residual", "directions", "scales", "curvature", "questions"),
        *("searched", "best", "best_norm", "stalled"),
    )

    def begin(self) -> None:
        """Start at the zero model, without search directions."""
        d, c = self._conditions.shape
        self._at_zero = np.zeros((d, c))
        self._residual = np.zeros((d, c))
        self._directions = np.zeros((d, 0))
        self._scales = np.zeros(c)
        self._curvature = 0.0
        self._missed = 0.0
        self._far = False
        self._questions = 0
        self._searched = 0
        self._best, self._best_norm = self._model, np.inf
        self._stalled = False

    @property
    def finished(self) -> bool:
        """Whether the newest measured gradient of f meets the tolerance, or is as small as rounding allows."""
        return self._stalled or super().finished

    def query(self) -> Float[np.ndarray, "d c"]:
        """Return the scaled search directions, or the model where there are none."""
        used = self._directions.shape[1]
        if used == 0:
            return self._model
        return self._scale * np.pad(self._directions, ((0, 0), (0, self._conditions.shape[1] - used)))

    def asked_at(self, point: Float[np.ndarray, "d c"]) -> None:
        """Search along the point that was sent, because the product belongs to it and not to the query."""
        used = self._directions.shape[1]
        if used:
            self._directions = point[:, :used] / self._scale
        else:
            self._missed = float(np.linalg.norm(point - self._model))

    @property
    def _scale(self) -> float:
        size = self._first_norm / (self._curvature or 1.0)
        return float(2.0 ** math.frexp(size)[1])

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Minimise along the queried directions, or begin a search from the model."""
        check_finite(gradient, self._epoch)
        if self._directions.shape[1]:
            self._search(gradient)
            return np.inf
        return np.inf if self._asks_again() else self._start(gradient)

    def _asks_again(self) -> bool:
        """Tell whether the point of the gradient is too far from the model, so that the query is repeated.

        A scheme that sends differences comes closer with every query; after ``_QUESTIONS`` the gradient is accepted.
        """
        wanted = max(self._conditions.tolerance, np.sqrt(len(self._model)) * self._conditions.epsilon)
        # in the first epoch that norm is infinite: no point is far from the zero model
        far = self._missed * (self._curvature or 1.0) > wanted * self._first_norm / _MARGIN
        self._questions = self._questions + 1 if far and self._questions < _QUESTIONS else 0
        self._missed = 0.0
        self._far = far
        return self._questions > 0

    def _start(self, gradient: Float[np.ndarray, "d c"]) -> float:
        self._residual = -(gradient + self._conditions.ridge * self._model)
        if self._epoch == 1:
            self._at_zero, self._scales = gradient, np.linalg.norm(self._residual, axis=0)
        norm = float(np.linalg.norm(self._residual))
        if self._conditions.tolerance > 0 and self._model.any() and not self._far:
            norm = self._judge(norm)
        self._searched, self._directions = 0, self._basis(self._residual)
        if self._stalled:
            self._directions = self._directions[:, :0]
        return norm

    def _judge(self, norm: float) -> float:
        """Hold the model whose gradient was measured against the best so far; return the norm of the better."""
        self._stalled = norm > self._best_norm / 2
        if norm < self._best_norm:
            self._best, self._best_norm = self._model, norm
        self._model = self._best
        return self._best_norm

    def _search(self, gradient: Float[np.ndarray, "d c"]) -> None:
        P, first = self._directions, self._first_norm
        product = (gradient - self._at_zero)[:, : P.shape[1]] / self._scale + self._conditions.ridge * P
        inverse = self._inverse(P.T @ product)
        steps = inverse @ (P.T @ self._residual)
        self._model = self._model + P @ steps
        self._residual = self._residual - product @ steps
        self._searched += P.shape[1]
        left, wanted = float(np.linalg.norm(self._residual)), self._conditions.tolerance
        if wanted > 0:  # below the rounding of the residual itself, directions are random
            wanted = max(wanted, np.sqrt(len(P)) * np.finfo(np.float64).eps)
            left = 0.0 if self._searched >= _ROUNDS * len(P) else left
        if left <= wanted * first or not inverse.any():
            self._directions = P[:, :0]
        else:
            self._directions = self._basis(self._residual - P @ (inverse @ (product.T @ self._residual)))

    def _inverse(self, curvatures: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
        """Invert P^T H P without directions whose curvature is at the level of rounding, which grows as sqrt(d)."""
        values, vectors = np.linalg.eigh((curvatures + curvatures.T) / 2)
        self._curvature = max(self._curvature, float(values[-1]))
        kept = values > np.sqrt(len(self._model)) * self._conditions.epsilon * self._curvature
        return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)

    def _basis(self, block: Float[np.ndarray, "d c"]) -> Float[np.ndarray, "d k"]:
        """Return orthonormal columns that span the block, without outputs that are solved."""
        import scipy.linalg  # not installed at small sites

        unsolved = np.linalg.norm(self._residual, axis=0) > np.finfo(np.float64).eps * self._scales
        if not unsolved.any():
            return block[:, :0]
        wanted = block[:, unsolved]
        q, r, _ = scipy.linalg.qr(wanted / np.linalg.norm(wanted, axis=0), mode="economic", pivoting=True)
        # drop nearly dependent columns: their direction is known only to epsilon / cutoff
        rank = np.count_nonzero(abs(np.diag(r)) > np.sqrt(self._conditions.epsilon))
        return np.ascontiguousarray(q[:, :rank])
