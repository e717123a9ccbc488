"""A run that writes no files."""

import time
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.progress import Progress, silent
from codedfl.runs.backend import SimulationBackend
from codedfl.runs.room import make_room
from codedfl.runs.summary import summarise
from codedfl.scenario import Scenario
from codedfl.task import RawData
from codedfl.task.description import Description
from codedfl.task.model import Model
from codedfl.training import State, train


@final
@dataclass(frozen=True, eq=False)
class MemoryRun:
    """What a run in memory leaves."""

    model: Model
    summary: dict[str, Any]
    timings: Float[np.ndarray, "draws epochs"]


def run_in_memory(scenario: Scenario, data: RawData, progress: Progress = silent) -> MemoryRun:
    """Train in virtual time; a scheme whose model follows the timing is trained once, in the run's own draw."""
    began = time.perf_counter()
    schemes.check(scenario)
    make_room(scenario, data)
    backend = SimulationBackend(scenario, data, progress)
    chosen, problem, state = backend.scenario, backend.problem, State.fresh(backend.problem)

    def report(current: State) -> None:
        progress(f"training {chosen.scheme}", current.epoch, chosen.training.epochs)

    state = train(problem, chosen, backend.scheme, backend.engine(state, {}), state, report)
    timings = backend.timings(state, progress)
    scores = np.array(state.history.columns["accuracy"])
    summary = summarise(backend, state, [(scores, timings)], backend.score(state))
    summary["wall_seconds"] = time.perf_counter() - began
    described = Description.of_data(data.loaded, None if problem.prepared is None else problem.prepared.preparation)
    theta, kind, samples = problem.whole(state.model), problem.kind, problem.samples
    model = Model.create(
        chosen, "", theta, kind=kind, samples=samples, description=described, privacy=summary["privacy"]
    )
    return MemoryRun(model, summary, timings)
