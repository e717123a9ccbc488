"""A device's emulated incoming link: parcels arrive one after the other, in the order of the stage.

As in the delay model, an early parcel waits for its predecessors, and its sender with it; a relayed parcel waits
without its sender. Where all devices share one channel, the sender of a direct parcel tells the next sender that the
channel is free.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.site.locks import Cancelled
from codedfl.errors import ParcelError

_MOST_TURNS = 1 << 16
"""Upper bound of turns on the channel that are not taken; protects against memory exhaustion."""


@dataclass
class _Link:
    """The link in one stage."""

    next_turn: int = 0
    """The turn of the next parcel."""
    busy: float = 0.0
    """When the link becomes free."""
    waiting: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Arrival and duration of parcels that wait for their predecessors, by turn."""
    ends: dict[int, float] = field(default_factory=dict)
    """When each parcel is received."""

    def settle(self) -> None:
        """Compute the end of every parcel whose predecessors are known."""
        while self.next_turn in self.waiting:
            arrived, seconds = self.waiting.pop(self.next_turn)
            self.ends[self.next_turn] = self.busy = max(arrived, self.busy) + seconds
            self.next_turn += 1


@final
class Reception:
    """The incoming link of one device in one session; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._links: defaultdict[int, _Link] = defaultdict(_Link)
        self._released: set[int] = set()
        self._free: set[tuple[int, int]] = set()
        self._closed = False
        self._changes = 0

    def set_free(self, stage: int, number: int) -> None:
        """Note that the shared channel is free for a parcel of this device."""
        with self._changed:
            if len(self._free) >= _MOST_TURNS:
                raise ParcelError(f"{_MOST_TURNS} turns on the shared channel are not taken; send no more")
            if stage not in self._released:
                self._free.add((stage, number))
            self._changed.notify_all()

    def await_free(self, stage: int, number: int) -> None:
        """Wait until the shared channel is free for a parcel of this device."""
        with self._changed:
            while (stage, number) not in self._free and self._continues(stage):
                self._changed.wait()
            self._free.discard((stage, number))

    @property
    def changes(self) -> int:
        """How often something has changed that :meth:`wait` waits for."""
        with self._changed:
            return self._changes

    def changed(self) -> None:
        """Tell those who wait that a parcel can be taken."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def wait(self, stage: int, seen: int, until: float | None) -> bool:
        """Wait for more changes than those ``seen``, or for a time of the clock; return whether the stage goes on."""
        with self._changed:
            while self._waits(stage, seen, until):
                self._changed.wait(None if until is None else until - time.monotonic())
            return self._continues(stage)

    def waits(self, stage: int, seen: int, until: float | None) -> bool:
        """Return whether :meth:`wait` would wait now."""
        with self._changed:
            return self._waits(stage, seen, until)

    def alone(self, stage: int, seconds: float) -> float:
        """Receive a parcel in parallel with others, and wait until it has arrived; return when."""
        with self._changed:
            link = self._links[stage]
            end = time.monotonic() + seconds
            link.busy = max(link.busy, end)
            self._sleep(stage, end)
            return end

    def in_turn(self, stage: int, turn: int, seconds: float, *, wait: bool) -> float:
        """Receive a parcel in its turn, counted from 0, and ``wait`` until it has arrived; return when, if known."""
        with self._changed:
            link = self._links[stage]
            if turn >= link.next_turn:  # else it is a repetition
                link.waiting.setdefault(turn, (time.monotonic(), seconds))
            link.settle()
            self._changed.notify_all()
            while wait and turn not in link.ends and self._continues(stage):
                self._changed.wait()
            if wait and turn in link.ends:
                self._sleep(stage, link.ends[turn])
            return link.ends.get(turn, time.monotonic())

    def over(self, stage: int) -> float:
        """Return when the last parcel of a stage has arrived, and drop the stage."""
        with self._changed:
            return self._links.pop(stage, _Link(busy=time.monotonic())).busy

    def release(self, stage: int) -> None:
        """Abandon a stage: nobody waits in it any more."""
        with self._changed:
            self._released.add(stage)
            self._links.pop(stage, None)
            self._free = {turn for turn in self._free if turn[0] != stage}
            self._changed.notify_all()

    def released(self, stage: int) -> bool:
        """Return whether a stage is abandoned."""
        with self._changed:
            return stage in self._released

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _sleep(self, stage: int, end: float) -> None:
        while (left := end - time.monotonic()) > 0 and self._continues(stage):
            self._changed.wait(left)

    def _waits(self, stage: int, seen: int, until: float | None) -> bool:
        over = self._closed or stage in self._released or self._changes > seen
        return not over and (until is None or time.monotonic() < until)

    def _continues(self, stage: int) -> bool:
        if self._closed:
            raise Cancelled
        return stage not in self._released
