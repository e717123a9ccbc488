"""Accelerated gradient descent with adaptive restart.

Nesterov, "Introductory Lectures on Convex Optimization", Kluwer, 2004, section 2.2 (constant step scheme II); restarted
as in O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes", Foundations of Computational
Mathematics, 2015 (gradient scheme).
"""

from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.solvers.contract import Solver


@final
class Nesterov(Solver):
    """Gradient steps with momentum: the gradient is taken at an extrapolated point Y.

    With mu the learning rate and q = lambda * mu (of the smallest lambda, where features have their own):

        Theta' = Y - mu * (gradient(Y) + lambda * Y),
        Y'     = Theta' + beta * (Theta' - Theta),  beta = theta (1 - theta) / (theta^2 + theta'),

    where theta' > 0 solves theta'^2 = (1 - theta') theta^2 + q theta', from theta = 1 on. Where the last step
    went uphill, the momentum is reset: theta = 1 and Y' = Theta'. With mu = 1/L and lambda = 0, f(Theta_k) - f* is at
    most 2 L ||Theta*||^2 / (k + 1)^2 until the first restart (Beck and Teboulle, SIAM J. Imaging Sciences, 2009).
    """

    name = "nesterov"
    asks_at_model = False
    block = 8
    stable_share = 2 / 3  # stable along curvature h iff mu h < (2 + 2 beta) / (1 + 2 beta), which is 4/3 at beta = 1
    state = ("ahead", "theta")

    def begin(self) -> None:
        """Start without momentum."""
        self._ahead = self._model
        self._theta = 1.0

    def query(self) -> Float[np.ndarray, "d c"]:
        """Return the extrapolated point Y."""
        return self._ahead

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Step from Y and extrapolate again."""
        slope = gradient + self._conditions.ridge * self._ahead
        moved = self._ahead - self.rate * slope
        move = moved - self._model
        if np.vdot(slope, move) > 0:
            self._theta, beta = 1.0, 0.0
        else:
            beta = self._momentum()
        self._model, self._ahead = moved, moved + beta * move
        return float(np.linalg.norm(slope))

    def _momentum(self) -> float:
        """Advance theta; return beta."""
        square, q = self._theta**2, min(float(np.min(self._conditions.ridge)) * self.rate, 1.0)
        advanced = (q - square + np.sqrt((q - square) ** 2 + 4 * square)) / 2
        beta = self._theta * (1 - self._theta) / (square + advanced)
        self._theta = float(advanced)
        return float(beta)
