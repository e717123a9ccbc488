"""``codedfl compare --all``: every scheme on three fleets."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from rich.box import SIMPLE
from rich.table import Table

from codedfl import schemes
from codedfl.cli.common import bars, console, print_json, scenario_with, seconds_text, warn_if_broken
from codedfl.report.comparison import write_page
from codedfl.security.audit import EPOCHS
from codedfl.studies.compare import REPEATS, compare_all

__all__ = ["Request", "show_all"]


@final
@dataclass(frozen=True)
class Request:
    """What was asked for."""

    scenario: str
    names: list[str]
    changes: list[str]
    attacks: bool
    repeats: int | None

    @property
    def command(self) -> str:
        """The command that asks for it, wherever results go."""
        words = ["codedfl", "compare", *self.names, "--all", "--scenario", self.scenario]
        words += [word for change in self.changes for word in ("--set", change)]
        words += [] if self.attacks else ["--no-attacks"]
        words += [] if self.repeats is None else ["--repeats", str(self.repeats)]
        return shlex.join(words)


def show_all(request: Request, out: Path | None, *, json: bool) -> None:
    """Measure everything that is not measured yet, and print it."""
    chosen = scenario_with(request.scenario, request.changes)
    place = out or Path("out") / f"compare-all-{chosen.name}"
    names = request.names or list(schemes.SCHEMES)
    repeats, attacked_epochs = request.repeats or REPEATS, EPOCHS if request.attacks else 0
    with bars() as progress:
        rows = compare_all(chosen, names, place, progress, repeats=repeats, attacked_epochs=attacked_epochs)
        write_page(chosen, rows, place, progress, command=request.command)
    for name in names:
        warn_if_broken(name)
    if json:
        print_json(rows)
        return
    for fleet in dict.fromkeys(row["fleet"] for row in rows):
        console.print(_fleet(fleet, [row for row in rows if row["fleet"] == fleet]))
    for row in rows:
        if row["refused"] is not None:
            console.print(f"{row['scheme']} on {row['fleet']}: {row['refused']}", soft_wrap=True)
    console.print(f"tables and figure: {place}", soft_wrap=True)


def _fleet(fleet: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"{fleet}, {rows[0]['devices']} devices (* predicted)", box=SIMPLE)
    targets = next((list(row["time_to_accuracy"]) for row in rows if row["time_to_accuracy"]), [])
    shown = list(dict.fromkeys((targets[0], targets[-1]))) if targets else []
    for name in ("scheme", *(f"to {target}" for target in shown), "speed-up", "iid", "sorted", "attacked"):
        table.add_column(name, justify="left" if name in ("scheme", "attacked") else "right", no_wrap=True)
    for row in rows:
        name = f"{row['scheme']}{'*' if row['predicted'] else ''}"
        times = [seconds_text(row["time_to_accuracy"][t]) if row["refused"] is None else "none" for t in shown]
        speedup = "-" if row["speedup"] is None else f"{row['speedup']:.3g}x"
        scores = ["-" if row[key] is None else f"{row[key]:.4f}" for key in ("accuracy_iid", "accuracy_sorted")]
        attacked = "-" if row["attack"] is None else row["attack"]["verdict"] or "-"
        table.add_row(name, *times, speedup, *scores, attacked)
    return table
