"""Who may ask what: the origin decides, which FLARE's server has checked."""

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="messages are those of NVIDIA FLARE, of the extra 'flare'")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

from codedfl.deploy.flare import cells
from codedfl.deploy.flare.carrier import PING, REQUEST, RouteReply, Stop
from codedfl.deploy.flare.cells import CellRoute, answer_with

JOB = "5a0b"


class Cell:
    """Keeps what is sent and registered."""

    def __init__(self, reply: Callable[[], Any] = lambda: make_reply(ReturnCode.OK, body=b"back")) -> None:
        self.reply = reply
        self.sent: list[dict[str, Any]] = []
        self.callback: Callable[[Any], Any] | None = None

    def send_request(self, **request: Any) -> Any:
        self.sent.append(request)
        return self.reply()

    def register_request_cb(self, channel: str, topic: str, cb: Callable[[Any], Any]) -> None:
        self.callback = cb


def engine(cell: Cell) -> Any:
    return SimpleNamespace(get_cell=lambda: cell)


def ask(cell: Cell, **options: Any) -> RouteReply:
    return CellRoute(engine(cell), JOB, **options).ask("device-1", REQUEST, b"there", 3.0, Stop())


def test_a_message_goes_to_the_process_of_the_job() -> None:
    cell = Cell()
    assert ask(cell) == RouteReply(b"back")
    (sent,) = cell.sent
    assert sent["target"] == f"device-1.{JOB}"
    assert sent["request"].payload == b"there"
    assert not sent["secure"]


def test_encryption_never_goes_with_a_timeout_of_nothing() -> None:
    cell = Cell()
    CellRoute(engine(cell), JOB, secure=True).ask("device-1", REQUEST, b"", 0.0, Stop())
    assert cell.sent[0]["secure"]
    assert cell.sent[0]["timeout"] > 0


def test_views_of_memory_become_bytes() -> None:
    reply = ask(Cell(lambda: make_reply(ReturnCode.OK, body=memoryview(b"view"))))
    assert reply.payload == b"view"
    assert isinstance(reply.payload, bytes)


def test_failures_are_told_apart() -> None:
    assert ask(Cell(lambda: make_reply(ReturnCode.TIMEOUT))) == RouteReply()
    assert ask(Cell(lambda: make_reply(ReturnCode.COMM_ERROR, "gone"))) == RouteReply()
    assert ask(Cell(lambda: make_reply(ReturnCode.OK))) == RouteReply()
    assert ask(Cell(lambda: make_reply(ReturnCode.INVALID_REQUEST, "no data"))) == RouteReply(problem="no data")
    assert ask(Cell(lambda: make_reply(ReturnCode.INVALID_REQUEST, ""))) == RouteReply(), "not yet there: ask again"

    def broken() -> Any:
        raise RuntimeError("the network is down")

    assert ask(Cell(broken)) == RouteReply()


@pytest.mark.parametrize(
    ("topic", "origin", "taken"),
    [
        (PING, f"server.{JOB}", True),
        (REQUEST, f"server.{JOB}", True),
        ("peer", f"device-2.{JOB}", True),
        (REQUEST, f"device-2.{JOB}", False),  # a device that poses as the server
        (PING, f"device-2.{JOB}", False),
        ("peer", f"server.{JOB}", False),  # the server that poses as a device
        (REQUEST, "server", False),  # not of this job
        (REQUEST, "server.other", False),
        (REQUEST, f"server.{JOB}.deeper", False),
        ("peer", "device-2.other", False),
    ],
)
def test_only_the_server_asks_and_only_devices_are_peers(topic: str, origin: str, taken: bool) -> None:
    cell, asked = Cell(), []

    def answer(topic: str, sender: str, payload: bytes) -> RouteReply:
        asked.append((topic, sender, payload))
        return RouteReply(b"yes")

    answer_with(engine(cell), JOB, answer, from_server=(PING, REQUEST))
    assert cell.callback is not None
    message = Message({MessageHeaderKey.TOPIC: topic, MessageHeaderKey.ORIGIN: origin}, memoryview(b"bytes"))
    reply = cell.callback(message)
    assert asked == ([(topic, origin.split(".")[0], b"bytes")] if taken else [])
    assert (reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK) == taken
    assert reply.payload == (b"yes" if taken else None)


def test_a_host_that_is_not_there_says_why() -> None:
    cell = Cell()
    answer_with(engine(cell), JOB, lambda *_: RouteReply(problem="no data"), from_server=(PING,))
    assert cell.callback is not None
    headers = {MessageHeaderKey.TOPIC: PING, MessageHeaderKey.ORIGIN: f"server.{JOB}"}
    reply = cell.callback(Message(headers, None))
    assert ask(Cell(lambda: reply)) == RouteReply(problem="no data")


@pytest.mark.parametrize(("looks", "ends"), [(0, False), (200, False), (3001, False), (3002, True)])
def test_a_device_waits_for_its_cell_and_ends_without_one(
    looks: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLARE waits 15 s, and its process stays when they are over."""
    client = SimpleNamespace(communicator=SimpleNamespace(cell="made" if not looks else None))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == looks:
            client.communicator.cell = "made"

    def end(code: int) -> None:
        raise SystemExit(code)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: round(sum(slept), 6))
    monkeypatch.setattr(cells, "time", clock)
    monkeypatch.setattr(cells, "os", SimpleNamespace(_exit=end))
    context = FLContext()
    context.set_prop(FLContextKey.SITE_OBJ, client, private=True)
    start = cells.PatientStart()
    start.handle_event(EventType.SYSTEM_BOOTSTRAP, context)
    assert not slept
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext():
        start.handle_event(EventType.BEFORE_CLIENT_REGISTER, context)
    assert len(slept) == min(looks, 3001)


MESSAGES = 30
FREED = Path(__file__).parents[2] / "sent_messages.py"


@pytest.mark.parametrize("process", ["job", "server"])
def test_sent_messages_are_freed_without_garbage_collection(process: str) -> None:
    """However many were sent: FLARE's own thread refers to the last ones only."""
    command = [sys.executable, str(FREED), str(MESSAGES), process]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout.split()
    assert int(found[0]) == MESSAGES, "all were answered"
    assert int(found[1]) <= 3, "of two per round trip"
