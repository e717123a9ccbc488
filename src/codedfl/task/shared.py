"""One problem in memory, shared by runs that need the same data."""

from collections.abc import Callable
from typing import Any

from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.task.problem import Problem


class SharedProblem:
    """Prepares the data of a scenario once for all runs that need the same."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress
        self._key: Any = None
        self._problem: Problem | None = None

    def get(self, scenario: Scenario) -> Callable[[], Problem]:
        """Return a function that prepares the data of a scenario, or returns them if they are prepared already."""
        key = (scenario.data, scenario.partition, scenario.features, scenario.task, scenario.fleet.size)

        def prepare() -> Problem:
            if self._problem is None or key != self._key:
                self._problem = None  # free the old one before the new one needs the memory
                self._problem = Problem.build(scenario, self._progress)
                self._key = key
            return self._problem

        return prepare
