"""The FLARE executor of a device's job: passes messages to the host that the site names."""

import logging
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import PING, PRESENCE, REQUEST, FlarePeers, RouteReply
from codedfl.deploy.flare.cells import CellRoute, answer_with
from codedfl.deploy.flare.sites import load_own_plugins, make_host, read_site
from codedfl.deploy.protocol.carrier import Host
from codedfl.errors import CodedflError

try:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import FLMetaKey, ReturnCode
    from nvflare.apis.job_launcher_spec import JobReturnCode
    from nvflare.apis.shareable import make_reply
except ModuleNotFoundError:  # only FLARE creates objects of this class
    Executor = object

PATIENCE = 600.0
"""Seconds without progress after which a parcel to another site fails, unless site.toml says otherwise."""

logger = logging.getLogger(__name__)


@final
class HostExecutor(Executor):  # type: ignore[misc]
    """Answers pings and requests of the server, and parcels of other devices."""

    def __init__(self) -> None:
        super().__init__()
        self._host: Host | None = None
        self._problem: str | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Create the host when the job starts, close it when the job ends."""
        if event_type == EventType.START_RUN:
            self._start(fl_ctx.get_engine(), fl_ctx.get_job_id())
        elif event_type == EventType.ABOUT_TO_END_RUN and self._host is not None:
            self._host.close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Refuse FLARE's tasks; none are used."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _start(self, engine: Any, job: str) -> None:
        workspace = engine.get_workspace()
        # FLARE takes a killed process without this file for a failed job and aborts it at all sites; whether a lost
        # device matters is for the scheme to decide
        exit_code = Path(workspace.get_run_dir(job)) / FLMetaKey.PROCESS_RC_FILE
        exit_code.write_text(str(JobReturnCode.UNKNOWN), encoding="ascii")
        answer_with(engine, job, self._answer, from_server=(PING, REQUEST))
        try:
            load_own_plugins()
            site = read_site(Path(workspace.get_root_dir()))
            peers = FlarePeers(CellRoute(engine, job, secure=True), float(site.get("patience", PATIENCE)))
            self._host = make_host(site, peers)
        except CodedflError as error:
            self._problem = "its site.toml, key or plug-in cannot be used; its owner finds the reason in its log"
            logger.error("no host: %s", error)
        except Exception as error:
            self._problem = f"its host failed with {type(error).__name__}; see its log"
            logger.exception("no host")

    def _answer(self, topic: str, sender: str, payload: bytes) -> RouteReply:
        if self._host is None:
            return RouteReply(problem=self._problem)
        if topic in (PING, PRESENCE):
            return RouteReply(b"")
        return RouteReply(self._host.handle(payload) if topic == REQUEST else self._host.handle_peer(sender, payload))
