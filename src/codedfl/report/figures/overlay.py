"""Numbers of one's own from a CSV file, drawn into a figure."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl.errors import UsageError
from codedfl.report.figures.style import MARKS, Style

TIMES = ("label", "time", "accuracy")
"""Columns of an overlay on accuracy against time."""
SETTINGS = ("label", "x", "y")
"""Columns of an overlay on a sweep."""
_ROWS = 10_000
"""Upper bound; protects against memory exhaustion."""


@dataclass(frozen=True)
class Series:
    """Points under one label: times or settings, and values; a setting that is no number is a text."""

    label: str
    x: tuple[Any, ...]
    y: tuple[float, ...]


def read_overlay(path: Path, columns: Sequence[str], places: Sequence[str] | None = None) -> list[Series]:
    """Read a CSV file with exactly these columns, in any order; ``places`` are the texts allowed as second column.

    Points of one label belong together, in the order of the file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise UsageError(f"--overlay '{path}' cannot be read ({reason}); give a CSV file") from None
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        header = [name.strip() for name in reader.fieldnames or ()]
        if sorted(header) != sorted(columns):
            found = ", ".join(header) or "none"
            raise UsageError(f"--overlay '{path}' has the columns {found}; they must be {', '.join(columns)}")
        reader.fieldnames = header
        rows = [row for _, row in zip(range(_ROWS + 1), reader, strict=False)]
    except csv.Error as error:
        raise UsageError(f"--overlay '{path}' is not CSV ({error}); give a CSV file") from None
    if not 0 < len(rows) <= _ROWS:
        raise UsageError(f"--overlay '{path}' has {len(rows)} rows; give 1 to {_ROWS}")
    found_points: dict[str, list[tuple[Any, float]]] = {}
    for number, row in enumerate(rows, start=2):
        label, x, y = (_cell(path, number, row, name, places if name == columns[1] else None) for name in columns)
        found_points.setdefault(label, []).append((x, y))
    return [Series(label, *zip(*points, strict=True)) for label, points in found_points.items()]


def _cell(path: Path, number: int, row: dict[str, str | None], name: str, places: Sequence[str] | None) -> Any:
    text = (row[name] or "").strip()
    where = f"--overlay '{path}', row {number}, column {name}:"
    if name == "label":
        if not text or len(text) > 100:
            raise UsageError(f"{where} '{text[:20]}' is no label; write 1 to 100 letters")
        return text
    if places is not None:
        if text not in places:
            raise UsageError(f"{where} '{text}' is not on the axis; choose one of {', '.join(places)}")
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{where} '{text}' is not a finite number; write one")
    if name == "time" and value <= 0:
        raise UsageError(f"{where} '{text}' must be above 0, because the axis is logarithmic; write seconds")
    return value


def overlay_look(series: Series, number: int, style: Style) -> dict[str, Any]:
    """Return the look of an overlay: hollow black marks, joined where there are several points."""
    mark = MARKS[(number + 1) % len(MARKS)]
    line = (0, (2, 1)) if len(series.x) > 1 else "none"
    return {"color": "black", "linestyle": line, "marker": mark, "markersize": style.mark, "markerfacecolor": "none"}
