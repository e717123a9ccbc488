"""The data of one device as it trains on them: prepared features and targets, and their Gram matrix; sums of many."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.thin_products import symmetric_product
from codedfl.data import FeatureMap, Preparation
from codedfl.solvers import Ridge
from codedfl.storage import roomy
from codedfl.task.folds import DeviceRows


def gram(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Return X^T X, exactly symmetric."""
    # NumPy computes a product with the own transpose by BLAS's symmetric rank-k update, at half the cost
    rows = np.ascontiguousarray(x)
    return np.matmul(rows.T, rows, out=roomy((x.shape[1],) * 2, x.dtype))


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

    def gram_once(self) -> Float[np.ndarray, "d d"]:
        """Return A_i without keeping it, for who needs it once: of many features it is the largest thing there is."""
        return self.gram if "gram" in vars(self) else gram(self.x)

    @cached_property
    def moments(self) -> Float[np.ndarray, "d c"]:
        """B_i = X_i^T Y_i."""
        return np.asarray(self.x.T @ self.y)

    @property
    def compact(self) -> bool:
        """Whether A_i Theta costs fewer multiplications than X_i^T (X_i Theta)."""
        return bool(2 * self.samples >= self.x.shape[1])


def batch_rows(samples: int, parts: int, epoch: int) -> slice:
    """Return the rows of an epoch's batch: part (epoch - 1) mod parts, where parts have nearly equal sizes."""
    part = (epoch - 1) % parts
    return slice(part * samples // parts, (part + 1) * samples // parts)


class Sums(NamedTuple):
    """Of rows X and targets Y of many devices: X^T X in their precision, X^T Y in float64, and the number of rows."""

    gram: Float[np.ndarray, "d d"]
    moments: Float[np.ndarray, "d c"]
    samples: int

    def gradient(self, model: Float[np.ndarray, "d c"]) -> Float[np.ndarray, "d c"]:
        """Return X^T (X Theta - Y) in float64, multiplied in the precision of the devices."""
        return np.asarray(symmetric_product(self.gram, model).astype(np.float64) - self.moments)


def row_sums(shards: Sequence[Shard], rows: Sequence[slice | Int[np.ndarray, "k"]]) -> Sums:
    """Return the sums over some rows of each shard."""
    x = np.concatenate([shard.x[chosen] for shard, chosen in zip(shards, rows, strict=True)])
    y = np.concatenate([shard.y[chosen] for shard, chosen in zip(shards, rows, strict=True)])
    return Sums(gram(x), np.asarray(x.T @ y, dtype=np.float64), len(x))


def make_shard(
    rows: DeviceRows,
    features: FeatureMap,
    preparation: Preparation | None = None,
    start: Float[np.ndarray, "d c"] | None = None,
) -> Shard:
    """Return prepared features and targets of a device's rows, less what the first model predicts.

    Without rows it is a single one of zeros.
    """
    if not len(rows.x):  # a row of zeros counts, and adds nothing to any sum
        width = features.dimension + int(preparation is not None and preparation.constant is not None)
        return Shard(np.zeros((1, width), features.dtype), np.zeros((1, rows.y.shape[1]), features.dtype))
    x, y = prepared_features(rows.x, features, preparation), rows.y
    if preparation is not None:
        y = preparation.targets(y)
    return Shard(x, (y if start is None else y - x @ start).astype(features.dtype))


def penalties(ridge: float, preparation: Preparation | None) -> Ridge:
    """Return the weight of the ridge term: one for all features, or one for each."""
    if preparation is None or preparation.penalty is None:
        return ridge
    return np.asarray(ridge * preparation.penalty[:, None])


def prepared_features(
    x: Float[np.ndarray, "n p"], features: FeatureMap, preparation: Preparation | None
) -> Float[np.ndarray, "n d"]:
    """Return the features of raw inputs."""
    if preparation is None:
        return features.transform(x)
    return np.ascontiguousarray(preparation.features(features.transform(preparation.inputs(x))))
