"""Exchanges messages between two of FLARE's cells, and writes how many were answered and how many still exist.

The process is set up as that of a job, or as the server's own, which answers the organiser's requests.

Without garbage collection, so that what still exists refers to itself. FLARE's cells leave threads behind, so they
have a process of their own.
"""

import gc
import os
import socket
import sys
import threading
import time
from types import SimpleNamespace

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer, TxTask

from codedfl.deploy.flare.cells import CHANNEL, CellRoute, restart_with

SECONDS = 300.0
"""How long a message may take on a busy machine."""


def connected() -> Cell:
    """Return the cell of a server to which that of a device is connected."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    server, device = (
        Cell(name, address, secure=False, credentials={}, create_internal_listener=False)
        for name in ("server", "device-1")
    )
    device.register_request_cb(channel=CHANNEL, topic="*", cb=lambda _: make_reply(ReturnCode.OK, body=b"back"))
    server.start()
    device.start()
    return server


def answered(cell: Cell) -> bool:
    """Send a message, and return whether it was answered."""
    message = Message(payload=b"there")
    reply = cell.send_request(channel=CHANNEL, topic="question", target="device-1", request=message, timeout=SECONDS)
    return bool(reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK)


def left() -> int:
    """Return how many messages there are when none is under way any more."""
    while ByteStreamer.tx_task_map:
        time.sleep(0.05)
    return sum(isinstance(one, TxTask) for one in gc.get_objects())


def main(messages: int, process: str) -> None:
    """Write both counts."""
    cell = connected()
    engine = SimpleNamespace(get_cell=lambda: cell)
    if process == "job":
        CellRoute(engine, "job")
    else:
        restart_with(engine, lambda *_: "")
    while not answered(cell):
        time.sleep(0.1)
    gc.collect()
    gc.disable()
    sys.stdout.write(f"{sum(answered(cell) for _ in range(messages))} {left()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    threading.excepthook = lambda _: None
    main(int(sys.argv[1]), sys.argv[2])
    os._exit(0)
