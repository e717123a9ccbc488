"""Features and targets of .parquet and .csv tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from codedfl.errors import DataError


@dataclass(frozen=True, eq=False)
class Part:
    """Features and targets of samples; ``columns`` names the features of a table."""

    x: Shaped[np.ndarray, "..."]
    y: Shaped[np.ndarray, "..."]
    columns: tuple[str, ...] = ()

    def rows(self, chosen: Bool[np.ndarray, " m"]) -> "Part":
        """Return a subset of the samples."""
        return Part(self.x[chosen], self.y[chosen], self.columns)


def read_table(path: Path, target: str | None) -> Part:
    """Read a table and separate the target columns from the numeric features."""
    table = _open(path)
    names = list(table.column_names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has more than one column named {twice[0]!r}; rename one of them.")
    targets = _targets(path, names, target)
    features = [name for name in names if name not in targets]
    if not features:
        raise DataError(f"{path} has no column beside the target {', '.join(targets)}; add feature columns.")
    text = [f"{name} ({table.schema.field(name).type})" for name in features if not _numeric(table, name)]
    if text:
        raise DataError(
            f"{path}: {len(text)} feature columns are not numeric, the first is {text[0]};"
            " encode them as numbers or remove them."
        )
    x = np.stack([_column(table, name) for name in features], axis=1)
    return Part(x, _target_values(path, table, targets), tuple(features))


def _open(path: Path) -> Any:
    import pyarrow  # slow to import, and only tables need it
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix.lower() == ".csv":
            table = pyarrow.csv.read_csv(path)
        else:
            table = pyarrow.parquet.read_table(path, partitioning=None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        cause = " ".join(str(error).split()).split(". ")[0][:120].rstrip(".")  # one sentence, without advice
        raise DataError(f"{path} cannot be read as {path.suffix.lower()} ({cause}); save it again.") from error
    if not table.num_columns or not table.num_rows:
        raise DataError(f"{path} has {table.num_rows} rows and {table.num_columns} columns; give a table with samples.")
    return table


def _targets(path: Path, names: Sequence[str], target: str | None) -> list[str]:
    if target is None:
        return [names[-1]]
    # a column whose name contains a comma has priority over a list of columns
    asked = [target] if target in names else [name.strip() for name in target.split(",")]
    for name in asked:
        if name not in names:
            shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
            raise DataError(f"{path} has no column {name!r} to use as target; its columns are {shown}.")
    return asked


def _numeric(table: Any, name: str) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(table.schema.field(name).type) for test in tests)


def _column(table: Any, name: str) -> Shaped[np.ndarray, " m"]:
    """Return a column as float64; missing values become NaN, which check_finite refuses with their position."""
    import pyarrow

    column = table.column(name)
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    values: Shaped[np.ndarray, " m"] = column.cast(pyarrow.float64(), safe=False).to_numpy()
    return values


def _target_values(path: Path, table: Any, targets: Sequence[str]) -> Shaped[np.ndarray, "m ..."]:
    import pyarrow

    for name in targets:
        missing = table.column(name).null_count
        if missing:
            raise DataError(
                f"{path}: the target {name!r} is missing in {missing} of {table.num_rows} rows; remove those rows."
            )
    if len(targets) > 1:
        text = [name for name in targets if not _numeric(table, name)]
        if text:
            raise DataError(
                f"{path}: the target {text[0]!r} is not numeric, but several targets make a regression;"
                " name numeric columns or a single one."
            )
        return np.stack([_column(table, name) for name in targets], axis=1)
    column = table.column(targets[0])
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pyarrow.types.is_integer(column.type) or pyarrow.types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    if _numeric(table, targets[0]):
        return _column(table, targets[0])
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        return np.asarray(column.to_pylist(), dtype=np.str_)
    raise DataError(f"{path}: the target {targets[0]!r} holds {column.type}; use numbers, text or truth values.")
