"""Runs and pages for tests in a browser."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.cli import main
from codedfl.runs import Run, execute
from codedfl.scenario import Scenario, load

HOSTILE = '<img src=x onerror="document.title=1">"\'</script><script>document.title=1</script>&{{7*7}}'
"""A name that would run as a script wherever it was not escaped."""
QUICK = {"training.epochs": 40, "timing.draws": 20}


def scenario(scheme: str, changes: Mapping[str, Any] | None = None) -> Scenario:
    return load("paper-quick").with_settings({**QUICK, "scheme": scheme, **(changes or {})})


def made_run(folder: Path, scheme: str, changes: Mapping[str, Any] | None = None) -> Run:
    return execute(scenario(scheme, changes), folder / scheme)


def hostile_table(folder: Path) -> Path:
    """Write a CSV whose columns, classes, categories and owners all have the hostile name."""
    path = folder / "hostile.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", f"column {HOSTILE}", "target", "owner"])
        for row in range(60):
            table.writerow([row % 7, f"{row % 3}{HOSTILE}", f"{row % 2}{HOSTILE}", f"{row % 4}{HOSTILE}"])
    return path


def command(*words: str) -> int:
    """Run a command in this process and return its exit code."""
    try:
        main(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0
