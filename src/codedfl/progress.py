"""Progress callbacks."""

import math
import time
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done and how much there is; a total of 0 is a sentence."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def dated_lines(
    write: Callable[[str], object],
    *,
    after: float = 10.0,
    every: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Return a callback for logs: a dated line for each stage, one a minute while it lasts, and one at its end.

    Nothing is written in the first ``after`` seconds, so that short work stays silent; stages that are shorter than
    that have no line at their end.
    """
    began = clock()
    stage, since, written, ended = "", began, -math.inf, True

    def line(text: str) -> None:
        write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def report(name: str, done: int, total: int) -> None:
        nonlocal stage, since, written, ended
        now = clock()
        if name != stage or (ended and done < total):
            stage, since, written, ended = name, now, -math.inf, False
        if now - began < after:
            return
        over = bool(total) and done >= total
        if written < since or (now - written >= every and not over):
            line(f"{name}: {done:,} of {total:,}" if total else name)
            written = now
        if over and not ended:
            ended = True
            if now - since >= after:
                line(f"{name}: done in {now - since:.0f} s")

    return report
