"""Rows that devices hold out: which rows belong to which fold, and which weight of the ridge term they prefer."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int


@final
@dataclass(frozen=True, eq=False)
class DeviceRows:
    """The raw rows of a device: inputs (NaN: missing), and targets (one-hot rows for classes)."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n c"]

    def where(self, chosen: Bool[np.ndarray, "n"]) -> "DeviceRows":
        """Return some of the rows."""
        return DeviceRows(self.x[chosen], self.y[chosen])


def fold_of_rows(rows: int, folds: int, *, seed: int, device: int) -> Int[np.ndarray, "rows"]:
    """Return the fold of each row of a device, without knowledge of other devices.

    On a device the sizes of folds differ by one at most. Which folds have one more depends on the device so that every
    ``folds`` consecutive devices begin with each fold once: devices of a single row are spread evenly, too.
    """
    block, place = divmod(device, folds)
    first = np.random.default_rng([seed, 0, block]).permutation(folds)[place]
    return np.random.default_rng([seed, 1, device]).permutation((first + np.arange(rows)) % folds)


def held_out_rows(rows: int, share: float, *, seed: int, device: int) -> Bool[np.ndarray, "rows"]:
    """Return which rows of a device it does not train on, about this share; never its only row.

    Held-out rows are at most twice as many as the others.
    """
    if share == 0 or rows == 1:
        return np.zeros(rows, bool)
    return np.asarray(fold_of_rows(rows, round(1 / share), seed=seed, device=device) == 0)


@final
@dataclass(frozen=True)
class RowChoice:
    """The rows of one fold of all, or the others."""

    fold: int
    folds: int
    seed: int
    held_out: bool
    """Whether the rows of the fold are meant, which no model is trained on."""

    def chosen(self, rows: int, device: int) -> Bool[np.ndarray, "rows"]:
        """Return which rows of a device are chosen."""
        in_fold = fold_of_rows(rows, self.folds, seed=self.seed, device=device) == self.fold
        return np.asarray(in_fold if self.held_out else ~in_fold)

    def of(self, rows: DeviceRows, device: int) -> DeviceRows:
        """Return the chosen rows of a device."""
        return rows.where(self.chosen(len(rows.x), device))


def best_weight(errors: Float[np.ndarray, "folds l"]) -> int:
    """Return which weight has the smallest error: the mean over folds of the mean squared errors of their rows.

    Of equal errors the larger weight is taken; weights increase. (scikit-learn's ``RidgeCV`` averages folds alike.)
    """
    mean = errors.mean(axis=0)
    return int(len(mean) - 1 - np.argmin(mean[::-1]))
