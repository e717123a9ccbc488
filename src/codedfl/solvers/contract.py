"""What a solver is: where the server wants the next gradient, and what it makes of it.

A solver minimises f(Theta) = data term + lambda/2 * ||Theta||^2. It knows the ridge lambda, the shape of the model and
the gradients of the data term at the points it asked for, and nothing of the data, so that every scheme serves every
solver in the same way: what ``query`` returns is what a scheme sends, and ``update`` takes what it decodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float, Shaped


@dataclass(frozen=True)
class Conditions:
    """What a solver is told before the first epoch."""

    shape: tuple[int, int]
    ridge: float
    rate: Callable[[int], float]
    """The learning rate of an epoch (counted from 1)."""
    tolerance: float
    """Stop at a gradient so small, relative to that of the zero model; 0 is never."""
    epsilon: float
    """The relative spacing of the numbers that devices compute with."""


class Solver(ABC):
    """Asks for gradients and improves a model, one epoch after the other.

    The first query is the zero model: schemes may compute that gradient beforehand, and it is the scale of errors and
    of the stopping rule. A solver restored from its arrays goes on with the same bits.
    """

    name: ClassVar[str]
    needs_exact: ClassVar[bool]
    """Whether every gradient must be that of all data, each point counted once."""
    needs_sums: ClassVar[bool] = False
    """Whether the server must know the sums over all data."""
    asks_at_model: ClassVar[bool]
    """Whether every query is the model itself, so that scoring models gives the plaintext gradients of queries too."""
    block: ClassVar[int]
    """Epochs that are scored together; a training stops at the end of a block."""
    stable_share: ClassVar[float | None]
    """Below which share of 2/L the learning rate must stay, L the largest curvature; None: there is no rate."""

    @final
    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._model = np.zeros(conditions.shape)
        self._epoch = 0
        self._first_norm = np.inf
        self._norm = np.inf
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Prepare what the solver remembers beside the model."""

    @abstractmethod
    def query(self) -> Float[np.ndarray, "d c"]:
        """Return the point at which the next gradient is wanted."""

    def asked_at(self, point: Float[np.ndarray, "d c"]) -> None:  # noqa: B027 - most solvers need not care
        """Take note that the gradient is at a point near the query: the scheme could not send the query itself.

        For most solvers that difference is noise, which the next query makes up for.
        """

    @final
    def update(self, gradient: Float[np.ndarray, "d c"]) -> None:
        """Take the gradient of the data term (mean over data points, without the ridge term) at the query."""
        self._epoch += 1
        self._norm = self.improve(gradient)
        if self._epoch == 1:
            self._first_norm = self._norm

    @abstractmethod
    def improve(self, gradient: Float[np.ndarray, "d c"]) -> float:
        """Improve the model; return the norm of the newest measured gradient of f, infinity if there is none."""

    def solve(self, gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"]) -> None:  # noqa: B027
        """Take A/m and B/m, the means over all data points, where ``needs_sums``."""

    @property
    @final
    def model(self) -> Float[np.ndarray, "d c"]:
        """The best model so far: the one that is scored and kept."""
        return self._model

    @property
    def rate(self) -> float:
        """The learning rate of the newest epoch; NaN for a solver without one."""
        return np.nan

    @property
    def finished(self) -> bool:
        """Whether the stopping rule is met: a gradient of f was measured that is as small as wanted."""
        wanted = self._conditions.tolerance
        return wanted > 0 and self._epoch > 0 and self._norm <= wanted * self._first_norm

    @abstractmethod
    def memory(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """Return what is remembered beside the model."""

    @abstractmethod
    def recall(self, memory: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Take back what :meth:`memory` returned."""

    @final
    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return everything as plain arrays."""
        counts = {"epoch": np.array(self._epoch), "norms": np.array([self._first_norm, self._norm])}
        return {"model": self._model, **counts, **self.memory()}

    @final
    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on where the solver stood that gave these arrays."""
        if arrays["model"].shape != self._conditions.shape:
            raise ValueError(f"a model of shape {arrays['model'].shape} does not fit {self._conditions.shape}")
        self._model = arrays["model"]
        self._epoch = int(arrays["epoch"])
        self._first_norm, self._norm = (float(norm) for norm in arrays["norms"])
        self.recall(arrays)
