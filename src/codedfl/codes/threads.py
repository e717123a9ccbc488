"""Threads for loops that release the interpreter's lock: one a core, kept as long as the process."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(work: Callable[[int, int], object], count: int, *, workers: int | None = None) -> None:
    """Call ``work(first, end)`` for ranges that cover ``range(count)``, one for each of the workers (default: cores).

    The first range is done in this thread. Work on one range must not depend on that on another, nor call this.
    """
    share = max(1, -(-count // (workers or cores())))
    others = [_pool().submit(work, first, min(count, first + share)) for first in range(share, count, share)]
    work(0, min(count, share))
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="codedfl")


# a forked child inherits the object and none of its threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
