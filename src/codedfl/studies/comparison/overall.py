"""One bar for everything: how far a long list of steps has come, and the step at hand below it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from codedfl.progress import Progress

__all__ = ["Overall"]

_STAGE = "everything, in percent"
_INNER = ("training", "running", "predicting")
"""Stages that stand for the step they belong to; others are over soon, or begin after these."""


@final
class Overall:
    """Passes on what steps report, under a few names, and adds how far all steps have come."""

    def __init__(self, progress: Progress, weight: int) -> None:
        self._progress = progress
        self._all = max(weight, 1)
        self._done = 0
        self._weight = 0
        self._shown = 0

    @contextmanager
    def step(self, weight: int) -> Iterator[None]:
        """Let everything that is reported belong to a step of so much weight."""
        self._weight = weight
        self._report(0.0)
        yield
        self._done += weight
        self._weight = 0
        self._report(0.0)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Pass on a report: a stage is called by its first word, for there are too many schemes for a bar each."""
        if total == 0:
            self._progress(stage, 0, 0)
            return
        word = stage.split()[0]
        self._progress(word, done, total)
        if word in _INNER:
            self._report(done / total)

    def _report(self, share: float) -> None:
        reached = int(100 * (self._done + share * self._weight) / self._all)
        self._shown = max(self._shown, reached)  # a step may train several times over
        self._progress(_STAGE, self._shown, 100)
