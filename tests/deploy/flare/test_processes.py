"""Records of processes, with dummies in FLARE's place: all of ours are ended, and nobody else's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

psutil = pytest.importorskip("psutil", reason="the processes of a deployment need psutil, of the extra 'flare'")

from codedfl.deploy.flare import processes  # noqa: E402
from codedfl.deploy.flare.processes import RECORD, launch, reviver, running, status, stop  # noqa: E402
from codedfl.deploy.flare.sites import PLUGINS  # noqa: E402
from codedfl.errors import EngineError  # noqa: E402
from codedfl.schemes import SCHEMES  # noqa: E402

SLEEP = "import time\ntime.sleep(600)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n" + SLEEP
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]], start_new_session=True)
import time
time.sleep(600)
"""


def command(kit: Path, code: str = SLEEP) -> list[str]:
    return [sys.executable, "-c", code, processes.MODULES + "dummy", "-m", str(kit)]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "device-1"
    folder.mkdir()
    yield folder
    stop([folder])


def wait_until(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_process_is_written_down_found_and_ended(kit: Path) -> None:
    pid = launch(kit, command(kit))
    record = json.loads((kit / RECORD).read_text())
    assert (record["pid"], record["created"]) == (pid, psutil.Process(pid).create_time())
    assert (kit / RECORD).stat().st_mode & 0o077 == 0
    wait_until(lambda: status([kit])[0].pid == pid)
    assert not status([kit])[0].died
    assert os.getsid(pid) == pid  # Ctrl-C in our terminal does not reach it
    stop([kit])
    assert not runs(pid)
    assert not (kit / RECORD).exists()
    assert not status([kit])[0].died


def test_who_does_not_listen_is_ended_by_force(kit: Path) -> None:
    pid = launch(kit, command(kit, STUBBORN))
    wait_until(lambda: "deaf" in (kit / "console.txt").read_text())
    stop([kit], grace=0.2)
    assert not runs(pid)


def test_processes_in_sessions_of_their_own_are_ended_too(kit: Path) -> None:
    pid = launch(kit, command(kit, PARENT))
    wait_until(lambda: status([kit])[0].jobs)
    (job,) = status([kit])[0].jobs
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status([kit])[0].died)  # its job outlives it
    assert runs(job)
    stop([kit])
    assert not runs(job)


def test_a_number_that_now_belongs_to_another_is_left_alone(kit: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP, str(kit)])  # it even names our folder
    try:
        record = {"pid": stranger.pid, "created": psutil.Process(stranger.pid).create_time(), "command": []}
        (kit / RECORD).write_text(json.dumps(record))
        found = status([kit])[0]
        assert (found.pid, found.died) == (None, True)
        stop([kit])
        assert runs(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_of_another_kit_is_left_alone(kit: Path) -> None:
    other = kit.parent / "device-2"
    other.mkdir()
    try:
        pid = launch(other, command(other))
        wait_until(lambda: status([other])[0].pid == pid)
        stop([kit])
        assert runs(pid)
    finally:
        stop([other])
    assert not runs(pid)


def test_a_damaged_record_is_no_record(kit: Path) -> None:
    pid = launch(kit, command(kit))
    (kit / RECORD).write_text("{")
    wait_until(lambda: status([kit])[0].jobs == (pid,))  # ours, though nothing says which
    stop([kit])
    assert not runs(pid)


def test_what_is_no_kit_is_not_started(kit: Path) -> None:
    pytest.importorskip("nvflare")
    with pytest.raises(EngineError, match="not the start-up kit"):
        processes.start(kit.parent / "nothing")


def start_dummy(kit: Path, threads: int | None = None, prefix: Sequence[str] = ()) -> int:
    return launch(kit, [*prefix, *command(kit)], threads)


def test_processors_are_shared_unless_the_user_says_otherwise(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start", start_dummy)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for name in processes.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with running([kit]):
        seen = psutil.Process(json.loads((kit / RECORD).read_text())["pid"]).environ()
    assert {name: seen[name] for name in processes.THREADS} == dict.fromkeys(processes.THREADS, "2") | {
        "OMP_NUM_THREADS": "7"
    }


def test_plugins_are_those_of_this_command_and_of_no_environment(
    kit: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Started and started again, the process has the files that were loaded here."""
    monkeypatch.setattr(processes, "start", start_dummy)
    monkeypatch.setenv(PLUGINS, '["/somewhere/else.py"]')

    def handed() -> str:
        return str(psutil.Process(json.loads((kit / RECORD).read_text())["pid"]).environ()[PLUGINS])

    with running([kit]):
        assert handed() == "[]"
    with monkeypatch.context() as changed:
        changed.setitem(SCHEMES.files, "quick", tmp_path / "quick.py")
        with running([kit]):
            assert json.loads(handed()) == [str(tmp_path / "quick.py")]
            os.kill(status([kit])[0].pid or 0, signal.SIGKILL)
            wait_until(lambda: status([kit])[0].died)
            reviver([kit])()
            assert json.loads(handed()) == [str(tmp_path / "quick.py")]


def test_a_prefix_becomes_the_process(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started so, found, started again so, and ended."""
    monkeypatch.setattr(processes, "start", start_dummy)
    prefixes = {kit: ("env", "PLACE=here")}

    def place() -> str | None:
        (found,) = status([kit])
        return psutil.Process(found.pid).environ().get("PLACE") if found.pid else None

    with running([kit], prefixes):
        wait_until(lambda: place() == "here")
        os.kill(status([kit])[0].pid or 0, signal.SIGKILL)
        wait_until(lambda: status([kit])[0].died)
        reviver([kit])()
        wait_until(lambda: place() == "here")
        pid = status([kit])[0].pid
    assert pid is not None
    assert not runs(pid)


def test_everything_is_ended_when_something_goes_wrong(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start", start_dummy)
    with pytest.raises(KeyboardInterrupt), running([kit]):
        pid = status([kit])[0].pid or json.loads((kit / RECORD).read_text())["pid"]
        raise KeyboardInterrupt
    assert not runs(pid)


def test_the_dead_are_started_again_but_not_for_ever(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start", start_dummy)
    first = start_dummy(kit)
    revive = reviver([kit], most=1)
    wait_until(lambda: status([kit])[0].pid == first)
    revive()
    assert status([kit])[0].pid == first  # it was alive
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: status([kit])[0].died)
    revive()
    second = json.loads((kit / RECORD).read_text())["pid"]
    assert second != first
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: status([kit])[0].died)
    with pytest.raises(EngineError, match="keeps dying"):
        revive()


COMMAND = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
from pathlib import Path
from codedfl.deploy.flare import processes
kit = Path(sys.argv[1])
command = [sys.executable, "-c", {code!r}, {module!r}, "-m", str(kit)]
processes.start = lambda kit, threads, prefix: processes.launch(kit, command)
with processes.running([kit]):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_nothing_that_is_not_found(kit: Path, number: signal.Signals) -> None:
    source = COMMAND.format(code=SLEEP, module=processes.MODULES + "dummy")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", source, str(kit)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        pid = json.loads((kit / RECORD).read_text())["pid"]
        assert runs(pid)
        child.send_signal(number)
        child.wait()
    if number == signal.SIGKILL:
        assert runs(pid)
        stop([kit])
    assert not runs(pid)
