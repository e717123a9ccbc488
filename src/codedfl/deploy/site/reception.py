"""A device's incoming link while parcels take their emulated time: one after the other, in the order of the stage.

As in the delay model, a parcel that comes early waits for those that are before it, and its sender with it; what the
server relays waits without its sender.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.site.locks import Superseded

__all__ = ["Reception"]


@dataclass
class _Link:
    """The link in one stage."""

    following: int = 0
    """The turn of the next parcel that goes over it."""
    busy: float = 0.0
    """Until when parcels go over it."""
    come: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of those that wait for others before them: when they came and how long they take."""
    ends: dict[int, float] = field(default_factory=dict)
    """When each parcel has arrived."""

    def settle(self) -> None:
        """Say when parcels arrive, for as many as that is known of."""
        while self.following in self.come:
            came, seconds = self.come.pop(self.following)
            self.ends[self.following] = self.busy = max(came, self.busy) + seconds
            self.following += 1


@final
class Reception:
    """What comes to one device in one run; used by all threads that bring it parcels."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._links: dict[int, _Link] = {}
        self._released: set[int] = set()
        self._closed = False

    def alone(self, stage: int, seconds: float) -> None:
        """Let a parcel come that shares the link with no other, and wait until it has arrived."""
        with self._changed:
            link = self._link(stage)
            end = time.monotonic() + seconds
            link.busy = max(link.busy, end)
            self._sleep(stage, end)

    def in_turn(self, stage: int, turn: int, seconds: float, *, wait: bool) -> None:
        """Let a parcel come whose turn, counted from 0, is known, and ``wait`` until it has arrived."""
        with self._changed:
            link = self._link(stage)
            if turn >= link.following:  # else it came before, and is brought again
                link.come.setdefault(turn, (time.monotonic(), seconds))
            link.settle()
            self._changed.notify_all()
            while wait and turn not in link.ends and self._goes_on(stage):
                self._changed.wait()
            if wait and turn in link.ends:
                self._sleep(stage, link.ends[turn])

    def over(self, stage: int) -> float:
        """Return when the last parcel of a stage has arrived, and forget the stage."""
        with self._changed:
            return self._links.pop(stage, _Link(busy=time.monotonic())).busy

    def release(self, stage: int) -> None:
        """Let nobody wait in a stage any more: it will not be finished."""
        with self._changed:
            self._released.add(stage)
            self._links.pop(stage, None)
            self._changed.notify_all()

    def released(self, stage: int) -> bool:
        """Tell whether a stage has been given up."""
        with self._changed:
            return stage in self._released

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _link(self, stage: int) -> _Link:
        return self._links.setdefault(stage, _Link())

    def _sleep(self, stage: int, end: float) -> None:
        while (left := end - time.monotonic()) > 0 and self._goes_on(stage):
            self._changed.wait(left)

    def _goes_on(self, stage: int) -> bool:
        if self._closed:
            raise Superseded
        return stage not in self._released
