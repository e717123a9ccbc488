"""Solvers of trainings: by the kind of data, and with noise by the ridge weight that it asks for."""

from dataclasses import replace

import numpy as np
import pytest

from codedfl import schemes
from codedfl.privacy.release import Release
from codedfl.solvers import ConjugateGradients, Noise, RidgePath, noise_ridge
from codedfl.solvers.shrinkage import shrunk_solutions
from codedfl.training import State, create_solver, with_noise_ridge
from tiny import problem, scenario

FEATURES, OUTPUTS, DEVICES, ROWS, RATE = 9, 2, 4, 50, 0.125
NOISY = Release.plan(
    epsilon=20.0,
    delta=1e-5,
    clip_features=1.0,
    clip_targets=1.0,
    features=FEATURES,
    outputs=OUTPUTS,
    devices=DEVICES,
    largest_rows=ROWS,
    records=DEVICES * ROWS,
)
NOISE = Noise(NOISY.gram_std / (DEVICES * ROWS), NOISY.moments_std / (DEVICES * ROWS))
"""In the means over all rows."""


@pytest.mark.parametrize("ridge", [0.0, 1e3])
@pytest.mark.parametrize("release", [None, NOISY])
def test_descent_on_noisy_sums_has_the_ridge_that_the_noise_of_all_features_needs(
    ridge: float, release: Release | None
) -> None:
    """Two steps tell it: where the data term has no slope, a model shrinks by rate times ridge."""
    given = problem([ROWS] * DEVICES, features=FEATURES, outputs=OUTPUTS, ridge=ridge)
    chosen = scenario({"training.solver": "gradient-descent", "training.learning_rate": RATE, "task.ridge": ridge})
    solver = create_solver(given, chosen, State.fresh(given), release)
    solver.update(-np.ones(given.shape))
    first = solver.query()
    solver.update(np.zeros(given.shape))
    found = (1 - solver.query() / first) / RATE
    least = noise_ridge(NOISE, FEATURES) if release else 0.0
    assert found == pytest.approx(np.full(given.shape, max(ridge, least)), rel=1e-9)
    assert not release or 0 < least < 1e3


@pytest.mark.parametrize("ridge", [0.0, 1e3])
@pytest.mark.parametrize(("scheme", "solver"), [("conventional", "gradient-descent"), ("one-shot", "closed-form")])
def test_scenarios_state_the_ridge_that_noise_asks_for_where_sums_are_not_told(
    scheme: str, solver: str, ridge: float
) -> None:
    chosen = scenario({"scheme": scheme, "training.solver": solver, "task.ridge": ridge})
    public = schemes.create(chosen, problem([ROWS] * DEVICES, features=FEATURES, outputs=OUTPUTS)).public
    assert with_noise_ridge(chosen, public) == chosen
    least = noise_ridge(NOISE, FEATURES) if solver == "gradient-descent" else 0.0
    assert with_noise_ridge(chosen, replace(public, release=NOISY)).ridge == max(ridge, least)


@pytest.mark.parametrize(("source", "kind"), [("digits", ConjugateGradients), ("rows.csv", RidgePath)])
def test_files_are_solved_without_recurrence(source: str, kind: type) -> None:
    """They may be of any condition."""
    given = problem([ROWS] * DEVICES)
    chosen = scenario({"training.solver": "conjugate-gradients", "data.source": source})
    assert type(create_solver(given, chosen, State.fresh(given))) is kind


def test_weights_of_features_are_raised_one_by_one() -> None:
    least = noise_ridge(NOISE, FEATURES)
    ridge = least * np.linspace(0, 2, FEATURES)[:, None]
    given = replace(problem([ROWS] * DEVICES, features=FEATURES, outputs=OUTPUTS), ridge=ridge)
    chosen = scenario({"training.solver": "gradient-descent", "training.learning_rate": RATE})
    solver = create_solver(given, chosen, State.fresh(given), NOISY)
    solver.update(-np.ones(given.shape))
    first = solver.query()
    solver.update(np.zeros(given.shape))
    found = (1 - solver.query() / first) / RATE
    assert found == pytest.approx(np.maximum(ridge, least).repeat(OUTPUTS, axis=1), rel=1e-9)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_closed_form_knows_the_noise_in_the_sums(kind: str) -> None:
    """It shrinks by the noise of both means, by labels in a classification, and its ridge weight stays."""
    ridge = noise_ridge(NOISE, FEATURES) / 8
    given = problem([ROWS] * DEVICES, features=FEATURES, outputs=OUTPUTS, kind=kind, ridge=ridge)
    chosen = scenario({"scheme": "one-shot", "training.solver": "closed-form", "task.ridge": ridge})
    rows = np.concatenate([shard.x for shard in given.shards])
    gram, moments = rows.T @ rows / len(rows), rows.T @ np.concatenate([shard.y for shard in given.shards]) / len(rows)
    solver = create_solver(given, chosen, State.fresh(given), NOISY)
    solver.update(-moments)
    solver.solve(gram, moments)
    by_labels, by_values = (shrunk_solutions(gram, moments, (ridge,), NOISE, labels=each)[0] for each in (True, False))
    assert np.array_equal(solver.model, by_labels if kind == "classification" else by_values)
    assert not np.array_equal(by_labels, by_values)


@pytest.mark.parametrize(("scheme", "name"), [("one-shot", "closed-form"), ("conventional", "conjugate-gradients")])
@pytest.mark.parametrize("ridge", [[0.25, 4.0], 0.25])
def test_two_ridge_weights_are_a_path(scheme: str, name: str, ridge: list[float] | float) -> None:
    """With the Gram matrix I, the solution of each is a share of the moments."""
    given = problem([ROWS] * DEVICES, ridge=0.25)
    chosen = scenario({"scheme": scheme, "training.solver": name, "task.ridge": ridge})
    solver = create_solver(given, chosen, State.fresh(given))
    moments = np.ones(given.shape)
    for _ in range(2):
        solver.update(solver.query() - moments)
        if solver.needs_sums:
            solver.solve(np.eye(len(moments)), moments)
    wanted = [moments / (1 + each) for each in np.atleast_1d(ridge)]
    assert solver.models == pytest.approx(np.stack(wanted))
