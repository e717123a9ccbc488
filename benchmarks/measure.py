"""Timing for benchmarks: alternate the things to compare, and keep the best of several rounds.

The machine may be shared, so single times mean little; the ratio of two best times taken in turns means more.
"""

import time
from collections.abc import Callable

from codedfl.errors import CodedflError

__all__ = ["best_seconds", "possible", "show"]


def possible(*needs: Callable[[], None]) -> bool:
    """Tell whether a machine has what a benchmark needs; if not, say what it is that it lacks."""
    try:
        for need in needs:
            need()
    except CodedflError as error:
        print(f"  not measured: {error}")
        return False
    return True


def best_seconds(
    tasks: dict[str, Callable[[], object]], rounds: int = 3, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Run the tasks in turns, and return the best time of each.

    What runs on one thread is better timed by ``time.thread_time``, which does not count the time that others have it.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name, task in tasks.items():
            began = clock()
            task()
            best[name] = min(best[name], clock() - began)
    return best


def show(label: str, value: float, limit: float | None = None, unit: str = "", *, at_least: bool = False) -> None:
    """Print a figure, and how it stands to its limit."""
    verdict = ""
    if limit is not None:
        met = value >= limit if at_least else value <= limit
        verdict = f"   (wanted: at {'least' if at_least else 'most'} {limit:g}; {'met' if met else 'NOT MET'})"
    print(f"  {label:<70} {value:10.4g} {unit}{verdict}", flush=True)
