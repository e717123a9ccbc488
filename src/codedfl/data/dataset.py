"""Checked data sets: finite numbers, matching shapes, training samples of every class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, Int, Shaped

from codedfl.data.preparation import Column
from codedfl.errors import DataError

Kind = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples, checked at construction.

    Labels of a classification are the integers 0 to ``classes`` - 1; the targets of a regression are a matrix with one
    row per sample, and its ``class_names`` are empty.
    """

    name: str
    kind: Kind
    x_train: Float[np.ndarray, "m p"]
    y_train: Int[np.ndarray, " m"] | Float[np.ndarray, "m c"]
    x_test: Float[np.ndarray, "k p"]
    y_test: Int[np.ndarray, " k"] | Float[np.ndarray, "k c"]
    class_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    """The raw columns that the inputs come from; empty: they have no names."""
    target_names: tuple[str, ...] = ()
    label_kind: str = "U"
    """The NumPy kind of the labels that ``class_names`` are the text of: whole numbers, truth values or text."""
    owners: Shaped[np.ndarray, " m"] | None = None
    """The owner of each training sample, where the data name them."""
    missing: bool = False
    """Whether features may be missing (NaN)."""

    def __post_init__(self) -> None:
        _check_shapes(self.name, self.kind, vars(self))
        for field in ("x_train", "y_train", "x_test", "y_test"):
            check_finite(self.name, field, getattr(self, field), allow_missing=self.missing and field[0] == "x")
        if self.kind == "classification":
            _check_labels(self)

    @classmethod
    def create(cls, name: str, kind: str, **arrays: Any) -> "Dataset":
        """Make a data set of unchecked ``x_train, y_train, x_test, y_test``, and further fields."""
        _check_shapes(name, kind, arrays)
        return cls(name=name, kind=cast("Kind", kind), **arrays)

    @property
    def classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.class_names)

    @property
    def outputs(self) -> int:
        """Number of columns of the targets (c in the paper)."""
        return self.classes if self.kind == "classification" else int(self.y_train.shape[1])

    @property
    def samples(self) -> int:
        """Number of training samples (m in the paper)."""
        return int(self.x_train.shape[0])

    @property
    def inputs(self) -> int:
        """Number of raw input columns."""
        return int(self.x_train.shape[1])

    def targets(self, y: Int[np.ndarray, " n"] | Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n outputs"]:
        """Return the targets of a linear model: one-hot rows for labels, ``y`` itself for a regression."""
        if self.kind == "regression":
            return y
        return np.asarray(np.eye(self.classes, dtype=self.x_train.dtype)[y])


def classification(
    name: str,
    x_train: Shaped[np.ndarray, "..."],
    labels_train: Shaped[np.ndarray, "..."],
    x_test: Shaped[np.ndarray, "..."],
    labels_test: Shaped[np.ndarray, "..."],
    **more: Any,
) -> Dataset:
    """Make a classification from labels of any sortable type; classes are the sorted training labels."""
    _check_raw_labels(name, labels_train, labels_test)
    known, y_train = np.unique(labels_train, return_inverse=True)
    if known.size == 1:
        raise DataError(
            f"{name}: all training labels are {known[0].item()!r}, so that there is nothing to tell apart; give samples"
            " of another class, or ask for a regression."
        )
    unseen = np.setdiff1d(labels_test, known)
    if unseen.size and known.size:
        raise DataError(
            f"{name}: the test set holds {_some(unseen.tolist())}, which never occurs among the training"
            " labels; remove those test samples or add training samples of that class."
        )
    names = tuple(map(str, known.tolist()))
    y_train, y_test = y_train.astype(np.int64), np.searchsorted(known, labels_test).astype(np.int64)
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return Dataset.create(name, "classification", class_names=names, label_kind=known.dtype.kind, **arrays, **more)


def regression(
    name: str,
    x_train: Float[np.ndarray, "..."],
    y_train: Float[np.ndarray, "..."],
    x_test: Float[np.ndarray, "..."],
    y_test: Float[np.ndarray, "..."],
    **more: Any,
) -> Dataset:
    """Make a regression; one-dimensional targets become one column."""
    y_train, y_test = (y[:, None] if y.ndim == 1 else y for y in (y_train, y_test))
    return Dataset.create(name, "regression", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, **more)


def _check_raw_labels(
    name: str, labels_train: Shaped[np.ndarray, "..."], labels_test: Shaped[np.ndarray, "..."]
) -> None:
    for part, labels in (("train", labels_train), ("test", labels_test)):
        check_labels(name, f"y_{part}", labels)
    if (labels_train.dtype.kind in "US") != (labels_test.dtype.kind in "US"):
        raise DataError(
            f"{name}: training labels are {labels_train.dtype} but test labels are {labels_test.dtype};"
            " give both as text or both as numbers."
        )


def check_labels(name: str, field: str, labels: Shaped[np.ndarray, "..."]) -> None:
    """Refuse labels that are no list, are not finite, or are too large to be told apart."""
    if labels.ndim != 1:
        raise DataError(
            f"{name}: the labels {field} have shape {labels.shape};"
            " a classification needs one label per sample, in one dimension."
        )
    check_finite(name, field, labels)
    check_told_apart(name, field, labels)


def check_told_apart(name: str, field: str, values: Shaped[np.ndarray, " n"]) -> None:
    """Refuse numbers in which different whole numbers of a file may be one, and those beyond 64 bits with a sign."""
    limit = {"f": 2.0**53, "u": 2**63}.get(values.dtype.kind)
    too_large = [] if limit is None else values[np.abs(values) >= limit]
    if len(too_large):
        raise DataError(
            f"{name}: {field} holds {too_large[0].item()!r}, and numbers of this size may not be told apart; write them"
            " as text, for example with a letter in front."
        )


def _check_shapes(name: str, kind: str, arrays: Mapping[str, Any]) -> None:
    if kind not in ("classification", "regression"):
        raise DataError(f"{name}: the kind is {kind!r}; it must be 'classification' or 'regression'.")
    rank = 1 if kind == "classification" else 2
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        _check_type(name, f"x_{part}", x, 2, "f")
        _check_type(name, f"y_{part}", y, rank, "i" if rank == 1 else "f")
        if len(x) != len(y):
            raise DataError(
                f"{name}: x_{part} has {len(x)} rows but y_{part} has {len(y)}; give one target for each sample."
            )
        if x.shape[1] == 0 or (part == "train" and (x.size == 0 or y.size == 0)):
            raise DataError(
                f"{name}: the {part} set is empty (x_{part} has shape {x.shape});"
                " give at least one sample and one column."
            )
    for letter in ("x", "y")[:rank]:
        train, test = arrays[f"{letter}_train"], arrays[f"{letter}_test"]
        if train.shape[1] != test.shape[1]:
            raise DataError(
                f"{name}: {letter}_train has {train.shape[1]} columns but {letter}_test has"
                f" {test.shape[1]}; both must hold the same columns."
            )


def _check_type(name: str, field: str, value: Any, rank: int, kind: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype.kind != kind:
        found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        wanted = "numbers (float32 or float64)" if kind == "f" else "whole numbers (int64)"
        raise DataError(f"{name}: {field} holds {found}; give an array of {wanted}.")
    if value.ndim != rank:
        wanted = "one row per sample and one column per feature" if rank == 2 else "one label per sample"
        raise DataError(
            f"{name}: {field} has {value.ndim} dimensions (shape {value.shape}) where {rank} are needed: {wanted}."
        )


def check_finite(
    name: str,
    field: str,
    value: Shaped[np.ndarray, "..."],
    columns: Sequence[Column] = (),
    *,
    allow_missing: bool = False,
) -> None:
    """Refuse NaN, unless it is allowed as a missing value, and infinity."""
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return
    wrong = np.isinf(value) if allow_missing else ~np.isfinite(value)
    if not wrong.any():
        return
    broken = np.argwhere(wrong)
    place = f"row {broken[0, 0]}"
    if value.ndim > 1:
        names = [column.name for column in columns for _ in column.inputs]
        place += f", column {repr(names[broken[0, 1]]) if names else broken[0, 1]}"
    advice = "remove or replace them" if allow_missing or not columns else "replace them or set features.missing"
    raise DataError(
        f"{name}: {field} holds {len(broken)} missing or infinite values, the first in {place}"
        f" (counted from 0); {advice}."
    )


def _check_labels(data: Dataset) -> None:
    for field in ("y_train", "y_test"):
        labels = getattr(data, field)
        if labels.size == 0:
            continue
        if labels.min() < 0 or labels.max() >= data.classes:
            raise DataError(
                f"{data.name}: {field} holds labels from {labels.min()} to {labels.max()}, but"
                f" {data.classes} class names are given; labels must be 0 to {data.classes - 1}."
            )
    missing = np.flatnonzero(np.bincount(data.y_train, minlength=data.classes) == 0)
    unseen = np.intersect1d(missing, data.y_test)
    if unseen.size:
        raise DataError(
            f"{data.name}: the test set holds {_some([data.class_names[i] for i in unseen])}, which never"
            " occurs among the training labels; remove those test samples or add training samples."
        )
    if missing.size:
        raise DataError(
            f"{data.name}: class {_some([data.class_names[i] for i in missing])} has no training sample;"
            " add some or leave the class out."
        )


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(repr(value) for value in values[:3])
    return shown if len(values) <= 3 else f"{shown} and {len(values) - 3} more"
