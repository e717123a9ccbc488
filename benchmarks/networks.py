"""Networks of devices that can be cut: nothing passes any more, in either direction, and neither end is told.

A namespace of the kernel's whose link goes down, where this process may make one; else a forwarder before the server
that stops forwarding.
"""

import contextlib
import json
import os
import selectors
import shutil
import socket
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import final

from codedfl.deploy.flare.namespaces import add_namespace, remove, remove_stale, run
from codedfl.errors import EngineError

__all__ = ["Forwarder", "Namespace", "Network", "network"]

HERE, THERE = "10.213.77.1", "10.213.77.2"
NAME, OUTSIDE = f"codedfl-{os.getpid()}-0", f"cf{os.getpid()}n0"
"""As in ``codedfl.deploy.flare.namespaces``, which removes what a process that was killed has left."""


class Network(ABC):
    """A network of some devices."""

    host = "localhost"
    """Where the server is to be."""
    prefix: tuple[str, ...] = ()
    """The prefix of the devices' commands."""

    def join(self, kit: Path, port: int) -> None:  # noqa: B027 - not every network needs to
        """Let the device of a kit, which is not running, be in this network; the server is at ``port``."""

    @abstractmethod
    def cut(self) -> None:
        """Let nothing pass."""

    @abstractmethod
    def mend(self) -> None:
        """Let everything pass again."""

    @abstractmethod
    def close(self) -> None:
        """Take it down."""


@final
class Namespace(Network):
    """A network namespace with one link to this machine."""

    host = HERE
    prefix = ("ip", "netns", "exec", NAME)

    def __init__(self) -> None:
        remove_stale()
        try:
            add_namespace(NAME, OUTSIDE, f"{THERE}/30")
            run("ip", "addr", "add", f"{HERE}/30", "dev", OUTSIDE)
            self.mend()
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """Let the link go down in the namespace."""
        run("ip", "-n", NAME, "link", "set", "eth0", "down")

    def mend(self) -> None:
        """Let it go up."""
        run("ip", "link", "set", OUTSIDE, "up")
        run("ip", "-n", NAME, "link", "set", "eth0", "up")

    def close(self) -> None:
        """Remove its link, and then itself."""
        remove(str(os.getpid()))


@final
class Forwarder(Network):
    """Listens for devices and forwards to the server, until it is cut."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open, self._closed = threading.Event(), threading.Event()
        self._open.set()
        self._port = 0
        self.delay = 0.0
        """Seconds that every piece of at most 64 kB takes in addition."""
        threading.Thread(target=self._accept, daemon=True).start()

    def join(self, kit: Path, port: int) -> None:
        """Let the kit name the forwarder's port instead of the server's."""
        self._port = port
        path = kit / "startup" / "fed_client.json"
        settings = json.loads(path.read_text())
        settings["servers"][0]["service"]["target"] = f"localhost:{self._listener.getsockname()[1]}"
        path.write_text(json.dumps(settings))

    def cut(self) -> None:
        """Read nothing and write nothing; connections stay."""
        self._open.clear()

    def mend(self) -> None:
        """Forward what has been waiting."""
        self._open.set()

    def close(self) -> None:
        """End all connections."""
        self._closed.set()
        self._open.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError):
                device, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(device,), daemon=True).start()

    def _forward(self, device: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            device,
            socket.create_connection(("127.0.0.1", self._port)) as server,
            selectors.DefaultSelector() as waiting,
        ):
            waiting.register(device, selectors.EVENT_READ, server)
            waiting.register(server, selectors.EVENT_READ, device)
            while not self._closed.is_set():
                for key, _ in waiting.select(0.1):
                    self._open.wait()
                    time.sleep(self.delay)
                    taken = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not taken:
                        return
                    key.data.sendall(taken)


def network() -> Network:
    """Make a namespace if possible, else a forwarder."""
    if os.geteuid() == 0 and shutil.which("ip"):
        with contextlib.suppress(EngineError):
            return Namespace()
    return Forwarder()
