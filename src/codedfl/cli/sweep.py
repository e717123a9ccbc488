"""``codedfl sweep``: a grid of scenarios."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from codedfl.cli import common
from codedfl.cli.compare import score_text, with_band
from codedfl.errors import UsageError
from codedfl.report.figures.sweeps import QUANTITIES
from codedfl.report.pages.study_pages import write_sweep
from codedfl.report.sweep import draw_sweep
from codedfl.studies.sweep import sweep


def sweep_command(
    over: Annotated[list[str], typer.Option("--over", metavar="KEY=A,B,C", help="A setting and values (repeatable).")],
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    out: common.Out = None,
    y: Annotated[
        str | None, typer.Option("--y", metavar="QUANTITY", help="What the figure shows: time, accuracy or bits.")
    ] = None,
    workers: common.Workers = None,
    scheduler: common.Scheduler = None,
    processes: common.LocalCluster = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Run a grid of scenarios on all cores, with bands from repeated timing draws.

    The scenario is paper-quick unless named.
    """
    if y is not None and y not in QUANTITIES:
        raise UsageError(f"--y '{y}' must be one of {', '.join(QUANTITIES)}")
    axes = [_axis(text) for text in over]
    grid = dict(axes)
    if len(grid) < len(axes):
        raise UsageError("--over names a key twice; give all its values at once, for example --over links.loss=0,0.1")
    name = common.chosen_name(scenario, named, "paper-quick")
    chosen = common.chosen_scenario(name, changes, devices, [str(value) for value in grid.get("scheme", ())])
    used = [str(value) for value in grid.get("scheme", [chosen.scheme])]
    common.warn_unused(grid, [chosen], used)
    place = out or Path("out") / f"sweep-{chosen.name}"
    with common.cluster(scheduler, processes, workers, place) as cluster, common.bars() as progress:
        rows = sweep(chosen, grid, place, progress, workers, cluster)
        draw_sweep(rows, place, progress, y)
        words = common.given_words(name, changes, devices, plugins)
        words += [word for text in over for word in ("--over", text)]
        write_sweep(rows, place, shlex.join(["codedfl", "sweep", *words]), y)
    common.warn_if_broken(chosen, used)
    if json:
        common.print_json(rows)
        return
    common.console.print(_grid(rows, list(grid)))
    common.console.print(f"tables and figure: {place}; all on one page: {place / 'index.html'}", soft_wrap=True)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, mark, values = (part.strip() for part in text.partition("="))
    if not mark or not key or not values:
        raise UsageError(f"--over '{text}' must be KEY=A,B,C, for example --over links.loss=0,0.1,0.2")
    listed = common.value_from(f"[{values}]")
    if isinstance(listed, list):
        return key, listed
    parts = re.findall(r'"[^"]*"|\[[^\]]*\]|[^,]+', values)  # commas inside quotes and brackets do not separate
    return key, [common.value_from(part.strip()) for part in parts]


def _grid(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> Table:
    table = Table(title="sweep: virtual time to accuracy (95% band over timing draws)")
    targets = list(dict.fromkeys(target for row in rows for target in row["time_to_accuracy"]))
    for name in (*keys, "epochs", "final", *(f"to {target}" for target in targets)):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        times = [with_band(row["time_to_accuracy"].get(t), row["time_to_accuracy_band"].get(t)) for t in targets]
        settings = [str(row["settings"][key]) for key in keys]
        table.add_row(*settings, f"{row['epochs']:,}", score_text(row), *times)
    return table
