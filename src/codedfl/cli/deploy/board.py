"""The state of a deployment as a table for people, live while it runs."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codedfl.cli import common
from codedfl.progress import dated_lines
from codedfl.report.pages import seconds_text


def read_board(path: Path) -> dict[str, Any] | None:
    """Read the state of a run, if the server has written it yet."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "devices" in found else None


def board(found: Mapping[str, Any]) -> Table:
    """One row a device: its state, its last reply, the data it holds, the parcels it has sent and taken."""
    done = f", {found['done']:,} of {found['total']:,}" if found["total"] else ""
    if (left := found.get("survives_losses_left")) is not None:
        done += f", survives {left:,} more losses"
    table = Table(title=f"{found['stage']}{done}", title_justify="left")
    table.add_column("device", no_wrap=True)
    table.add_column("state")
    for name in ("epoch", "waited", "worked", "samples held", "parcels"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found["devices"]:
        others = len(row["holds_data_of"]) - 1
        held = f"{row['samples_held']:,}" + (f" of {others + 1} devices" if others > 0 else "")
        table.add_row(
            row["site"],
            row["state"] + (f": {row['reason']}" if row["reason"] else ""),
            "" if row["last_epoch"] is None else f"{row['last_epoch']:,}",
            _seconds(row["last_seconds"]),
            _seconds(row["last_working_seconds"]),
            held,
            f"{row['parcels_sent']} out, {row['parcels_taken']} in",
        )
    return table


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1e3 * value:.1f} ms" if value < 1 else seconds_text(value)


@contextmanager
def live(path: Path) -> Iterator[Callable[[str], None]]:
    """Show the board in a file while it changes, and the last sentence reported; elsewhere only dated sentences."""
    last = Text("")

    def shown() -> Group:
        found = read_board(path)
        return Group(last, *([] if found is None else [board(found)]))

    def report(sentence: str) -> None:
        last.plain = sentence

    if not common.on_terminal():
        lines = dated_lines(lambda line: common.errors.print(line, soft_wrap=True))
        yield lambda sentence: lines(sentence, 0, 0)
        return
    with Live(get_renderable=shown, console=common.errors, refresh_per_second=4, transient=True):
        yield report
