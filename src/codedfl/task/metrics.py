"""Metrics of a model from sums over rows, so that of rows that devices hold out only these sums are opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int, Shaped


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
