"""Tables of .csv files without pyarrow: the same columns, types and missing values, from the standard library."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

_MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL")
) | {"NaN", "n/a", "nan", "null"}
"""What pyarrow takes for missing."""
_WHOLE = re.compile(r"-?\d+", re.ASCII)
_REAL = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_TRUTH = {
    "1": True,
    "0": False,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


@final
@dataclass(frozen=True, eq=False)
class CsvColumn:
    """The cells of a column, as texts."""

    cells: Sequence[str]

    @cached_property
    def kind(self) -> str:
        """What the cells hold: null (nothing), integer, boolean, number or text."""
        present = [cell for cell in self.cells if cell not in _MISSING]
        if not present:
            return "null"
        if all(_WHOLE.fullmatch(cell.strip()) and abs(int(cell)) < 2**63 for cell in present):
            return "integer"
        if all(cell in _TRUTH for cell in present):
            return "boolean"
        return "number" if all(_REAL.fullmatch(cell.strip()) for cell in present) else "text"

    def to_pylist(self) -> list[Any]:
        """Return the values; None where one is missing."""
        read: Any = {"integer": int, "boolean": _TRUTH.get, "number": float, "text": str, "null": str}[self.kind]
        return [None if cell in _MISSING else read(cell) for cell in self.cells]

    def numbers(self) -> Float[np.ndarray, " m"]:
        """Return the values as float64; missing ones are NaN."""
        return np.array([np.nan if value is None else float(value) for value in self.to_pylist()])

    def exact(self) -> Shaped[np.ndarray, " m"]:
        """Return whole numbers or truth values, of which none is missing."""
        return np.array(self.to_pylist(), np.int64 if self.kind == "integer" else np.bool_)


@final
@dataclass(frozen=True, eq=False)
class CsvTable:
    """A table by its columns."""

    column_names: list[str]
    rows: list[list[str]]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.column_names)

    @cached_property
    def _columns(self) -> dict[str, CsvColumn]:
        return {name: CsvColumn([row[place] for row in self.rows]) for place, name in enumerate(self.column_names)}

    def column(self, name: str) -> CsvColumn:
        """Return a column."""
        return self._columns[name]


def read_csv(path: Path) -> CsvTable:
    """Read a file in UTF-8 with a line of names; raise ValueError or OSError if that is not what it is."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [line for line in csv.reader(file, strict=True) if line]
    if not lines:
        raise ValueError("empty file")
    names, *rows = lines
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise ValueError(f"row {number} has {len(row)} columns instead of {len(names)}")
    return CsvTable(names, rows)
