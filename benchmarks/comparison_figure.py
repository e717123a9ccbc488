"""Draw docs/compare.png from the tables of docs/comparison.md, which a ``compare --all`` at full size has made.

``python -m benchmarks.comparison_figure`` reads what is printed, so times have the digits of the page; after another
``codedfl compare --all`` the same figure is ``codedfl figure DIR --style screen --out docs/compare.png``.
"""

import re
from pathlib import Path
from typing import Any

from codedfl.report.comparison import time_by_scheme
from codedfl.report.figures import save_as

PAGE, FIGURE = Path("docs/comparison.md"), Path("docs/compare.png")
TARGETS = (0.9, 0.95)
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def main() -> None:
    """Draw the figure."""
    rows = read_rows(PAGE.read_text(encoding="utf-8"))
    save_as(time_by_scheme(rows, TARGETS), FIGURE, "png")
    print(f"{FIGURE}: {len(rows)} rows")


def read_rows(text: str) -> list[dict[str, Any]]:
    """Return what the figure needs of the tables of all fleets."""
    rows: list[dict[str, Any]] = []
    for fleet, devices, part in re.findall(r"### Fleet `([^`]+)`, (\d+) devices\n(.*?)(?=\n###? |\Z)", text, re.DOTALL):
        header, _, *lines = [_cells(line) for line in part.splitlines() if line.startswith("|")]
        rows += [_row(fleet, int(devices), dict(zip(header, line, strict=True))) for line in lines]
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _row(fleet: str, devices: int, line: dict[str, str]) -> dict[str, Any]:
    found = {repr(target): _times(line[f"time to {target!r}"]) for target in TARGETS}
    return {
        "fleet": fleet,
        "devices": devices,
        "scheme": line["scheme"].strip("`"),
        "verdict": line["secrecy: the server sees"].partition(":")[0],
        "refused": "no result" if line["how"] == "no result" else None,
        "time_to_accuracy": {name: times[0] for name, times in found.items()},
        "time_to_accuracy_band": {name: list(times[1:]) or None for name, times in found.items()},
    }


def _times(cell: str) -> list[Any]:
    """Return a mean and its band, as far as they are printed."""
    found = [float(value) * _UNITS[unit] for value, unit in re.findall(r"([\d.e+-]+) (s|min|h)\b", cell)]
    return found or [None]


if __name__ == "__main__":
    main()
