"""Gradient descent with the paper's schedule of the learning rate."""

from collections.abc import Mapping
from typing import final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.solvers.contract import Solver


@final
class GradientDescent(Solver):
    """Theta <- Theta - mu * (gradient + lambda * Theta)."""

    name = "gradient-descent"
    needs_exact = False
    asks_at_model = True
    block = 8
    stable_share = 1.0

    def begin(self) -> None:
        """Nothing is remembered beside the model."""

    def query(self) -> Float[np.ndarray, "d c"]:
        """Ask at the model."""
        return self._model

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Step against the gradient."""
        slope = gradient + self._conditions.ridge * self._model
        self._model = self._model - self.rate * slope
        return float(np.linalg.norm(slope))

    @property
    def rate(self) -> float:
        """The schedule's rate."""
        return self._conditions.rate(self._epoch)

    def memory(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """Nothing."""
        return {}

    def recall(self, memory: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Nothing."""
