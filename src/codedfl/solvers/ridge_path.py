"""A path of ridge weights from one Krylov space: the epochs and the traffic of the hardest weight give all models.

The space of block conjugate gradients does not depend on lambda, because (A + lambda I) V spans what A V and V span
(Jegerlehner, "Krylov space solvers for shifted linear systems", arXiv:hep-lat/9612014). Instead of one recurrence for
each weight, which rounding makes diverge once the weight is solved, all directions are kept and each model is the
Galerkin solution in their span: block Lanczos with full reorthogonalisation (Golub and Underwood, "The block Lanczos
method for computing eigenvalues", Mathematical Software III, 1977).
"""

import math
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.solvers.closed_form import solution, solutions
from codedfl.solvers.contract import Ridge, Solver, check_finite

_INDEPENDENT = 1e-2
"""Smallest part of a sent direction that must be new; errors of its product grow by at most the inverse."""
_ROUNDING = float(np.finfo(np.float64).eps)


@final
class RidgePath(Solver):
    """Solves (A/m + lambda I) Theta = B/m for many lambda; a product with A/m is a difference of two gradients.

    With V the orthonormal directions so far, the model of lambda is V y with (V^T A V + lambda) y = V^T B: of all
    models in the span of V it has the smallest loss, so no model becomes worse with further directions. Residuals
    follow from the kept products A V without a further query. A query at a model could tell no more: the scheme would
    give that product with the same number formats.

    What a scheme sends is a rounding of the query, and the product belongs to what was sent. Both are made orthogonal
    to the earlier directions by the same triangular factor. The next directions are the longest that the residuals of
    the unsolved lambda have in common; without rounding they all lie in the span of the newest products, with it they
    also hold what was not sent. Columns of the query that are left take the products.

    The training is finished when all residuals meet the tolerance, or when no direction is left; the latter takes at
    most ceil(d / c) queries. At most d directions of d numbers are kept and their products, 16 d min(d, c * epochs)
    bytes.
    """

    name = "ridge-path"
    needs_exact = True
    asks_at_model = False
    state = ("right", "basis", "products", "small", "directions", "curvature")

    def begin(self) -> None:
        """Start without directions."""
        d, c = self._conditions.shape
        self._right = np.zeros((d, c))
        self._basis = np.zeros((d, 0))
        self._products = np.zeros((d, 0))
        self._small = np.zeros((0, 0))
        self._directions = np.zeros((d, 0))
        self._curvature = 0.0

    def query(self) -> Float[np.ndarray, "d c"]:
        """Return the scaled new directions, or the model where there are none."""
        used = self._directions.shape[1]
        if used == 0:
            return self._model
        return self._scale * np.pad(self._directions, ((0, 0), (0, self._conditions.shape[1] - used)))

    def asked_at(self, point: Float[np.ndarray, "d c"]) -> None:
        """Keep the point that was sent, because the product belongs to it and not to the query."""
        self._directions = point[:, : self._directions.shape[1]] / self._scale

    @property
    def _scale(self) -> float:
        """A power of two that makes products about as large as the first gradient, from which they are told apart."""
        return float(2.0 ** math.frexp(self._first_norm / (self._curvature or 1.0))[1])

    @property
    def _ridges(self) -> tuple[Ridge, ...]:
        return self._conditions.ridges or (self._conditions.ridge,)

    @property
    def models(self) -> Float[np.ndarray, "l d c"]:
        """The newest model of each weight."""
        return np.asarray(self._basis @ self._coefficients())

    @property
    def residuals(self) -> Float[np.ndarray, "l"]:
        """Norm of the gradient of f at the model of each weight, relative to that of the zero model."""
        pairs = zip(self._coefficients(), self._ridges, strict=True)
        norms = np.array([np.linalg.norm(self._residual(y, ridge)) for y, ridge in pairs])
        return norms / (np.linalg.norm(self._right) or 1.0)

    @property
    def finished(self) -> bool:
        """Whether all residuals meet the tolerance, or no direction is left."""
        exhausted = self._conditions.tolerance > 0 and self._epoch > 0 and self._directions.shape[1] == 0
        return exhausted or super().finished

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Add the queried directions to the space, and choose the next."""
        check_finite(gradient, self._epoch)
        if self._epoch == 1:
            self._right = -gradient
            first = np.linalg.norm(self._right, axis=0)
            self._directions = _beside(self._basis, self._right[:, first > 0] / first[first > 0], 1.0)
            return float(np.linalg.norm(self._right))
        if self._directions.shape[1] == 0:
            return float(np.linalg.norm(gradient + self._conditions.ridge * self._model))
        newest = self._extend(gradient)
        y = self._coefficients()
        self._model = self._basis @ y[0]
        residuals = np.stack([self._residual(*pair) for pair in zip(y, self._ridges, strict=True)])
        norms = np.linalg.norm(residuals, axis=(1, 2))
        wanted = self._conditions.tolerance * self._first_norm
        unsolved = np.hstack([newest[:, :0], *residuals[norms > wanted]])
        self._directions = self._next(unsolved, newest, self._first_norm + self._curvature * float(np.linalg.norm(y)))
        return float(norms.max())

    def _next(
        self, unsolved: Float[np.ndarray, "d r"], newest: Float[np.ndarray, "d k"], size: float
    ) -> Float[np.ndarray, "d m"]:
        """Choose the next directions: residuals, then products; ``size`` is what residuals are computed from."""
        if not unsolved.shape[1] or not newest.shape[1]:  # solved, or the scheme could send nothing new
            return newest[:, :0]
        c = self._conditions.shape[1]
        chosen = _beside(self._basis, unsolved, size)[:, :c]
        more = _beside(np.hstack([self._basis, chosen]), newest, self._curvature)
        return np.ascontiguousarray(np.hstack([chosen, more])[:, :c])

    def _extend(self, gradient: Float[np.ndarray, "d c"]) -> Float[np.ndarray, "d k"]:
        """Add the directions that were sent, and their products; return products with the smallest weight's system."""
        import scipy.linalg  # not installed at small sites

        V, AV, P = self._basis, self._products, self._directions
        product = (gradient + self._right)[:, : P.shape[1]] / self._scale
        for _ in range(2):  # once leaves what rounding makes of the part that is taken away
            known = V.T @ P
            P, product = P - V @ known, product - AV @ known
        q, r, order = scipy.linalg.qr(P, mode="economic", pivoting=True)
        rank = np.count_nonzero(abs(np.diag(r)) > _INDEPENDENT)
        q, r, order = q[:, :rank], r[:rank, :rank], order[:rank]
        product = scipy.linalg.solve_triangular(r, product[:, order].T, trans="T").T
        crossed, own = (V.T @ product + AV.T @ q) / 2, q.T @ product
        self._basis, self._products = np.hstack([V, q]), np.hstack([AV, product])
        self._small = np.block([[self._small, crossed], [crossed.T, (own + own.T) / 2]])
        self._curvature = max(self._curvature, float(np.linalg.norm(own, 2)) if rank else 0.0)
        return np.asarray(product + self._conditions.ridge * q)

    def _system(self, ridge: Ridge) -> tuple[Float[np.ndarray, "k k"], Float[np.ndarray, "k c"], float, float]:
        """Return the small system of a weight, as :func:`solution` takes it."""
        right, epsilon = self._basis.T @ self._right, self._conditions.epsilon
        if isinstance(ridge, np.ndarray):
            weighted = self._small + self._basis.T @ (ridge * self._basis)
            return weighted, right, 0.0, _ROUNDING if ridge.any() else epsilon
        return self._small, right, ridge, epsilon

    def _coefficients(self) -> Float[np.ndarray, "l k c"]:
        if self._small.size == 0:
            return np.zeros((len(self._ridges), 0, self._conditions.shape[1]))
        if len(self._ridges) == 1 or any(np.ndim(ridge) for ridge in self._ridges):
            return np.stack([solution(*self._system(ridge)) for ridge in self._ridges])
        return solutions(self._small, self._basis.T @ self._right, self._ridges, self._conditions.epsilon)

    def _residual(self, y: Float[np.ndarray, "k c"], ridge: Ridge) -> Float[np.ndarray, "d c"]:
        return np.asarray(self._right - self._products @ y - ridge * (self._basis @ y))


def _beside(space: Float[np.ndarray, "d n"], block: Float[np.ndarray, "d k"], size: float) -> Float[np.ndarray, "d m"]:
    """Return orthonormal columns of what a block adds to a space, the longest first, above the rounding of ``size``."""
    import scipy.linalg

    for _ in range(2):
        block = block - space @ (space.T @ block)
    q, r, _ = scipy.linalg.qr(block, mode="economic", pivoting=True)
    rank = np.count_nonzero(abs(np.diag(r)) > np.sqrt(len(block)) * _ROUNDING * size)
    return np.ascontiguousarray(q[:, :rank])
