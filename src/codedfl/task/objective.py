"""The objective of a training: the shape of the model, and scores as far as the server knows them.

A simulation has all data and computes every score (``codedfl.task.Problem``); a deployed server has at most a test set
(:class:`PublicObjective`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.data import Preparation
from codedfl.errors import DataError
from codedfl.solvers import Ridge
from codedfl.task.description import Description
from codedfl.task.metrics import LARGE, Counts, NearbyModels, accuracies, counts


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a block of models, one entry each; gradients at the models, then at further points."""

    accuracy: Float[np.ndarray, "b"]
    loss: Float[np.ndarray, "b"]
    gradient: Float[np.ndarray, "g d c"]


class Objective(ABC):
    """The learning task as the training loop sees it. Unknown values are NaN."""

    kind: str
    """``classification`` or ``regression``."""
    ridge: Ridge
    """The weight lambda of the ridge term; with ``penalty``, a weight for each feature."""
    described: Description | None = None
    """What columns and outputs mean; None: the server does not know."""
    test: "TestSet | None" = None
    """Rows that no device trains on; None: there are none."""
    penalty: Ridge = 1.0
    """Factor on lambda, for each feature where they differ."""
    start: Float[np.ndarray, "d c"] | None = None
    """The first model; None: zero. All other models here, and what devices are sent, are differences to it."""

    samples: int
    """Number of training points m over all devices."""
    shape: tuple[int, int]
    """Shape (d, c) of the model."""
    dtype: "np.dtype[Any]"
    """Format of the numbers that devices compute with and send."""

    @property
    @final
    def pull(self) -> Float[np.ndarray, "d c"] | None:
        """The gradient of the ridge term at the first model; None where that is zero."""
        return None if self.start is None else self.ridge * self.start

    @final
    def weights(self, ridges: Sequence[float]) -> tuple[Ridge, ...]:
        """Return the ridge terms of several lambda."""
        return tuple(ridge * self.penalty for ridge in ridges)

    @final
    def whole(self, models: Float[np.ndarray, "*b d c"]) -> Float[np.ndarray, "*b d c"]:
        """Add the first model to differences to it."""
        return models if self.start is None else np.asarray(models + self.start, dtype=models.dtype)

    @property
    @abstractmethod
    def zero_gradient(self) -> Float[np.ndarray, "d c"]:
        """The plaintext gradient of the data term at the first model."""

    @property
    @abstractmethod
    def zero_loss(self) -> float:
        """The loss of the first model."""

    @abstractmethod
    def score(self, models: Float[np.ndarray, "b d c"], points: Float[np.ndarray, "p d c"] | None = None) -> Scores:
        """Return test accuracy (or R^2), training loss, and the plaintext gradient without the ridge term.

        At ``points`` only the gradient is computed.
        """

    @abstractmethod
    def largest_stable_rate(self) -> float:
        """Return the learning rate above which full-batch gradient descent diverges."""


@final
@dataclass(frozen=True, eq=False)
class TestSet:
    """Features and labels (or targets) that no device trains on."""

    __test__ = False  # pytest would collect a class of this name

    x: Float[np.ndarray, "q d"]
    y: Shaped[np.ndarray, "q ..."]
    """Labels, or targets in their own units."""
    kind: str
    preparation: Preparation | None = None
    """How features and targets of the training were prepared."""

    def __post_init__(self) -> None:
        if self.kind == "regression" and np.any(np.ptp(self.y, axis=0) == 0):
            raise DataError("a target of the test set is constant, so R^2 is undefined; use another test set")

    def score(self, columns: Float[np.ndarray, "d columns"], models: int) -> Float[np.ndarray, "b"]:
        """Return the accuracy (or R^2) of models given side by side as columns."""
        if self.kind == "classification":
            if self.preparation is None and self.x.size >= LARGE:
                return self._nearby.accuracies(columns, models)
            return accuracies(self.outputs(columns, models), self.y)
        predicted = self.outputs(columns, models)
        return np.array([r_squared(predicted[:, i], self.y) for i in range(models)])

    @cached_property
    def _nearby(self) -> NearbyModels:
        """What earlier models tell about the classes of all rows."""
        return NearbyModels(self.x, self.y)

    def outputs(self, columns: Float[np.ndarray, "d columns"], models: int = 1) -> Float[np.ndarray, "q b c"]:
        """Return the outputs of models given side by side as columns, in the units of the targets."""
        predicted = np.asarray(self.x @ columns).reshape(-1, models, columns.shape[1] // models)
        return predicted if self.preparation is None else self.preparation.outputs(predicted)

    def counts(self, model: Float[np.ndarray, "d c"]) -> Counts:
        """Return the sums from which the metrics of a model follow."""
        center = None if self.kind == "classification" else self.y.mean(axis=0, dtype=np.float64)
        return counts(self.kind, self.outputs(model)[:, 0].astype(np.float64), self.y, center)


def side_by_side(models: Float[np.ndarray, "b d c"]) -> Float[np.ndarray, "d columns"]:
    """Put models side by side, so that one matrix product serves them all; each column is contiguous."""
    b, d, c = models.shape
    return np.ascontiguousarray(models.transpose(0, 2, 1)).reshape(b * c, d).T


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class PublicObjective(Objective):
    """The objective of a server without training data: sizes, and perhaps a test set."""

    samples: int
    shape: tuple[int, int]
    dtype: "np.dtype[Any]"
    ridge: Ridge
    kind: str
    penalty: Ridge = 1.0
    test: TestSet | None = None
    described: Description | None = None

    @property
    def zero_gradient(self) -> Float[np.ndarray, "d c"]:
        """Unknown."""
        return np.full(self.shape, np.nan)

    @property
    def zero_loss(self) -> float:
        """Unknown."""
        return math.nan

    def score(self, models: Float[np.ndarray, "b d c"], points: Float[np.ndarray, "p d c"] | None = None) -> Scores:
        """Return the score on the test set, if there is one; everything else is unknown."""
        unknown = np.full(len(models), np.nan)
        found = unknown if self.test is None else self.test.score(side_by_side(models), len(models))
        gradients = len(models) + (0 if points is None else len(points))
        return Scores(found, unknown, np.full((gradients, *self.shape), np.nan))

    def largest_stable_rate(self) -> float:
        """Unknown."""
        return math.nan


def r_squared(predicted: Float[np.ndarray, "q c"], values: Float[np.ndarray, "q c"]) -> float:
    """Return the coefficient of determination, averaged over the outputs."""
    residual = np.sum((values - predicted) ** 2, axis=0)
    spread = np.sum((values - values.mean(axis=0)) ** 2, axis=0)
    return float(np.mean(1 - residual / spread))
