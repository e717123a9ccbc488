"""``codedfl compare`` and ``codedfl sweep``: several runs side by side."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from codedfl import schemes
from codedfl.cli.common import (
    Json,
    Out,
    Set,
    bars,
    console,
    print_json,
    scenario_with,
    seconds_text,
    value_from,
    warn_if_broken,
)
from codedfl.cli.compare_all import Request, show_all
from codedfl.errors import UsageError
from codedfl.report.comparison import draw_accuracies
from codedfl.report.sweep import draw_sweep
from codedfl.studies.compare import compare
from codedfl.studies.sweep import sweep

__all__ = ["compare_command", "sweep_command"]

ScenarioOption = Annotated[str, typer.Option("--scenario", "-s", metavar="S", help="Preset name or TOML file.")]


def compare_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SCHEME]...", help="Schemes; all if none.")] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario", "-s", metavar="S", help="Preset name or TOML file; paper-quick, or paper with --all."
        ),
    ] = None,
    changes: Set = None,
    out: Out = None,
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="On three fleets, iid and label-sorted, attacked; one table, one figure.")
    ] = False,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="With --all: whether to attack what schemes send.")
    ] = True,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="With --all: trainings on further fleets of schemes that follow the timing."),
    ] = None,
) -> None:
    """Run schemes on the same data, fleet and links and put them side by side."""
    if everything:
        request = Request(scenario or "paper", list(names or ()), list(changes or ()), attacks, repeats)
        show_all(request, out, json=json)
        return
    if repeats is not None or not attacks:
        given = "--no-attacks" if repeats is None else "--repeats"
        raise UsageError(f"{given} goes with --all; add --all or leave it out")
    chosen = scenario_with(scenario or "paper-quick", changes)
    place = out or Path("out") / f"compare-{chosen.name}"
    wanted = names or list(schemes.SCHEMES)
    with bars() as progress:
        rows = compare(chosen, wanted, place, progress)
        draw_accuracies(chosen, rows, place, progress)
    for name in wanted:
        warn_if_broken(name)
    if json:
        print_json(rows)
        return
    shown = [row for row in rows if row["refused"] is None]
    console.print(_comparison(shown))
    console.print(_costs(shown))
    console.print(_leaks(shown))
    for row in rows:
        if row["refused"] is not None:
            console.print(f"{row['scheme']} refused: {row['refused']}", soft_wrap=True)
    console.print(f"tables and figure: {place}", soft_wrap=True)


def _comparison(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="virtual time to accuracy (95% band over timing draws)", box=SIMPLE)
    targets = list(rows[0]["time_to_accuracy"])
    for name in ("scheme", "epochs", "final", *(f"to {target}" for target in targets), "speed-up"):
        fixed = not name.startswith("to ")
        table.add_column(name, justify="left" if name == "scheme" else "right", no_wrap=fixed, min_width=len(name))
    for row in rows:
        times = [_with_band(row["time_to_accuracy"][t], row["time_to_accuracy_band"][t]) for t in targets]
        speedup = "-" if row["speedup"] is None else f"{row['speedup']:.2f}x"
        table.add_row(row["scheme"], f"{row['epochs']:,}", f"{row['final_accuracy']:.4f}", *times, speedup)
    return table


def _costs(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="payload and multiplications of all devices, and what is known of secrecy", box=SIMPLE)
    for name in ("scheme", "up", "down", "d2d", "MAC", "survives losses", "secrecy"):
        right = name in ("up", "down", "d2d", "MAC")
        table.add_column(name, justify="right" if right else "left", no_wrap=right or name == "scheme")
    for row in rows:
        sizes = [f"{row['bits_sent'][link] / 8e9:.3g} GB" for link in ("up", "down", "d2d")]
        work = f"{row['device_macs']:.2g}"
        table.add_row(row["scheme"], *sizes, work, str(row["survives_losses"]), row["verdict"])
    return table


def _with_band(seconds: float | None, limits: Sequence[float | None] | None) -> str:
    if seconds is None or not limits or limits[0] is None or limits[1] is None:
        return seconds_text(seconds)
    return f"{seconds_text(seconds)}\n{seconds_text(limits[0])} - {seconds_text(limits[1])}"


def _leaks(rows: Sequence[dict[str, Any]]) -> Table:
    """Schemes that give away the same stand together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        alike.setdefault(tuple(row["leakage"].values()), []).append(row["scheme"])
    table = Table(title="who sees what")
    for name in ("scheme", "server", "devices", "eavesdropper"):
        table.add_column(name)
    for words, names in alike.items():
        table.add_row("\n".join(names), *words)
    return table


def sweep_command(
    over: Annotated[
        list[str], typer.Option("--over", metavar="KEY=A,B,C", help="A setting and its values (repeatable).")
    ],
    scenario: ScenarioOption = "paper-quick",
    changes: Set = None,
    out: Out = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core if not given.")] = None,
    json: Json = False,
) -> None:
    """Run a grid of scenarios on all cores, with bands from repeated timing draws."""
    chosen = scenario_with(scenario, changes)
    axes = [_axis(text) for text in over]
    grid = dict(axes)
    if len(grid) < len(axes):
        raise UsageError("--over names a key twice; give all its values at once, for example --over links.loss=0,0.1")
    place = out or Path("out") / f"sweep-{chosen.name}"
    with bars() as progress:
        rows = sweep(chosen, grid, place, progress, workers)
        draw_sweep(chosen, grid, rows, place, progress)
    if json:
        print_json(rows)
        return
    console.print(_grid(rows, list(grid)))
    console.print(f"tables and figure: {place}", soft_wrap=True)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, mark, values = (part.strip() for part in text.partition("="))
    if not mark or not key or not values:
        raise UsageError(f"--over '{text}' must be KEY=A,B,C, for example --over links.loss=0,0.1,0.2")
    listed = value_from(f"[{values}]")
    if isinstance(listed, list):
        return key, listed
    parts = re.findall(r'"[^"]*"|\[[^\]]*\]|[^,]+', values)  # commas inside quotes and brackets do not separate
    return key, [value_from(part.strip()) for part in parts]


def _grid(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> Table:
    table = Table(title="sweep: virtual time to accuracy (95% band over timing draws)")
    targets = list(dict.fromkeys(target for row in rows for target in row["time_to_accuracy"]))
    for name in (*keys, "epochs", "final", *(f"to {target}" for target in targets)):
        table.add_column(name, justify="right")
    for row in rows:
        times = [_with_band(row["time_to_accuracy"].get(t), row["time_to_accuracy_band"].get(t)) for t in targets]
        settings = [str(row["settings"][key]) for key in keys]
        table.add_row(*settings, f"{row['epochs']:,}", f"{row['final_accuracy']:.4f}", *times)
    return table
