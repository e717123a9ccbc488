"""The state of a training, device by device, as plain data for the status file, the live table and the live page."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from codedfl.engines import Engine
from codedfl.runs import Course, Observer
from codedfl.runs.backend import RunBackend
from codedfl.training import State

Show = Callable[[dict[str, Any]], None]
"""Takes the table of a board."""

WAITING, WORKING, REPLIED, HANDED_OVER, LOST = "waiting", "working", "replied", "handed over", "lost"


@final
class Board:
    """One row per device; ``show`` is called at most ``every`` seconds, and at once for important changes."""

    def __init__(
        self,
        sites: Sequence[str],
        show: Show = lambda _: None,
        *,
        every: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        unknown = dict.fromkeys(("last_epoch", "last_seconds", "last_working_seconds"))
        known = {"state": WAITING, "samples": 0, "samples_held": 0, "holds_data_of": []}
        parcels = {"parcels_sent": 0, "parcels_taken": 0, "reason": None, "lost_in_epoch": None}
        self._rows: list[dict[str, Any]] = [{"site": site} | known | unknown | parcels for site in sites]
        self._held = [[device] for device in range(len(sites))]
        """Per device, whose data it computes for."""
        self._show = show
        self._every = every
        self._clock = clock
        self._shown: float | None = None
        self._progress: dict[str, Any] = {"stage": "waiting for sites", "done": 0, "total": 0}
        self._course = Course()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Record the progress of the run; a total of 0 has no steps."""
        changed = stage != self._progress["stage"]
        self._progress = {"stage": stage, "done": done, "total": total}
        self.show(now=changed or done == total)

    def finish(self) -> None:
        """Record that the run is over."""
        self._progress["stage"] = "finished"
        self.show(now=True)

    def begin(self, state: State, metric: str) -> None:
        """Record where a training starts or resumes, and the metric of its scores."""
        self._course = Course(metric)
        self._course.note(state)
        self.show(now=True)

    def epoch_done(self, state: State) -> None:
        """Record an epoch: its end, and the scores that are known."""
        self._course.note(state)
        self.show()

    def samples(self, device: int, count: int) -> None:
        """Record the number of samples that a device owns."""
        self._rows[device]["samples"] = count

    def asked(self, devices: Iterable[int]) -> None:
        """Record a request."""
        for device in devices:
            self._rows[device]["state"] = WORKING
        self.show()

    def replied(self, device: int, epoch: int, seconds: float, working_seconds: float | None) -> None:
        """Record a reply, the server's waiting time and the device's working time, if it is told."""
        times = {"last_seconds": seconds, "last_working_seconds": working_seconds}
        self._rows[device] |= {"state": REPLIED, "last_epoch": epoch, **times}
        self.show()

    def sent(self, sender: int, recipient: int) -> None:
        """Record a parcel; the server as a recipient is below 0."""
        self._rows[sender]["parcels_sent"] += 1
        if recipient >= 0:
            self._rows[recipient]["parcels_taken"] += 1
        self.show()

    def handed_over(self, sender: int, recipient: int) -> None:
        """Record a hand-over: the recipient computes for the sender from now on."""
        self.sent(sender, recipient)
        self._held[recipient] = sorted({*self._held[recipient], *self._held[sender]})
        self._held[sender] = []
        self._rows[sender]["state"] = HANDED_OVER
        self.show(now=True)

    def lost(self, reasons: Mapping[int, str]) -> None:
        """Record lost devices with the first reason of each."""
        for device, reason in reasons.items():
            if self._rows[device]["state"] != LOST:
                self._rows[device] |= {"state": LOST, "reason": reason, "lost_in_epoch": self._course.epoch + 1}
                self.show(now=True)

    def back(self, device: int) -> None:
        """Record that a lost device is back."""
        self._rows[device] |= {"state": WAITING, "reason": None, "lost_in_epoch": None}
        self.show(now=True)

    def show(self, *, now: bool = False) -> None:
        """Show the board, unless it has just been shown."""
        time_now = self._clock()
        if now or self._shown is None or time_now - self._shown >= self._every:
            self._shown = time_now
            self._show(self.as_table())

    def as_table(self) -> dict[str, Any]:
        """Return the board as plain data."""
        for row, held in zip(self._rows, self._held, strict=True):
            row["samples_held"] = sum(self._rows[device]["samples"] for device in held)
            row["holds_data_of"] = [self._rows[device]["site"] for device in held]
        return {**self._progress, **self._course.to_table(), "devices": [dict(row) for row in self._rows]}


@final
class BoardObserver(Observer):
    """Records epochs on the board of a deployment; its engine records everything else."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def begin(self, backend: RunBackend, engine: Engine, state: State) -> Engine:
        """Record where the training starts."""
        self._board.begin(state, metric_of(backend))
        return engine

    def after_epoch(self, state: State) -> None:
        """Record an epoch."""
        self._board.epoch_done(state)


def metric_of(backend: RunBackend) -> str:
    """Return what the scores of a run are: ``accuracy`` or ``r2``."""
    return "accuracy" if backend.objective.kind == "classification" else "r2"
