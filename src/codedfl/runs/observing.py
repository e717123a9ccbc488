"""Observers of runs: they see the state after every epoch and change nothing."""

import math
import secrets
from abc import ABC, abstractmethod
from typing import Any, final

from codedfl.engines import Engine
from codedfl.network import TransferTable
from codedfl.runs.backend import RunBackend
from codedfl.schemes.contract import SERVER
from codedfl.training import History, State
from codedfl.training.checking import lie_words
from codedfl.training.costs import LINKS

MOST_EPOCHS = 1024
"""Rows of a course; protects pages and status files against long trainings."""


class Observer(ABC):
    """Sees a run while it trains. It must be quick, and must alter nothing: results are those without it."""

    @abstractmethod
    def begin(self, backend: RunBackend, engine: Engine, state: State) -> Engine:
        """Look at a run before its first epoch, or where it resumes; return its engine, which may be wrapped."""

    @abstractmethod
    def after_epoch(self, state: State) -> None:
        """Look at the state after an epoch."""


@final
class Course:
    """The course of a training as plain data: scores against time, transfers, lies.

    Models are scored in blocks of epochs, so the newest epochs may have no row yet. Of long trainings every second row
    is dropped, as often as it takes to keep at most ``most``. Another thread may call :meth:`to_table`.
    """

    def __init__(self, metric: str = "accuracy", *, most: int = MOST_EPOCHS) -> None:
        self._metric = metric
        self._most = most
        self._name, self._changes = secrets.token_hex(4), 0
        self._begin()

    def _begin(self) -> None:
        self._rows: list[list[float | None]] = []
        self._newest: list[float | None] | None = None
        self._scored, self._summed = 0, 0
        """Epochs so far whose scores, and whose bits, were taken in."""
        self._step, self._stages = 1, 0
        self._spoilt = 0
        self._facts: dict[str, Any] = dict(_NOTHING_YET)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return int(self._facts["epoch"])

    def note(self, state: State) -> None:
        """Take in what is new since the last time; after spoilt epochs, everything again."""
        scored = len(state.history.columns["accuracy"])
        if state.spoilt != self._spoilt or scored < self._scored or state.epoch < self._summed:
            self._begin()
            self._changes += 1
        self._spoilt = state.spoilt
        self._note_scores(state.history)
        facts = self._facts | self._sums(state) | _now(state)
        if len(state.history.stages) != self._stages:
            self._stages = len(state.history.stages)
            facts |= _transfers(state.history)
        self._facts = facts  # replaced, never changed: another thread may read it

    def _note_scores(self, history: History) -> None:
        scores, times, rows = history.columns["accuracy"], history.columns["time"], [*self._rows]
        for index in range(self._scored, len(scores)):
            self._newest = [index + 1, times[index], _finite(scores[index])]
            if index % self._step == 0:
                rows.append(self._newest)
        self._scored = len(scores)
        while len(rows) > self._most:
            rows, self._step = rows[::2], 2 * self._step
            self._changes += 1
        self._rows = rows

    def _sums(self, state: State) -> dict[str, Any]:
        columns, sent = state.history.columns, self._facts["bits_sent"]
        totals = {link: sent[link] + int(sum(columns[f"{link}_bits"][self._summed :])) for link in LINKS}
        self._summed = state.epoch
        return {"bits_sent": totals}

    def to_table(self) -> dict[str, Any]:
        """Return everything as plain data; ``epochs`` are rows of number, end in seconds, and score if it is known.

        ``newest`` is the last scored epoch, whether it has a row or not; ``epochs_version`` changes whenever earlier
        rows do, and differs between processes.
        """
        version = f"{self._name}-{self._changes}"
        rows = {"metric": self._metric, "epochs": self._rows, "epochs_version": version, "newest": self._newest}
        return rows | self._facts


_NOTHING_YET: dict[str, Any] = {
    "epoch": 0,
    "seconds": 0.0,
    "score": None,
    "survives_losses_left": None,
    "parcels": 0,
    "parcel_bytes": 0,
    "bits_sent": dict.fromkeys(LINKS, 0),
    "handovers": [],
    "replacements": [],
    "lies": [],
    "spoilt_epochs": 0,
}


def _now(state: State) -> dict[str, Any]:
    columns = state.history.columns
    return {
        "epoch": state.epoch,
        "seconds": columns["time"][-1] if columns["time"] else 0.0,
        "score": _finite(columns["accuracy"][-1]) if columns["accuracy"] else None,
        "survives_losses_left": int(columns["losses_left"][-1]) if columns["losses_left"] else None,
        "lies": [[each.epoch, each.device, lie_words(each)] for each in state.lies],
        "spoilt_epochs": state.spoilt,
    }


def _transfers(history: History) -> dict[str, Any]:
    stages = history.stages
    repairs = [stage for stage in stages if stage.epoch > 0 and not stage.retires]
    return {
        "parcels": sum(len(stage.costs) for stage in stages),
        "parcel_bytes": sum(int(TransferTable.of(stage.costs).column("parcel_bits").sum()) for stage in stages) // 8,
        "handovers": [[epoch, costs.sender, costs.recipient] for epoch, costs in history.handovers],
        # who takes parcels in the middle of a training stands in for a worker that is lost
        "replacements": [
            [stage.epoch, device]
            for stage in repairs
            for device in sorted({costs.recipient for costs in stage.costs} - {SERVER})
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
