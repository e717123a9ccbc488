"""Run as a script: kills a run with SIGKILL just before (once: just after) it puts a file in place, then resumes it.

Arguments: a folder, and the files before which runs die. Prints the exit code of each resumption as JSON.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}  # no threads: we fork

from codedfl.runs import directory as runs
from codedfl.task import Problem
from rundirs import small


def die_at(moment: str) -> None:
    """Let this process die when it puts that file in place."""
    replace = os.replace

    def patched(source: Any, target: Any) -> None:
        name = Path(target).name
        if name == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if moment == "after" and name == "summary.json":
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = patched


def in_child(*steps: Callable[[], object]) -> int:
    """Do something in a process of its own and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for step in steps:
                step()
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, moments: list[str]) -> None:
    codes = {}
    for scheme in ("conventional", "drop-slowest"):
        few = {"training.epochs": 12, "timing.repeats": 2}  # as many files as of more
        scenario = small({"scheme": scheme, "task.precision": "float64", **few})
        problem = Problem.build(scenario)
        run = partial(runs.execute, scenario, problem=lambda kept=problem: kept)
        assert in_child(partial(run, folder / scheme / "whole")) == 0
        for moment in moments:
            path = folder / scheme / moment
            assert in_child(partial(die_at, moment), partial(run, path)) == -signal.SIGKILL
            codes[f"{scheme} {moment}"] = in_child(partial(run, path))
    sys.stdout.write(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
