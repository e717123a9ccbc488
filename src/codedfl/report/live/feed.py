"""The newest state of a training, for any number of browsers; the newest replaces those that nobody has read."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from codedfl.report.pages import safe_json

Poll = Callable[[], Sequence[str] | None]
Pull = Callable[[], Mapping[str, Any]]
"""Returns the table of a board as it is now; called by the threads of the server."""
_EVERY = 0.15
"""Seconds between pulls at least."""

STARTING, TRAINING, FINISHED, STOPPED = "starting", "training", "finished", "stopped"
"""Phases of a training, as a page shows them."""


@final
class Feed:
    """Holds one state; publishing never waits for a browser.

    A training that shares the process publishes nothing: while browsers look, they pull (:meth:`pull_from`).
    """

    def __init__(self) -> None:
        self._pull: Pull | None = None
        self._pulled = -math.inf
        self._lock = threading.Lock()
        self._number = 0
        self._state: dict[str, Any] = {"phase": STARTING, "note": "", "run": None, "result": None}
        self.followed = threading.Event()
        """Set as soon as a browser has been given a state."""

    def publish(self, **parts: Any) -> None:
        """Replace parts of the state: ``phase``, ``note``, ``run`` (the table of a board), ``result``."""
        with self._lock:
            self._state = self._state | parts
            self._number += 1

    def pull_from(self, pull: Pull | None) -> None:
        """Have browsers pull the table from now on; None pulls once more and ends it."""
        with self._lock:
            self._pulled = -math.inf
            if pull is None:
                self._refresh()
            self._pull = pull

    def _refresh(self) -> None:
        """Pull the table, if it is time; the lock is held."""
        now = time.monotonic()
        if self._pull is None or now - self._pulled < _EVERY:
            return
        self._pulled, table = now, dict(self._pull())
        if table != self._state["run"]:
            self._state = self._state | {"phase": TRAINING, "run": table}
            self._number += 1

    def follow(self) -> Poll:
        """Return what a new connection polls: the whole state first, then states with the epochs since the last."""
        seen, sent, version = -1, 0, None

        def poll() -> Sequence[str] | None:
            nonlocal seen, sent, version
            with self._lock:
                self._refresh()
                number, state = self._number, self._state
            if number == seen:
                return None if state["phase"] == FINISHED else ()
            seen, table = number, state["run"]
            if table is not None and table.get("epochs_version") != version:
                version, sent = table.get("epochs_version"), 0
            event = safe_json(_since(state, sent))
            if table is not None:
                sent = len(table.get("epochs", ()))
            self.followed.set()
            return [event]

        return poll


def _since(state: Mapping[str, Any], sent: int) -> dict[str, Any]:
    """Return a state without the epochs that were sent before; ``first_row`` is the place of those that are there."""
    table = state["run"]
    if table is None:
        return dict(state)
    return {**state, "run": {**table, "epochs": table.get("epochs", [])[sent:], "first_row": sent}}
