"""CPU time of starting: ``codedfl --help`` and ``import codedfl`` against ``import numpy``, each in new processes."""

import os
import statistics
import sys
from typing import Any

from benchmarks.measure import show

REPETITIONS = 15
COMMANDS = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import codedfl": ["-c", "import codedfl"],
    "codedfl --help": ["-m", "codedfl.cli", "--help"],
}
LIMITS = {"import codedfl": 1.5, "codedfl --help": 3.0}
"""Of the time of ``import numpy`` in the same run."""


def main() -> dict[str, Any]:
    """Take turns, so that a busy machine slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPETITIONS + 1):  # the first writes bytecode
        for name, arguments in COMMANDS.items():
            taken[name].append(_cpu_seconds([sys.executable, *arguments]))
    medians = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}
    for name, seconds in medians.items():
        show(name, 1e3 * seconds, unit="ms of CPU")
    ratios = {name: medians[name] / medians["import numpy"] for name in LIMITS}
    for name, ratio in ratios.items():
        show(f"{name} / import numpy", ratio, LIMITS[name])
    return {"median_seconds": medians, "over_numpy": ratios, "limits": LIMITS}


def _cpu_seconds(command: list[str]) -> float:
    """Run a process and return its CPU time, user and system."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime
