"""``--live``: a page that follows the training of a command."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.progress import Progress
from codedfl.runs import Run, execute, load
from codedfl.runs.directory import finished
from codedfl.scenario import Scenario

if TYPE_CHECKING:
    from codedfl.report.live import LivePage

Live = Annotated[
    bool,
    typer.Option("--live", help="Serve a page that follows the training, at a secret address, until the command ends."),
]
LivePort = Annotated[
    int | None, typer.Option("--live-port", metavar="PORT", help="With --live: its port.  [default: a free one]")
]
LiveHost = Annotated[
    str | None,
    typer.Option(
        "--live-host",
        metavar="ADDRESS",
        help="With --live: an address of this machine; others may then read the page.  [default: 127.0.0.1]",
    ),
]


@final
@dataclass(frozen=True)
class LiveChoice:
    """Where a page is served."""

    host: str | None
    port: int | None


def checked_live(live: bool, port: int | None, host: str | None) -> LiveChoice | None:
    """Return where to serve a page, None if none is wanted; refuse what cannot be before anything is done."""
    for option, value in (("--live-port", port), ("--live-host", host)):
        if value is not None and not live:
            raise UsageError(f"{option} {value} is for the live page; add --live")
    if not live:
        return None
    from codedfl.report.web import check_host, check_port
    from codedfl.report.web.server import need_web

    need_web()
    check_host(host or "127.0.0.1", others=True, option="--live-host")
    check_port(port or 0, option="--live-port")
    return LiveChoice(host, port)


def live_page(choice: LiveChoice, scenario: Scenario, place: Path | str, folder: Path, clock: str) -> "LivePage":
    """Return the page of a training, whose address is kept in a folder; it prints its address when it starts."""
    from codedfl.report.live import LivePage, about_training

    return LivePage(
        about_training(scenario, place, clock),
        folder,
        host=choice.host,
        port=choice.port,
        announce=lambda address: common.errors.print(f"live page: {address}", soft_wrap=True),
        warn=common.warn,
    )


def live_simulation(choice: LiveChoice, scenario: Scenario, place: Path, progress: Progress) -> Run:
    """Run a simulation that a page follows."""
    from codedfl.report.live import VIRTUAL, SimulationObserver, result_of

    if finished(scenario, place):
        return show_finished(choice, scenario, place, place, VIRTUAL)
    with live_page(choice, scenario, place, place, VIRTUAL) as page:
        observer = SimulationObserver(scenario.fleet.size, page.keep)
        page.follow(observer.as_table)

        def report(stage: str, done: int, total: int) -> None:
            progress(stage, done, total)
            observer.progress(stage, done, total)

        run = execute(scenario, place, progress=report, observer=observer)
        page.finish(result_of(run.summary, place))
    return run


def show_finished(choice: LiveChoice | None, scenario: Scenario, place: Path, folder: Path, clock: str) -> Run:
    """Load a finished run; show it to pages that were left waiting when its process was killed at its very end."""
    run = load(place)
    if choice is None:
        return run
    from codedfl.report.live import finished_table, is_awaited, result_of

    if is_awaited(folder):
        with live_page(choice, scenario, place, folder, clock) as page:
            page.show(finished_table(run))
            page.finish(result_of(run.summary, place))
    else:
        common.errors.print("the run is finished: there is nothing to follow", soft_wrap=True)
    return run
