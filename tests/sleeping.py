"""A clock on which sites sleep: it jumps to the next thing that happens as soon as every thread waits.

So a whole emulated run takes no time, and what it took on this clock is the sum of its sleeps.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from codedfl.deploy.site import host, reception
from codedfl.deploy.site import locks as turns
from codedfl.deploy.site.exchange import overlap, stage
from codedfl.testing import in_process


class SleepingClock:
    """The time, and how many threads are neither asleep nor waiting; the thread that makes it counts as one."""

    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self._now = 0.0
        self._running = 1
        self._changes = 0
        self._waiting: dict[int, tuple[int, float]] = {}
        """Of every thread that waits: the last change that it has seen, and until when it waits."""

    def __call__(self) -> float:
        """Return the time."""
        return self._now

    def change(self) -> None:
        """Let all who wait look again."""
        self._changes += 1
        self.lock.notify_all()

    def begin(self) -> None:
        """Count one more thread."""
        with self.lock:
            self._running += 1

    def end(self) -> None:
        """Count one less."""
        with self.lock:
            self._running -= 1
            self._jump()

    def wait(self, timeout: float | None) -> None:
        """Wait for a change, or until time has passed; the lock is held."""
        # however little is left, time moves on
        until = math.inf if timeout is None else max(self._now + timeout, math.nextafter(self._now, math.inf))
        self._waiting[threading.get_ident()] = seen, _ = self._changes, until
        self._running -= 1
        self._jump()
        if self._changes == seen:
            self.lock.wait()
        self._running += 1
        del self._waiting[threading.get_ident()]

    def _jump(self) -> None:
        """Go on to the first end of a sleep if nobody runs and everybody has seen the last change."""
        if self._running == 0 and all(seen == self._changes for seen, _ in self._waiting.values()):
            first = min((until for _, until in self._waiting.values()), default=math.inf)
            if first < math.inf:
                self._now = first
                self.change()


class Condition:
    """A condition whose waiting happens on a sleeping clock; all of a clock have one lock."""

    def __init__(self, clock: SleepingClock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._clock.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._clock.lock.release()

    def notify_all(self) -> None:
        self._clock.change()

    def wait(self, timeout: float | None = None) -> None:
        self._clock.wait(timeout)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = math.inf if timeout is None else self._clock() + timeout
        while not (found := predicate()) and self._clock() < until:
            self.wait(None if timeout is None else until - self._clock())
        return found


class Threads(ThreadPoolExecutor):
    """Threads that a sleeping clock counts."""

    def __init__(self, clock: SleepingClock, most: int) -> None:
        super().__init__(most)
        self._clock = clock

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Any:
        self._clock.begin()

        def counted() -> Any:
            try:
                return call(*arguments, **options)
            finally:
                self._clock.end()

        return super().submit(counted)


def sleeping_clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    """Let the sites of in-process fleets sleep on a clock of their own from now on; computing takes none of it."""
    clock = SleepingClock()
    waiting = SimpleNamespace(Condition=lambda: Condition(clock), Event=threading.Event, local=threading.local)
    for module in (turns, reception, in_process):
        monkeypatch.setattr(module, "threading", waiting)
    for module in (turns, reception, in_process, host, overlap, stage):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, perf_counter=clock))
    monkeypatch.setattr(in_process, "ThreadPoolExecutor", lambda most: Threads(clock, most))
    return clock
