"""Block conjugate gradients: one Krylov space for all outputs.

O'Leary, "The block conjugate gradient algorithm and related methods", Linear Algebra and its Applications, 1980; the
directions are kept orthonormal as in Dubrulle, "Retooling the method of block conjugate gradients", Electronic
Transactions on Numerical Analysis, 2001, so that linearly dependent residuals cause no breakdown.
"""

import math
from typing import final

import numpy as np
import scipy
from jaxtyping import Float

from codedfl.errors import TrainingError
from codedfl.solvers.contract import Solver

_MARGIN = 10
"""The error of a gradient must be this factor below the tolerance it is tested against."""
_QUESTIONS = 8
"""Queries at the same model before the gradient of a nearby point is accepted as that of the model."""


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
    """

    name = "conjugate-gradients"
    needs_exact = True
    asks_at_model = False
    state = ("at_zero", "residual", "directions", "scales", "curvature", "questions")

    def begin(self) -> None:
        """Start at the zero model, without search directions."""
        d, c = self._conditions.shape
        self._at_zero = np.zeros((d, c))
        self._residual = np.zeros((d, c))
        self._directions = np.zeros((d, 0))
        self._scales = np.zeros(c)
        self._curvature = 0.0
        self._missed = 0.0
        self._questions = 0

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
        if not np.isfinite(gradient).all():
            raise TrainingError(
                f"the gradient of epoch {self._epoch} holds numbers that are not finite; "
                'scale the features down or set task.precision = "float64"'
            )
        if self._directions.shape[1]:
            self._search(gradient)
            return np.inf
        return np.inf if self._asks_again() else self._start(gradient)

    def _asks_again(self) -> bool:
        """Tell whether the point of the gradient is too far from the model, so that the query is repeated.

        A scheme that sends differences comes closer with every query; after ``_QUESTIONS`` the gradient is accepted.
        """
        first = 0.0 if self._epoch == 1 else self._first_norm
        wanted = max(self._conditions.tolerance, np.sqrt(len(self._model)) * self._conditions.epsilon)
        far = self._missed * (self._curvature or 1.0) > wanted * first / _MARGIN
        self._questions = self._questions + 1 if far and self._epoch > 1 and self._questions < _QUESTIONS else 0
        self._missed = 0.0
        return self._questions > 0

    def _start(self, gradient: Float[np.ndarray, "d c"]) -> float:
        self._residual = -(gradient + self._conditions.ridge * self._model)
        if self._epoch == 1:
            self._at_zero, self._scales = gradient, np.linalg.norm(self._residual, axis=0)
        self._directions = self._basis(self._residual)
        return float(np.linalg.norm(self._residual))

    def _search(self, gradient: Float[np.ndarray, "d c"]) -> None:
        P, first = self._directions, self._first_norm
        product = (gradient - self._at_zero)[:, : P.shape[1]] / self._scale + self._conditions.ridge * P
        inverse = self._inverse(P.T @ product)
        steps = inverse @ (P.T @ self._residual)
        self._model = self._model + P @ steps
        self._residual = self._residual - product @ steps
        if not inverse.any() or np.linalg.norm(self._residual) <= self._conditions.tolerance * first:
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
        unsolved = np.linalg.norm(self._residual, axis=0) > np.finfo(np.float64).eps * self._scales
        if not unsolved.any():
            return block[:, :0]
        wanted = block[:, unsolved]
        q, r, _ = scipy.linalg.qr(wanted / np.linalg.norm(wanted, axis=0), mode="economic", pivoting=True)
        # drop nearly dependent columns: their direction is known only to epsilon / cutoff
        rank = np.count_nonzero(abs(np.diag(r)) > np.sqrt(self._conditions.epsilon))
        return np.ascontiguousarray(q[:, :rank])
