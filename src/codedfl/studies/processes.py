"""Work on all cores: one process a core, one BLAS thread a process."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from codedfl import schemes
from codedfl.errors import TrainingError
from codedfl.studies.tasks import Done, StudyPart

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Numbers of glibc's malloc.h."""
_KEPT_BYTES = 2**31 - 1
"""What may lie free at the end of the heap; a C int."""
_NEWS = 5.0
"""Seconds after which progress is reported again."""


def in_processes(tasks: Sequence[StudyPart], workers: int | None, done: Done) -> list[Any]:
    """Return what the tasks return, in their order; the first failure ends all."""
    context = get_context("spawn")  # a forked child would inherit the locks of BLAS threads
    count = min(workers or os.cpu_count() or 1, len(tasks))
    with ProcessPoolExecutor(count, context, _start, (schemes.plugin_files(),)) as pool:
        try:
            waiting = [pool.submit(_carry_out, task) for task in tasks]
            left: set[Future[Any]] = set(waiting)
            done(0, len(waiting))
            while left:
                finished, left = wait(left, _NEWS, FIRST_COMPLETED)
                for task in finished:
                    task.result()
                done(len(waiting) - len(left), len(waiting))  # also without news: a log shows that work goes on
            return [task.result() for task in waiting]
        except BrokenProcessPool:
            raise TrainingError(
                "a process was ended from outside (perhaps for lack of memory); "
                "rerun the same command, with fewer processes if memory is short"
            ) from None
        except BaseException:
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()  # the checkpoints stay, so the same command resumes from them
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _start(plugins: Sequence[Path]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    one_thread()
    keep_memory()
    schemes.load_plugins(plugins)


def _carry_out(task: StudyPart) -> Any:
    try:
        return task.carry_out()
    finally:
        _give_back_memory()


def one_thread() -> None:
    """Let libraries compute with one thread in this process, those that are loaded and those that will be."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    threadpool_limits(1)


def keep_memory() -> None:
    """Let glibc reuse the memory of freed arrays instead of returning it to the system.

    A task allocates arrays of the same sizes again and again, and each page that the system gives anew is cleared
    first, and on a virtual machine perhaps mapped by its host.
    """
    _call_glibc("mallopt", _M_MMAP_MAX, 0)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)


def _give_back_memory() -> None:
    """Return free memory to the system, as other processes may need it while this one waits for a task."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *numbers: int) -> None:
    """Call a function that other C libraries lack; they go on as they do."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*numbers)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS compute with one thread in a block: last bits depend on the number, and idle threads of BLAS spin."""
    import scipy.linalg  # noqa: F401 - a library that is loaded in the block would not be limited

    with threadpool_limits(1, "blas"):
        yield


def _end_with_parent() -> None:
    """End this process when its parent is gone, however that ended; checkpoints stay."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
