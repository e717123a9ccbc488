"""``codedfl reproduce``: the paper's experiment."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from codedfl.cli.common import Json, bars, console, print_json, seconds_text
from codedfl.reproduce import reproduce

__all__ = ["reproduce_command"]


def reproduce_command(
    quick: Annotated[bool, typer.Option("--quick", help="Small data, in seconds.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")] = Path("out/reproduce"),
    seeds: Annotated[int, typer.Option(min=1, help="How many feature seeds.")] = 5,
    json: Json = False,
) -> None:
    """Run the paper's experiment and put its claims beside what is measured."""
    with bars() as progress:
        summary = reproduce(out, quick=quick, seeds=range(seeds), progress=progress)
    if json:
        print_json(summary)
        return
    console.print(_table(summary))
    ridge = ", ".join(f"{value:.4f}" for value in summary["ridge_accuracy"])
    console.print(f"accuracy of the ridge solution, by feature seed: {ridge}")
    console.print(f"figure, claims and summary: {out}", soft_wrap=True)


def _table(summary: dict[str, Any]) -> Table:
    table = Table(
        title=f"{summary['scenario']}: mean over {len(summary['feature_seeds'])} feature seeds and timing draws"
    )
    targets = list(next(iter(summary["schemes"].values()))["time_to_accuracy"])
    for name in (
        "scheme",
        "an epoch",
        *(column for t in targets for column in (f"epochs to {t}", f"time to {t}", "speed-up")),
    ):
        table.add_column(name)
    for scheme, row in summary["schemes"].items():
        cells = [scheme, seconds_text(row["seconds_per_epoch"])]
        for target in targets:
            epochs = " ".join("-" if epoch is None else str(epoch) for epoch in row["epochs_to_accuracy"][target])
            speedup = row["speedup"][target]
            cells += [
                epochs,
                seconds_text(row["time_to_accuracy"][target]),
                f"{speedup:.2f}x" if speedup else "-",
            ]
        table.add_row(*cells)
    return table
