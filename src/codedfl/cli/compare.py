"""``codedfl compare``: several schemes side by side, with ``--all`` on three fleets."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.comparison import draw_accuracies, write_page
from codedfl.report.pages import seconds_text
from codedfl.report.pages.study_pages import write_comparison
from codedfl.runs import final_score
from codedfl.schemes import SCHEMES
from codedfl.studies.compare import BENCHMARK, REPEATS, compare, compare_all


def compare_command(
    names: common.Schemes = None,
    scenario: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    out: common.Out = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="On three fleets, iid and label-sorted, attacked; one table, one figure.")
    ] = False,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="With --all: attack what schemes send.")
    ] = True,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="With --all: trainings on further fleets of schemes that follow the timing."),
    ] = None,
    workers: common.Workers = None,
    scheduler: common.Scheduler = None,
    processes: common.LocalCluster = None,
) -> None:
    """Train schemes on the same data, fleet and links, side by side.

    The scenario is paper-quick unless named, or paper with --all. With --all there is one process a core, else one.
    """
    if not everything and (repeats is not None or not attacks):
        given = "--no-attacks" if repeats is None else "--repeats"
        raise UsageError(f"{given} goes with --all; add --all or leave it out")
    name, asked = common.split_names(names, scenario)
    name = name or ("paper" if everything else "paper-quick")
    wanted = asked or list(SCHEMES)
    chosen = common.chosen_scenario(name, changes, devices, [BENCHMARK, *wanted])
    place = out or Path("out") / f"compare-{'all-' if everything else ''}{chosen.name}"
    words = [*asked, *(["--all"] if everything else []), *common.given_words(name, changes, devices, plugins)]
    with common.cluster(scheduler, processes, workers, place) as cluster, common.bars() as progress:
        where: dict[str, Any] = {"workers": workers if everything else workers or 1, "cluster": cluster}
        if everything:
            words += [] if attacks else ["--no-attacks"]
            words += [] if repeats is None else ["--repeats", str(repeats)]
            attacked = None if attacks else 0
            rows = compare_all(
                chosen, wanted, place, progress, repeats=repeats or REPEATS, attacked_epochs=attacked, **where
            )
            write_page(chosen, rows, place, progress, command=shlex.join(["codedfl", "compare", *words]))
        else:
            rows = compare(chosen, wanted, place, progress, **where)
            draw_accuracies(chosen, rows, place, progress)
        write_comparison(rows, place, shlex.join(["codedfl", "compare", *words]))
    common.warn_if_broken(chosen, wanted)
    if json:
        common.print_json(rows)
        return
    if everything:
        for fleet in dict.fromkeys(row["fleet"] for row in rows):
            common.console.print(_fleet(fleet, [row for row in rows if row["fleet"] == fleet]))
    else:
        ran = [row for row in rows if row["refused"] is None]
        for table in (_comparison(ran), _costs(ran), _leaks(ran)):
            common.console.print(table)
        common.print_privacy((row["scheme"], row["privacy"]) for row in ran)
    for row in rows:
        if row["refused"] is not None:
            on = f" on {row['fleet']}" if everything else ""
            common.console.print(f"{row['scheme']}{on} refused: {row['refused']}", soft_wrap=True)
    common.console.print(f"tables and figure: {place}; all on one page: {place / 'index.html'}", soft_wrap=True)


def _comparison(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="virtual time to accuracy (95% band over timing draws)", box=SIMPLE)
    targets = list(rows[0]["time_to_accuracy"])
    noisy = any(row["epsilon"] is not None for row in rows)
    more = ["epsilon"] if noisy else []
    for name in ("scheme", "epochs", "final", *more, *(f"to {target}" for target in targets), "speed-up"):
        wraps = name.startswith("to ")
        table.add_column(name, justify="left" if name == "scheme" else "right", no_wrap=not wraps, overflow="fold")
    for row in rows:
        times = [with_band(row["time_to_accuracy"][t], row["time_to_accuracy_band"][t]) for t in targets]
        speedup = "-" if row["speedup"] is None else f"{row['speedup']:.2f}x"
        shown = [common.epsilon_text(row["privacy"])] if noisy else []
        table.add_row(row["scheme"], f"{row['epochs']:,}", score_text(row), *shown, *times, speedup)
    return table


def _costs(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="megabytes and multiplications (MAC) of all devices, and secrecy", box=SIMPLE)
    for name in ("scheme", "up", "down", "d2d", "MAC", "survives\nlosses", "secrecy"):
        table.add_column(name, justify="left" if name in ("scheme", "secrecy") else "right", no_wrap=name != "secrecy")
    for row in rows:
        sizes = [f"{row['bits_sent'][link] / 8e6:.3g}" for link in ("up", "down", "d2d")]
        table.add_row(row["scheme"], *sizes, f"{row['device_macs']:.2g}", str(row["survives_losses"]), row["verdict"])
    return table


def score_text(row: Mapping[str, Any]) -> str:
    """Write the final score of a run; without test data there is none."""
    score = final_score(row)
    return "-" if score is None else f"{score:.4f}"


def with_band(seconds: float | None, limits: Sequence[float | None] | None) -> str:
    """Write a time, and below it its band."""
    if seconds is None or not limits or limits[0] is None or limits[1] is None:
        return seconds_text(seconds)
    low, high = (seconds_text(limit).split() for limit in limits)
    band = f"{low[0]} - {' '.join(high)}" if low[1] == high[1] else f"{' '.join(low)} -\n{' '.join(high)}"
    return f"{seconds_text(seconds)}\n{band}"


def _leaks(rows: Sequence[dict[str, Any]]) -> Table:
    """Schemes that give away the same stand together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        alike.setdefault(tuple(row["leakage"].values()), []).append(row["scheme"])
    parties = (Column(name, overflow="fold") for name in ("server", "devices", "eavesdropper"))
    table = Table("scheme", *parties, title="who sees what")
    for words, names in alike.items():
        table.add_row("\n".join(names), *words)
    return table


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
