"""A path of 30 ridge weights under sealed-coded at the paper's size, beside its hardest weight alone.

MNIST, 2000 features, 25 devices; all to the same tolerance. Each model is held against the closed form of the exact
sums, and against that of the sums as the devices round them: the first differs by the number formats, the second by
the solver alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy
from jaxtyping import Float

from benchmarks.measure import show
from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario, load
from codedfl.scenario.sections import RIDGE_PATH
from codedfl.solvers import SOLVERS, RidgePath
from codedfl.task import Problem, accuracy
from codedfl.testing.small import trained
from codedfl.training import State, create_solver

WIDE = "GF(2^61-1)"
TOLERANCE = 1e-6
TRAINING = {
    "training.solver": "conjugate-gradients",
    "training.tolerance": TOLERANCE,
    "training.epochs": 200,
    "training.stop_at_last_target": False,
}
ERROR = 1e-4
RATIO = 1.1


def main() -> dict[str, Any]:
    """Train the path and its hardest weight in each field, and compare costs and models."""
    scenario = load("sealed-coded").with_settings(TRAINING)
    problem = Problem.build(scenario)
    exact = _closed_forms(problem.total_gram, problem.total_moments, problem.samples)
    return {name: _measured(name, chosen, problem, exact) for name, chosen in _fields(scenario).items()}


def _fields(scenario: Scenario) -> dict[str, Scenario]:
    """Return the scenario in the preset's own field, and in a wide one where the scheme offers it."""
    try:
        wide = {WIDE: scenario.with_settings({"schemes.sealed-coded.ring": WIDE})}
    except ScenarioError as error:
        print(f"  not measured: {error}")
        wide = {}
    return {"GF(2^31-1)": scenario, **wide}


def _measured(
    name: str, scenario: Scenario, problem: Problem, exact: Sequence[Float[np.ndarray, "d c"]]
) -> dict[str, Any]:
    path = scenario.with_settings({"task.ridge": "auto"})
    alone, hardest = scenario.with_settings({"task.ridge": RIDGE_PATH[0]}), replace(problem, ridge=RIDGE_PATH[0])
    state = trained(hardest, path)
    costs = {"path": _costs(state), "hardest alone, conjugate gradients": _costs(trained(hardest, alone))}
    with patch.dict(SOLVERS, {"conjugate-gradients": RidgePath}):
        costs["hardest alone"] = _costs(trained(hardest, alone))
    for run, found in costs.items():
        for what, value in found.items():
            show(f"{name}: {what}, {run}", value)
            if run != "path":
                show(f"{name}: {what}, path / {run}", costs["path"][what] / value, RATIO)
    solver = create_solver(hardest, path, state)
    rounded = _closed_forms(*_rounded_sums(path, problem), problem.samples)
    rows = []
    for ridge, model, true, own in zip(RIDGE_PATH, solver.models, exact, rounded, strict=True):
        score = accuracy(problem.x_test @ model, problem.y_test)
        row = {"ridge": ridge, "accuracy": score, "error": _distance(model, true), "solver": _distance(model, own)}
        print(
            f"  lambda {ridge:8.3g}: accuracy {score:.4f}, from the closed form {row['error']:.1e}, "
            f"of which the solver's {row['solver']:.1e}",
            flush=True,
        )
        rows.append(row)
    for what, label in (("solver", "closed form of the rounded sums"), ("error", "closed form")):
        show(f"{name}: largest distance from the {label}", max(row[what] for row in rows), ERROR)
    return {"costs": costs, "models": rows}


def _costs(state: State) -> dict[str, float]:
    columns = state.history.columns
    bits = float(sum(sum(values) for name, values in columns.items() if name.endswith("_bits")))
    return {"epochs": float(state.epoch), "gigabits": bits / 1e9, "virtual seconds": state.now}


def _closed_forms(
    gram: Float[np.ndarray, "d d"], moments: Float[np.ndarray, "d c"], samples: int
) -> list[Float[np.ndarray, "d c"]]:
    """Solve for each weight by LAPACK's Cholesky factorisation."""
    eye = np.eye(len(gram))
    return [scipy.linalg.solve(gram / samples + ridge * eye, moments / samples, assume_a="pos") for ridge in RIDGE_PATH]


def _rounded_sums(scenario: Scenario, problem: Problem) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d c"]]:
    """Return the sums of what devices seal: their Gram matrices and right-hand sides in whole steps."""
    formats = schemes.create(scenario, problem).formats  # type: ignore[attr-defined]
    gram, moments = np.zeros((problem.shape[0],) * 2), np.zeros(problem.shape)
    for shard in problem.shards:
        gram += np.rint(shard.gram / formats.gram.data_step) * formats.gram.data_step
        moments += np.rint(shard.moments / formats.moments.data_step) * formats.moments.data_step
    return gram, moments


def _distance(model: Float[np.ndarray, "d c"], true: Float[np.ndarray, "d c"]) -> float:
    return float(np.linalg.norm(model - true) / np.linalg.norm(true))


if __name__ == "__main__":
    main()
