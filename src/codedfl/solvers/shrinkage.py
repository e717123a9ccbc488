"""The solution for sums that carry noise: eigenvalues are shrunk, and the ridge weight follows from the noise.

The server holds A + E and B + F, where A is a Gram matrix, E is symmetric with independent Gaussian entries of standard
deviation s off the diagonal and sqrt(2) s on it, and the entries of F have standard deviation t. E moves eigenvalues by
up to its edge 2 s sqrt(d), so that A + E is indefinite, and turns eigenvectors. Of the matrices with the eigenvectors
v_i of A + E, the nearest to A has the eigenvalues v_i^T A v_i, which depend on the spectrum of A + E alone.

- Eigenvalues: Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE
  Transactions on Information Theory, 2016; for single eigenvalues beyond the edge it is the shrinkage of Donoho,
  Gavish, Johnstone, "Optimal shrinkage of eigenvalues in the spiked covariance model", Annals of Statistics, 2018, with
  the law of Benaych-Georges and Nadakuditi, Advances in Mathematics, 2011. Increasing order as in Stein's estimator.
- Weight: an unbiased estimate of the loss, Stein, "Estimation of the mean of a multivariate normal distribution",
  Annals of Statistics, 1981.

All of it is computed from what the release discloses, so it costs no privacy. The constants below were fixed on
Fashion-MNIST and on small random systems; nothing is chosen by scores on the data that a model is for.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from codedfl.solvers.contract import Noise, Ridge, edge

LABEL_SHARE = 0.4
"""Share of the weight of least squared error that is best for labels.

Noise in scores seldom changes which is the largest, but a bias towards the mean does (Friedman, "On bias, variance,
0/1-loss, and the curse of dimensionality", Data Mining and Knowledge Discovery, 1997).
"""
LEAST_SHARE = 0.1
"""Smallest weight as a share of the edge; bounds the model where the estimate of the loss itself is mostly noise."""
STANDARD_ERRORS = 2.0
"""How far above its estimate the loss is assumed to be."""
_CLOSE = 1e-3
"""Eigenvalues nearer to each other than this, in units of the mean distance of eigenvalues of the noise, are equal."""


class Spectrum(NamedTuple):
    """A noisy Gram matrix: eigenvalues in increasing order, eigenvectors, and estimates of v_i^T A v_i."""

    values: Float[np.ndarray, "d"]
    vectors: Float[np.ndarray, "d d"]
    shrunk: Float[np.ndarray, "d"]
    slopes: Float[np.ndarray, "d d"]
    """Differences of shrunk eigenvalues divided by those of eigenvalues; on the diagonal twice the derivative."""


def shrunk_spectrum(gram: Float[np.ndarray, "d d"], noise: float) -> Spectrum:
    """Estimate the eigenvalues v_i^T A v_i = l_i - 2 s^2 sum_j 1 / (l_i - l_j), in increasing order, none negative.

    The sum over all is that of the noisy eigenvalues: the trace, of which the noise is small, is kept.
    """
    from scipy.optimize import isotonic_regression  # slow to import

    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    gaps = values[:, None] - values
    inverses = gaps / (gaps**2 + (_CLOSE * noise) ** 2 / len(values))
    shrunk = np.maximum(isotonic_regression(values - 2 * noise**2 * inverses.sum(axis=1)).x, 0.0)
    slopes = (shrunk[:, None] - shrunk) * inverses
    np.fill_diagonal(slopes, 2.0 * (shrunk > 0))  # one of d terms, where 1 is the derivative without noise
    return Spectrum(values, vectors, shrunk, slopes)


def estimated_loss(spectrum: Spectrum, rotated: Float[np.ndarray, "d c"], weight: float, noise: Noise) -> float:
    """Estimate tr(Theta^T A Theta) - 2 tr(Theta^T B) of the model with this weight, without bias.

    ``rotated`` has the rows v_i^T (B + F), of squared norms n_i. With factors g_i = 1 / (x_i + weight) of the shrunk
    eigenvalues x_i, and with slopes c_ij, the estimate is

        sum_i n_i (l_i g_i^2 - 2 g_i) + 2 s^2 sum_i n_i g_i^2 sum_j c_ij g_j + 2 t^2 (outputs) sum_i g_i,

    where the last two terms are the means of -tr(Theta^T E Theta) and 2 tr(Theta^T F) by Stein's lemma.
    """
    factors, sizes = 1 / (spectrum.shrunk + weight), (rotated**2).sum(axis=1)
    measured = sizes @ (factors * (spectrum.values * factors - 2))
    from_gram = 2 * noise.gram**2 * (sizes * factors**2) @ (spectrum.slopes @ factors)
    return float(measured + from_gram + 2 * noise.moments**2 * rotated.shape[1] * factors.sum())


def standard_error(spectrum: Spectrum, rotated: Float[np.ndarray, "d c"], weight: float, noise: Noise) -> float:
    """Return the standard deviation of 2 tr(Theta^T F) - tr(Theta^T E Theta) for a model that is independent of it."""
    model = rotated / (spectrum.shrunk + weight)[:, None]
    from_gram = 2 * noise.gram**2 * np.sum((model.T @ model) ** 2)
    return math.sqrt(from_gram + 4 * noise.moments**2 * np.sum(model**2))


def noise_weight(
    spectrum: Spectrum, rotated: Float[np.ndarray, "d c"], ridge: float, noise: Noise, *, labels: bool
) -> float:
    """Return the weight to add to the ridge weight: that of the least bound on the loss, or a share of it for labels.

    The bound is the estimate and two standard errors: with few features the estimate alone is so uncertain that its
    minimum is often at a large model by chance.
    """
    from scipy.optimize import minimize_scalar

    def bound(exponent: float) -> float:
        weight = ridge + math.exp(exponent)
        error = standard_error(spectrum, rotated, weight, noise)
        return estimated_loss(spectrum, rotated, weight, noise) + STANDARD_ERRORS * error

    # up to a model of almost zero; there may be several minima, so the search is local to the best of a grid
    least = LEAST_SHARE * edge(noise.gram, len(rotated))
    grid = np.linspace(math.log(least), math.log(100 * (least + spectrum.shrunk[-1])), 40)
    best = int(np.argmin([bound(exponent) for exponent in grid]))
    near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = math.exp(minimize_scalar(bound, bounds=near, method="bounded").x)
    return max(least, LABEL_SHARE * found if labels else found)


def shrunk_solutions(
    gram: Float[np.ndarray, "d d"],
    moments: Float[np.ndarray, "d c"],
    ridges: Sequence[Ridge],
    noise: Noise,
    *,
    labels: bool,
) -> Float[np.ndarray, "l d c"]:
    """Solve (X + (lambda + weight) I) Theta = B + F for each lambda, with X the estimate of A by shrinkage.

    The solution turns with A, scales with B and its noise, and becomes that without noise as the noise becomes small,
    if that is unique. Where features have weights of their own, their mean decides on the weight from the noise.
    """
    from scipy.linalg import solve

    spectrum, models = shrunk_spectrum(gram, noise.gram), np.empty((len(ridges), *moments.shape))
    vectors, rotated = spectrum.vectors, spectrum.vectors.T @ moments
    for model, ridge in zip(models, ridges, strict=True):
        values = spectrum.shrunk + noise_weight(spectrum, rotated, float(np.mean(ridge)), noise, labels=labels)
        if np.ndim(ridge) == 0:
            model[:] = vectors @ (rotated / (values + ridge)[:, None])
        else:
            system = (vectors * values) @ vectors.T + ridge * np.eye(len(values))
            model[:] = solve(system, moments, assume_a="pos")
    return models
