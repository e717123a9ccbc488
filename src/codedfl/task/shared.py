"""One problem in memory for all runs that need the same data."""

from collections.abc import Callable
from typing import Any

from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.task.loading import RawData
from codedfl.task.problem import Problem


class SharedProblem:
    """Keeps the newest problem and builds another only for other data."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress
        self._key: Any = None
        self._problem: Problem | None = None

    def get(
        self, scenario: Scenario, loaded: Callable[[Scenario, RawData], object] = lambda scenario, raw: None
    ) -> Callable[[], Problem]:
        """Return a function that builds the problem of a scenario, or returns it if it is built already.

        ``loaded`` sees the data of one that is built before any feature is computed.
        """
        sections = (scenario.data, scenario.partition, scenario.features, scenario.task)
        key = (*sections, scenario.fleet.size, scenario.training.start)

        def prepare() -> Problem:
            if self._problem is None or key != self._key:
                self._problem = None  # free the old one before the new one needs the memory
                self._problem = Problem.build(scenario, self._progress, loaded)
                self._key = key
            return self._problem

        return prepare
