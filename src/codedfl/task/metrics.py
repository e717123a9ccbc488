"""Metrics of a model from sums over rows, so that of rows that devices hold out only these sums are opened.

Accuracies of the many models of a training, which differ little, need the outputs of few rows
(:class:`NearbyModels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped


@final
@dataclass(frozen=True, eq=False)
class Counts:
    """Sums over rows; those of several devices add up.

    The table of a classification is its confusion matrix: row i, column j counts the rows of class i that are predicted
    as class j. That of a regression has a column for each output, with the number of rows, the sums of y and y^2, and
    the sums of |e| and e^2 of the errors e.
    """

    kind: str
    table: Float[np.ndarray, "sums outputs"]

    @classmethod
    def classified(cls, predicted: Float[np.ndarray, "n c"], labels: Int[np.ndarray, "n"]) -> "Counts":
        """Count outputs of a classifier against labels 0 to c - 1."""
        table = np.zeros((predicted.shape[1], predicted.shape[1]))
        np.add.at(table, (labels, np.argmax(predicted, axis=1)), 1)
        return cls("classification", table)

    @classmethod
    def regressed(
        cls,
        predicted: Float[np.ndarray, "n c"],
        values: Float[np.ndarray, "n c"],
        center: Float[np.ndarray, "c"] | None = None,
    ) -> "Counts":
        """Sum the errors of a regression.

        Sums of y are of y - ``center``, the same on all devices: no metric depends on it, but a center near the mean
        keeps the digits of the variance.
        """
        errors = values.astype(np.float64) - predicted
        shifted = values.astype(np.float64) - (0 if center is None else center)
        rows = np.full(values.shape[1], len(values), np.float64)
        sums = [shifted.sum(0), (shifted**2).sum(0), np.abs(errors).sum(0), (errors**2).sum(0)]
        return cls("regression", np.stack([rows, *sums]))

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.kind, self.table + other.table)

    def metrics(self, classes: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the metrics as scikit-learn defines them; None where one is undefined."""
        return self._of_classes(classes) if self.kind == "classification" else self._of_outputs()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.sum() if self.kind == "classification" else self.table[0, 0])

    def remark(self, scored_on: str = "test set") -> str | None:
        """Say in words that a model predicts no better than a constant; None if it predicts better."""
        found = self.metrics()
        if self.kind == "classification":
            share = float(self.table.sum(axis=1).max() / self.table.sum())
            if found["accuracy"] <= share:
                return (
                    f"the model predicts no better than a constant: its accuracy {found['accuracy']:.4f} is not above "
                    f"{share:.4f}, the share of the commonest class in the {scored_on}"
                )
        elif found["r2"] is not None and found["r2"] <= 0:
            return f"the model predicts no better than a constant: its R² {found['r2']:.4f} is not above 0"
        return None

    def _of_classes(self, classes: Sequence[Any]) -> dict[str, Any]:
        true, predicted, right = self.table.sum(axis=1), self.table.sum(axis=0), np.diag(self.table)
        recalls = [float(hit / count) if count else None for hit, count in zip(right, true, strict=True)]
        present = [recall for recall in recalls if recall is not None]
        occurs = true + predicted > 0
        return {
            "accuracy": float(right.sum() / self.table.sum()),
            "balanced_accuracy": float(np.mean(present)),
            "macro_f1": float(np.mean(2 * right[occurs] / (true + predicted)[occurs])),
            "classes": list(classes),
            "recall": recalls,
            "confusion_matrix": self.table.astype(int).tolist(),
        }

    def _of_outputs(self) -> dict[str, Any]:
        rows, total, squares, absolute, squared = self.table
        spread = squares - total**2 / rows
        each = {
            "r2": [float(1 - e / s) if s > 0 else None for e, s in zip(squared, spread, strict=True)],
            "rmse": np.sqrt(squared / rows).tolist(),
            "mae": (absolute / rows).tolist(),
        }
        means = {name: None if None in values else float(np.mean(values)) for name, values in each.items()}
        return {**means, "outputs": each}


def counts(
    kind: str,
    predicted: Float[np.ndarray, "n c"],
    truth: Shaped[np.ndarray, "n ..."],
    center: Float[np.ndarray, "c"] | None = None,
) -> Counts:
    """Return the sums of outputs against labels (classification) or values (regression)."""
    if kind == "classification":
        return Counts.classified(predicted, truth)
    return Counts.regressed(predicted, truth, center)


def accuracy(predicted: Float[np.ndarray, "q c"], labels: Shaped[np.ndarray, "q"]) -> float:
    """Return the share of samples whose largest output is that of their class."""
    return float(accuracies(predicted[:, None], labels)[0])


def accuracies(predicted: Float[np.ndarray, "q b c"], labels: Shaped[np.ndarray, "q"]) -> Float[np.ndarray, "b"]:
    """Return the accuracy of each of several models."""
    # one call for all models: the outputs of a single one are not contiguous, which takes twice as long
    return np.asarray(np.mean(np.argmax(predicted, axis=2) == labels[:, None], axis=0))


LARGE = 1 << 22
"""Entries of a test set from which on outputs that are not needed are not computed."""
_MOST_MODELS = 16
"""Models of a block at most: a training scores eight together."""
_MOST_BLOCKS = 24
"""Blocks whose outputs are kept."""
_RIDGE = 1e-9
"""Share of its trace that is added to a system of normal equations: models of a block are nearly dependent."""


@final
@dataclass(eq=False)
class _KnownBlock:
    """Models whose outputs are known for all rows, one after the other for each class."""

    models: Float[np.ndarray, "c k d"]
    outputs: Float[np.ndarray, "c q k"]
    """Divided by the length of the row."""
    inverse: Float[np.ndarray, "c k k"]
    lengths: Float[np.ndarray, "c k"]
    spent: float = field(default=0.0)
    """Rows that were multiplied nevertheless, in multiples of all rows."""

    @classmethod
    def of(cls, models: Float[np.ndarray, "c k d"], outputs: Float[np.ndarray, "c q k"]) -> "_KnownBlock":
        """Prepare least squares."""
        system = models @ models.transpose(0, 2, 1)
        ridge = _RIDGE * np.trace(system, axis1=1, axis2=2) + np.finfo(np.float64).tiny
        inverse = np.linalg.inv(system + ridge[:, None, None] * np.eye(models.shape[1]))
        return cls(models, outputs, inverse, _lengths(models))

    def combine(
        self, models: Float[np.ndarray, "c b d"], unit: float, gamma: float
    ) -> tuple[Float[np.ndarray, "c k b"], Float[np.ndarray, "c b"]]:
        """Return how known models are combined to others, and how far their outputs can be from these for |x| = 1.

        Known outputs are off by gamma |theta|. Their combination has k terms, each rounded a few times more by the
        conversion of its weight, by the division by |x| and where it is compared.
        """
        weights = (models @ self.models.transpose(0, 2, 1) @ self.inverse).astype(self.outputs.dtype)
        left = _lengths(models - weights.astype(np.float64) @ self.models)
        combined = np.einsum("cbk,ck->cb", np.abs(weights), self.lengths)
        terms = weights.shape[2] + 8
        return weights.transpose(0, 2, 1), left + (gamma + 2 * terms * unit) * combined


@final
class NearbyModels:
    """Accuracies of a training's models: outputs are computed only where earlier models leave the class in doubt.

    A training moves smoothly, so that its models are nearly combinations of earlier ones, and outputs are the same
    combinations of known outputs, up to |x| times the length of what is left of the model. A row whose largest output
    leads by more than that has its class. All other rows are multiplied, in float64 those whose lead is within the
    rounding of their precision. So an accuracy depends on model and rows alone: neither on models that were scored
    before nor on the order in which BLAS adds up, as far as float64 can tell outputs from each other.
    """

    def __init__(self, x: Float[np.ndarray, "q d"], labels: Shaped[np.ndarray, "q"]) -> None:
        self._x, self._labels = x, labels
        lengths = _lengths(x)
        self._scale = 1 / np.where(lengths > 0, lengths, 1.0).astype(x.dtype)
        self._blocks: list[_KnownBlock] = []
        self._unit = float(np.finfo(x.dtype).eps) / 2
        # a sum of d products is off by gamma |x| |theta| at most, in whatever order it is added up (Higham, Accuracy
        # and Stability, section 3.1)
        self._gamma = x.shape[1] * self._unit / (1 - x.shape[1] * self._unit)

    def accuracies(self, columns: Float[np.ndarray, "d columns"], count: int) -> Float[np.ndarray, "b"]:
        """Return the accuracy of models given side by side as columns."""
        if count > _MOST_MODELS:
            blocks = np.array_split(columns.T.reshape(count, -1, len(columns)), -(-count // _MOST_MODELS))
            return np.concatenate([self.accuracies(each.reshape(-1, len(columns)).T, len(each)) for each in blocks])
        models = columns.T.reshape(count, -1, len(columns)).transpose(1, 0, 2).astype(np.float64)
        known = self._nearest(models)
        hits = None if known is None else self._from_known(known, models, columns)
        if hits is None:
            outputs, hits = self._multiplied(np.arange(len(self._x)), models, columns)
            if count > 1 and np.isfinite(models).all():
                self._blocks = [*self._blocks[1 - _MOST_BLOCKS :], _KnownBlock.of(models, outputs)]
        return np.asarray(hits / len(self._x))

    def _nearest(self, models: Float[np.ndarray, "c b d"]) -> _KnownBlock | None:
        """Return the block whose last model is nearest to the last of the given ones."""
        alike = [known for known in self._blocks if len(known.models) == len(models)]
        distances = [float(np.linalg.norm(known.models[:, -1] - models[:, -1])) for known in alike]
        return alike[int(np.argmin(distances))] if alike else None

    def _from_known(
        self, known: _KnownBlock, models: Float[np.ndarray, "c b d"], columns: Float[np.ndarray, "d columns"]
    ) -> Int[np.ndarray, "b"] | None:
        """Count rows of the right class; None where known models tell too little of these, or have served for long."""
        weights, errors = known.combine(models, self._unit, self._gamma)
        middle = models.shape[1] // 2
        moved = _lengths(models - models[:, middle : middle + 1]).max(axis=1)
        # most rows lead by more than all models of the block differ
        rough = (errors[:, middle] + moved)[:, None]
        hits, doubtful = _judge(known.outputs @ weights[:, :, middle, None], rough, self._labels)
        rows = np.flatnonzero(doubtful)
        more, doubtful = _judge(known.outputs[:, rows] @ weights, errors, self._labels[rows])
        hits, rows = hits + more, rows[doubtful]
        known.spent += len(rows) / len(self._x)
        if known.spent > 1:  # to know outputs of newer models is not dearer then
            known.spent = 0.0  # another training may come near these
            return None
        return np.asarray(hits + self._multiplied(rows, models, columns)[1]) if len(rows) else hits

    def _multiplied(
        self, rows: Int[np.ndarray, "r"], models: Float[np.ndarray, "c b d"], columns: Float[np.ndarray, "d columns"]
    ) -> tuple[Float[np.ndarray, "c r b"], Int[np.ndarray, "b"]]:
        """Return outputs for rows of length 1, and count those of the right class."""
        (c, b, _), every = models.shape, len(rows) == len(self._x)
        products = np.asarray((self._x if every else self._x[rows]) @ columns).reshape(-1, b, c)
        outputs = np.multiply(products.transpose(2, 0, 1), self._scale[rows, None], order="C")
        errors = (self._gamma + 8 * self._unit) * _lengths(models)
        hits, doubtful = _judge(outputs, errors, self._labels[rows])
        rows = rows[doubtful]
        if len(rows):
            exact = (self._x[rows].astype(np.float64) @ columns.astype(np.float64)).reshape(-1, b, c)
            hits = hits + np.count_nonzero(exact.argmax(axis=2) == self._labels[rows, None], axis=0)
        return outputs, hits


def _lengths(vectors: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n"]:
    """Return Euclidean lengths, not too small by rounding."""
    return np.asarray(np.sqrt(np.einsum("...d,...d->...", vectors, vectors, dtype=np.float64)) * (1 + 1e-9))


def _judge(
    outputs: Float[np.ndarray, "c r b"], errors: Float[np.ndarray, "c *b"], labels: Shaped[np.ndarray, "r"]
) -> tuple[Int[np.ndarray, "b"], Bool[np.ndarray, "r"]]:
    """Count rows whose label has the largest output, and name those where errors can make another one the largest."""
    bounds = (errors * (1 + 1e-6))[:, None].astype(outputs.dtype)
    highest, lead = outputs + bounds, (outputs - bounds).max(axis=0)
    possible = (highest >= lead).sum(axis=0, dtype=np.min_scalar_type(len(outputs)))  # summing bytes is quickest
    doubtful = (possible != 1).any(axis=1)
    right = highest[labels, np.arange(len(labels))] >= lead
    return np.count_nonzero(right & ~doubtful[:, None], axis=0), doubtful
