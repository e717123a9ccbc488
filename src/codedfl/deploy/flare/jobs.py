"""Jobs: configuration only; submitted, watched, and submitted again if the server or the job was lost.

FLARE resumes nothing: an entry point keeps its own checkpoints on the server.
"""

import contextlib
import io
import json
import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from codedfl import errors
from codedfl.deploy.flare.cells import LONGEST_START
from codedfl.deploy.flare.kits import ADMIN, Kits
from codedfl.deploy.flare.names import ARGUMENTS, OUTCOME, REFERENCE, need_flare
from codedfl.deploy.flare.resources import CONTROLLER, EXECUTOR
from codedfl.errors import CodedflError, EngineError, LostDevicesError, UsageError, printable

POLL = 0.5
"""Seconds between requests to the server; twice as many while a job runs."""
CONNECTING, ANSWERING = 60.0, 600.0
"""Seconds after which FLARE is taken to have lost a connection, or an answer: it may wait for either for ever."""
CLOSING = 5.0
"""Seconds that FLARE may take to close a session."""
DETAILS = 5.0
"""Seconds that FLARE may take to give the reason why a job did not run."""

PATIENCE = {"max_runner_sync_timeout": LONGEST_START}
"""How long a device's process of a job waits for the server's: where all start at once on one machine, FLARE's 60 s may
be over before it runs, and FLARE ends a job if one of its processes has given up."""

FINISHED, ABORTED, NOT_RUN = "FINISHED:", "FINISHED:ABORTED", "FINISHED:FAILED_TO_RUN"
LOST, NO_REPLY = "LOST", "no_reply"
_NO_ANSWER = ("Communication Error", "Can't fetch command list from server")
"""What FLARE says of a login that got no answer: of itself, and of the request that follows it."""


@final
@dataclass(frozen=True)
class Job:
    """An entry point for the server, and the sites it works with."""

    name: str
    entry: str
    """``codedfl.module:function``, called with the carrier and the arguments."""
    sites: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON values; ``sites`` is added, and the server adds its own ``site``."""


def write_job(folder: Path, job: Job) -> Path:
    """Write a job in FLARE's format into a new folder in ``folder``."""
    if not REFERENCE.fullmatch(job.entry):
        raise UsageError(f"'{job.entry}' is no entry point; name one as codedfl.module:function")
    # the entry point reports missing sites, and the scheme decides who may be lost
    meta: dict[str, Any] = {"name": job.name, "resource_spec": {}, "min_clients": 1}
    common = {"format_version": 2, "components": []}
    workflow = {"id": "run", "path": CONTROLLER, "args": {"entry": job.entry}}
    executor = {"tasks": ["codedfl"], "executor": {"path": EXECUTOR, "args": {}}}
    files = {
        "meta.json": meta | {"deploy_map": {"for_server": ["server"], "for_devices": list(job.sites)}},
        "for_server/config/config_fed_server.json": common | {"workflows": [workflow]},
        f"for_server/config/{ARGUMENTS}": dict(job.arguments) | {"sites": list(job.sites)},
        "for_devices/config/config_fed_client.json": common | {"executors": [executor], **PATIENCE},
    }
    root = folder / "job"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2, allow_nan=False), encoding="utf-8")
    return root


@final
class Admin(contextlib.AbstractContextManager["Admin"]):
    """A session with the server of some kits, opened on first use and reopened after a loss.

    ``revive`` is called while waiting, to restart dead processes; a server that does not answer for ``patience``
    seconds raises an ``EngineError``. A connection or an answer that FLARE awaits for longer than ``limits`` is given
    up, and asked for again.
    """

    def __init__(
        self,
        kits: Kits,
        *,
        patience: float = 60.0,
        revive: Callable[[], None] = lambda: None,
        connect: Callable[[Kits], Any] | None = None,
        limits: tuple[float, float] = (CONNECTING, ANSWERING),
    ) -> None:
        need_flare()
        self.revive = revive
        self._kits = kits
        self._connect = connect or _connect
        self._patience = patience
        self._limits = limits
        self._session: Any = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def sites(self) -> set[str]:
        """Return the sites that are connected to the server."""
        return {client.name for client in self._ask("get_system_info").client_info}

    def all_answer(self) -> bool:
        """Return whether all connected sites answer the server; FLARE lists dead ones for a minute."""
        try:
            answers = self._call("get_client_job_status") or ()
        except Exception:  # all that FLARE raises if a site does not answer in time
            self.close()
            return False
        return all(one["status"] != NO_REPLY for one in answers)

    def server_start(self) -> float:
        """Return when the server was started."""
        return float(self._ask("get_system_info").server_info.start_time)

    def submit(self, job: Job) -> str:
        """Submit a job and return its id."""
        with tempfile.TemporaryDirectory(prefix="codedfl-") as scratch:
            folder, token = str(write_job(Path(scratch), job)), secrets.token_hex(16)
            return str(self._ask("submit_job", folder, submit_token=token))  # a repetition is the same job

    def status(self, job: str) -> str:
        """Return FLARE's status of a job."""
        return str(self._ask("get_job_meta", job).get("status"))

    def refusals(self, job: str) -> list[str]:
        """Return why sites refused a job; FLARE stores it a moment after the status."""
        until = time.monotonic() + DETAILS
        while True:
            known = self._ask("get_job_meta", job)
            detail = known.get("job_deploy_detail") or []
            if detail or known.get("status") != NOT_RUN or time.monotonic() > until:
                return [str(line) for line in detail if not str(line).endswith(": OK")]
            time.sleep(POLL)

    def abort(self, job: str) -> None:
        """Abort a job, if the server still knows it."""
        with contextlib.suppress(EngineError):
            self._ask("abort_job", job)

    def outcome(self, job: str) -> dict[str, Any] | None:
        """Return the outcome that the entry point of a finished job wrote, if any."""
        with tempfile.TemporaryDirectory(prefix="codedfl-") as scratch:
            folder = Path(str(self._ask("download_job_result", job, scratch)))
            texts = [path.read_text(encoding="utf-8") for path in folder.rglob(OUTCOME)]
        outcome = json.loads(texts[0]) if texts else None
        return outcome if isinstance(outcome, dict) else None

    def close(self) -> None:
        """Close the session, even if the server is gone."""
        session, self._session = self._session, None
        if session is not None:
            with _quiet(), contextlib.suppress(Exception):
                _close(session)

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        with _quiet():
            if self._session is None:
                with contextlib.redirect_stdout(io.StringIO()):  # FLARE prints progress
                    self._session = _limited(self._limits[0], self._connect, self._kits)
            return _limited(self._limits[1], getattr(self._session, method), *arguments, **options)

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        until, given_up = time.monotonic() + self._patience, 0
        while True:
            try:
                return self._call(method, *arguments, **options)
            except Exception as error:
                self.close()
                if not _is_connection_error(error):
                    raise EngineError(f"the server refuses ({error}); see its log") from None
                given_up += isinstance(error, TimeoutError)
                if time.monotonic() > until and given_up != 1:  # what FLARE itself lost is asked for once more
                    host, port = self._kits.host, self._kits.port
                    advice = "start it (codedfl deploy start KIT)"
                    raise EngineError(f"the server at {host}:{port} does not answer; {advice}") from None
                self.revive()
                time.sleep(POLL)


def run_job(
    admin: Admin, job: Job, *, tries: int = 3, wait: float = 60.0, report: Callable[[str], None] = lambda _: None
) -> Any:
    """Submit a job, wait for its end and return the result of its entry point; submit it again if it was lost.

    Each try waits up to ``wait`` seconds for all sites to connect. An error of the entry point is raised unless it may
    be temporary (a lost site or an unexpected error), differs from the previous one, and a try is left.
    """
    before = ""
    for attempt in range(1, tries + 1):
        _await_sites(admin, job, wait)
        began = admin.server_start()
        number = admin.submit(job)
        report(f"submitted as {number}")
        try:
            status = _await_end(admin, number, began, report)
        except (KeyboardInterrupt, SystemExit):
            admin.abort(number)
            raise
        if status == ABORTED:
            raise EngineError("the job was aborted; rerun the same command to resume it")
        outcome = _outcome(admin, number, status)
        if "result" in outcome:
            return outcome["result"]
        reason = printable(str(outcome["error"]))
        report(f"try {attempt} of {tries} failed: {reason}")
        if "kind" in outcome:
            kind = _error_class(outcome["kind"])
            temporary = kind is None or issubclass(kind, (EngineError, LostDevicesError))
            if attempt == tries or reason == before or not temporary:
                raise (kind or EngineError)(reason)
        before = reason
    raise EngineError(f"the job failed {tries} times, the last time because {before}")


def _outcome(admin: Admin, number: str, status: str) -> dict[str, Any]:
    if status == LOST:
        admin.abort(number)
        return {"error": "its server was lost"}
    outcome = admin.outcome(number)
    if outcome is None:
        words = status.removeprefix(FINISHED).lower().replace("_", " ")
        return {"error": "; ".join(admin.refusals(number)) or f"its processes were lost ({words})"}
    return outcome if outcome.keys() & {"result", "error"} else {"error": "its outcome cannot be read"}


def _await_sites(admin: Admin, job: Job, wait: float) -> None:
    """Wait until all sites of a job are connected and answer; go on with some of them after ``wait`` seconds."""
    until = time.monotonic() + wait
    while True:
        admin.revive()
        connected = admin.sites() & set(job.sites)
        if (len(connected) == len(job.sites) and admin.all_answer()) or time.monotonic() > until:
            break
        time.sleep(POLL)
    if not connected:
        raise EngineError(f"none of {', '.join(job.sites)} is connected to the server; start them")


def _await_end(admin: Admin, number: str, began: float, report: Callable[[str], None]) -> str:
    status = ""
    while not status.startswith(FINISHED):
        time.sleep(2 * POLL)
        admin.revive()
        if admin.server_start() != began:
            return LOST  # FLARE would report it as running for ever
        if (now := admin.status(number)) != status:
            status = now
            report(printable(status.lower().replace(":", ", ")))
    return status


def _error_class(name: object) -> type[CodedflError] | None:
    found = getattr(errors, name, None) if isinstance(name, str) else None
    return found if isinstance(found, type) and issubclass(found, CodedflError) else None


def _connect(kits: Kits) -> Any:
    from nvflare.fuel.flare_api.flare_api import Session

    session = Session(username=ADMIN, startup_path=str(kits.admin), secure_mode=True)
    session.api.auto_login_max_tries = 1
    try:
        session.try_connect(5.0)
    except BaseException:
        _close(session)
        raise
    return session


def _close(session: Any) -> None:
    """Close a session of FLARE, which waits for ever for a connection that is made while it closes all others."""
    try:
        _limited(CLOSING, session.api.close)
    except TimeoutError:
        for connector in session.api.cell.core_cell.communicator.conn_manager.connectors.values():
            connector.driver.close_all()


def _limited(seconds: float, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a call returns, or raise what it raises; a ``TimeoutError`` if it does not end in time."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((work(*arguments, **options), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call, name="flare-call", daemon=True)  # one that never ends keeps no process alive
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer for {seconds:g} s")
    found, error = outcome[0]
    if error is not None:
        raise error
    return found


def _is_connection_error(error: Exception) -> bool:
    from nvflare.apis.fl_exception import FLCommunicationError
    from nvflare.fuel.flare_api.api_spec import InternalError, NoConnection, SessionClosed

    if isinstance(error, InternalError) and any(words in str(error) for words in _NO_ANSWER):
        return True
    return isinstance(error, (NoConnection, SessionClosed, FLCommunicationError, ConnectionError, TimeoutError))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Python's last-resort handler from printing what FLARE logs."""
    root, mute = logging.getLogger(), logging.NullHandler()
    root.addHandler(mute)
    try:
        yield
    finally:
        root.removeHandler(mute)
