"""The learning task of a scenario: shards and their Gram matrices, the loss, accuracy or R^2, and the learning rate.

The model is Theta (d x c); the loss is f(Theta) = 1/(2m) * sum ||x Theta - y||^2 + lambda/2 * ||Theta||^2, so that
with A_i = X_i^T X_i and B_i = X_i^T Y_i the gradient is 1/m * sum (A_i Theta - B_i) + lambda * Theta.

A training may begin at a model Theta^(1) other than zero. All parties then learn theta = Theta - Theta^(1), as the
paper's devices do: on targets Y_i - X_i Theta^(1), with the ridge term lambda/2 * ||Theta^(1) + theta||^2.
"""

import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped

from codedfl import data
from codedfl.errors import ScenarioError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario, Training
from codedfl.task.objective import Objective, Scores, TestSet, side_by_side


def gram(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Return X^T X, exactly symmetric."""
    # NumPy computes a product with the own transpose by BLAS's symmetric rank-k update, at half the cost
    rows = np.ascontiguousarray(x)
    return np.asarray(rows.T @ rows)


def load_data(scenario: Scenario, progress: Progress = silent) -> data.Dataset:
    """Load the raw data of a scenario, without features."""
    wanted = scenario.data
    return data.load(
        wanted.source,
        kind=wanted.kind,
        target=wanted.target or None,
        test_path=wanted.test_source or None,
        test_fraction=wanted.test_fraction,
        seed=wanted.seed,
        dtype=scenario.precision,
        progress=progress,
    )


def partition_rows(
    scenario: Scenario, labels: Shaped[np.ndarray, "n ..."], samples: int
) -> tuple[Int[np.ndarray, "rows"], ...]:
    """Return the row numbers of each device of a scenario."""
    return data.partition(labels, samples, scenario.fleet.size, **vars(scenario.partition))


def feature_map(scenario: Scenario, inputs: int) -> data.FeatureMap:
    """Return the map from raw inputs to features, the same on every device of a scenario."""
    return data.FeatureMap.create(inputs=inputs, dtype=scenario.precision, **vars(scenario.features))


@dataclass(frozen=True, eq=False)
class Shard:
    """The data of one device: features X_i and targets Y_i. The Gram matrix is computed once, on first use."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n c"]

    @property
    def samples(self) -> int:
        """Number of data points n_i."""
        return len(self.x)

    @cached_property
    def gram(self) -> Float[np.ndarray, "d d"]:
        """A_i = X_i^T X_i."""
        return gram(self.x)

    @cached_property
    def moments(self) -> Float[np.ndarray, "d c"]:
        """B_i = X_i^T Y_i."""
        return np.asarray(self.x.T @ self.y)

    @property
    def compact(self) -> bool:
        """Whether A_i Theta costs fewer multiplications than X_i^T (X_i Theta)."""
        return bool(2 * self.samples >= self.x.shape[1])


def load_shard(
    scenario: Scenario,
    loaded: data.Dataset,
    rows: Int[np.ndarray, "rows"],
    features: data.FeatureMap,
    start: Float[np.ndarray, "d c"] | None = None,
) -> Shard:
    """Return the shard of a device: features and targets of its rows, less what the first model predicts."""
    x, y = features.transform(loaded.x_train[rows]), loaded.targets(loaded.y_train[rows])
    return Shard(x, (y if start is None else y - x @ start).astype(np.dtype(scenario.precision)))


_UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, SyntaxError, RuntimeError, MemoryError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What a damaged or foreign file raises when arrays are read from it."""


def load_start(scenario: Scenario, shape: tuple[int, int]) -> Float[np.ndarray, "d c"] | None:
    """Read the first model of a training; None: zero."""
    path = scenario.training.start
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = np.asarray(arrays["theta"])
        if found.dtype.kind not in "fiu":
            raise TypeError(f"theta holds {found.dtype}")
        model = found.astype(np.float64)
    except _UNREADABLE:
        raise ScenarioError(
            f"training.start = '{path}' holds no array theta of real numbers; give the model.npz of a finished run"
        ) from None
    if model.shape != shape or not np.isfinite(model).all():
        wrong = f"has shape {model.shape}" if model.shape != shape else "holds numbers that are not finite"
        raise ScenarioError(f"the model of training.start = '{path}' {wrong}; this task needs finite {shape}")
    return model


@dataclass(frozen=True, eq=False)
class Problem(Objective):
    """All shards and the test set: the view of the experimenter, not of any party of the protocol."""

    shards: tuple[Shard, ...]
    x_test: Float[np.ndarray, "q d"]
    y_test: Shaped[np.ndarray, "q ..."]
    kind: str
    ridge: float
    start: Float[np.ndarray, "d c"] | None = None
    samples: int = field(init=False)
    shape: tuple[int, int] = field(init=False)
    dtype: "np.dtype[Any]" = field(init=False)
    test: TestSet = field(init=False)

    @classmethod
    def build(cls, scenario: Scenario, progress: Progress = silent) -> "Problem":
        """Load and partition the data of a scenario and compute the features."""
        loaded = load_data(scenario, progress)
        features = feature_map(scenario, loaded.inputs)
        rows = partition_rows(scenario, loaded.y_train, loaded.samples)
        start = load_start(scenario, (features.dimension, loaded.targets(loaded.y_train[:1]).shape[1]))
        shards = []
        for done, index in enumerate(rows):
            progress("preparing data", done, len(rows))
            shards.append(load_shard(scenario, loaded, index, features, start))
        progress("preparing data", len(rows), len(rows))
        x_test, ridge = features.transform(loaded.x_test), scenario.ridge
        return cls(tuple(shards), x_test, loaded.y_test, loaded.kind, ridge, start)

    def __post_init__(self) -> None:
        x, y = self.shards[0].x, self.shards[0].y
        derived = {"samples": sum(shard.samples for shard in self.shards), "shape": (x.shape[1], y.shape[1])}
        vars(self).update(derived, dtype=x.dtype, test=TestSet(self.x_test, self.y_test, self.kind))

    @cached_property
    def total_gram(self) -> Float[np.ndarray, "d d"]:
        """Sum of all A_i in float64, the reference for every scheme."""
        total = np.zeros((self.shape[0], self.shape[0]))
        for block in _blocks(self.shards):
            total += block
        return total

    @cached_property
    def total_moments(self) -> Float[np.ndarray, "d c"]:
        """Sum of all B_i in float64."""
        return np.asarray(np.sum([shard.moments for shard in self.shards], axis=0, dtype=np.float64))

    @cached_property
    def target_energy(self) -> float:
        """Sum of ||y||^2 over all training points; with a first model, of what it does not explain."""
        return float(sum(np.sum(shard.y.astype(np.float64) ** 2) for shard in self.shards))

    @property
    def zero_gradient(self) -> Float[np.ndarray, "d c"]:
        """The gradient of the data term at the first model."""
        return np.asarray(-self.total_moments / self.samples)

    @property
    def zero_loss(self) -> float:
        """The loss of the first model."""
        start = 0.0 if self.start is None else float(np.sum(self.start**2))
        return self.target_energy / (2 * self.samples) + self.ridge * start / 2

    def score(self, models: Float[np.ndarray, "b d c"], points: Float[np.ndarray, "p d c"] | None = None) -> Scores:
        """Score models together, so that the test set and the Gram matrix are read once for many epochs."""
        b, d, c = models.shape
        both = models if points is None else np.concatenate([models, points])
        columns = side_by_side(both)
        scores = self.test.score(columns[:, : b * c] if self.start is None else side_by_side(self.whole(models)), b)
        products = (self.total_gram @ columns.astype(np.float64)).reshape(d, len(both), c).transpose(1, 0, 2)
        gradients = np.asarray((products - self.total_moments) / self.samples)
        return Scores(scores, self._loss(models.astype(np.float64), products[:b]), gradients)

    def _loss(self, models: Float[np.ndarray, "b d c"], products: Float[np.ndarray, "b d c"]) -> Float[np.ndarray, "b"]:
        squares = np.einsum("bdc,bdc->b", models, products - 2 * self.total_moments) + self.target_energy
        whole = self.whole(models)
        ridge = self.ridge * np.einsum("bdc,bdc->b", whole, whole)
        return np.asarray(squares / (2 * self.samples) + ridge / 2)

    def ridge_solution(self) -> Float[np.ndarray, "d c"]:
        """Return the minimiser of the loss, the limit of full-batch training, less the first model."""
        system = self.total_gram / self.samples + self.ridge * np.eye(self.shape[0])
        right = self.total_moments / self.samples
        if self.pull is not None:
            right = right - self.pull
        try:
            with warnings.catch_warnings(action="error", category=scipy.linalg.LinAlgWarning):
                return np.asarray(scipy.linalg.solve(system, right, assume_a="pos"))
        except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning):
            # without a ridge term the minimiser may not be unique: take that of smallest norm
            return np.asarray(np.linalg.lstsq(system, right, rcond=None)[0])

    def largest_stable_rate(self) -> float:
        """Return 2/L, the learning rate above which full-batch gradient descent diverges."""
        d = self.shape[0]
        top = scipy.linalg.eigh(self.total_gram / self.samples, eigvals_only=True, subset_by_index=[d - 1, d - 1])
        return float(2 / (top[0] + self.ridge))


def _blocks(shards: tuple[Shard, ...]) -> Any:
    """Yield Gram matrices that add up to the total; shards of few rows are combined."""
    small: list[Float[np.ndarray, "n d"]] = []
    for shard in shards:
        if shard.compact:
            yield shard.gram
        else:
            small.append(shard.x)
        if sum(len(x) for x in small) > 4 * shard.x.shape[1]:
            yield gram(np.concatenate(small))
            small = []
    if small:
        yield gram(np.concatenate(small))


def learning_rate(training: Training, epoch: int) -> float:
    """Return mu at an epoch (counted from 1): the initial rate, times ``decay`` from each milestone on."""
    passed = sum(epoch >= milestone for milestone in training.decay_epochs)
    return float(training.learning_rate * training.decay**passed)
