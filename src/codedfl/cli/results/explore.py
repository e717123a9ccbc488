"""``codedfl explore``: a local page that asks "what if" of a fleet."""

from pathlib import Path
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.errors import CodedflError, UsageError
from codedfl.report.explorer import ExplorerSession, explorer_routes
from codedfl.report.explorer.session import runs_below
from codedfl.report.web import PageServer
from codedfl.runs import Run, load


def explore_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Runs to lay over; the first gives the scenario if none is named."),
    ] = None,
    scenario: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    samples: Annotated[int | None, typer.Option(min=1, max=10**8, help="Samples, if the data is not at hand.")] = None,
    outputs: Annotated[int | None, typer.Option(min=1, max=10**5, help="Outputs, given with --samples.")] = None,
    port: Annotated[int, typer.Option("--port", help="The port on this machine; 0: any free one.")] = 0,
    plugins: common.Plugin = None,
) -> None:
    """Ask what-if questions of a fleet on a local page: sliders, and a ranking of schemes.

    The page is for this machine only, at an address with a secret part; Ctrl-C ends it. The scenario is that of the
    first run, or paper. Finished runs in ./runs can be laid over.
    """
    runs = {str(path): load(path) for path in dict.fromkeys(paths or [])}
    first = next(iter(runs.values()), None)
    if first is not None and scenario is None:
        if changes or devices is not None:
            raise UsageError("--set and --devices go with --scenario; name one, or move the sliders")
        chosen, origin = first.scenario, str(first.path / "scenario.toml")
    else:
        origin = scenario or "paper"
        chosen = common.chosen_scenario(origin, changes, devices)
        origin = origin if not changes and devices is None else ""
    session = ExplorerSession(
        chosen, samples=samples, outputs=outputs, runs=runs, more_runs=_found(runs), origin=origin
    )
    try:
        server = PageServer(explorer_routes(session), port=port, announce=_announce)
        server.run_forever()
    finally:
        session.close()


def _found(given: dict[str, Run]) -> dict[str, Run]:
    """Return finished runs of the working folder; what cannot be read is left out."""
    found = {}
    for path in runs_below(Path("runs")):
        if str(path) not in given:
            try:
                found[str(path)] = load(path)
            except CodedflError:
                continue
    return found


def _announce(address: str) -> None:
    common.errors.print(f"explore at {address} (Ctrl-C ends it)", soft_wrap=True)
