"""The queue of a device's requests: one at a time, in order; those that nobody awaits any more are cancelled."""

import heapq
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

_MOST_NUMBERS = 1024
"""Upper bound of numbers that are remembered; smaller ones than those count as received, so none can be replayed."""


class Cancelled(BaseException):
    """Nobody awaits the reply any more."""


class DuplicateRequest(BaseException):
    """The request has been received before."""


@final
class RequestQueue:
    """The requests of one session; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._claimed: list[int] = []
        """The largest numbers that were claimed, as a heap."""
        self._forgotten = -1
        """The largest number that was claimed and is not remembered any more."""
        self._waiting: set[int] = set()
        self._busy = False
        self._cancelled_below = 0
        self._closed = False

    def claim(self, number: int) -> None:
        """Register a request, so that a duplicate is not carried out."""
        with self._changed:
            if number <= self._forgotten or number in self._claimed:
                raise DuplicateRequest
            heapq.heappush(self._claimed, number)
            if len(self._claimed) > _MOST_NUMBERS:
                self._forgotten = heapq.heappop(self._claimed)

    def cancel_below(self, number: int) -> None:
        """Cancel waiting and sleeping requests with smaller numbers, if they are cancellable."""
        with self._changed:
            self._cancelled_below = max(self._cancelled_below, number)
            self._changed.notify_all()

    def close(self) -> None:
        """Cancel all requests."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def slot(self, number: int, *, cancellable: bool) -> Iterator[None]:
        """Wait for the turn of a request, smallest number first, and work alone."""
        with self._changed:
            self._waiting.add(number)
            try:
                while self._busy or number > min(self._waiting):
                    self._check(number, cancellable)
                    self._changed.wait()
                self._check(number, cancellable)
                self._busy = True
            finally:
                self._waiting.discard(number)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def sleep(self, seconds: float, number: int, *, cancellable: bool) -> None:
        """Sleep unless the request is cancelled."""
        until = time.monotonic() + seconds
        with self._changed:
            self._check(number, cancellable)
            while (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
                self._check(number, cancellable)

    def _check(self, number: int, cancellable: bool) -> None:
        if self._closed or (cancellable and number < self._cancelled_below):
            raise Cancelled
