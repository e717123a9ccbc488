"""Attacks on parity data X~ = G W X of one device and one batch, with a Gaussian G that only the device knows.

G Q has the same distribution as G for every orthogonal Q. So X~ depends on the n weighted points W X through their Gram
matrix A = X^T W^2 X only, and X~^T X~ is a Wishart matrix with mean A and c degrees of freedom. Three things follow.

*The span is exact.* With c >= n rows, G has rank n almost surely: the rows of X~ span what the points with a weight
span. A member lies in that span and a non-member does not, as long as n < d; there is no noise, and weights do not
matter unless they are zero. With c < n rows it is a random part of that span, which contains c/n of a member's squared
length on average if the points are alike, and less of a non-member's.

*Targets can be read.* Y~ = G W Y has the same G, so a member x = a X~ has the target a Y~ (c >= n, points independent).

*The Gram matrix is estimated*, not read: E ||X~^T X~ - A||^2 = (||A||^2 + (tr A)^2) / c (Frobenius norm). Someone who
knows public data of the same kind has a guess, whose error is estimated from its distance to X~^T X~; the two are
averaged with the weights that give the least expected error (Ledoit and Wolf, "A well-conditioned estimator for
large-dimensional covariance matrices", Journal of Multivariate Analysis 88, 2004). Where the span is exact, the guess
is projected onto it first, which brings it nearer to A.
"""

from typing import final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import ParityMembershipView, ParityView

_SPARE = 10
"""Rows beyond the number of points whose span is taken for that of all rows."""
_FEW_ROUNDINGS = 10.0
"""Units of rounding by which rows may lie outside the span of some of them."""


@final
class ParityGram(Attack[ParityView]):
    """Estimate A by X~^T X~, scaled to all points; ``prior`` is a public guess of A."""

    name = "parity-gram"
    view_type = ParityView
    aim = "the Gram matrix of one batch of a device from its parity data"

    def __init__(self, prior: Float[np.ndarray, "d d"] | None = None) -> None:
        self._prior = prior

    def informed(self, guess: Float[np.ndarray, "d d"]) -> "ParityGram":
        """Return the attack with a public guess of A."""
        return ParityGram(guess)

    def run(self, view: ParityView, rng: np.random.Generator) -> Finding:
        """Attack one batch of one device; nothing here is random."""
        rows = view.parity.astype(np.float64)
        seen = rows.T @ rows * (view.points / view.mass)
        if self._prior is None:
            return Finding(gram=seen)
        prior = self._prior.astype(np.float64)
        if len(rows) >= view.points:
            basis, _ = _span(view.parity, view.points)
            prior = basis @ (basis.T @ prior @ basis) @ basis.T
        return Finding(gram=_averaged(seen, prior, len(rows)))


def _averaged(
    seen: Float64[np.ndarray, "d d"], prior: Float64[np.ndarray, "d d"], rows: int
) -> Float64[np.ndarray, "d d"]:
    """Average two estimates, the first of which is Wishart, by their expected squared errors.

    E ||S||^2 = (1 + 1/c) ||A||^2 + (tr A)^2 / c and E (tr S)^2 = (tr A)^2 + 2 ||A||^2 / c are solved for ||A||^2 and
    (tr A)^2, whose sum over c is the expected squared error of S.
    """
    moments = np.array([np.sum(seen**2), np.trace(seen) ** 2])
    mixing = np.array([[1 + 1 / rows, 1 / rows], [2 / rows, 1.0]])
    variance = float(np.linalg.solve(mixing, moments).sum()) / rows
    apart = float(np.sum((seen - prior) ** 2))
    if apart == 0:
        return seen
    share = min(max(1 - variance / apart, 0.0), 1.0)
    return np.asarray(prior + share * (seen - prior))


@final
class ParitySpan(Attack[ParityMembershipView]):
    """Score minus the share of a candidate that lies outside the span; minus its leverage if that is everything."""

    name = "parity-span"
    view_type = ParityMembershipView
    aim = "who is in a batch of a device, by the span of its parity data"

    def run(self, view: ParityMembershipView, rng: np.random.Generator) -> Finding:
        """Score every candidate by itself; nothing here is random."""
        basis, sizes = _span(view.parity, view.points)
        candidates = view.candidates.astype(np.float64)
        inside = candidates @ basis
        d, rank = basis.shape
        remark = f"a span of dimension {rank} of {d}"
        if rank == d:
            return Finding(membership=-np.sum((inside / sizes) ** 2, axis=1), remark=remark)
        outside = np.linalg.norm(candidates - inside @ basis.T, axis=1)
        lengths = np.maximum(np.linalg.norm(candidates, axis=1), np.finfo(np.float64).tiny)
        return Finding(membership=-outside / lengths, remark=remark)


def read_targets(view: ParityView, members: Float[np.ndarray, "m d"]) -> Float64[np.ndarray, "m c"]:
    """Return the targets of points that are in the batch: exact where the points are independent and c >= n."""
    basis, _ = _span(view.parity, view.points)
    turned, targets = (array.astype(np.float64) for array in (view.parity @ basis, view.targets))
    return np.asarray((members.astype(np.float64) @ basis) @ (np.linalg.pinv(turned) @ targets))


def _span(parity: Float[np.ndarray, "c d"], points: int) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "r"]]:
    """Return an orthonormal basis of the row span and the singular values.

    At most as many directions as there are points are kept, and none below rounding.
    """
    rows, rounding = parity.astype(np.float64), float(np.finfo(parity.dtype).eps)
    wide = points + _SPARE
    if 2 * wide < min(rows.shape):
        # each row combines all points at random, so a few more rows than points span what all rows span, up to
        # rounding, which one step of subspace iteration takes away
        turn, _ = np.linalg.qr(rows[:wide].T)
        left, _ = np.linalg.qr(rows @ turn)
        turn, _ = np.linalg.qr(rows.T @ left)
        inside = rows @ turn
        if np.linalg.norm(rows - inside @ turn.T) <= _FEW_ROUNDINGS * rounding * np.linalg.norm(rows):
            _, sizes, right = np.linalg.svd(inside, full_matrices=False)
            return _kept(sizes, right @ turn.T, points, rounding)
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return _kept(sizes, right, points, rounding)


def _kept(
    sizes: Float64[np.ndarray, "s"], right: Float64[np.ndarray, "s d"], points: int, rounding: float
) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "r"]]:
    rank = int(np.count_nonzero(sizes[:points] > rounding * sizes[:1].sum()))
    return np.ascontiguousarray(right[:rank].T), sizes[:rank]
