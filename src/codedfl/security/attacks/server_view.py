"""The server's attack on one device's Gram matrix: replies tell A on the span of all models it sent.

With M = [Theta_1 ... Theta_E] = U S V^T the replies are A M, so A U = (A M) V S^-1 is known, and by symmetry U^T A.
What is left is the block of A outside the span of U. A is positive semidefinite, so that block is at least

    (I - P) A U (U^T A U)^+ U^T A (I - P),        P = U U^T

(the Nystrom approximation: Williams and Seeger, "Using the Nystrom method to speed up kernel machines", NIPS 2000),
which is never further from A in the Frobenius norm than leaving it out. Gradient descent makes models that lie close to
a Krylov space of few dimensions, and replies carry rounding; directions in which the models differ by less than that
rounding are not used, so in floating point the span grows far more slowly than by c dimensions an epoch. In schemes
that compute with residues the replies are exact, and rounding the models to steps moves each of them in a direction of
its own: every epoch adds c dimensions, and d / c epochs tell A, as it was rounded to steps.

Someone who knows public data of the same kind may give its Gram matrix as ``prior``: the unknown block then gets what
the prior has outside the span (its Schur complement), on top of the bound.
"""

from typing import Any, final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import RepliesView

ROUNDINGS = 10.0
"""Assumed rounding error of a reply in units of rounding: about four times the measured one."""
CORE_FLOOR = 1e-6
"""Eigenvalues of U^T A U below this share of the largest are rounding of float32 replies and are dropped."""


@final
class ServerReplies(Attack[RepliesView]):
    """Complete A from its action on the models; ``prior`` is a public guess of A, of the right scale."""

    name = "server-replies"
    view_type = RepliesView
    aim = "the Gram matrix of one device from its replies"

    def __init__(self, prior: Float[np.ndarray, "d d"] | None = None) -> None:
        self._prior = prior

    def informed(self, guess: Float[np.ndarray, "d d"]) -> "ServerReplies":
        """Return the attack with a public guess of A."""
        return ServerReplies(guess)

    def run(self, view: RepliesView, rng: np.random.Generator) -> Finding:
        """Attack all epochs of one device."""
        basis, images = reached_span(view)
        d, rank = basis.shape
        gram = completed(basis, images, self._prior)
        return Finding(gram=gram, reached=basis if rank < d else None, remark=f"dimension {rank} of {d} reached")


def completed(
    basis: Float64[np.ndarray, "d r"], images: Float64[np.ndarray, "d r"], prior: Float[np.ndarray, "d d"] | None = None
) -> Float64[np.ndarray, "d d"]:
    """Return the symmetric matrix that maps U to A U, with the bound outside the span, and the prior on top.

    Law: never further from a positive semidefinite A than the completion by zeros (without a prior, up to rounding).
    """
    if basis.shape[0] == basis.shape[1]:
        known = images @ basis.T
        return np.asarray((known + known.T) / 2)
    half, bound = _inside(basis, images)
    gram = bound @ bound.T
    if prior is not None:
        guess = prior.astype(np.float64)
        told, least = _inside(basis, guess @ basis)
        half -= told  # what the prior says of the span is wrong; outside, it counts but for the bound of its own
        gram += guess
        gram -= least @ least.T
    known = half @ basis.T
    gram += known
    gram += known.T
    return np.asarray(gram)


def _inside(
    basis: Float64[np.ndarray, "d r"], images: Float64[np.ndarray, "d r"]
) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "d s"]]:
    """Return H and F: H U^T + U H^T is A but for its block outside the span of U, which is at least F F^T."""
    core = basis.T @ images
    core = (core + core.T) / 2
    return images - basis @ (core / 2), _outside(basis, _root(images, core))


def reached_span(view: RepliesView) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "d r"]]:
    """Return an orthonormal basis U of the directions that the models reach above rounding, and A U.

    A reply is off by a few units u of rounding (2.2 u in the Frobenius norm, measured with float32 at full size),
    and that noise spreads evenly over all E c columns. A direction of the singular value decomposition counts while its
    image stands clearly above: ||A M v_i|| > ROUNDINGS u ||A M|| / sqrt(E c).
    """
    replies = _side_by_side(view.replies)
    left, sizes, right = _decomposed(view.models)
    exact = float(np.finfo(view.replies.dtype).eps) / 2
    # models differ from each other by no less than their own format tells apart
    rank = int(np.count_nonzero(sizes > exact * sizes[:1].sum()))
    left, sizes = left[:, :rank], sizes[:rank]
    turned = replies @ right[:rank].T
    lengths = np.linalg.norm(turned, axis=0)
    unit = exact if view.unit is None else view.unit
    floor = ROUNDINGS * unit * np.linalg.norm(replies) / np.sqrt(replies.shape[1])
    kept = lengths > floor
    return np.ascontiguousarray(left[:, kept]), turned[:, kept] / sizes[kept]


def _side_by_side(stack: Float[np.ndarray, "epochs d c"]) -> Float64[np.ndarray, "d columns"]:
    return np.concatenate(list(stack), axis=1).astype(np.float64)


_last: list[tuple[Any, Any]] = []
"""The models that were decomposed last: all devices of a run get the same."""


def _decomposed(models: Float[np.ndarray, "epochs d c"]) -> Any:
    """Return the singular value decomposition of all models side by side."""
    if not (_last and _last[0][0] is models):
        _last[:] = [(models, np.linalg.svd(_side_by_side(models), full_matrices=False))]
    return _last[0][1]


def _root(images: Float64[np.ndarray, "d r"], core: Float64[np.ndarray, "r r"]) -> Float64[np.ndarray, "d s"]:
    """Return F with F F^T = (A U) core^+ (A U)^T, over the eigenvalues of the core above rounding."""
    values, vectors = np.linalg.eigh(core)
    safe = values > CORE_FLOOR * values[-1:].sum()
    return np.asarray(images @ (vectors[:, safe] / np.sqrt(values[safe])))


def _outside(basis: Float64[np.ndarray, "d r"], columns: Float64[np.ndarray, "d s"]) -> Float64[np.ndarray, "d s"]:
    inside = basis @ (basis.T @ columns)
    return np.asarray(np.subtract(columns, inside, out=inside))  # a new matrix of this size would cost as much
