"""FLARE's cells: messages between the processes of a job on a channel of our own, and the wait for a device's cell.

FLARE's auxiliary messages take the same way, but wrap the bytes once more, cannot be cancelled one by one, and name
the sender by its own word only. Here the receiver sees the origin, which the server, through which all messages go,
has checked against the sender's certificate.
"""

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, final

from codedfl.deploy.flare.carrier import Route, RouteReply, Stop
from codedfl.deploy.flare.names import SERVER
from codedfl.deploy.protocol.fields import one_line

try:
    from nvflare.apis.fl_component import FLComponent
except ModuleNotFoundError:  # only FLARE creates objects of these classes
    FLComponent = object

CHANNEL = "codedfl"
RESTART, RESTART_SECONDS = "start again", 15.0
"""Topic of a job's request to the server that has started it, and how long it may take."""

_SHORT = 60.0
"""Seconds up to which a request is cancelled by a timer of our own; longer ones are watched by pings."""

LONGEST_START, LOOK = 300.0, 0.1
"""Seconds in which a device's process must have its cell, and between looks at it."""

logger = logging.getLogger(__name__)

Answer = Callable[[str, str, bytes], RouteReply]
"""Takes the topic, the sender and the bytes."""


@final
class CellRoute(Route):
    """Reaches the processes of one job at other sites; ``secure`` enables FLARE's end-to-end encryption."""

    def __init__(self, engine: Any, job: str, *, secure: bool = False) -> None:
        self.engine = engine
        self._cell = engine.get_cell()
        self._job = job
        self._secure = secure
        free_sent_messages()

    def ask(self, site: str, topic: str, payload: bytes, timeout: float, stop: Stop) -> RouteReply:
        """Send one message and wait for the answer; FLARE restarts ``timeout`` while bytes are moving."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
        from nvflare.fuel.f3.message import Message

        try:
            with _bounded(timeout, stop):
                reply = self._cell.send_request(
                    channel=CHANNEL,
                    topic=topic,
                    target=f"{site}.{self._job}",
                    request=Message(payload=payload),
                    timeout=max(timeout, 0.001),  # with 0 FLARE neither waits nor encrypts
                    secure=self._secure,
                    optional=True,
                    abort_signal=stop,
                )
        except Exception:
            logger.exception("a message to %s was not sent", site)
            return RouteReply()
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.OK and reply.payload is not None:
            return RouteReply(bytes(reply.payload))
        problem = reply.get_header(MessageHeaderKey.ERROR) if code == ReturnCode.INVALID_REQUEST else None
        return RouteReply(problem=one_line(problem) if problem else None)  # FLARE itself says it without a reason

    def restart(self, site: str) -> None:
        """Ask the server's own process, in which FLARE starts jobs."""
        from nvflare.fuel.f3.message import Message

        stop = Stop()
        try:
            with _bounded(RESTART_SECONDS, stop):
                self._cell.send_request(
                    channel=CHANNEL,
                    topic=RESTART,
                    target=SERVER,
                    request=Message(payload=site.encode()),
                    timeout=RESTART_SECONDS,
                    optional=True,
                    abort_signal=stop,
                )
        except Exception:
            logger.exception("%s was not started again", site)


@functools.cache
def free_sent_messages() -> None:
    """Let what FLARE keeps of a sent message be freed with the last reference to it, from now on in this process.

    In FLARE 2.9.0 the task that sends a message and the future of its result refer to each other, and each task has a
    buffer of a megabyte (``streaming_chunk_size``). Python frees such cycles when it collects garbage; one that is
    still under way then is passed on to the oldest generation, which is collected only when it has grown by a quarter.
    A site's process creates so few lasting objects that this takes tens of thousands of epochs, and until then it
    grows by 9 kB with each of them. The server's own process, which only relays the messages of epochs, grows by its
    answers to who waits for the end of a job and asks twice a second.
    """
    from nvflare.fuel.f3.streaming.byte_streamer import TxTask

    remove = TxTask.remove_task

    def remove_and_release(task: Any) -> None:
        remove(task)
        task.stream_future.task_handle = None  # only needed to cancel a task, and this one has ended

    TxTask.remove_task = remove_and_release


@contextlib.contextmanager
def _bounded(seconds: float, stop: Stop) -> Iterator[None]:
    """Cancel a short request in time: FLARE counts by the clock of the machine, which may be set back meanwhile."""

    def end() -> None:
        stop.triggered = True

    timer = threading.Timer(seconds + 1.0, end)
    timer.daemon = True
    if seconds <= _SHORT:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@final
class PatientStart(FLComponent):  # type: ignore[misc]
    """Lets a device's process wait for its cell, and ends it if there is none.

    FLARE 2.9.0 allows 15 seconds, of which a machine that starts many processes at once needs more. Then it gives up,
    but the thread that is still making the cell keeps the process alive: it does nothing any more, and who restarts
    dead processes finds it running.
    """

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Wait before FLARE does."""
        from nvflare.apis.event_type import EventType
        from nvflare.apis.fl_constant import FLContextKey

        if event_type != EventType.BEFORE_CLIENT_REGISTER:
            return
        communicator = fl_ctx.get_prop(FLContextKey.SITE_OBJ).communicator
        until = time.monotonic() + LONGEST_START
        while communicator.cell is None:
            if time.monotonic() > until:
                logger.error("no connection could be begun in %g s; the process ends, so start it again", LONGEST_START)
                os._exit(1)
            time.sleep(LOOK)


def restart_with(engine: Any, start: Callable[[str, str], str]) -> None:
    """Let ``start(job, site)`` answer requests of the server's own jobs to start their processes at sites again."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import make_reply

    def on_message(message: Any) -> Any:
        origin, _, job = str(message.get_header(MessageHeaderKey.ORIGIN)).partition(".")
        if origin != SERVER or not job:
            logger.warning("refused a message on %s from %s", RESTART, one_line(origin))
            return make_reply(ReturnCode.INVALID_REQUEST, "not permitted")
        try:
            outcome = start(job, bytes(message.payload or b"").decode())
        except Exception as error:
            logger.exception("a job was not started again at a site")
            outcome = type(error).__name__
        logger.info("a process of job %s was to be started again: %s", job, one_line(outcome))
        return make_reply(ReturnCode.OK, body=outcome.encode())

    free_sent_messages()  # the only code of ours in this process before a job begins
    engine.get_cell().register_request_cb(channel=CHANNEL, topic=RESTART, cb=on_message)


def answer_with(engine: Any, job: str, answer: Answer, *, from_server: tuple[str, ...]) -> None:
    """Answer messages of the job's other processes; topics ``from_server`` are accepted from the server only."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import make_reply

    def on_message(message: Any) -> Any:
        topic = str(message.get_header(MessageHeaderKey.TOPIC))
        sender, _, sent_in = str(message.get_header(MessageHeaderKey.ORIGIN)).partition(".")
        if sent_in != job or (topic in from_server) != (sender == SERVER):
            logger.warning("refused a message on %s from %s", one_line(topic), one_line(sender))
            return make_reply(ReturnCode.INVALID_REQUEST, "not permitted")
        reply = answer(topic, sender, b"" if message.payload is None else bytes(message.payload))
        if reply.payload is None:
            return make_reply(ReturnCode.INVALID_REQUEST, reply.problem or "")
        return make_reply(ReturnCode.OK, body=reply.payload)

    engine.get_cell().register_request_cb(channel=CHANNEL, topic="*", cb=on_message)
