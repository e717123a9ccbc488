"""One thing at a time: a device takes up questions in their order, and drops those that nobody awaits any more."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

__all__ = ["Repeated", "Superseded", "Turns"]


class Superseded(BaseException):
    """Nobody awaits the answer any more."""


class Repeated(BaseException):
    """The question has come before, and is answered once."""


@final
class Turns:
    """The order of work of one device in one run; used by all threads that ask it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._claimed: set[int] = set()
        self._waiting: set[int] = set()
        self._busy = False
        self._dropped_below = 0
        self._closed = False

    def claim(self, number: int) -> None:
        """Take up a question, which nobody else may: a network that brings it twice has it done once."""
        with self._changed:
            if number in self._claimed:
                raise Repeated
            self._claimed.add(number)

    def drop_below(self, number: int) -> None:
        """Let questions with smaller numbers be dropped where they can be: those that wait, and those that sleep."""
        with self._changed:
            self._dropped_below = max(self._dropped_below, number)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop everything."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def turn(self, number: int, *, droppable: bool) -> Iterator[None]:
        """Wait until it is this question's turn, the smallest number first."""
        with self._changed:
            self._waiting.add(number)
            try:
                while self._busy or number > min(self._waiting):
                    self._check(number, droppable)
                    self._changed.wait()
                self._check(number, droppable)
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

    def sleep(self, seconds: float, number: int, *, droppable: bool) -> None:
        """Let time pass, for as long as somebody awaits the answer."""
        until = time.monotonic() + seconds
        with self._changed:
            self._check(number, droppable)
            while (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
                self._check(number, droppable)

    def _check(self, number: int, droppable: bool) -> None:
        if self._closed or (droppable and number < self._dropped_below):
            raise Superseded
