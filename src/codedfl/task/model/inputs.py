"""Rows as people give them, turned into the inputs of a model.

Rows are a 2-d array, whose columns are in the model's order, or anything with named columns: a mapping, a pandas or
polars data frame, a pyarrow table. Named columns may come in any order; those that the model does not use are named in
a warning.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.data.preparation import Column
from codedfl.errors import CodedflWarning, DataError
from codedfl.settings import did_you_mean

_SHOWN = 10
"""Names of columns that a sentence lists."""


def inputs_of(given: Any, columns: Sequence[Column], *, may_miss: bool) -> Float[np.ndarray, "n p"]:
    """Return the inputs of rows: numbers, and a column of zeros and ones for each category.

    Missing values become NaN if the model fills them (``may_miss``), else they are refused.
    """
    found = _columns(given, columns)
    rows = {len(values) for values in found}
    if len(rows) > 1:
        raise DataError(
            f"the columns of the rows have different lengths, from {min(rows)} to {max(rows)}; give as many"
        )
    parts = [
        _one_hot(values, column) if column.categories else _numbers(values, column.name)[:, None]
        for column, values in zip(columns, found, strict=True)
    ]
    inputs = np.concatenate(parts, axis=1)
    wrong = np.isinf(inputs) if may_miss else ~np.isfinite(inputs)
    if wrong.any():
        row, place = np.argwhere(wrong)[0].tolist()
        owners = [column.name for column in columns for _ in column.inputs]
        _refuse(owners[place], row, "an infinite value" if np.isinf(inputs[row, place]) else "a missing value")
    return inputs


def _columns(given: Any, columns: Sequence[Column]) -> list[Shaped[np.ndarray, "n"]]:
    """Return the values of each column of the model."""
    if isinstance(given, Mapping):
        names: list[Any] = list(given)
    elif hasattr(given, "column_names"):
        names = list(given.column_names)
    elif hasattr(given, "columns"):
        names = list(given.columns)
    else:
        return _by_position(given, columns)
    known = {str(name): name for name in names}
    if len(known) < len(names):
        twice = sorted(name for name in known if [str(each) for each in names].count(name) > 1)
        raise DataError(f"the rows have more than one column named {twice[0]!r}; rename one of them")
    missing = [column.name for column in columns if column.name not in known]
    if missing:
        raise DataError(
            f"the rows have no column {missing[0]!r}{_others(missing)}{did_you_mean(missing[0], known)}; the model "
            f"needs {_listed([column.name for column in columns])}"
        )
    extra = [name for name in known if name not in {column.name for column in columns}]
    if extra:
        warnings.warn(f"the model does not use these columns: {', '.join(extra)}", CodedflWarning, stacklevel=5)
    return [_array(given[known[column.name]], column.name) for column in columns]


def _by_position(given: Any, columns: Sequence[Column]) -> list[Shaped[np.ndarray, "n"]]:
    try:
        array = np.asarray(given)
    except ValueError:
        raise DataError("the rows differ in length; give one value for each column in every row") from None
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise DataError(
            f"the rows have shape {array.shape}; the model needs one row for each sample and {len(columns)} columns: "
            f"{_listed([column.name for column in columns])}"
        )
    return list(array.T)


def _array(values: Any, name: str) -> Shaped[np.ndarray, "n"]:
    """Return a column as an array; one of objects where it has text or missing values."""
    if hasattr(values, "to_pylist") and values.null_count:
        array = np.array(values.to_pylist(), dtype=object)
    else:
        array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"the column {name!r} has shape {array.shape}; give one value for each row")
    return array


def _numbers(values: Shaped[np.ndarray, "n"], name: str) -> Float[np.ndarray, "n"]:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind not in "OUS":
        raise DataError(f"the column {name!r} holds {values.dtype}; the model needs numbers")
    out = np.empty(len(values))
    for row, value in enumerate(values.tolist()):
        try:
            out[row] = math.nan if _missing(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            _refuse(name, row, f"{value!r:.40}, which is not a number")
    return out


def _one_hot(values: Shaped[np.ndarray, "n"], column: Column) -> Float[np.ndarray, "n k"]:
    places = {category: place for place, category in enumerate(column.categories)}
    out = np.zeros((len(values), len(places)))
    for row, value in enumerate(values.tolist()):
        word = _word(value)
        if word in places:
            out[row, places[word]] = 1
        elif _missing(value):
            out[row] = math.nan
        else:
            _refuse(column.name, row, f"{word!r:.40}, which is none of {_listed(column.categories)}")
    return out


def _word(value: Any) -> str:
    """Write a category as text; data frames turn whole numbers into floats where values are missing."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _missing(value: Any) -> bool:
    # pandas has marks of its own, which cannot be compared; NaN differs from itself
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value == "" or value != value


def _refuse(name: str, row: int, what: str) -> NoReturn:
    raise DataError(f"the column {name!r} holds {what}, in row {row} (counted from 0); correct or remove that row")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _others(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more are missing)" if len(names) > 1 else ""
