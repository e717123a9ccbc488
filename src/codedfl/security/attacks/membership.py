"""Membership inference from a Gram matrix A = sum of x_i x_i^T: two tests that need A and the candidates only.

*Leverage.* h(x) = x^T (A + r I)^-1 x. A point of the data has h(x) <= 1, since A - x x^T stays positive semidefinite; a
non-member leaves no trace in A, so it has h / (1 - h) where a similar member has h.

*Decomposition.* In coordinates where A is the identity, explain A by all candidates together: least squares for the
weights w in A = sum_j w_j x_j x_j^T. Members get about 1 and others about 0, because A has d (d + 1) / 2 numbers, far
more than there are candidates; members that are no candidates only add noise.

A carries errors: rounding, or those of the attack that recovered it. Noise of relative size ``error`` in the Frobenius
norm, spread evenly, has spectral norm 2 error ||A|| / sqrt(d) (Wigner's semicircle), and eigenvalues below that say
nothing; this is r. Measured on MNIST with 2400 members (benchmarks/inference.py): area under the curve 0.98 for
leverage, 1.0 for decomposition, the same from the true and from the recovered matrix.

Sources: leverage, Hoaglin and Welsch, "The hat matrix in regression and ANOVA", The American Statistician 32 (1978);
membership inference, Shokri et al., "Membership inference attacks against machine learning models", IEEE S&P 2017.
"""

from typing import final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import MembershipView

RECOVERED_ERROR = 1e-5
"""Assumed relative error of a recovered matrix; the attacks on float32 parcels stay below."""
GROUP_SIZE = 4096
"""Candidates in one least-squares problem; the square of this number is kept in memory."""


def noise_floor(gram: Float[np.ndarray, "d d"], error: float) -> float:
    """Return the spectral norm of symmetric noise of that relative size; never below the rounding of float64."""
    size = float(np.linalg.norm(gram.astype(np.float64)))
    d = len(gram)
    return max(2 * error * size / np.sqrt(d), d * float(np.finfo(np.float64).eps) * size) or 1.0


@final
class Leverage(Attack[MembershipView]):
    """Score minus h(x); ``error`` is the relative error that the matrix may carry."""

    name = "leverage"
    view_type = MembershipView
    aim = "who is in the data, one candidate at a time"

    def __init__(self, error: float = RECOVERED_ERROR) -> None:
        self._error = error

    def run(self, view: MembershipView, rng: np.random.Generator) -> Finding:
        """Score every candidate by itself."""
        whitened, _ = _whitened(view, self._error)
        return Finding(membership=-np.einsum("ij,ij->i", whitened, whitened))


@final
class Decomposition(Attack[MembershipView]):
    """Score the weight of each candidate in A, in random groups of at most ``group_size`` candidates."""

    name = "decomposition"
    view_type = MembershipView
    aim = "who is in the data, all candidates together"

    def __init__(self, error: float = RECOVERED_ERROR, group_size: int = GROUP_SIZE) -> None:
        self._error = error
        self._group_size = group_size

    def run(self, view: MembershipView, rng: np.random.Generator) -> Finding:
        """Weigh the candidates."""
        whitened, target = _whitened(view, self._error)
        count = len(whitened)
        groups = np.array_split(rng.permutation(count), max(1, -(-count // self._group_size)))
        weights = np.zeros(count)
        for group in groups:
            weights[group] = _weights(whitened[group], target, self._error)
        return Finding(membership=weights, remark=f"{len(groups)} groups")


def _whitened(view: MembershipView, error: float) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "d"]]:
    """Return the candidates in coordinates where A + r I is the identity, and the diagonal of A there."""
    values, vectors = np.linalg.eigh(view.gram.astype(np.float64))
    values = np.maximum(values, 0)
    shifted = values + noise_floor(view.gram, error)
    return (view.candidates.astype(np.float64) @ vectors) / np.sqrt(shifted), values / shifted


def _weights(
    whitened: Float64[np.ndarray, "m d"], target: Float64[np.ndarray, "d"], error: float
) -> Float64[np.ndarray, "m"]:
    """Solve least squares in the space of matrices, where <x x^T, y y^T> = (x y)^2 and <x x^T, A> = x^T A x."""
    import scipy.linalg

    squares = np.maximum(np.einsum("ij,ij->i", whitened, whitened), np.finfo(np.float64).tiny)
    units = whitened / np.sqrt(squares)[:, None]
    products = (units @ units.T) ** 2
    # candidates that occur twice, or more candidates than numbers in A, share their weight instead of failing
    products[np.diag_indices_from(products)] += error
    explained = scipy.linalg.solve(products, units**2 @ target, assume_a="pos", overwrite_a=True)
    return np.asarray(explained / squares)
