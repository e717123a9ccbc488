"""What a run is carried out on: objective, scheme, engine and timing, simulated or deployed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.engines import Engine, VirtualEngine
from codedfl.network import DelayModel
from codedfl.progress import Progress
from codedfl.runs.sums import SchemeSummer, sum_scenario
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData
from codedfl.task.objective import Objective
from codedfl.task.preparing import prepare
from codedfl.training import History, State
from codedfl.training.costs import LINKS
from codedfl.training.timeline import timeline
from codedfl.training.timing import Variant, epoch_ends


class RunBackend(ABC):
    """The backend of one run."""

    scenario: Scenario
    objective: Objective
    scheme: schemes.Scheme[Any]

    @abstractmethod
    def engine(self, state: State, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return an engine that starts at a state; ``restored`` are the :meth:`checkpoint_arrays` saved with it."""

    def checkpoint_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return arrays of the backend for a checkpoint."""
        return {}

    @abstractmethod
    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the end of each epoch in each timing draw."""

    @abstractmethod
    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return further tables of the run directory, by file name."""

    @abstractmethod
    def facts(self, state: State) -> dict[str, Any]:
        """Return entries of the summary that depend on the backend."""


@final
class SimulationBackend(RunBackend):
    """All devices in one process, in virtual time."""

    def __init__(self, scenario: Scenario, problem: Problem) -> None:
        self.scenario = scenario
        self._delays = DelayModel.create(scenario.fleet, scenario.links)
        self._sums: list[History] = []
        if problem.raw is not None and problem.prepared is not None:
            problem = self._prepared(problem.raw)
        self.objective = self.problem = problem
        self.scheme = schemes.create(scenario, problem)

    def _prepared(self, raw: RawData) -> Problem:
        """Sum columns again, under the scheme of the run."""
        rows, scenario = [raw.device(index) for index in range(len(raw.parts))], self.scenario
        summer = SchemeSummer(scenario, rows, raw.features)
        prepared = prepare(scenario, summer, raw.dummies, regression=raw.loaded.kind == "regression")
        self._sums = summer.histories
        return Problem.of_raw(scenario, raw, prepared)

    @property
    def _began(self) -> float:
        """When the training begins in the run's own draw."""
        return float(sum(history.columns["time"][-1] for history in self._sums))

    @cached_property
    def _sum_seconds(self) -> Float[np.ndarray, "draws"]:
        """How long the sums take in each timing draw."""
        timing, total = self.scenario.timing, np.zeros(self.scenario.timing.draws)
        for number, history in enumerate(self._sums):
            seed = sum_scenario(self.scenario, number).timing.seed
            (ends,) = epoch_ends([history], self._delays, epochs=1, seed=seed, draws=timing.draws)
            total += ends[:, -1]
        return total

    def engine(self, state: State, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return the virtual engine in the scenario's own timing draw; it has no state besides the time."""
        timing = self.scenario.timing
        return VirtualEngine(
            [self.scheme.device(index, shard) for index, shard in enumerate(self.problem.shards)],
            self._delays,
            seed=timing.seed,
            draw=timing.draw,
            now=state.now or self._began,
            last_epochs=self.scenario.fleet.last_epochs,
        )

    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the times in many draws, or in the run's own one if the model follows the timing."""
        scheme, timing = self.scheme, self.scenario.timing
        if scheme.follows_timing:
            return np.array([state.history.columns["time"]])
        report = partial(progress, f"timing {self.scenario.scheme}")
        offline = self.scenario.training.first_epoch_offline
        course = Variant.create(scheme, self.problem, state.history, first_offline=offline) or state.history
        (seconds,) = epoch_ends(
            [course], self._delays, epochs=state.epoch, seed=timing.seed, draws=timing.draws, progress=report
        )
        return np.asarray(seconds + self._sum_seconds[:, None])

    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return the timeline of the run's own draw."""
        scheme, timing = self.scheme, self.scenario.timing
        parallel = scheme.sharing is not None and scheme.sharing.parallel
        steps = timeline(
            state.history, self._delays, seed=timing.seed, draw=timing.draw, parallel=parallel, start=self._began
        )
        return {"timeline.parquet": steps}

    def facts(self, state: State) -> dict[str, Any]:
        """Return the time of the run's own draw, and what the sums of columns cost."""
        facts: dict[str, Any] = {"virtual_seconds": state.history.columns["time"][-1]}
        if self._sums:
            bits = {link: sum(int(sum(h.columns[f"{link}_bits"])) for h in self._sums) for link in LINKS}
            facts["preparation"] = {"sums": len(self._sums), "seconds": self._began, "bits_sent": bits}
        if self.problem.raw is not None and self.problem.raw.owners:
            facts["owners"] = list(self.problem.raw.owners)
        return facts
