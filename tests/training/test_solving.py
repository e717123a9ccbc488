"""Solvers of trainings with noise: one that works without the sums has the ridge weight that their noise asks for."""

import numpy as np
import pytest

from codedfl.privacy.release import Release
from codedfl.solvers import Noise, noise_ridge
from codedfl.training import State, create_solver
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
    noise = Noise(NOISY.gram_std / (DEVICES * ROWS), NOISY.moments_std / (DEVICES * ROWS))
    least = noise_ridge(noise, FEATURES) if release else 0.0
    assert found == pytest.approx(np.full(given.shape, max(ridge, least)), rel=1e-9)
    assert not release or 0 < least < 1e3
