"""Trainings as processes of their own, which wait for a file that says how far they may go."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from rundirs import environment

HELD = """
import pathlib, sys, time
from codedfl.deploy.server import fleet
from codedfl.engines.virtual import VirtualEngine

fleet.PATIENCE, fleet.PATIENCE_EACH = 8.0, 0.0
go, ask = pathlib.Path(sys.argv[1]), VirtualEngine.ask

def held(self, question, *, offline):
    while question.epoch > int(go.read_text()):
        time.sleep(0.005)
    return ask(self, question, offline=offline)

VirtualEngine.ask = held
from codedfl.cli import main
main(sys.argv[2:])
"""
FOR_EVER = 10**9


class Training:
    """``codedfl ARGUMENTS``, held back after some epochs (simulations only); its lines of the error stream are kept."""

    def __init__(self, folder: Path, *arguments: str, upto: int = FOR_EVER) -> None:
        self._go = folder / "go"
        self.release(upto)
        command = [sys.executable, "-c", HELD, str(self._go), *arguments]
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment() | threads,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._known = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if line.startswith("live page: "):
                self._known.set()
        self._known.set()

    def release(self, upto: int) -> None:
        """Let it train up to an epoch."""
        scratch = self._go.with_name(".go")
        scratch.write_text(str(upto))
        scratch.replace(self._go)

    @property
    def address(self) -> str:
        """The address of its page."""
        assert self._known.wait(120)
        found = [line.removeprefix("live page: ").strip() for line in self.lines if line.startswith("live page: ")]
        assert found, "".join(self.lines)
        return found[0]

    def kill(self) -> None:
        """Kill it as the kernel would."""
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        """Ask it to end, as it does in an orderly way."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
        self.wait()

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        code = self._process.wait(300)
        self._reader.join(60)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code
