"""Gradient descent with the paper's schedule of the learning rate."""

from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.solvers.contract import Solver


@final
class GradientDescent(Solver):
    """Theta <- Theta - mu * (gradient + lambda * Theta)."""

    name = "gradient-descent"
    block = 8
    stable_share = 1.0

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Step against the gradient."""
        slope = gradient + self._conditions.ridge * self._model
        self._model = self._model - self.rate * slope
        return float(np.linalg.norm(slope))
