"""The live page of one command: its server, the state that it shows, and an address that survives a restart."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

from codedfl.errors import CodedflError
from codedfl.report.live.feed import FINISHED, STOPPED, TRAINING, Feed, Pull
from codedfl.report.live.page import live_document
from codedfl.report.web import EventStream, Handler, PageServer, WebResponse, WebRoute, check_host, check_port
from codedfl.report.web.addresses import LOOPBACK, is_token
from codedfl.storage import write_json

ADDRESS = ".live"
"""In the folder of an unfinished run: port and token of its page; only its owner can read it."""

_RETURN = 4.0
"""Seconds that a resumed run waits at its end for pages that look for it once a second."""
_INTERRUPTED = "the training was interrupted; it continues when the same command is given again"


@final
class LivePage:
    """Serves the page from the beginning to the end of a ``with`` block, whose error it shows.

    ``folder`` is where the address is kept (:meth:`keep`), so that pages find the training again when the same command
    is given after a kill. Without ``port`` the kept one is taken if it is free, or any other. Without ``host`` the page
    is for this machine only.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        folder: Path,
        *,
        host: str | None = None,
        port: int | None = None,
        announce: Callable[[str], object] = lambda address: None,
        warn: Callable[[str], object] = lambda sentence: None,
    ) -> None:
        bound = check_host(host or LOOPBACK, others=host is not None, option="--live-host")
        wanted = None if port is None else check_port(port, option="--live-port")
        self._folder = folder
        self._feed = Feed()
        self._resumed, self._kept = _kept_address(folder), False
        document = live_document(about)
        routes: dict[str, Handler | WebRoute] = {
            "": lambda request: WebResponse.of_page(document),
            "events": lambda request: EventStream(self._feed.follow()),
        }
        token = self._resumed["token"] if self._resumed else None

        def server(number: int) -> PageServer:
            return PageServer(routes, host=bound, port=number, token=token, others=True, announce=announce)

        self._server = self._opened(server, wanted)
        if self._server.warning:
            warn(self._server.warning)

    def _opened(self, server: Callable[[int], PageServer], wanted: int | None) -> PageServer:
        if wanted is None and self._resumed:
            try:
                return server(self._resumed["port"])
            except CodedflError:  # another program has the port now
                return server(0)
        return server(wanted or 0)

    @property
    def address(self) -> str:
        """The address of the page."""
        return self._server.address

    def follow(self, pull: Pull) -> None:
        """Show the table that ``pull`` returns, which is called while browsers look, by other threads."""
        self._feed.pull_from(pull)

    def show(self, table: Mapping[str, Any]) -> None:
        """Show the table of a board."""
        self._feed.publish(phase=TRAINING, run=dict(table))

    def note(self, sentence: str) -> None:
        """Show a sentence about the training."""
        self._feed.publish(note=sentence)

    def keep(self) -> None:
        """Keep the address in the folder, which exists by now."""
        if not self._kept:
            address = {"port": self._server.port, "token": self._server.token}
            write_json(self._folder / ADDRESS, address, durable=False, private=True)
            self._kept = True

    def finish(self, result: Mapping[str, Any]) -> None:
        """Show the result; pages that lost the training have some seconds to find it again."""
        self._feed.pull_from(None)
        self._feed.publish(phase=FINISHED, note="", result=dict(result))
        if self._resumed is not None:
            self._feed.followed.wait(_RETURN)
        if self._resumed is not None or self._kept:
            (self._folder / ADDRESS).unlink(missing_ok=True)

    def __enter__(self) -> "LivePage":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            words = str(error) if isinstance(error, CodedflError) else _INTERRUPTED
            self._feed.pull_from(None)
            self._feed.publish(phase=STOPPED, note=words)
        self._server.stop()


def is_awaited(folder: Path) -> bool:
    """Return whether pages may wait for a training whose process was killed."""
    return _kept_address(folder) is not None


def _kept_address(folder: Path) -> dict[str, Any] | None:
    """Return port and token of a page that an earlier process served, if they are there and make sense."""
    try:
        found = json.loads((folder / ADDRESS).read_text(encoding="utf-8"))
        usable = is_token(found["token"]) and type(found["port"]) is int and 0 < found["port"] < 65536
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if usable else None
