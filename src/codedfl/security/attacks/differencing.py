"""Single gradients from sums over cohorts that differ from epoch to epoch.

Gradients change slowly: with h = Theta_e - Theta_0 the gradient of device i is g_i(Theta_e) = g_i(Theta_0) + A_i h, and
A_i is about n_i / m of a public guess of A. Taken away from the sums, that leaves, with C_e the cohort of epoch e,

    s_e = sum of g_i(Theta_0) over i in C_e,

linear equations in the gradients of all devices, solved by least squares. Of the solutions the one nearest to equal
shares of the data points is taken: devices that are in all cohorts, or in none, get their share of the sum.

Sums of a single device are read as they are, and sums over the same cohort in all epochs tell nobody's gradient.
"""

from typing import final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import CohortsView

WINDOW = 40
"""Epochs that are solved together: over more of them gradients change by more than a guess of A tells. Measured with
digits, 300 features and ``drop-slowest`` after 120 epochs: error 0.28 / 0.29 / 0.31 / 0.76 with 20 / 40 / 60 / 119."""


@final
class Differencing(Attack[CohortsView]):
    """Solve for all gradients at the last model; ``prior`` is a public guess of A of one data point."""

    name = "differencing"
    view_type = CohortsView
    aim = "the gradient of one device from sums over changing cohorts"

    def __init__(self, prior: Float[np.ndarray, "d d"] | None = None, window: int = WINDOW) -> None:
        self._prior = prior
        self._window = window

    def informed(self, guess: Float[np.ndarray, "d d"]) -> "Differencing":
        """Return the attack with a public guess of A, for one data point."""
        return Differencing(guess, self._window)

    def run(self, view: CohortsView, rng: np.random.Generator) -> Finding:
        """Attack the last epochs; nothing here is random."""
        models, sums = (stack[-self._window :].astype(np.float64) for stack in (view.models, view.sums))
        inside = view.cohorts[-self._window :].astype(np.float64)
        if self._prior is not None:
            moved = self._prior.astype(np.float64) @ (models - models[-1])
            sums = sums - (inside @ view.points)[:, None, None] * moved
        shares, mean = _shares(inside, sums, view.points)
        rest, epochs = sums - (inside @ shares)[:, None, None] * mean, len(sums)
        apart = np.linalg.pinv(inside) @ rest.reshape(epochs, -1)
        gradients = shares[:, None, None] * mean + apart.reshape(-1, *mean.shape)
        return Finding(gradients=gradients, remark=f"{len(np.unique(inside, axis=0))} cohorts in {epochs} epochs")


def _shares(
    inside: Float64[np.ndarray, "epochs devices"], sums: Float64[np.ndarray, "epochs d c"], points: np.ndarray
) -> tuple[Float64[np.ndarray, "devices"], Float64[np.ndarray, "d c"]]:
    """Return every device's share of the data points, and the best single estimate of the sum over all devices."""
    shares = points / points.sum()
    weights = inside @ shares
    return shares, np.asarray(np.tensordot(weights, sums, axes=1) / (weights @ weights))
