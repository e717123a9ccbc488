"""The contract of a solver: the point of the next gradient, and the update of the model.

A solver minimises f(Theta) = data term + lambda/2 * ||Theta||^2. It knows lambda, the shape of the model and the
gradients of the data term at its queries, but no data: a scheme sends ``query()`` and passes the decoded gradient to
``update``. Where features have weights of their own, lambda is a column of them, and lambda * Theta broadcasts.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.errors import TrainingError

Ridge: TypeAlias = float | Float[np.ndarray, "d 1"]
"""The weight lambda of the ridge term: a number, or one for each feature."""


INDEFINITE = 1e-12
"""Probability, at most, that a system with the weight of :func:`noise_ridge` has a negative eigenvalue."""


@dataclass(frozen=True)
class Noise:
    """Gaussian noise that devices added to the sums for differential privacy, in A/m and B/m."""

    gram: float
    """Standard deviation in entries of A/m off the diagonal; on it, sqrt(2) times that."""
    moments: float
    """Standard deviation in entries of B/m."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"the noise of {name} has a standard deviation of {value}; it must be positive")


def edge(noise: float, d: int) -> float:
    """Return 2 s sqrt(d), where the eigenvalues of symmetric Gaussian noise end as d grows (Wigner)."""
    return 2 * noise * math.sqrt(d)


def noise_ridge(noise: Noise, d: int) -> float:
    """Return the smallest ridge weight with which A/m + E + lambda I is positive definite: 2 s (sqrt(d) + 5.26).

    For any Gram matrix A and any d: the mean of the largest eigenvalue of -E is at most 2 s sqrt(d) (Sudakov and
    Fernique), and as it changes by at most sqrt(2) s for a unit of the standard normal variables that E is made of, it
    exceeds 2 s sqrt(d) + u with probability at most exp(-u^2 / (4 s^2)) (Borell, Tsirelson, Ibragimov and Sudakov),
    which is 1e-12 here. For large d it is far smaller: fluctuations are of size s d^(-1/6) (Tracy and Widom).
    """
    return edge(noise.gram, d) + 2 * noise.gram * math.sqrt(-math.log(INDEFINITE))


@dataclass(frozen=True)
class Conditions:
    """Parameters of a solver."""

    shape: tuple[int, int]
    ridge: Ridge
    rate: Callable[[int], float]
    """Learning rate of an epoch (counted from 1)."""
    tolerance: float
    """Gradient norm at which to stop, relative to that of the first model; 0: never."""
    epsilon: float
    """Relative spacing of the numbers that devices compute with."""
    ridges: tuple[Ridge, ...] = ()
    """All weights of a path, for solvers that solve for several; the first is ``ridge``."""
    noise: Noise | None = None
    """Noise in the sums, and so in all gradients."""
    labels: bool = False
    """Whether the largest output decides, as in a classification, rather than the values of all; counts with noise."""


def _check_definite(conditions: Conditions, noise: Noise) -> None:
    """Refuse ridge weights with which the noise may make the system indefinite: gradients then lead nowhere."""
    smallest = min(float(np.min(ridge)) for ridge in (conditions.ridge, *conditions.ridges))
    needed = noise_ridge(noise, conditions.shape[0])
    if smallest < needed:
        raise TrainingError(
            f"the ridge weight is {smallest:g}, but noise in the Gram matrix makes the system indefinite unless it is "
            f'at least {needed:g}; raise task.ridge, or choose a scheme that takes training.solver = "closed-form"'
        )


def check_finite(gradient: Float[np.ndarray, "d c"], epoch: int) -> None:
    """Refuse a gradient with numbers that are not finite."""
    if not np.isfinite(gradient).all():
        raise TrainingError(
            f"the gradient of epoch {epoch} holds numbers that are not finite; "
            'scale the features down or set task.precision = "float64"'
        )


class Solver(ABC):
    """Queries one gradient per epoch and improves a model with it.

    The first query is the zero model: schemes may compute that gradient in advance, and its norm scales errors and the
    stopping rule. A training that begins elsewhere gives the solver differences to its first model, and gradients that
    include that of the ridge term there. A solver restored from its arrays continues bit for bit.
    """

    name: ClassVar[str]
    needs_exact: ClassVar[bool] = False
    """Whether every gradient must count each data point exactly once."""
    needs_sums: ClassVar[bool] = False
    """Whether the server must know the sums over all data."""
    asks_at_model: ClassVar[bool] = True
    """Whether every query is the model itself, so that scoring the models gives the plaintext gradients of queries."""
    block: ClassVar[int] = 1
    """Epochs that are scored together; a training stops at the end of a block."""
    stable_share: ClassVar[float | None] = None
    """Largest stable learning rate as a share of 2/L, where L is the largest curvature; None: there is no rate."""
    state: ClassVar[tuple[str, ...]] = ()
    """Names, without underscore, of the attributes that are saved beside the model."""

    @final
    def __init__(self, conditions: Conditions) -> None:
        if conditions.noise is not None and not self.needs_sums:
            _check_definite(conditions, conditions.noise)
        self._conditions = conditions
        self._model = np.zeros(conditions.shape)
        self._epoch = 0
        self._first_norm = np.inf
        self._norm = np.inf
        self.rate = np.nan
        """The learning rate of the newest update; NaN before the first, and for a solver without one."""
        self.begin()

    def begin(self) -> None:  # noqa: B027
        """Initialise the state beside the model."""

    def query(self) -> Float[np.ndarray, "d c"]:
        """Return the point of the next gradient."""
        return self._model

    def asked_at(self, point: Float[np.ndarray, "d c"]) -> None:  # noqa: B027 - noise to most solvers
        """Take the point near the query at which the gradient is, where the scheme could not send the query itself."""

    @final
    def update(self, gradient: Float[np.ndarray, "d c"]) -> None:
        """Take the gradient of the data term (mean over data points, without the ridge term) at the query."""
        self._epoch += 1
        if self.stable_share is not None:
            self.rate = self._conditions.rate(self._epoch)
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
        """The newest model, which is scored and saved."""
        return self._model

    @property
    def models(self) -> Float[np.ndarray, "l d c"]:
        """The newest model of each weight of a path; of a single weight, the model."""
        return self._model[None]

    @property
    def finished(self) -> bool:
        """Whether the newest measured gradient of f meets the tolerance."""
        wanted = self._conditions.tolerance
        return wanted > 0 and self._epoch > 0 and self._norm <= wanted * self._first_norm

    @final
    def to_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return the whole state as arrays."""
        counts = {"epoch": np.array(self._epoch), "norms": np.array([self._first_norm, self._norm])}
        return {"model": self._model, **counts, **{name: np.asarray(getattr(self, f"_{name}")) for name in self.state}}

    @final
    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`to_arrays`."""
        if arrays["model"].shape != self._conditions.shape:
            raise ValueError(f"a model of shape {arrays['model'].shape} does not fit {self._conditions.shape}")
        self._model = arrays["model"]
        self._epoch = int(arrays["epoch"])
        self._first_norm, self._norm = (float(norm) for norm in arrays["norms"])
        for name in self.state:
            setattr(self, f"_{name}", arrays[name] if arrays[name].ndim else arrays[name].item())
