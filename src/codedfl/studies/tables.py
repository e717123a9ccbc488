"""Rows of a study as JSON and CSV files."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl.storage import make_folder, write_json, write_text

Row = Mapping[str, Any]


def write_rows(out: Path, name: str, rows: Sequence[Row]) -> None:
    """Write ``NAME.json`` and ``NAME.csv``."""
    make_folder(out)
    write_json(out / f"{name}.json", rows)
    write_text(out / f"{name}.csv", to_csv(rows))


def to_csv(rows: Sequence[Row]) -> str:
    """Return rows of nested tables as CSV: nested keys become columns with dots; lists of tables are left out."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(value: Row, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            continue
        nested = {str(number): entry for number, entry in enumerate(item)} if isinstance(item, list) else item
        if isinstance(nested, dict):
            flat |= _flat(nested, f"{prefix}{key}.")
        else:
            flat[prefix + key] = item
    return flat
