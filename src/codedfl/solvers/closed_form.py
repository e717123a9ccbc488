"""The closed form: one Cholesky factorisation, where the server knows the sums over all data."""

from collections.abc import Mapping
from typing import final

import numpy as np
import scipy
from jaxtyping import Float, Shaped

from codedfl.errors import TrainingError
from codedfl.solvers.contract import Solver


@final
class ClosedForm(Solver):
    """Solves (A/m + lambda I) Theta = B/m once, in float64, and is finished."""

    name = "closed-form"
    needs_exact = True
    needs_sums = True
    asks_at_model = True
    block = 1
    stable_share = None

    def begin(self) -> None:
        """Nothing is known yet."""
        self._solved = False

    def query(self) -> Float[np.ndarray, "d c"]:
        """Ask at the model."""
        return self._model

    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Note the gradient; the sums say all."""
        return float(np.linalg.norm(gradient + self._conditions.ridge * self._model))

    def solve(self, gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"]) -> None:
        """Take A/m and B/m, the means over all data points."""
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
        """Whether it has solved."""
        return self._solved

    def memory(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """Return whether it has solved."""
        return {"solved": np.array(self._solved)}

    def recall(self, memory: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Take back whether it has solved."""
        self._solved = bool(memory["solved"])
