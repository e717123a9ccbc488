"""Processes that work side by side: order of results, failures, and a parent that is killed."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from codedfl.errors import TrainingError, UsageError
from codedfl.studies.processes import in_processes, one_blas_thread
from codedfl.studies.tasks import StudyPart

LARGEST_PAGE = 2**21
"""Bytes of a huge page, of which new memory takes the fewest."""
SCRIPT = """
from studies.test_processes import note_and_sleep
from codedfl.studies.processes import in_processes
from codedfl.studies.tasks import StudyPart

if __name__ == "__main__":
    in_processes([StudyPart(note_and_sleep, (FOLDER,))] * 2, 2, lambda done, total: None)
"""


def note_and_sleep(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)


def doubled(number: int) -> int:
    return 2 * number


def refuse(words: str) -> None:
    raise UsageError(words)


def threads() -> list[int]:
    """Load what a training loads, and ask how many threads each library uses."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info()]


def blas_threads() -> list[int]:
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def faults_of_an_array() -> int:
    """Count the pages that the system gives for an array as large as one that was freed before."""
    import resource

    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(2**25)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def free_gigabyte() -> int:
    """Allocate a gigabyte, free it, and return the largest memory of the process so far."""
    import resource

    np.ones(2**27)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10


def memory_now() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def vanish() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_are_in_the_order_of_the_tasks() -> None:
    seen: list[tuple[int, int]] = []
    tasks = [StudyPart(doubled, (number,)) for number in (3, 1, 2)]
    assert in_processes(tasks, 2, lambda done, total: seen.append((done, total))) == [6, 2, 4]
    counts = [done for done, _ in seen]
    assert (counts[0], counts[-1]) == (0, 3)
    assert counts == sorted(counts)
    assert {total for _, total in seen} == {3}


def test_each_process_computes_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries are loaded where they are used, so most are not there yet when the process starts."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    (found,) = in_processes([StudyPart(threads, ())], 1, lambda done, total: None)
    assert found
    assert set(found) == {1}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_a_process_reuses_the_memory_of_freed_arrays() -> None:
    (faults,) = in_processes([StudyPart(faults_of_an_array, ())], 1, lambda done, total: None)
    assert faults < 2**28 / LARGEST_PAGE


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_a_process_gives_memory_back_between_tasks() -> None:
    largest, after = in_processes(
        [StudyPart(free_gigabyte, ()), StudyPart(memory_now, ())], 1, lambda done, total: None
    )
    assert largest > 2**30 > 2 * after


def test_one_thread_in_a_block_and_as_before_after_it() -> None:
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
    assert 2 in before


def test_a_failure_is_told_as_it_is() -> None:
    with pytest.raises(UsageError, match="not like this"):
        in_processes([StudyPart(refuse, ("not like this",)), StudyPart(doubled, (1,))], 2, lambda done, total: None)


def test_a_process_that_is_killed_is_told_in_words() -> None:
    with pytest.raises(TrainingError, match="ended from outside"):
        in_processes([StudyPart(vanish, ())], 1, lambda done, total: None)


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: object, what: str) -> None:
    for _ in range(1200):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within two minutes")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks processes up in /proc")
def test_nobody_works_on_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(SCRIPT.replace("FOLDER", repr(str(tmp_path / "pids"))))
    (tmp_path / "pids").mkdir()
    tests = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join([tests, *(path for path in sys.path if path)])
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": paths})
    try:
        wait_until(lambda: len(list((tmp_path / "pids").iterdir())) == 2, "the start of both processes")
    finally:
        parent.kill()
        parent.wait()
    children = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    wait_until(lambda: not any(map(alive, children)), "the end of both processes")
