"""The closed form, for schemes that give the server the sums over all data: one factorisation, one epoch."""

from collections.abc import Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.errors import TrainingError
from codedfl.solvers.contract import Ridge, Solver
from codedfl.solvers.shrinkage import shrunk_solutions

_WELL_CONDITIONED = 1e-10
"""Reciprocal condition from which a Cholesky factor is used, unless rounding is coarser than that.

LAPACK's estimate is of the 1-norm and may be a factor of d and more above the true value, so this leaves a margin to
the cutoff of d times epsilon, below which a Cholesky factor is made of rounding errors or does not exist.
"""


@final
class ClosedForm(Solver):
    """Solves (A/m + lambda I) Theta = B/m once, in float64, for one lambda or all of a path.

    Where the solution is not unique, or the matrix so near to such a one that rounding decides, it is that of smallest
    norm, as of ``numpy.linalg.lstsq``: eigenvalues of the system up to epsilon * d * (the largest) count as zero. With
    a ridge term, epsilon is that of float64, else that of the numbers that devices compute with.

    Sums with noise are solved by ``codedfl.solvers.shrinkage``.
    """

    name = "closed-form"
    needs_exact = True
    needs_sums = True
    state = ("solved", "path")

    def begin(self) -> None:
        """Start unsolved."""
        self._solved = False
        self._path = np.zeros((0, *self._conditions.shape))

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Return the norm of the gradient; the model comes from :meth:`solve` alone."""
        return float(np.linalg.norm(gradient + self._conditions.ridge * self._model))

    def solve(self, gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"]) -> None:
        """Solve for the model, from A/m and B/m."""
        if not (np.isfinite(gram).all() and np.isfinite(moments).all()):
            raise TrainingError(
                "the sums over all data hold numbers that are not finite; "
                'scale the features down or set task.precision = "float64"'
            )
        given = self._conditions
        if given.noise is not None:
            ridges = given.ridges or (given.ridge,)
            models = shrunk_solutions(gram, moments, ridges, given.noise, labels=given.labels)
            self._path, self._model = models[: len(given.ridges)], models[0]
        elif given.ridges:
            self._path = solutions(gram, moments, given.ridges, given.epsilon)
            self._model = self._path[0]
        else:
            self._model = solution(gram, moments, given.ridge, given.epsilon)
        self._solved = True

    @property
    def models(self) -> Float[np.ndarray, "l d c"]:
        """The model of each weight."""
        return self._path if self._conditions.ridges else self._model[None]

    @property
    def finished(self) -> bool:
        """Whether the system is solved."""
        return self._solved


def solution(
    gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"], ridge: Ridge, epsilon: float
) -> Float[np.ndarray, "d c"]:
    """Solve for one weight by a Cholesky factor, or by eigenvalues if the matrix is singular or close to it."""
    import scipy.linalg  # not installed at small sites, which never solve

    system = gram + ridge * np.eye(len(gram))
    try:
        factor = scipy.linalg.cho_factor(system, lower=True)
    except np.linalg.LinAlgError:
        return np.asarray(solutions(gram, moments, [ridge], epsilon)[0])
    reciprocal, _ = scipy.linalg.lapack.dpocon(factor[0], np.linalg.norm(system, 1), uplo="L")
    if reciprocal < max(_WELL_CONDITIONED, len(gram) * _rounding(ridge, epsilon)):
        return np.asarray(solutions(gram, moments, [ridge], epsilon)[0])
    return np.ascontiguousarray(scipy.linalg.cho_solve(factor, moments))


def solutions(
    gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"], ridges: Sequence[Ridge], epsilon: float
) -> Float[np.ndarray, "l d c"]:
    """Return the solution of smallest norm for each weight; weights that are numbers share one eigendecomposition."""
    models, symmetric = np.empty((len(ridges), *moments.shape)), (gram + gram.T) / 2
    numbers = [ridge for ridge in ridges if np.ndim(ridge) == 0]
    shared = np.linalg.eigh(symmetric) if numbers else None
    for model, ridge in zip(models, ridges, strict=True):
        if shared is not None and np.ndim(ridge) == 0:
            values, vectors = shared[0] + ridge, shared[1]
        else:
            values, vectors = np.linalg.eigh(symmetric + ridge * np.eye(len(gram)))
        model[:] = vectors @ (_inverses(values, _rounding(ridge, epsilon))[:, None] * (vectors.T @ moments))
    return models


def _rounding(ridge: Ridge, epsilon: float) -> float:
    """Return the relative spacing that decides what is zero: errors of data are bounded by a ridge term, if any."""
    return float(np.finfo(np.float64).eps) if np.any(ridge) else epsilon


def _inverses(values: Float[np.ndarray, "d"], epsilon: float) -> Float[np.ndarray, "d"]:
    """Invert eigenvalues in increasing order; those at the level of rounding give zero.

    The exact matrix has no negative eigenvalues, so a negative one shows how large errors are; of a few random errors
    of both signs the largest is within a factor of ten of the smallest.
    """
    cutoff = max(epsilon * len(values) * values[-1], -10 * values[0])
    return np.asarray(np.divide(1.0, values, out=np.zeros_like(values), where=values > cutoff))
