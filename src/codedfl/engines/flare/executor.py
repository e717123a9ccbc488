"""What FLARE runs on a device for a job: it gives the bytes that come in to the host that the site itself names."""

import logging
from pathlib import Path
from typing import Any, final

from codedfl.engines.carrier import Host, Peers
from codedfl.engines.flare.names import PAYLOAD, PEER, PING, PROBLEM, PROJECT, QUESTION
from codedfl.engines.flare.sites import make_host, read_site
from codedfl.errors import CodedflError, EngineError

try:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import FLMetaKey, ReturnCode
    from nvflare.apis.job_launcher_spec import JobReturnCode
    from nvflare.apis.shareable import Shareable, make_reply
except ModuleNotFoundError:  # only FLARE makes objects of this class, so it is there when it is needed
    Executor = object

__all__ = ["AuxPeers", "HostExecutor"]

logger = logging.getLogger(__name__)


@final
class AuxPeers(Peers):
    """Auxiliary messages to the job processes of other devices; the server relays them and cannot be avoided."""

    def __init__(self, engine: Any, patience: float) -> None:
        self._engine = engine
        self._patience = patience

    def send(self, site: str, payload: bytes) -> bytes:
        """Send a parcel and wait for what comes back."""
        request = Shareable()
        request[PAYLOAD] = payload
        with self._engine.new_context() as context:
            # FLARE encrypts from end to end only if it is told to, and only if the timeout is not 0
            replies = self._engine.send_aux_request([site], PEER, request, self._patience, context, secure=True)
        reply = (replies or {}).get(site)
        answer = reply.get(PAYLOAD) if isinstance(reply, Shareable) else None
        if not isinstance(answer, bytes):
            raise EngineError(f"{site} did not take a parcel; it may be gone")
        return answer


@final
class HostExecutor(Executor):  # type: ignore[misc]
    """Answers pings, questions of the server and parcels of other devices."""

    def __init__(self) -> None:
        super().__init__()
        self._host: Host | None = None
        self._problem = "its host is not made yet"

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Make the host when the job begins, close it when the job ends."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            _die_alone(Path(engine.get_workspace().get_run_dir(fl_ctx.get_job_id())))
            self._start(engine)
        elif event_type == EventType.ABOUT_TO_END_RUN and self._host is not None:
            self._host.close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Refuse: nothing is done by way of FLARE's tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _start(self, engine: Any) -> None:
        try:
            site = read_site(Path(engine.get_workspace().get_root_dir()))
            self._host = make_host(site, AuxPeers(engine, float(site.get("patience", 600.0))))
        except CodedflError as error:
            self._problem = str(error)
            logger.error("no host: %s", error)
        except Exception as error:
            self._problem = f"its host failed with {type(error).__name__}; its log says more"
            logger.exception("no host")
        for topic in (PING, QUESTION, PEER):
            engine.register_aux_message_handler(topic, self._answer)

    def _answer(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        reply = make_reply(ReturnCode.OK)
        sender, payload = _sender(fl_ctx), request.get(PAYLOAD)
        if self._host is None:
            reply[PROBLEM] = self._problem
        elif not isinstance(payload, bytes) or (topic != PEER and sender != PROJECT):
            reply[PROBLEM] = "this is not a message for a host"
            logger.warning("refused a message on %s from %s", topic, sender)
        elif topic == PING:
            reply[PAYLOAD] = b""
        elif topic == QUESTION:
            reply[PAYLOAD] = self._host.handle(payload)
        else:
            reply[PAYLOAD] = self._host.handle_peer(sender, payload)
        return reply


def _sender(fl_ctx: Any) -> str:
    peer = fl_ctx.get_peer_context()
    return str(peer.get_identity_name()) if peer else ""


def _die_alone(folder: Path) -> None:
    # FLARE reads here how a job process ended and else takes a killed one for a failure, which ends the job for all;
    # a lost device is for the scheme to deal with
    (folder / FLMetaKey.PROCESS_RC_FILE).write_text(str(JobReturnCode.UNKNOWN), encoding="ascii")
