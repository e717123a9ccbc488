"""A run that writes no files."""

import time
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.progress import Progress, silent
from codedfl.runs.backend import SimulationBackend
from codedfl.runs.summary import summarise
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData
from codedfl.training import State, train


@final
@dataclass(frozen=True, eq=False)
class MemoryRun:
    """What a run in memory leaves: its model, its summary and the data as it was trained on."""

    theta: Float[np.ndarray, "d c"]
    summary: dict[str, Any]
    problem: Problem
    timings: Float[np.ndarray, "draws epochs"]


def run_in_memory(scenario: Scenario, data: RawData, progress: Progress = silent) -> MemoryRun:
    """Train in virtual time; a scheme whose model follows the timing is trained once, in the run's own draw."""
    began = time.perf_counter()
    schemes.check(scenario)
    backend = SimulationBackend(scenario, data)
    problem, state = backend.problem, State.fresh(backend.problem)

    def report(current: State) -> None:
        progress(f"training {scenario.scheme}", current.epoch, scenario.training.epochs)

    state = train(problem, scenario, backend.scheme, backend.engine(state, {}), state, report)
    timings = backend.timings(state, progress)
    scores = np.array(state.history.columns["accuracy"])
    summary = summarise(scenario, backend.scheme, state, [(scores, timings)]) | backend.facts(state)
    summary["wall_seconds"] = time.perf_counter() - began
    return MemoryRun(problem.whole(state.model), summary, problem, timings)
