"""How a deployment stands, device by device, for whoever wants to look: who works, who replied, who holds whose data.

A board is filled in by the engine and the session, and shown as plain data, at most every so often.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

__all__ = ["Board", "Show"]

Show = Callable[[dict[str, Any]], None]
"""Takes how things stand."""

WAITING, WORKING, REPLIED, HANDED_OVER, LOST = "waiting", "working", "replied", "handed over", "lost"


@dataclass
class _Row:
    """What is known of one device."""

    site: str
    state: str = WAITING
    samples: int = 0
    """Of its own."""
    held: list[int] = field(default_factory=list)
    """Devices whose data it stands for."""
    epoch: int | None = None
    """Of its last reply."""
    seconds: float | None = None
    working_seconds: float | None = None
    parcels_sent: int = 0
    parcels_taken: int = 0
    reason: str | None = None


@final
class Board:
    """One row a device; used from the server's thread."""

    def __init__(
        self,
        sites: Sequence[str],
        show: Show = lambda _: None,
        *,
        every: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = [_Row(site, held=[device]) for device, site in enumerate(sites)]
        self._show = show
        self._every = every
        self._clock = clock
        self._shown: float | None = None
        self._stage, self._done, self._total = "waiting for sites", 0, 0

    def progress(self, stage: str, done: int, total: int) -> None:
        """Note where the whole run stands; a total of 0 is a mere sentence."""
        changed = stage != self._stage
        self._stage, self._done, self._total = stage, done, total
        self.show(now=changed or done == total)

    def samples(self, device: int, count: int) -> None:
        """Note how many samples a device has of its own."""
        self._rows[device].samples = count

    def asked(self, devices: Iterable[int]) -> None:
        """Note who has been asked."""
        for device in devices:
            self._rows[device].state = WORKING
        self.show()

    def replied(self, device: int, epoch: int, seconds: float, working_seconds: float) -> None:
        """Note a reply, how long the server waited for it and how long the device says it worked."""
        row = self._rows[device]
        row.state, row.epoch, row.seconds, row.working_seconds = REPLIED, epoch, seconds, working_seconds
        self.show()

    def sent(self, sender: int, recipient: int) -> None:
        """Note a parcel; one to the server has a recipient below 0."""
        self._rows[sender].parcels_sent += 1
        if recipient >= 0:
            self._rows[recipient].parcels_taken += 1
        self.show()

    def handed_over(self, sender: int, recipient: int) -> None:
        """Note that one device stands for all the data of another from now on."""
        self.sent(sender, recipient)
        giving, taking = self._rows[sender], self._rows[recipient]
        taking.held, giving.held = sorted({*taking.held, *giving.held}), []
        giving.state = HANDED_OVER
        self.show(now=True)

    def lost(self, reasons: Mapping[int, str]) -> None:
        """Note who is gone for good, and why."""
        for device, reason in reasons.items():
            row = self._rows[device]
            if row.state != LOST:
                row.state, row.reason = LOST, reason
                self.show(now=True)

    def show(self, *, now: bool = False) -> None:
        """Show the board, unless it has just been shown."""
        time_now = self._clock()
        if now or self._shown is None or time_now - self._shown >= self._every:
            self._shown = time_now
            self._show(self.as_table())

    def as_table(self) -> dict[str, Any]:
        """Return how things stand."""
        return {
            "stage": self._stage,
            "done": self._done,
            "total": self._total,
            "devices": [self._row(row) for row in self._rows],
        }

    def _row(self, row: _Row) -> dict[str, Any]:
        return {
            "site": row.site,
            "state": row.state,
            "samples": row.samples,
            "samples_held": sum(self._rows[device].samples for device in row.held),
            "holds_data_of": [self._rows[device].site for device in row.held],
            "last_epoch": row.epoch,
            "last_seconds": row.seconds,
            "last_working_seconds": row.working_seconds,
            "parcels_sent": row.parcels_sent,
            "parcels_taken": row.parcels_taken,
            "reason": row.reason,
        }
