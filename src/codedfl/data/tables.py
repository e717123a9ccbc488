"""Features, targets and owners of .parquet and .csv tables."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from codedfl.data.dataset import check_told_apart
from codedfl.data.plain_csv import CsvColumn, CsvTable, read_csv
from codedfl.data.preparation import Column
from codedfl.errors import DataError, MissingExtraError

MOST_CATEGORIES = 1000
_MANY_ROWS = 20
"""From so many rows on, text of which more than half differs is taken for names, not for categories."""
_FORMATTED = re.compile(r"[\s$€£¥]*[-+]?\d[\d.,:/' -]*[\s%$€£¥]*")
"""Numbers with separators or units, and dates."""
_NUMERIC = ("integer", "boolean", "number")
Declared = Mapping[str, Sequence[str]]
"""Categories by the name of a text column."""


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and targets of samples; ``columns`` are the raw columns of a table, ``owners`` the owner of each row."""

    x: Shaped[np.ndarray, "..."]
    y: Shaped[np.ndarray, "..."]
    columns: tuple[Column, ...] = ()
    targets: tuple[str, ...] = ()
    owners: Shaped[np.ndarray, " m"] | None = None

    def rows(self, chosen: Bool[np.ndarray, " m"]) -> "Part":
        """Return a subset of the samples."""
        owners = None if self.owners is None else self.owners[chosen]
        return Part(self.x[chosen], self.y[chosen], self.columns, self.targets, owners)


def read_table(path: Path, target: str | None, *, owner: str = "", categories: Declared | None = None) -> Part:
    """Read a table and separate target and owner from the features; text columns become zeros and ones."""
    return part_of(open_table(path), path, target, owner=owner, categories=categories)


def read_tables(paths: Sequence[Path], target: str | None, *, categories: Declared | None = None) -> Part:
    """Read one table for each owner, who is named like the file."""
    import pyarrow

    owners = [path.stem for path in paths]
    if len(set(owners)) < len(owners):
        owners = [str(path) for path in paths]
    tables = [open_table(path) for path in paths]
    names = tables[0].column_names
    for path, table in zip(paths, tables, strict=True):
        odd = sorted(set(names) ^ set(table.column_names))
        if odd or len(table.column_names) != len(names):
            what = odd[0] if odd else "one that it has twice"
            raise DataError(f"{path} and {paths[0]} differ in the column {what!r}; give all files the same columns.")
    try:
        together = pyarrow.concat_tables([table.select(names) for table in tables], promote_options="permissive")
    except pyarrow.ArrowException as error:
        cause = " ".join(str(error).split()).split(". ")[0][:120].rstrip(".")
        raise DataError(
            f"the files of {paths[0].parent} do not fit together ({cause}); use one type a column."
        ) from None
    joined = Path(f"{paths[0]} and {len(paths) - 1} more files, joined")
    part = part_of(together, joined, target, categories=categories)
    labels = np.repeat(np.array(owners), [table.num_rows for table in tables])
    return Part(part.x, part.y, part.columns, part.targets, labels)


def part_of(table: Any, path: Path, target: str | None, *, owner: str = "", categories: Declared | None = None) -> Part:
    """Separate target and owner of a table from the features; ``path`` names it in errors."""
    names = list(table.column_names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has more than one column named {twice[0]!r}; rename one of them.")
    owners = None if not owner else owner_values(table, path, owner)
    targets = _targets(path, [name for name in names if name != owner], target)
    features = [name for name in names if name not in targets and name != owner]
    if not features:
        raise DataError(f"{path} has no column beside the target {', '.join(targets)}; add feature columns.")
    unknown = [name for name in categories or {} if name not in features]
    if unknown:
        raise DataError(
            f"{path} has no feature column {unknown[0]!r}, whose categories are declared; correct its name."
        )
    columns, x = inputs_of_table(table, path, features, categories)
    return Part(x, _target_values(path, table, targets), columns, tuple(targets), owners)


def inputs_of_table(
    table: Any, path: Path, names: Sequence[str], categories: Declared | None = None
) -> tuple[tuple[Column, ...], Float[np.ndarray, "m p"]]:
    """Return columns of a table as inputs; text columns become zeros and ones."""
    found = [_inputs(table, path, name, (categories or {}).get(name)) for name in names]
    return tuple(column for column, _ in found), np.concatenate([block for _, block in found], axis=1)


def owner_values(table: Any, path: Path, owner: str) -> Shaped[np.ndarray, " m"]:
    """Return the owner of each row as text."""
    if owner not in table.column_names:
        raise DataError(f"{path} has no column {owner!r} that names the owner; its columns are {_shown(table)}.")
    values = table.column(owner).to_pylist()
    empty = next((row for row, value in enumerate(values) if value is None or value != value or value == ""), None)
    if empty is not None:
        raise DataError(
            f"{path}: the owner {owner!r} is missing in row {empty} (counted from 0); name one in every row."
        )
    numbers = np.array([value for value in values if isinstance(value, float)])
    check_told_apart(str(path), f"the column {owner!r} of owners", numbers)
    return np.array([str(value) for value in values])


def _inputs(
    table: Any, path: Path, name: str, declared: Sequence[str] | None
) -> tuple[Column, Float[np.ndarray, "m k"]]:
    """Return a column as inputs: itself if it is numeric, else zeros and ones for each category."""
    kind = _kind(table, name)
    if kind == "null":
        raise DataError(f"{path}: the column {name!r} is empty; remove it.")
    if declared is None and kind in _NUMERIC:
        return Column(name), _column(table, name)[:, None]
    if kind not in ("text", *_NUMERIC):
        raise DataError(f"{path}: the column {name!r} holds {kind}; give numbers or text, or remove it.")
    values = [None if value is None or value == "" else _text(value) for value in table.column(name).to_pylist()]
    found = sorted({value for value in values if value is not None})
    if declared is None:
        _check_text(path, name, values, found)
    known = {value: place for place, value in enumerate(found if declared is None else declared)}
    block = np.zeros((len(values), len(known)))
    for row, value in enumerate(values):
        if value is None:
            block[row] = np.nan
        elif value in known:
            block[row, known[value]] = 1
        else:
            raise DataError(
                f"{path}: row {row} (counted from 0) of the column {name!r} holds {value!r}, which is none of its "
                f"categories {', '.join(known)}; correct the cell or declare the category."
            )
    return Column(name, tuple(known)), block


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _check_text(path: Path, name: str, values: Sequence[str | None], found: Sequence[str]) -> None:
    """Refuse text that is a column of numbers with a typing error, and text of too many kinds."""
    numbers = {value for value in found if _is_number(value)}
    formatted = [value for value in found if value not in numbers and _FORMATTED.fullmatch(value)]
    if formatted and 2 * len(formatted) >= len(found):
        raise DataError(
            f"{path}: the column {name!r} holds {formatted[0]!r}, a number or date that is written as text; write "
            "plain numbers, or declare the values in features.categories."
        )
    if 2 * len(numbers) >= len(found) and len(numbers) < len(found):
        row = next(row for row, value in enumerate(values) if value is not None and value not in numbers)
        raise DataError(
            f"{path}: row {row} (counted from 0) of the column {name!r} holds {values[row]!r} among numbers; correct "
            "the cell, or declare the values in features.categories."
        )
    lonely = len(values) >= _MANY_ROWS and 2 * len(found) > len(values)
    if not found or len(found) > MOST_CATEGORIES or lonely:
        many = f"text of {len(found)} kinds in {len(values)} rows" if found else "no value"
        raise DataError(f"{path}: the column {name!r} holds {many}, which cannot be categories; remove the column.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def open_table(path: Path) -> Any:
    """Read a .csv or .parquet file as a table with rows and columns."""
    table = _arrow_table(path) if _has_arrow() else _plain_table(path)
    if not table.num_columns or not table.num_rows:
        raise DataError(f"{path} has {table.num_rows} rows and {table.num_columns} columns; give a table with samples.")
    return table


def _has_arrow() -> bool:
    try:
        import pyarrow  # noqa: F401 - slow to import, and only tables need it
    except ImportError:
        return False
    return True


def _plain_table(path: Path) -> CsvTable:
    """Read a .csv file with the standard library."""
    if path.suffix.lower() != ".csv":
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'codedfl[study]', or save it as .csv."
        )
    try:
        return read_csv(path)
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    cause = " ".join(str(error).split()).split(". ")[0][:120].rstrip(".")  # one sentence, without advice
    return DataError(f"{path} cannot be read as {path.suffix.lower()} ({cause}); save it again.")


def _arrow_table(path: Path) -> Any:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix.lower() == ".csv":
            # an empty cell, "NA" and the like are missing in text as they are in numbers
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
            table = pyarrow.csv.read_csv(path, convert_options=options)
        else:
            table = pyarrow.parquet.read_table(path, partitioning=None)
        _ = table.column_names  # raises if they are not UTF-8
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return table


def _shown(table: Any) -> str:
    names = table.column_names
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


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


def _kind(table: Any, name: str) -> str:
    """Return what a column holds: null, integer, boolean, number, text, or the name of another type."""
    if isinstance(table, CsvTable):
        return table.column(name).kind
    from pyarrow import types

    kind = table.schema.field(name).type
    text = kind.value_type if types.is_dictionary(kind) else kind
    tests = {
        "null": types.is_null(kind),
        "integer": types.is_integer(kind),
        "boolean": types.is_boolean(kind),
        "number": types.is_floating(kind) or types.is_decimal(kind),
        "text": types.is_string(text) or types.is_large_string(text),
    }
    return next((name for name, true in tests.items() if true), str(kind))


def _column(table: Any, name: str) -> Float[np.ndarray, " m"]:
    """Return a column as float64; missing values become NaN."""
    column = table.column(name)
    if isinstance(column, CsvColumn):
        return column.numbers()
    import pyarrow

    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    values: Float[np.ndarray, " m"] = column.cast(pyarrow.float64(), safe=False).to_numpy()
    return values


def _target_values(path: Path, table: Any, targets: Sequence[str]) -> Shaped[np.ndarray, "m ..."]:
    for name in targets:
        missing = sum(value is None or value == "" for value in table.column(name).to_pylist())
        if missing:
            raise DataError(
                f"{path}: the target {name!r} is missing in {missing} of {table.num_rows} rows; remove those rows."
            )
    if len(targets) > 1:
        text = [name for name in targets if _kind(table, name) not in _NUMERIC]
        if text:
            raise DataError(
                f"{path}: the target {text[0]!r} is not numeric, but several targets make a regression;"
                " name numeric columns or a single one."
            )
        return np.stack([_column(table, name) for name in targets], axis=1)
    column, kind = _target_column(table, targets[0])
    if kind in ("integer", "boolean"):
        return np.asarray(column.exact() if isinstance(column, CsvColumn) else column.to_numpy())
    if kind in _NUMERIC:
        return _column(table, targets[0])
    if kind == "text":
        values = np.asarray(column.to_pylist(), dtype=np.str_)
        formatted = [value for value in np.unique(values).tolist() if _FORMATTED.fullmatch(value)]
        if formatted and not _is_number(formatted[0]):
            raise DataError(
                f"{path}: the target {targets[0]!r} holds {formatted[0]!r}, a number or date that is written as text; "
                "write plain numbers."
            )
        return values
    raise DataError(f"{path}: the target {targets[0]!r} holds {kind}; use numbers, text or truth values.")


def _target_column(table: Any, name: str) -> tuple[Any, str]:
    """Return a column and what it holds; of a dictionary, its values."""
    column, kind = table.column(name), _kind(table, name)
    if isinstance(column, CsvColumn):
        return column, kind
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        table = pyarrow.table({name: column.cast(column.type.value_type)})
        column, kind = table.column(name), _kind(table, name)
    return column, kind
