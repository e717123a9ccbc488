"""Bounds on the sums that prepare a task."""

import numpy as np
import pytest

from codedfl.data import FeatureMap
from codedfl.task.preparing import COUNTS, SumRequest, scales_of


@pytest.mark.parametrize("samples", [1, 6])
def test_counts_are_bounded_by_twice_the_rows_of_the_training(samples: int) -> None:
    """Times the bounds on deviations from the centre and on errors, and their squares; a bound of 0 counts as 1."""
    features, models = FeatureMap.create("none", inputs=4, dtype="float64"), np.zeros((1, 4, 2))
    classified = scales_of(SumRequest(COUNTS, {"models": models}), np.zeros(0), (4, 2), samples, features)
    assert classified.tolist() == [2 * samples] * 4
    request, bounds = SumRequest(COUNTS, {"models": models, "center": np.zeros(2)}), np.array([4.0, 0.0, 0.5, 2.0])
    regressed = scales_of(request, bounds, (4, 2), samples, features)
    assert regressed.tolist() == [2 * samples * bound for bound in (1, 1, 4, 1, 16, 1, 0.5, 2, 0.25, 4)]
