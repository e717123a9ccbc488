"""What FLARE runs on a device for a job: it gives the bytes that come in to the host that the site itself names."""

import logging
import threading
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import PING, QUESTION, Heard, Route, Stop
from codedfl.deploy.flare.cells import CellRoute, answer_with
from codedfl.deploy.flare.names import resolve
from codedfl.deploy.flare.sites import make_host, read_site
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.errors import CodedflError, EngineError

try:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import FLMetaKey, ReturnCode
    from nvflare.apis.job_launcher_spec import JobReturnCode
    from nvflare.apis.shareable import make_reply
except ModuleNotFoundError:  # only FLARE makes objects of this class, so it is there when it is needed
    Executor = object

__all__ = ["FlarePeers", "HostExecutor"]

PEER, THERE = "peer", "there"
"""What a message of another device is: a parcel, or only whether the site is there."""

PATIENCE = 600.0
"""Seconds that a parcel to another site may stand still, unless the site says otherwise."""

BEAT, MISSES = 10.0, 3
"""Seconds between looks at whether a recipient is there, and how many in turn must fail for it to be gone."""

LONGEST = 30.0
"""Seconds that the answer to a look may take: on a slow link it waits behind parcels."""

logger = logging.getLogger(__name__)


@final
class FlarePeers(Peers):
    """The other devices of a job; FLARE brings parcels to them by way of the server only.

    FLARE reports nothing when the recipient of a parcel dies before it has answered, so it is pinged meanwhile.
    """

    def __init__(self, route: Route, patience: float, *, beat: float = BEAT, misses: int = MISSES) -> None:
        self._route = route
        self._patience = patience
        self._beat, self._misses = beat, misses

    def send(self, site: str, payload: bytes) -> bytes:
        """Send a parcel and wait for what comes back."""
        stop, answered = Stop(), threading.Event()
        threading.Thread(target=self._watch, args=(site, stop, answered), name=f"watch {site}", daemon=True).start()
        try:
            heard = self._route.ask(site, PEER, payload, self._patience, stop)
        finally:
            answered.set()
        if heard.payload is None:
            raise EngineError(f"{site} did not take a parcel; it may be gone")
        return heard.payload

    def _watch(self, site: str, stop: Stop, answered: threading.Event) -> None:
        """Give a parcel up when its recipient is gone."""
        missed = 0
        while missed < self._misses:
            if answered.wait(self._beat):
                return
            heard = self._route.ask(site, THERE, b"", LONGEST, Stop())
            missed = 0 if heard.payload is not None else missed + 1
        stop.trigger()


@final
class HostExecutor(Executor):  # type: ignore[misc]
    """Answers pings and questions of the server, and parcels of other devices."""

    def __init__(self) -> None:
        super().__init__()
        self._host: Host | None = None
        self._problem: str | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Make the host when the job begins, close it when the job ends."""
        if event_type == EventType.START_RUN:
            self._start(fl_ctx.get_engine(), fl_ctx.get_job_id())
        elif event_type == EventType.ABOUT_TO_END_RUN and self._host is not None:
            self._host.close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Refuse: nothing is done by way of FLARE's tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _start(self, engine: Any, job: str) -> None:
        workspace = engine.get_workspace()
        _die_alone(Path(workspace.get_run_dir(job)))
        answer_with(engine, job, self._answer, from_server=(PING, QUESTION))
        try:
            site = read_site(Path(workspace.get_root_dir()))
            register = site.pop("register", None)  # a function that adds message handlers, for measurements
            peers = FlarePeers(CellRoute(engine, job, secure=True), float(site.get("patience", PATIENCE)))
            self._host = make_host(site, peers)
            if register is not None:
                resolve(register)(engine)
        except CodedflError as error:
            self._problem = str(error)
            logger.error("no host: %s", error)
        except Exception as error:
            self._problem = f"its host failed with {type(error).__name__}, of which its log says more"
            logger.exception("no host")

    def _answer(self, topic: str, sender: str, payload: bytes) -> Heard:
        if self._host is None:
            return Heard(problem=self._problem)
        if topic in (PING, THERE):
            return Heard(b"")
        return Heard(self._host.handle(payload) if topic == QUESTION else self._host.handle_peer(sender, payload))


def _die_alone(folder: Path) -> None:
    # FLARE reads here how a job process ended, and else takes a killed one for a failure, which ends the job for all;
    # a lost device is for the scheme to deal with
    (folder / FLMetaKey.PROCESS_RC_FILE).write_text(str(JobReturnCode.UNKNOWN), encoding="ascii")
