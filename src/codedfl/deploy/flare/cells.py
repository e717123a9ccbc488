"""Our messages between the processes of a job, on a channel of our own in FLARE's network of cells.

FLARE's auxiliary messages take this way too, but they wrap the bytes once more, cannot be given up one by one, and do
not say who sent them but by the sender's own word. Here the receiver sees the origin, which the server, through which
all messages go, has checked against the sender's certificate.
"""

import logging
from collections.abc import Callable
from typing import Any, final

from codedfl.deploy.flare.carrier import Heard, Route, Stop
from codedfl.deploy.flare.names import SERVER

try:
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import make_reply
    from nvflare.fuel.f3.message import Message
except ModuleNotFoundError:  # only FLARE's processes come here, so it is there when it is needed
    Message = Any

__all__ = ["CellRoute", "answer_with"]

CHANNEL = "codedfl"
REFUSED = "this is not for you to ask"

logger = logging.getLogger(__name__)

Answer = Callable[[str, str, bytes], Heard]
"""Takes the topic, the sender and the bytes."""


@final
class CellRoute(Route):
    """To the processes of one job at other sites; ``secure`` has FLARE encrypt from end to end, past the server."""

    def __init__(self, engine: Any, job: str, *, secure: bool = False) -> None:
        self.engine = engine
        self._cell = engine.get_cell()
        self._job = job
        self._secure = secure

    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> Heard:
        """Send one message and wait for its answer; FLARE counts ``timeout`` anew while bytes are moving."""
        try:
            reply = self._cell.send_request(
                channel=CHANNEL,
                topic=topic,
                target=f"{site}.{self._job}",
                request=Message(payload=payload),
                timeout=max(timeout, 0.001),  # with 0 nothing would be waited for, nor encrypted
                secure=self._secure,
                optional=True,
                abort_signal=stop,
            )
            if reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK and reply.payload is not None:
                return Heard(bytes(reply.payload))
            return Heard(problem=reply.get_header(MessageHeaderKey.ERROR) if _is_ours(reply) else None)
        except Exception:
            logger.exception("a message to %s was not sent", site)
            return Heard()


def answer_with(engine: Any, job: str, answer: Answer, *, from_server: tuple[str, ...]) -> None:
    """Answer the messages of a job's other processes; some topics are taken from the server only."""

    def on_message(message: Any) -> Any:
        topic = str(message.get_header(MessageHeaderKey.TOPIC))
        sender, _, sent_in = str(message.get_header(MessageHeaderKey.ORIGIN)).partition(".")
        if sent_in != job or (topic in from_server) != (sender == SERVER):
            logger.warning("refused a message on %s from %s", topic, sender)
            return make_reply(ReturnCode.INVALID_REQUEST, REFUSED)
        heard = answer(topic, sender, b"" if message.payload is None else bytes(message.payload))
        if heard.payload is None:
            return make_reply(ReturnCode.INVALID_REQUEST, heard.problem or "")
        return make_reply(ReturnCode.OK, body=heard.payload)

    engine.get_cell().register_request_cb(channel=CHANNEL, topic="*", cb=on_message)


def _is_ours(reply: Any) -> bool:
    return bool(reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST)
