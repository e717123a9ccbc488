"""Progress callbacks."""

import time
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done and how much there is; a total of 0 is a sentence."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def dated_lines(
    write: Callable[[str], object], *, after: float = 10.0, clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Return a callback for logs: one dated line for each stage, and one at the end of a long stage.

    Nothing is written in the first ``after`` seconds, so that short work stays silent.
    """
    began = clock()
    stage, since, written, ended = "", began, False, True

    def line(text: str) -> None:
        write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def report(name: str, done: int, total: int) -> None:
        nonlocal stage, since, written, ended
        now = clock()
        if name != stage or (ended and done < total):
            stage, since, written, ended = name, now, False, False
        if now - began < after:
            return
        if not written:
            line(f"{name}: {done:,} of {total:,}" if total else name)
            written = True
        if total and done >= total and not ended:
            ended = True
            if now - since >= after:
                line(f"{name}: done in {now - since:.0f} s")

    return report
