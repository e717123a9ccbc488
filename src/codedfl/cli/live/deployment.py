"""Pages that follow deployed trainings."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codedfl.cli.live.options import LiveChoice, live_page
from codedfl.scenario import Scenario

if TYPE_CHECKING:
    from codedfl.report.live import LivePage

ON_THE_SERVER = "chosen by the server"
"""Where a run is whose server may be on another machine."""


@contextmanager
def deployment_page(
    choice: LiveChoice | None, scenario: Scenario, place: Path | str, folder: Path, *, time_scale: float = 1.0
) -> Iterator["LivePage | None"]:
    """Serve the page of a deployed training, if one is wanted; its address is kept in the folder of the kits."""
    if choice is None:
        yield None
        return
    from codedfl.report.live import EMULATED, REAL

    with live_page(choice, scenario, place, folder, REAL if time_scale == 1 else EMULATED) as page:
        yield page


@contextmanager
def followed(page: "LivePage | None", status: Path, report: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Let a page follow the status file of a server; return what reports a sentence, to the page as well."""
    if page is None:
        yield report
        return
    from codedfl.report.live import followed_status

    page.keep()

    def both(sentence: str) -> None:
        report(sentence)
        page.note(sentence)

    with followed_status(status, page.show):
        yield both


def finish(page: "LivePage | None", summary: Mapping[str, Any], place: Path | str) -> None:
    """Show the result of a training, if a page follows it."""
    if page is not None:
        from codedfl.report.live import result_of

        page.finish(result_of(summary, place))
