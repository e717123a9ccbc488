"""``codedfl owners``: whether federation pays for the owners of a table."""

import hashlib
import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from codedfl.cli import common
from codedfl.report.pages import seconds_text
from codedfl.runs import Run
from codedfl.scenario import Scenario
from codedfl.studies.owners import EQUAL, OwnersTable, check_scenario, study_owners

_SHOWN = {"r2": "R²", "rmse": "RMSE", "accuracy": "accuracy"}


def owners_command(
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="COLUMN", help="The column of owners, if not the scenario's.")
    ] = None,
    group: Annotated[
        str, typer.Option("--group", metavar="COLUMN", help="Hold out rows of equal value here together; no feature.")
    ] = "",
    changes: common.Set = None,
    out: common.Out = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Compare each owner alone, federated and pooled models on rows that are held out.

    The scenario is chem97, insteval, watch, or one on a .csv or .parquet file whose owners a column names. Its
    data.test_fraction of each owner's rows is held out; its scheme trains on the others.
    """
    more = [] if owner is None else ["partition.kind=column", f"partition.column={json_text.dumps(owner)}"]
    name = common.chosen_name(scenario, named)
    chosen = common.chosen_scenario(name, [*(changes or []), *more], check=check_scenario)
    place = out or _default_folder(chosen, group)
    with common.bars() as progress:
        found, run = study_owners(chosen, place, group=group, progress=progress)
    common.warn_if_broken(chosen)
    if json:
        common.print_json(_facts(found, run))
        return
    common.console.print(_table(found, run))
    common.console.print(f"{found.owners:,} owners, {found.rows:,} training rows, {found.held_out:,} held out")
    common.console.print(f"{found.verdict}; {found.better_off:.0%} of the owners are better off", soft_wrap=True)
    common.console.print(difference_text(found, run), soft_wrap=True)
    common.console.print(f"run directory: {run.path}, {seconds_text(run.summary['wall_seconds'])}", soft_wrap=True)


def difference_text(found: OwnersTable, run: Run) -> str:
    """Return in words whether the run gives the pooled model."""
    size = f"federated and pooled predictions differ by {found.difference:.1e} of the largest at most"
    if found.equal:
        return f"{size}: equal (below {EQUAL:g})"
    return f"{size}: not equal (above {EQUAL:g}); {run.scenario.scheme} ended at epoch {run.summary['epochs']:,}"


def _default_folder(scenario: Scenario, group: str) -> Path:
    identity = hashlib.sha256(f"{scenario.id()} {group}".encode()).hexdigest()[:16]
    return Path("runs") / f"{scenario.name}-owners-{scenario.scheme}-{identity}"


def _facts(found: OwnersTable, run: Run) -> dict[str, Any]:
    return {
        "scenario": run.scenario.name,
        "scheme": run.scenario.scheme,
        "owner": run.scenario.partition.column,
        "owners": found.owners,
        "rows": found.rows,
        "held_out": found.held_out,
        "ways": {way.way: way.scores for way in found.ways},
        "verdict": found.verdict,
        "better_off": found.better_off,
        "difference": found.difference,
        "equal": found.equal,
        "run": str(run.path),
        "wall_seconds": run.summary["wall_seconds"],
    }


def _table(found: OwnersTable, run: Run) -> Table:
    table = Table(title=f"{run.scenario.name} by {run.scenario.partition.column}, {run.scenario.scheme}")
    table.add_column("")
    for metric in found.ways[0].scores:
        table.add_column(_SHOWN[metric], justify="right")
    for way in found.ways:
        table.add_row(way.way, *(f"{score:.4f}" for score in way.scores.values()))
    return table
