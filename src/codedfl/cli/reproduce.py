"""``codedfl reproduce``: the paper's experiment."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from codedfl.cli import common
from codedfl.report.pages import number, seconds_text
from codedfl.report.reproduction import write_reproduction
from codedfl.studies.reproduce.study import reproduce


def reproduce_command(
    quick: Annotated[bool, typer.Option("--quick", help="Small data, in seconds.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")] = Path("out/reproduce"),
    seeds: Annotated[int, typer.Option(min=1, help="How many feature seeds.")] = 5,
    workers: common.Workers = None,
    scheduler: common.Scheduler = None,
    processes: common.LocalCluster = None,
    json: common.Json = False,
) -> None:
    """Run the paper's experiment and compare its claims with what is measured."""
    with common.cluster(scheduler, processes, workers, out) as cluster, common.bars() as progress:
        wanted = range(seeds)
        found = reproduce(out, quick=quick, seeds=wanted, progress=progress, workers=workers, cluster=cluster)
        words = ["--out", str(out), "--seeds", str(seeds), *(["--quick"] if quick else [])]
        write_reproduction(found, out, progress, shlex.join(["codedfl", "reproduce", *words]))
    summary = found.summary
    if json:
        common.print_json(summary)
        return
    common.console.print(_claims(summary["claims"]))
    common.console.print(_readings(summary))
    common.console.print(_epochs(summary))
    common.console.print(f"figures, claims, summary, and all on one page: {out / 'index.html'}", soft_wrap=True)


def _claims(claims: list[dict[str, Any]]) -> Table:
    title = "what the paper claims, and what is measured"
    whole = (Column(name, no_wrap=True) for name in ("claim", "paper", "measured"))
    verdict = Column("verdict", min_width=len("reproduced"))  # its longest word
    table = Table(*whole, "95% range", verdict, title=title, box=SIMPLE, pad_edge=False)
    for claim in claims:
        spread = f"{number(claim['low'])} to {number(claim['high'])}"
        table.add_row(claim["name"], number(claim["claimed"]), number(claim["measured"]), spread, claim["verdict"])
    return table


def _readings(summary: dict[str, Any]) -> Table:
    levels = [row["level"] for row in summary["delta_sweep"][::2]]
    title = "speed-ups by reading, at the paper's Deltas; nearest to the paper's numbers first"
    columns = ("links", "found from", "supports", "odd set", *(f"{level} bit" for level in levels), "distance")
    table = Table(*columns, title=title, box=SIMPLE)
    for row in summary["readings"]:
        chosen = (row["channel"], f"epoch {row['detect_from']}", row["supply"], row["odd_set"])
        table.add_row(*chosen, *(number(row[str(level)]) for level in levels), number(row["distance"]))
    return table


def _epochs(summary: dict[str, Any]) -> Table:
    target = f"{summary['target']:g}"
    columns = ("scheme", f"epochs to {target}", f"mean time to {target}", "an epoch")
    table = Table(*columns, title=f"by feature seed {summary['feature_seeds']}", box=SIMPLE)
    for scheme, row in summary["schemes"].items():
        epochs = "\n".join("-" if epoch is None else str(epoch) for epoch in row["epochs_to_accuracy"][target])
        times = "\n".join(seconds_text(seconds) for seconds in row["time_to_accuracy"][target])
        table.add_row(scheme, epochs, times, seconds_text(row["seconds_per_epoch"]))
    return table
