"""Work on all cores: one process a core, one BLAS thread a process, clean ends."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from codedfl.errors import TrainingError

__all__ = ["in_processes"]


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threadpool_limits(1)


def in_processes(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    report: Callable[[int], None],
    workers: int | None = None,
) -> list[Any]:
    """Call ``function(*job)`` for every job; results come in the order of the jobs, the first failure ends all.

    ``report`` is called with the number of finished jobs.
    """
    context = get_context("spawn")  # a forked child would inherit the locks of BLAS threads
    count = min(workers or os.cpu_count() or 1, len(jobs))
    with ProcessPoolExecutor(count, context, _start) as pool:
        try:
            futures = [pool.submit(function, *job) for job in jobs]
            pending = set(futures)
            report(0)
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                report(len(futures) - len(pending))
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise TrainingError(
                "a process was ended from outside (perhaps for lack of memory); "
                "give the same command again, with fewer processes if memory is short"
            ) from None
        except BaseException:
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()  # the checkpoints stay, so the same command goes on from here
            pool.shutdown(wait=True, cancel_futures=True)
            raise
