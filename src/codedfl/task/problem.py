"""The learning task of a scenario: shards and their Gram matrices, the loss, accuracy or R^2, and the learning rate.

The model is Theta (d x c); the loss is f(Theta) = 1/(2m) * sum ||x Theta - y||^2 + lambda/2 * ||Theta||^2, so that
with A_i = X_i^T X_i and B_i = X_i^T Y_i the gradient is 1/m * sum (A_i Theta - B_i) + lambda * Theta. With the loss
softmax, the cross entropy takes the place of the squares (``codedfl.task.losses``).

A training may begin at a model Theta^(1) other than zero. All parties then learn theta = Theta - Theta^(1), as the
paper's devices do: on targets Y_i - X_i Theta^(1), with the ridge term lambda/2 * ||Theta^(1) + theta||^2.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario, Training
from codedfl.solvers import Ridge
from codedfl.task.description import Description
from codedfl.task.loading import RawData, load_start
from codedfl.task.losses import SOFTMAX, SQUARED, check_kind, softmax_terms
from codedfl.task.objective import Objective, Scores, TestSet, side_by_side
from codedfl.task.preparing import PlainSummer, Prepared, prepare
from codedfl.task.ranges import ranged_preparation
from codedfl.task.shard import Shard, Sums, batch_rows, gram, make_shard, penalties, prepared_features, row_sums


@dataclass(frozen=True, eq=False)
class Problem(Objective):
    """All shards and the test set: the view of the experimenter, not of any party of the protocol."""

    shards: tuple[Shard, ...]
    x_test: Float[np.ndarray, "q d"]
    y_test: Shaped[np.ndarray, "q ..."]
    kind: str
    ridge: Ridge
    start: Float[np.ndarray, "d c"] | None = None
    raw: RawData | None = field(default=None, repr=False)
    """The raw data, where the problem was built from a scenario."""
    prepared: Prepared | None = field(default=None, repr=False)
    """How the raw columns were prepared; None: not at all."""
    loss: str = SQUARED
    samples: int = field(init=False)
    shape: tuple[int, int] = field(init=False)
    dtype: "np.dtype[Any]" = field(init=False)
    test: TestSet | None = field(init=False)
    penalty: Ridge = field(init=False)
    described: Description | None = field(init=False)
    _batches: dict[tuple[int, int], Sums] = field(init=False, default_factory=dict, repr=False)
    """Sums over batches, by the number of parts and that of the batch."""
    _parts: dict[tuple[int, ...], Sums] = field(init=False, default_factory=dict, repr=False)
    """Sums over some devices."""

    @classmethod
    def build(
        cls,
        scenario: Scenario,
        progress: Progress = silent,
        loaded: Callable[[Scenario, RawData], object] = lambda scenario, raw: None,
    ) -> "Problem":
        """Load and partition the data of a scenario and compute the features; columns are summed in clear.

        ``loaded`` sees the data before any feature is computed.
        """
        raw = RawData.load(scenario, progress)
        loaded(scenario, raw)
        prepared = None
        if scenario.prepared:
            rows = [raw.device(index) for index in range(len(raw.parts))]
            regression = raw.loaded.kind == "regression"
            summer = PlainSummer(rows, raw.features, raw.loaded.columns)
            prepared = prepare(scenario, summer, raw.dummies, regression=regression)
        elif (ranged := ranged_preparation(scenario, raw.loaded)) is not None:
            prepared = Prepared(ranged, None, None)
        return cls.of_raw(scenario, raw, prepared, progress)

    @classmethod
    def of_raw(
        cls, scenario: Scenario, raw: RawData, prepared: Prepared | None, progress: Progress = silent
    ) -> "Problem":
        """Prepare raw data."""
        preparation, loaded = None if prepared is None else prepared.preparation, raw.loaded
        check_kind(scenario.task.loss, loaded.kind)
        start = load_start(scenario, (raw.features.dimension, loaded.targets(loaded.y_train[:1]).shape[1]))
        shards = []
        for index in range(len(raw.parts)):
            progress("preparing data", index, len(raw.parts))
            shards.append(make_shard(raw.device(index), raw.features, preparation, start))
        progress("preparing data", len(raw.parts), len(raw.parts))
        x_test = prepared_features(loaded.x_test, raw.features, preparation)
        ridge = penalties(scenario.ridge, preparation)
        loss = scenario.task.loss
        return cls(tuple(shards), x_test, loaded.y_test, loaded.kind, ridge, start, raw, prepared, loss)

    def __post_init__(self) -> None:
        x, y = self.shards[0].x, self.shards[0].y
        derived = {"samples": sum(shard.samples for shard in self.shards), "shape": (x.shape[1], y.shape[1])}
        preparation = None if self.prepared is None else self.prepared.preparation
        test = TestSet(self.x_test, self.y_test, self.kind, preparation) if len(self.x_test) else None
        described = None if self.raw is None else Description.of_data(self.raw.loaded, preparation)
        derived |= {"test": test, "penalty": penalties(1.0, preparation), "described": described}
        vars(self).update(derived, dtype=x.dtype)

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
    def sums(self) -> Sums:
        """The sums over all data, in the precision of the devices: one product gives the sum of their gradients."""
        return Sums(self.total_gram.astype(self.dtype), self.total_moments, self.samples)

    def batch_sums(self, parts: int, epoch: int) -> Sums:
        """Return the sums over the batches of an epoch, made once; those of another number of parts are dropped."""
        key = parts, (epoch - 1) % parts
        if key not in self._batches:
            for other in [known for known in self._batches if known[0] != parts]:
                del self._batches[other]
            rows = [batch_rows(shard.samples, parts, epoch) for shard in self.shards]
            self._batches[key] = row_sums(self.shards, rows)
        return self._batches[key]

    def part_sums(self, devices: tuple[int, ...]) -> Sums:
        """Return the sums over all data of some devices, made once."""
        if devices not in self._parts:
            shards = tuple(self.shards[device] for device in devices)
            total = np.zeros((self.shape[0], self.shape[0]))
            for block in _blocks(shards):
                total += block
            moments = np.sum([shard.moments for shard in shards], axis=0, dtype=np.float64)
            samples = sum(shard.samples for shard in shards)
            self._parts[devices] = Sums(total.astype(self.dtype), np.asarray(moments), samples)
        return self._parts[devices]

    @cached_property
    def target_energy(self) -> float:
        """Sum of ||y||^2 over all training points; with a first model, of what it does not explain."""
        return float(sum(np.sum(shard.y.astype(np.float64) ** 2) for shard in self.shards))

    @property
    def zero_gradient(self) -> Float[np.ndarray, "d c"]:
        """The gradient of the data term at the first model."""
        if self.loss == SOFTMAX:
            return self.gradient(np.zeros(self.shape))
        return np.asarray(-self.total_moments / self.samples)

    @property
    def zero_loss(self) -> float:
        """The loss of the first model."""
        if self.loss == SOFTMAX:
            return float(np.log(self.shape[1]))
        start = 0.0 if self.start is None else float(self._ridge_term(self.start[None])[0])
        return self.target_energy / (2 * self.samples) + start

    def score(self, models: Float[np.ndarray, "b d c"], points: Float[np.ndarray, "p d c"] | None = None) -> Scores:
        """Score models together, so that the test set and the Gram matrix are read once for many epochs."""
        b, d, c = models.shape
        both = models if points is None else np.concatenate([models, points])
        columns = side_by_side(both)
        scores = np.full(b, np.nan)
        if self.test is not None:
            whole = columns[:, : b * c] if self.start is None else side_by_side(self.whole(models))
            scores = self.test.score(whole, b)
        if self.loss == SOFTMAX:
            losses, found = softmax_terms(self.shards, both)
            return Scores(scores, losses[:b] + self._ridge_term(models.astype(np.float64)), found)
        # the Gram matrix is symmetric, and BLAS is quicker with the few rows on the left
        products = (columns.T.astype(np.float64) @ self.total_gram).reshape(len(both), c, d).transpose(0, 2, 1)
        gradients = np.asarray((products - self.total_moments) / self.samples)
        return Scores(scores, self._loss(models.astype(np.float64), products[:b]), gradients)

    def gradient(self, model: Float[np.ndarray, "d c"]) -> Float[np.ndarray, "d c"]:
        """Return the gradient of the data term at one model."""
        if self.loss == SOFTMAX:
            return np.asarray(softmax_terms(self.shards, model[None])[1][0])
        return np.asarray((self.total_gram @ model - self.total_moments) / self.samples)

    def _loss(self, models: Float[np.ndarray, "b d c"], products: Float[np.ndarray, "b d c"]) -> Float[np.ndarray, "b"]:
        squares = np.einsum("bdc,bdc->b", models, products - 2 * self.total_moments) + self.target_energy
        return np.asarray(squares / (2 * self.samples) + self._ridge_term(self.whole(models)))

    def _ridge_term(self, models: Float[np.ndarray, "b d c"]) -> Float[np.ndarray, "b"]:
        if np.ndim(self.ridge) == 0:
            return np.asarray(self.ridge * np.einsum("bdc,bdc->b", models, models) / 2)
        return np.asarray(np.einsum("bdc,bdc->b", self.ridge * models, models) / 2)

    def ridge_solution(self) -> Float[np.ndarray, "d c"]:
        """Return the minimiser of the squared loss, the limit of full-batch training, less the first model."""
        return self._minimiser.copy()

    @cached_property
    def _minimiser(self) -> Float[np.ndarray, "d c"]:
        import scipy.linalg  # not installed at small sites

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
        """Return 2/L, the learning rate above which full-batch gradient descent diverges.

        The curvature of the softmax is at most half that of the squares (Boehning, 1992).
        """
        import scipy.linalg

        curvature = 0.5 if self.loss == SOFTMAX else 1.0
        d, system, shift = self.shape[0], curvature * self.total_gram / self.samples, self.ridge
        if np.ndim(shift):
            system, shift = system + shift * np.eye(d), 0.0
        top = scipy.linalg.eigh(system, eigvals_only=True, subset_by_index=[d - 1, d - 1])
        return float(2 / (top[0] + shift))


_MOST_ROWS = 1 << 14
"""Rows that are copied together at most, where more would not make their product quicker."""


def _blocks(shards: tuple[Shard, ...]) -> Any:
    """Yield Gram matrices that add up to the total; shards of few rows are combined."""
    small: list[Float[np.ndarray, "n d"]] = []
    for shard in shards:
        if shard.compact:
            yield shard.gram
        else:
            small.append(shard.x)
        if sum(len(x) for x in small) > min(4 * shard.x.shape[1], _MOST_ROWS):
            yield gram(np.concatenate(small))
            small = []
    if small:
        yield gram(np.concatenate(small))


def learning_rate(training: Training, epoch: int) -> float:
    """Return mu at an epoch (counted from 1): the initial rate, times ``decay`` from each milestone on."""
    passed = sum(epoch >= milestone for milestone in training.decay_epochs)
    return float(training.learning_rate * training.decay**passed)
