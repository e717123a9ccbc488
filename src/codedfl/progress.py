"""Progress callbacks."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done and how much there is; a total of 0 is a sentence."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass
class _Stage:
    """Where a stage stands: when it began, how much is done, and when a line was written."""

    since: float
    done: int = 0
    written: float = -math.inf
    ended: bool = False


def dated_lines(
    write: Callable[[str], object],
    *,
    after: float = 10.0,
    every: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Return a callback for logs: a dated line for each stage, one a minute while it lasts, and one at its end.

    Stages may alternate. Nothing is written in the first ``after`` seconds, so that short work stays silent; stages
    that are shorter than that have no line at their end.
    """
    began = clock()
    stages: dict[str, _Stage] = {}
    sentence = ""

    def line(text: str) -> None:
        write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def report(name: str, done: int, total: int) -> None:
        nonlocal sentence
        now = clock()
        if total == 0:
            if now - began >= after and name != sentence:
                line(name)
                sentence = name
            return
        sentence = ""
        stage = stages.get(name)
        if stage is None or done < stage.done or (stage.ended and done < total):
            stage = stages[name] = _Stage(since=now)
        stage.done = done
        if now - began < after:
            return
        over = done >= total
        if stage.written < stage.since or (now - stage.written >= every and not over):
            line(f"{name}: {done:,} of {total:,}")
            stage.written = now
        if over and not stage.ended:
            stage.ended = True
            if now - stage.since >= after:
                line(f"{name}: done in {now - stage.since:.0f} s")

    return report
