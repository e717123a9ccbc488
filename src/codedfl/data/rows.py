"""The rows of one site, with the classes that all sites have agreed on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.data.dataset import check_finite, check_labels
from codedfl.data.files import check_numeric_target, kind_of, numbers, read_parts
from codedfl.data.preparation import Column
from codedfl.data.tables import Declared
from codedfl.errors import DataError


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Features, and labels (indices into ``classes``) or targets."""

    x: Float[np.ndarray, "m p"]
    y: Shaped[np.ndarray, "m ..."]
    kind: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    target_names: tuple[str, ...] = ()

    @property
    def targets(self) -> Float[np.ndarray, "m c"]:
        """The targets of a linear model: one-hot rows for labels, else the targets themselves."""
        return self.y if self.kind == "regression" else np.eye(len(self.classes), dtype=self.x.dtype)[self.y]


def load_rows(
    path: Path,
    *,
    target: str | None = None,
    kind: str = "auto",
    classes: Sequence[str] = (),
    dtype: str = "float32",
    categories: Declared | None = None,
    missing: str = "refuse",
) -> Rows:
    """Load all rows of a file (the training part, where it has two).

    Without ``classes`` the labels of this file are the classes, so it must hold every class of every site.
    """
    part, name = read_parts(path, target, categories=categories)[0], path.stem
    chosen = kind_of(name, part.y) if kind == "auto" else kind
    x = numbers(part.x, dtype)
    if x.ndim != 2 or x.size == 0:
        raise DataError(
            f"{name}: the features have shape {x.shape}; give one row per sample and one column per feature."
        )
    check_finite(name, "features", x, part.columns, allow_missing=missing == "mean")
    if chosen == "classification":
        return Rows(x, *_labels(name, part.y, tuple(classes)), part.columns, part.targets)
    check_numeric_target(name, part.y)
    y = numbers(part.y, dtype)
    check_finite(name, "targets", y)
    return Rows(x, y[:, None] if y.ndim == 1 else y, "regression", (), part.columns, part.targets)


def _labels(
    name: str, labels: Shaped[np.ndarray, "..."], classes: tuple[str, ...]
) -> tuple[Shaped[np.ndarray, "m"], str, tuple[str, ...]]:
    check_labels(name, "y", labels)
    known, found = np.unique(labels, return_inverse=True)
    own = [str(value) for value in known.tolist()]
    agreed = list(classes) or own
    unknown = [value for value in own if value not in agreed]
    if unknown:
        raise DataError(f"{name}: the class {unknown[0]!r} is none of {', '.join(agreed)}; add it to classes.")
    places = np.array([agreed.index(value) for value in own], dtype=np.int64)
    return places[found], "classification", tuple(agreed)
