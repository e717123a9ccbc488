"""Jobs: configuration only, submitted and watched, and submitted again if the server or the job was lost.

An entry point keeps its own checkpoints on the server, so a job that is submitted again goes on where the last one
stopped. FLARE itself resumes nothing.
"""

import contextlib
import io
import json
import logging
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, final

from codedfl import errors
from codedfl.deploy.flare.kits import ADMIN, Kits
from codedfl.deploy.flare.names import ARGUMENTS, OUTCOME, REFERENCE, need_flare
from codedfl.deploy.flare.resources import CONTROLLER, EXECUTOR
from codedfl.errors import CodedflError, EngineError, LostDevicesError, UsageError

__all__ = ["Admin", "Job", "run_job", "write_job"]

LOOK = 0.5
"""Seconds between looks at what is waited for; twice as many for a job, since looking takes time from it."""
DETAILS = 5.0
"""Seconds that FLARE may take to say why a job did not run."""

FINISHED, ABORTED, NOT_RUN = "FINISHED:", "FINISHED:ABORTED", "FINISHED:FAILED_TO_RUN"
LOST, NO_REPLY = "LOST", "no_reply"


@final
@dataclass(frozen=True)
class Job:
    """What the server is to run, with which sites."""

    name: str
    entry: str
    """``codedfl.module:function``, called with the carrier and the arguments."""
    sites: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Plain data (JSON); ``sites`` is added, and the server adds its own ``site``."""
    beat: float = 5.0
    """Seconds between pings of a site that owes an answer."""
    misses: int = 3
    """How many pings in turn must fail for a site to be gone."""


def write_job(folder: Path, job: Job) -> Path:
    """Write a job as FLARE wants it, into a new folder in ``folder``."""
    if not REFERENCE.fullmatch(job.entry):
        raise UsageError(f"'{job.entry}' is no entry point; name one as codedfl.module:function")
    controller = {"entry": job.entry, "beat": job.beat, "misses": job.misses}
    files: dict[str, Any] = {
        "meta.json": {
            "name": job.name,
            "resource_spec": {},
            "min_clients": 1,  # who is missing is for us to say, and who may be lost for the scheme
            "deploy_map": {"for_server": ["server"], "for_devices": list(job.sites)},
        },
        "for_server/config/config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "run", "path": CONTROLLER, "args": controller}],
            "components": [],
        },
        f"for_server/config/{ARGUMENTS}": dict(job.arguments) | {"sites": list(job.sites)},
        "for_devices/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["codedfl"], "executor": {"path": EXECUTOR, "args": {}}}],
            "components": [],
        },
    }
    root = folder / "job"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2, allow_nan=False), encoding="utf-8")
    return root


@final
class Admin:
    """A session with the server of some kits, made when it is first needed and again after it was lost.

    ``revive`` is called now and then while something is waited for, to start again what has died; a server that does
    not answer for ``patience`` seconds is given up.
    """

    def __init__(
        self,
        kits: Kits,
        *,
        patience: float = 60.0,
        revive: Callable[[], None] = lambda: None,
        connect: Callable[[Kits], Any] | None = None,
    ) -> None:
        need_flare()
        self.revive = revive
        self._kits = kits
        self._connect = connect or _connect
        self._patience = patience
        self._session: Any = None

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def sites(self) -> set[str]:
        """Who is connected to the server."""
        return {client.name for client in self._ask("get_system_info").client_info}

    def all_answer(self) -> bool:
        """Whether everyone who is listed as connected answers the server; FLARE lists the dead for a minute."""
        try:
            with _quiet():
                self._session = self._session or self._connect(self._kits)
                answers = self._session.get_client_job_status() or ()
        except Exception:  # FLARE says no more if somebody does not answer in time
            self.close()
            return False
        return all(one["status"] != NO_REPLY for one in answers)

    def server_start(self) -> float:
        """When the server was started."""
        return float(self._ask("get_system_info").server_info.start_time)

    def submit(self, job: Job) -> str:
        """Submit a job and return what FLARE calls it."""
        with tempfile.TemporaryDirectory(prefix="codedfl-") as scratch:
            folder, once = str(write_job(Path(scratch), job)), secrets.token_hex(16)
            return str(self._ask("submit_job", folder, submit_token=once))  # asked twice, it is still one job

    def status(self, job: str) -> str:
        """How a job stands, in FLARE's words."""
        return str(self._ask("get_job_meta", job).get("status"))

    def refusals(self, job: str) -> list[str]:
        """Why sites did not take a job; FLARE writes it down a moment after it says that the job has failed."""
        until = time.monotonic() + DETAILS
        while True:
            known = self._ask("get_job_meta", job)
            detail = known.get("job_deploy_detail") or []
            if detail or known.get("status") != NOT_RUN or time.monotonic() > until:
                break
            time.sleep(LOOK)
        return [str(line) for line in detail if not str(line).endswith(": OK")]

    def jobs(self) -> dict[str, str]:
        """How each job stands that the server knows of, the latest first."""
        listed = self._ask("list_jobs", reverse=True)
        return {str(one["job_id"]): str(one["status"]) for one in listed}

    def abort(self, job: str) -> None:
        """End a job."""
        self._ask("abort_job", job)

    def outcome(self, job: str) -> dict[str, Any] | None:
        """What the entry point of a finished job returned or raised; None if it came to neither."""
        with tempfile.TemporaryDirectory(prefix="codedfl-") as scratch:
            folder = Path(str(self._ask("download_job_result", job, scratch)))
            for path in folder.rglob(OUTCOME):
                outcome = json.loads(path.read_text(encoding="utf-8"))
                return outcome if isinstance(outcome, dict) else None
        return None

    def close(self) -> None:
        """Let go of the server; it need not be there any more."""
        session, self._session = self._session, None
        if session is not None:
            with _quiet(), contextlib.suppress(Exception):
                session.api.close()

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        until = time.monotonic() + self._patience
        while True:
            try:
                with _quiet():
                    self._session = self._session or self._connect(self._kits)
                    return getattr(self._session, method)(*arguments, **options)
            except Exception as error:
                self.close()
                if not _lost(error):
                    raise EngineError(f"the server refuses ({error}); its log says more") from None
                if time.monotonic() > until:
                    where = f"{self._kits.host}:{self._kits.port}"
                    raise EngineError(f"the server at {where} does not answer; start it") from None
                self.revive()
                time.sleep(LOOK)


def run_job(
    admin: Admin,
    job: Job,
    *,
    tries: int = 3,
    wait: float = 60.0,
    report: Callable[[str], None] = lambda _: None,
) -> Any:
    """Submit a job, watch it to its end and return what its entry point returned; submit it again if it was lost.

    Each try waits up to ``wait`` seconds for all sites to be there and goes on with those that are connected; the entry
    point finds them in ``connected``, and which try it is in ``attempt``. What the entry point raises is raised here,
    unless it may pass (sites or devices are lost, or something went wrong that nobody had thought of), has not been
    raised before, and a try is left.
    """
    before = ""
    for attempt in range(1, tries + 1):
        connected, began = _gather(admin, job, wait), admin.server_start()
        arguments = dict(job.arguments) | {"connected": connected, "attempt": attempt}
        number = admin.submit(replace(job, arguments=arguments))
        report(f"submitted as {number}")
        try:
            status = _watch(admin, number, began, report)
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(EngineError):
                admin.abort(number)
            raise
        if status == ABORTED:
            raise EngineError("the job was ended from outside; give the same command again to go on where it stopped")
        outcome = _outcome(admin, number, status)
        if "result" in outcome:
            return outcome["result"]
        why = str(outcome["error"])
        report(f"try {attempt} of {tries} failed: {why}")
        if "kind" in outcome and (attempt == tries or why == before or not _may_pass(outcome["kind"])):
            raise (_kind(outcome["kind"]) or EngineError)(why)
        before = why
    raise EngineError(f"the job failed {tries} times, the last time because {before}")


def _outcome(admin: Admin, number: str, status: str) -> dict[str, Any]:
    if status == LOST:
        with contextlib.suppress(EngineError):
            admin.abort(number)
        return {"error": "its server was lost"}
    outcome = admin.outcome(number)
    if outcome is None:
        words = status.removeprefix(FINISHED).lower().replace("_", " ")
        return {"error": "; ".join(admin.refusals(number)) or f"its processes were lost ({words})"}
    return outcome if outcome.keys() & {"result", "error"} else {"error": "its outcome cannot be read"}


def _gather(admin: Admin, job: Job, wait: float) -> list[str]:
    until = time.monotonic() + wait
    while True:
        admin.revive()
        connected = admin.sites()
        if (all(site in connected for site in job.sites) and admin.all_answer()) or time.monotonic() > until:
            break
        time.sleep(LOOK)
    if not any(site in connected for site in job.sites):
        raise EngineError(f"none of {', '.join(job.sites)} is connected to the server; start them")
    return [site for site in job.sites if site in connected]


def _watch(admin: Admin, number: str, began: float, report: Callable[[str], None]) -> str:
    status = ""
    while not status.startswith(FINISHED):
        time.sleep(2 * LOOK)
        admin.revive()
        if admin.server_start() != began:
            return LOST  # for FLARE such a job is running for ever
        if (now := admin.status(number)) != status:
            status = now
            report(status.lower().replace(":", ", "))
    return status


def _may_pass(name: object) -> bool:
    kind = _kind(name)
    return kind is None or issubclass(kind, (EngineError, LostDevicesError))


def _kind(name: object) -> type[CodedflError] | None:
    found = getattr(errors, name, None) if isinstance(name, str) else None
    return found if isinstance(found, type) and issubclass(found, CodedflError) else None


def _connect(kits: Kits) -> Any:
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    with contextlib.redirect_stdout(io.StringIO()):  # it says that it is connecting
        return new_secure_session(ADMIN, str(kits.admin), timeout=5.0, auto_login_max_tries=1)


def _lost(error: Exception) -> bool:
    from nvflare.apis.fl_exception import FLCommunicationError
    from nvflare.fuel.flare_api.api_spec import NoConnection, SessionClosed

    return isinstance(error, (NoConnection, SessionClosed, FLCommunicationError, ConnectionError, TimeoutError))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    root, mute = logging.getLogger(), logging.NullHandler()
    root.addHandler(mute)  # else Python prints what FLARE logs
    try:
        yield
    finally:
        root.removeHandler(mute)
