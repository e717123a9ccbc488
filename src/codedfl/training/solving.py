"""The solver of a training: its parameters, and what noise in the sums asks of it."""

from functools import partial

import numpy as np

from codedfl.privacy.promise import Promise
from codedfl.privacy.release import Release
from codedfl.scenario import Scenario
from codedfl.schemes.public import Public
from codedfl.solvers import PATH_SOLVERS, SOLVERS, Conditions, Noise, Ridge, Solver, noise_ridge
from codedfl.task import learning_rate
from codedfl.task.objective import Objective
from codedfl.training.records import State


def _noise(release: Promise | None, samples: int, solver: str) -> tuple[Noise | None, bool]:
    """Return the noise in the means over all data points, and whether the solver works without the sums themselves."""
    noise = None
    if isinstance(release, Release):  # noise of each epoch is in gradients, not in the sums
        noise = Noise(release.gram_std / samples, release.moments_std / samples)
    return noise, noise is not None and not SOLVERS[solver].needs_sums


def with_noise_ridge(scenario: Scenario, public: Public) -> Scenario:
    """Return the scenario with the ridge weight that noise makes necessary where the server does not hold the sums."""
    noise, blind = _noise(public.release, sum(public.samples), scenario.training.solver)
    if noise is None or not blind:
        return scenario
    return scenario.with_settings({"task.ridge": max(scenario.ridge, noise_ridge(noise, public.features))})


def create_solver(problem: Objective, scenario: Scenario, state: State, release: Promise | None = None) -> Solver:
    """Make the solver of a training and bring it to where the state stands; it is told nothing of the data.

    From a ``release`` it knows how much noise the sums hold.
    """
    training, epsilon = scenario.training, float(np.finfo(problem.dtype).eps)
    rate = partial(learning_rate, training)
    ridges = problem.weights(scenario.ridges) if len(scenario.ridges) > 1 else ()
    noise, blind = _noise(release, problem.samples, training.solver)
    ridge: Ridge = problem.ridge
    if noise is not None and blind:
        least = noise_ridge(noise, problem.shape[0])
        ridge = np.maximum(ridge, least) if isinstance(ridge, np.ndarray) else max(ridge, least)
    labels = problem.kind == "classification"
    conditions = Conditions(problem.shape, ridge, rate, scenario.tolerance, epsilon, ridges, noise=noise, labels=labels)
    # files may be of any condition, which a recurrence does not survive; named data sets keep the paper's numbers
    kept = PATH_SOLVERS if ridges or not scenario.data.named else SOLVERS
    solver = kept.get(training.solver, SOLVERS[training.solver])(conditions)
    if state.epoch > 0:
        solver.restore(state.solver)
    return solver
