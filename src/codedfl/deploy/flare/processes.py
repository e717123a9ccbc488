"""The processes of start-up kits on this machine: started, found again and ended, and never anybody else's.

Every process that is started is written down in its kit. A process belongs to a kit if it runs a module of FLARE with
the kit's folder as an argument; those that FLARE starts for a job do so too, in sessions of their own. So all are found
again after a crash, and a process that has merely got an old number is left alone.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, final

from codedfl.deploy.flare.kits import Kits, write_private
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.resources import write_policy
from codedfl.deploy.flare.sites import read_site
from codedfl.errors import EngineError

__all__ = ["RECORD", "Status", "kits_of", "launch", "reviver", "running", "start", "status", "stop", "threads_each"]

RECORD = "process.json"
CONSOLE = "console.txt"
MODULES = "nvflare.private.fed.app."

OUTCOME_WAIT = 1
"""Seconds that the server waits, after a job, for devices to say how it ended with them."""

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_children: dict[int, "subprocess.Popen[bytes]"] = {}
_through: dict[Path, tuple[str, ...]] = {}
"""What kits were started through, so that they are started again in the same way."""


@final
@dataclass(frozen=True)
class Status:
    """What runs of a kit."""

    kit: Path
    pid: int | None
    """Of the process that was started; None if it does not run."""
    jobs: tuple[int, ...]
    """Of the processes that run for jobs."""
    died: bool
    """Whether it was started and has ended without being told to."""


def kits_of(kits: Kits) -> list[Path]:
    """The kits that run as processes: the server's first."""
    return [kits.server, *(kits.device(site) for site in kits.sites)]


def start(kit: Path, threads: int | None = None, *, through: Sequence[str] = ()) -> int:
    """Start the process of a kit and return its number.

    ``threads`` is how many it may compute with; ``through``: a command that turns into the one it is given.
    """
    need_flare()
    kit = kit.resolve()
    if _members([kit])[kit]:
        raise EngineError(f"'{kit}' is running already; stop it first")
    command = _command(kit)
    write_policy(kit)
    return launch(kit, command, threads, through=through)


def launch(kit: Path, command: Sequence[str], threads: int | None = None, *, through: Sequence[str] = ()) -> int:
    """Start a command for a kit, in a session of its own, and write it down."""
    command, _through[kit.resolve()] = [*through, *command], tuple(through)
    chosen = {"MALLOC_ARENA_MAX": "2", "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": str(OUTCOME_WAIT)}
    environment = chosen | ({} if threads is None else dict.fromkeys(THREADS, str(threads))) | os.environ
    console = os.open(kit / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=environment,
            cwd=kit,
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(console)
    _children[child.pid] = child
    record = {"pid": child.pid, "created": _created(child.pid), "command": command}
    write_private(kit / RECORD, json.dumps(record).encode())
    return child.pid


def status(kits: Sequence[Path]) -> list[Status]:
    """Look at what runs of some kits."""
    found = _members(kits)
    return [_status(kit, found[kit]) for kit in kits]


def stop(kits: Sequence[Path], grace: float = 5.0) -> None:
    """End all processes of some kits: ask them, then end by force what is left after ``grace`` seconds."""
    import psutil

    for force in (False, True, True):
        ours = [process for found in _members(kits).values() for process in found]
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.kill() if force else process.terminate()
        psutil.wait_procs(ours, timeout=grace)
    if left := [process.pid for found in _members(kits).values() for process in found]:
        raise EngineError(f"processes {', '.join(map(str, left))} do not end; end them by hand")
    for kit in kits:
        (kit / RECORD).unlink(missing_ok=True)
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]


@contextlib.contextmanager
def running(kits: Sequence[Path], prefixes: Mapping[Path, Sequence[str]] = MappingProxyType({})) -> Iterator[None]:
    """Start kits, and stop them whatever happens, also if this command is told to end; they share the processors.

    ``prefixes`` are those of their commands.
    """
    with _told_to_end_is_an_error():
        try:
            for kit in kits:
                start(kit, threads_each(kits), through=prefixes.get(kit, ()))
            yield
        finally:
            stop(kits)


def reviver(kits: Sequence[Path], most: int = 3) -> Callable[[], None]:
    """Make a function that starts again those kits whose process has died, each at most ``most`` times.

    Those that this process has started are started as before.
    """
    times = dict.fromkeys(kits, 0)

    def revive() -> None:
        for kit in kits:
            if not _died(kit):
                continue
            times[kit] += 1
            if times[kit] > most:
                raise EngineError(f"the process of '{kit}' keeps dying; {_last_words(kit)}")
            stop([kit])
            start(kit, threads_each(kits), through=_through.get(kit.resolve(), ()))

    return revive


def threads_each(kits: Sequence[Path]) -> int:
    """With how many threads each of some kits computes where all of them share this machine."""
    # threads that wait for each other while others compute make an epoch several times slower
    return max(1, (os.cpu_count() or 1) // len(kits))


def _members(kits: Sequence[Path]) -> dict[Path, list[Any]]:
    import psutil

    folders = {str(kit.resolve()): kit for kit in kits}
    found: dict[Path, list[Any]] = {kit: [] for kit in kits}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            arguments = process.cmdline()
            if any(argument.startswith(MODULES) for argument in arguments):
                for folder in folders.keys() & set(arguments):
                    found[folders[folder]].append(process)
    return found


def _status(kit: Path, found: Sequence[Any]) -> Status:
    record = _read_record(kit)
    parent = [process.pid for process in found if _is(process, record)]
    jobs = tuple(process.pid for process in found if process.pid not in parent)
    return Status(kit, parent[0] if parent else None, jobs, record is not None and not parent)


def _command(kit: Path) -> list[str]:
    if (kit / "startup" / "fed_server.json").exists():
        role, module, own = "server", "server.server_train", []
        _need_port(kit)
    elif (kit / "startup" / "fed_client.json").exists():
        role, module, own = "client", "client.client_train", [f"uid={read_site(kit)['name']}"]
    else:
        raise EngineError(f"'{kit}' is not the start-up kit of a server or a device")
    settings = ["secure_train=true", *own, "org=codedfl", "config_folder=config"]
    return [sys.executable, "-m", MODULES + module, "-m", str(kit), "-s", f"fed_{role}.json", "--set", *settings]


def _need_port(kit: Path) -> None:
    host, port = json.loads((kit / "startup" / "fed_server.json").read_text())["servers"][0]["service"]["target"].split(
        ":"
    )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as FLARE does
        try:
            probe.bind(("127.0.0.1" if host == "localhost" else "", int(port)))
        except OSError as error:
            raise EngineError(f"the server cannot use port {port} ({error.strerror}); make kits with another") from None


def _created(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _read_record(kit: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((kit / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _is(process: Any, record: dict[str, Any] | None) -> bool:
    return record is not None and process.pid == record.get("pid") and process.create_time() == record.get("created")


def _died(kit: Path) -> bool:
    import psutil

    if (record := _read_record(kit)) is None:
        return False
    try:
        process = psutil.Process(record["pid"])
        return not _is(process, record) or process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError):
        return True


def _last_words(kit: Path) -> str:
    try:
        lines = (kit / CONSOLE).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"its {CONSOLE} ends with: {lines[-1][:300]}" if lines else f"its {CONSOLE} says nothing"


@contextlib.contextmanager
def _told_to_end_is_an_error() -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
