"""Accelerated gradient descent with adaptive restart.

Nesterov, "Introductory Lectures on Convex Optimization", Kluwer, 2004, section 2.2 (constant step scheme II); restarted
as in O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes", Foundations of Computational
Mathematics, 2015 (gradient scheme).
"""

from collections.abc import Mapping
from typing import final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.solvers.contract import Solver


@final
class Nesterov(Solver):
    """A gradient step from a point ahead of the model, in the direction in which the model has moved.

    With mu the learning rate, q = lambda * mu, and Y the point ahead:

        Theta' = Y - mu * (gradient(Y) + lambda * Y),
        Y'     = Theta' + beta * (Theta' - Theta),  beta = theta (1 - theta) / (theta^2 + theta'),

    where theta' > 0 solves theta'^2 = (1 - theta') theta^2 + q theta', from theta = 1 on. Where the last move went
    uphill, the speed is lost: theta = 1 and Y' = Theta'. With mu = 1/L and lambda = 0, f(Theta_k) - f* is at most
    2 L ||Theta*||^2 / (k + 1)^2 up to the first restart (Beck and Teboulle, SIAM Journal on Imaging Sciences, 2009).
    """

    name = "nesterov"
    needs_exact = False
    asks_at_model = False
    block = 8
    stable_share = 2 / 3  # along curvature h it is stable iff mu h < (2 + 2 beta) / (1 + 2 beta): 4/3 at full speed

    def begin(self) -> None:
        """Start without speed."""
        self._ahead = self._model
        self._theta = 1.0

    def query(self) -> Float[np.ndarray, "d c"]:
        """Ask at the point ahead."""
        return self._ahead

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Step from the point ahead, and look ahead again."""
        slope = gradient + self._conditions.ridge * self._ahead
        moved = self._ahead - self.rate * slope
        move = moved - self._model
        if np.vdot(slope, move) > 0:
            self._theta, beta = 1.0, 0.0
        else:
            beta = self._speed()
        self._model, self._ahead = moved, moved + beta * move
        return float(np.linalg.norm(slope))

    def _speed(self) -> float:
        """Advance theta; return beta."""
        square, q = self._theta**2, min(self._conditions.ridge * self.rate, 1.0)
        advanced = (q - square + np.sqrt((q - square) ** 2 + 4 * square)) / 2
        beta = self._theta * (1 - self._theta) / (square + advanced)
        self._theta = float(advanced)
        return float(beta)

    @property
    def rate(self) -> float:
        """The schedule's rate."""
        return self._conditions.rate(self._epoch)

    def memory(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """Return the point ahead and theta."""
        return {"ahead": self._ahead, "theta": np.array(self._theta)}

    def recall(self, memory: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Take back the point ahead and theta."""
        self._ahead, self._theta = memory["ahead"], float(memory["theta"])
