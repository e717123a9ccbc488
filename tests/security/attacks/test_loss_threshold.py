"""A model tells who it was trained on if it fits them better; one that was trained on nobody tells nothing."""

import numpy as np
import pytest

from codedfl.security.attacks.loss_threshold import LossThreshold
from codedfl.security.attacks.null import Null
from codedfl.security.scoring import area_under_curve
from codedfl.security.views.kinds import ModelView

RNG = np.random.default_rng(6)
D, POINTS = 40, 400
X, W = RNG.standard_normal((2 * POINTS, D)), RNG.standard_normal((D, 2))
Y = X @ W + RNG.standard_normal((2 * POINTS, 2))
MEMBERS = np.arange(2 * POINTS) < POINTS


def area(model: np.ndarray, points: int = POINTS, attack: LossThreshold | Null | None = None) -> float:
    asked = np.r_[:points, POINTS : POINTS + points]
    found = (attack or LossThreshold()).run(ModelView(model, X[asked], Y[asked]), np.random.default_rng(0))
    assert found.membership is not None
    return area_under_curve(found.membership, MEMBERS[asked])


def trained(points: int) -> np.ndarray:
    return np.linalg.lstsq(X[:points], Y[:points], rcond=None)[0]


def test_as_many_points_as_features_are_told_without_error() -> None:
    assert area(trained(D), D) == 1.0


def test_ten_times_as_many_points_are_told_a_little() -> None:
    assert 0.5 + 1 / np.sqrt(12 * POINTS / 2) < area(trained(POINTS)) < 0.7


@pytest.mark.parametrize("attack", [LossThreshold(), Null()], ids=["loss-threshold", "null"])
def test_a_model_of_nobody_tells_nothing(attack: LossThreshold | Null) -> None:
    assert abs(area(W, attack=attack) - 0.5) < 4 / np.sqrt(6 * POINTS)
