"""Who takes part in a run, simulated or real: what is trained, by which scheme, on which engine, and its timing."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.engines import Engine, VirtualEngine
from codedfl.network import DelayModel
from codedfl.progress import Progress
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.task.objective import Objective
from codedfl.training import State
from codedfl.training.shared_timing import Variant, measure, shared_seconds
from codedfl.training.timeline import timeline
from codedfl.training.timing import cumulative_seconds

__all__ = ["Parties", "Simulation"]


class Parties(ABC):
    """The parties of one run; a run directory is the same whoever they are."""

    scenario: Scenario
    objective: Objective
    scheme: schemes.Scheme[Any]

    @abstractmethod
    def engine(self, state: State, kept: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return an engine that begins where a state stands; ``kept`` is what :meth:`to_keep` had returned there."""

    @abstractmethod
    def to_keep(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return what a checkpoint must hold beside the state of the training."""

    @abstractmethod
    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return when each epoch ends in each timing draw."""

    @abstractmethod
    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return further tables for the run directory, by file name."""

    @abstractmethod
    def facts(self, state: State) -> dict[str, Any]:
        """Return what a summary says of these parties alone."""


@final
class Simulation(Parties):
    """Devices of one process in virtual time."""

    def __init__(self, scenario: Scenario, problem: Problem) -> None:
        self.scenario = scenario
        self.objective = self.problem = problem
        self.scheme = schemes.create(scenario, problem)
        self._delays = DelayModel.create(scenario.fleet, scenario.links)

    def engine(self, state: State, kept: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return the virtual engine in the scenario's own timing draw."""
        timing = self.scenario.timing
        return VirtualEngine(
            [self.scheme.device(index, shard) for index, shard in enumerate(self.problem.shards)],
            self._delays,
            seed=timing.seed,
            draw=timing.draw,
            now=state.now,
            last_epochs=self.scenario.fleet.last_epochs,
        )

    def to_keep(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Nothing: the draws of delays have addresses."""
        return {}

    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Time the training in many draws, or in its own where the model follows the timing."""
        scheme, timing = self.scheme, self.scenario.timing
        if scheme.follows_timing:
            return np.array([state.history.columns["time"]])

        def report(done: int, total: int) -> None:
            progress(f"timing {self.scenario.scheme}", done, total)

        if isinstance(scheme, schemes.SharingScheme):
            costs = measure(scheme, self.problem, first_offline=self.scenario.training.first_epoch_offline)
            set_up = [stage for _, stage in state.history.stages_after(0)]
            variant = Variant(costs, scheme.policy, scheme.parallel_reception, set_up)
            (seconds,) = shared_seconds(
                [variant], self._delays, epochs=state.epoch, seed=timing.seed, draws=timing.draws, progress=report
            )
            return np.asarray(seconds)
        return cumulative_seconds(state.history, self._delays, seed=timing.seed, draws=timing.draws, progress=report)

    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return who did what when, in the run's own draw."""
        scheme, timing = self.scheme, self.scenario.timing
        parallel = isinstance(scheme, schemes.SharingScheme) and scheme.parallel_reception
        steps = timeline(state.history, self._delays, seed=timing.seed, draw=timing.draw, parallel=parallel)
        return {"timeline.parquet": steps}

    def facts(self, state: State) -> dict[str, Any]:
        """Return the time of the run's own draw."""
        return {"virtual_seconds": state.history.columns["time"][-1]}
