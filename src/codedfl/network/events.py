"""Virtual time: an event queue that always gives the same order."""

import heapq
import math
from typing import Generic, TypeVar

__all__ = ["VirtualClock"]

Event = TypeVar("Event")


class VirtualClock(Generic[Event]):
    """Time in seconds, and events that are due. Events at the same time come in the order they were scheduled."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._count = 0
        self._due: list[tuple[float, int, Event]] = []

    @property
    def now(self) -> float:
        """The present."""
        return self._now

    def schedule(self, delay: float, event: Event) -> None:
        """Let an event happen ``delay`` seconds from now."""
        if not delay >= 0:
            raise ValueError(f"an event cannot happen {delay} s from now; the delay must be at least 0")
        self.schedule_at(self._now + delay, event)

    def schedule_at(self, when: float, event: Event) -> None:
        """Let an event happen at a given time; if that is over, it is the next to happen."""
        heapq.heappush(self._due, (when, self._count, event))
        self._count += 1

    @property
    def due(self) -> float:
        """When the next event happens; infinity if there is none."""
        return self._due[0][0] if self._due else math.inf

    def next(self) -> Event:
        """Go to the next event and return it."""
        due, _, event = heapq.heappop(self._due)
        self._now = max(self._now, due)  # an event that was due while time passed otherwise happens now
        return event

    def advance(self, seconds: float) -> None:
        """Let time pass in which nothing else happens."""
        if not seconds >= 0:
            raise ValueError(f"time cannot pass by {seconds} s; it must be at least 0")
        self._now += seconds

    def forget(self) -> None:
        """Drop the events that are still due: nobody waits for them."""
        self._due.clear()

    def __len__(self) -> int:
        return len(self._due)
