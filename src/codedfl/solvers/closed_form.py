"""The closed form: one Cholesky factorisation, for schemes that give the server the sums over all data."""

from typing import final

import numpy as np
import scipy
from jaxtyping import Float

from codedfl.errors import TrainingError
from codedfl.solvers.contract import Solver


@final
class ClosedForm(Solver):
    """Solves (A/m + lambda I) Theta = B/m once, in float64."""

    name = "closed-form"
    needs_exact = True
    needs_sums = True
    state = ("solved",)

    def begin(self) -> None:
        """Start unsolved."""
        self._solved = False

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Return the norm of the gradient; the model comes from :meth:`solve` alone."""
        return float(np.linalg.norm(gradient + self._conditions.ridge * self._model))

    def solve(self, gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"]) -> None:
        """Solve for the model, from A/m and B/m."""
        system = gram + self._conditions.ridge * np.eye(len(gram))
        try:
            factor = scipy.linalg.cho_factor(system, lower=True)
        except (np.linalg.LinAlgError, ValueError):
            raise TrainingError(
                f"the closed form needs a positive definite matrix, which the data and task.ridge = "
                f"{self._conditions.ridge:g} do not give; raise task.ridge or choose another training.solver"
            ) from None
        self._model = np.ascontiguousarray(scipy.linalg.cho_solve(factor, moments))
        self._solved = True

    @property
    def finished(self) -> bool:
        """Whether the system is solved."""
        return self._solved
