"""Run tests in forks of a process that has imported and collected everything."""

import contextlib
import faulthandler
import os
import pickle
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY = 6 * 2**30
"""Bytes that a fork may take beside those of its parent."""
COMPILING = 30.0
"""Seconds of processor time that compiling one kernel may take."""
WAITING = 8
"""How many times as long as on an idle processor a test may last: others run, too, and a test that waits takes none."""


class Reports:
    """Plugin that keeps what pytest reports of the test that runs."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(str(report.longrepr))


def run_tests(
    items: list[pytest.Item], seconds: dict[str, float], each: Callable[[str, float], None], kernels: int = 0
) -> tuple[str, str] | None:
    """Run tests until one fails, and return its name and why. A test that takes far too long ends the process.

    What counts is processor time, so that a busy machine is not taken for a change that somebody noticed.
    """
    reports = Reports()
    if items:
        items[0].config.pluginmanager.register(reports)
    for item, following in zip(items, [*items[1:], None], strict=True):
        began = time.monotonic()
        _limit(20 + 8 * seconds.get(item.nodeid, 5.0) + COMPILING * kernels)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _limit(0)
        if reports.failed:
            return item.nodeid, reports.failed[0]
        each(item.nodeid, time.monotonic() - began)
    return None


def _limit(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * WAITING)


def _become_child(config: pytest.Config, folder: str) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(Exception):
        faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**31, 2**31))
    config._tmp_path_factory._basetemp = Path(folder)
    config._tmp_path_factory._given_basetemp = None
    os.environ["TMPDIR"] = tempfile.tempdir = folder


def in_forks(
    config: pytest.Config, tasks: Iterator[tuple[Any, Callable[[], Any]]], jobs: int
) -> Iterator[tuple[Any, Any]]:
    """Run each task in a fork of its own, some side by side; yield its key and what it returned, or how it died."""
    waiting = selectors.DefaultSelector()
    while True:
        while len(waiting.get_map()) < jobs and (task := next(tasks, None)) is not None:
            key, call = task
            folder = tempfile.mkdtemp(prefix="mutant-")
            reads, writes = os.pipe()
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.close(reads)
                status = 1
                try:
                    _become_child(config, folder)
                    said = pickle.dumps(call())
                    status = 0
                except BaseException as problem:
                    said = pickle.dumps(f"{type(problem).__name__}: {problem}"[:9000])
                try:
                    with os.fdopen(writes, "wb") as pipe:
                        pipe.write(said)
                finally:
                    os._exit(status)
            os.close(writes)
            waiting.register(reads, selectors.EVENT_READ, (key, child, folder, []))
        if not waiting.get_map():
            return
        for ready, _ in waiting.select():
            key, child, folder, parts = ready.data
            if part := os.read(ready.fd, 2**20):
                parts.append(part)
                continue
            waiting.unregister(ready.fd)
            os.close(ready.fd)
            _, status = os.waitpid(child, 0)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # what a test left behind
            shutil.rmtree(folder, ignore_errors=True)
            said = b"".join(parts)
            if said:
                with contextlib.suppress(Exception):
                    yield key, pickle.loads(said)
                    continue
            died = os.WIFSIGNALED(status)
            yield key, f"ended by {signal.Signals(os.WTERMSIG(status)).name}" if died else f"ended with {status}"
