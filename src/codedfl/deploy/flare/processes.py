"""The processes of start-up kits on this machine: start, find and stop them, and no others.

Every started process is recorded in its kit. A process belongs to a kit if it runs a module of FLARE with the kit's
folder as an argument, which includes those that FLARE starts for jobs. So all are found after a crash, and a reused
process id is not mistaken for one of them.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, final

from codedfl.deploy.flare.kits import Kits, write_private
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.resources import write_policy
from codedfl.deploy.flare.sites import plugin_environment, read_site
from codedfl.errors import EngineError

_MOMENTS = 1000
"""Milliseconds in which a new process must have its command line."""
RECORD = "process.json"
CONSOLE = "console.txt"
MODULES = "nvflare.private.fed.app."

OUTCOME_WAIT = 1
"""Seconds that the server waits for the devices' exit codes after a job."""

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_children: dict[int, "subprocess.Popen[bytes]"] = {}


@final
@dataclass(frozen=True)
class Status:
    """The processes of a kit."""

    kit: Path
    pid: int | None
    """The recorded process; None if it does not run."""
    jobs: tuple[int, ...]
    """The processes of jobs."""
    died: bool
    """Whether the recorded process ended without being stopped."""


def kits_of(kits: Kits) -> list[Path]:
    """Return the kits that run as processes, the server's first."""
    return [kits.server, *(kits.device(site) for site in kits.sites)]


def start(kit: Path, threads: int | None = None, *, prefix: Sequence[str] = ()) -> int:
    """Start the process of a kit with that many threads and return its id; ``prefix`` goes before the command."""
    need_flare()
    kit = kit.resolve()
    if _members([kit])[kit]:
        raise EngineError(f"'{kit}' is running already; stop it first")
    command = _command(kit)
    write_policy(kit)
    return launch(kit, [*prefix, *command], threads)


def launch(kit: Path, command: Sequence[str], threads: int | None = None) -> int:
    """Start a command for a kit, in a session of its own, and record it."""
    chosen = {"MALLOC_ARENA_MAX": "2", "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": str(OUTCOME_WAIT)}
    environment = chosen | ({} if threads is None else dict.fromkeys(THREADS, str(threads))) | os.environ
    environment |= plugin_environment()
    options: dict[str, Any] = {"env": environment, "cwd": kit, "start_new_session": True, "umask": 0o077}
    with os.fdopen(os.open(kit / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as console:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, **options)
    _wait_for_command_line(child.pid)
    _children[child.pid] = child
    record = {"pid": child.pid, "created": _created(child.pid), "command": list(command)}
    write_private(kit / RECORD, json.dumps(record).encode())
    return child.pid


def status(kits: Sequence[Path]) -> list[Status]:
    """Return the processes of kits."""
    members, found = _members(kits), []
    for kit in kits:
        record, pids = _read_record(kit), {process.pid for process in members[kit]}
        pid = record["pid"] if record is not None and _is_alive(record) and record["pid"] in pids else None
        found.append(Status(kit, pid, tuple(sorted(pids - {pid})), record is not None and pid is None))
    return found


def stop(kits: Sequence[Path], grace: float = 5.0) -> None:
    """Terminate all processes of kits, and kill those that are left after ``grace`` seconds."""
    import psutil

    for force in (False, True, True):
        processes = [process for found in _members(kits).values() for process in found]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill() if force else process.terminate()
        psutil.wait_procs(processes, timeout=grace)
    if left := [process.pid for found in _members(kits).values() for process in found]:
        raise EngineError(f"processes {', '.join(map(str, left))} do not end; kill them by hand")
    for kit in kits:
        (kit / RECORD).unlink(missing_ok=True)
    for pid in [pid for pid, child in _children.items() if child.poll() is not None]:
        del _children[pid]


@contextlib.contextmanager
def running(kits: Sequence[Path], prefixes: Mapping[Path, Sequence[str]] = MappingProxyType({})) -> Iterator[None]:
    """Start kits, which share the processors, and stop them in any case, also on SIGTERM and SIGHUP."""
    with _exit_on_signals():
        try:
            for kit in kits:
                start(kit, threads_each(kits), prefix=prefixes.get(kit, ()))
            yield
        finally:
            stop(kits)


def reviver(kits: Sequence[Path], most: int = 3) -> Callable[[], None]:
    """Return a function that restarts dead processes with their recorded commands, each up to ``most`` times."""
    left = dict.fromkeys(kits, most)

    def revive() -> None:
        for kit in kits:
            record = _read_record(kit)
            if record is None or _is_alive(record):
                continue
            left[kit] -= 1
            if left[kit] < 0:
                raise EngineError(f"the process of '{kit}' keeps dying; {_console_end(kit)}")
            stop([kit])
            launch(kit, record["command"], threads_each(kits))

    return revive


def threads_each(kits: Sequence[Path]) -> int:
    """Return the number of threads per process if these kits share this machine."""
    # more threads than processors wait for each other and slow an epoch down several times
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


def _command(kit: Path) -> list[str]:
    if (kit / "startup" / "fed_server.json").exists():
        role, module, own = "server", "server.server_train", []
        _check_port(kit)
    elif (kit / "startup" / "fed_client.json").exists():
        role, module, own = "client", "client.client_train", [f"uid={read_site(kit)['name']}"]
    else:
        raise EngineError(f"'{kit}' is not the start-up kit of a server or a device")
    settings = ["secure_train=true", *own, "org=codedfl", "config_folder=config"]
    return [sys.executable, "-m", MODULES + module, "-m", str(kit), "-s", f"fed_{role}.json", "--set", *settings]


def _check_port(kit: Path) -> None:
    service = json.loads((kit / "startup" / "fed_server.json").read_text())["servers"][0]["service"]
    host, port = service["target"].split(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as FLARE does
        try:
            probe.bind(("127.0.0.1" if host == "localhost" else "", int(port)))
        except OSError as error:
            raise EngineError(f"the server cannot use port {port} ({error.strerror}); make kits with another") from None


def _created(pid: int) -> float | None:
    """Return the creation time of a running process."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.Error, TypeError, ValueError):
        return None


def _wait_for_command_line(pid: int) -> None:
    """Wait until a new process has its command line: the system tells of its start a moment earlier."""
    import psutil

    for _ in range(_MOMENTS):
        with contextlib.suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE or psutil.Process(pid).cmdline():
                return
        time.sleep(0.001)


def _read_record(kit: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((kit / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"pid", "created", "command"} <= record.keys() else None


def _is_alive(record: dict[str, Any]) -> bool:
    return record["created"] is not None and _created(record["pid"]) == record["created"]


def _console_end(kit: Path) -> str:
    with contextlib.suppress(OSError, IndexError):
        last = (kit / CONSOLE).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
        return f"its {CONSOLE} ends with: {last[:300]}"
    return f"its {CONSOLE} is empty"


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
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
