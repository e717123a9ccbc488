"""Bounds on the sums that prepare a task."""

import numpy as np
import pytest

from codedfl.data import FeatureMap
from codedfl.task.preparing import COUNTS, DeviceRows, PlainSummer, SumRequest, prepare, scales_of
from tiny import scenario


@pytest.mark.parametrize("samples", [1, 6])
def test_counts_are_bounded_by_twice_the_rows_of_the_training(samples: int) -> None:
    """Times the bounds on deviations from the centre and on errors, and their squares; a bound of 0 counts as 1."""
    features, models = FeatureMap.create("none", inputs=4, dtype="float64"), np.zeros((1, 4, 2))
    classified = scales_of(SumRequest(COUNTS, {"models": models}), np.zeros(0), (4, 2), samples, features)
    assert classified.tolist() == [2 * samples] * 4
    request, bounds = SumRequest(COUNTS, {"models": models, "center": np.zeros(2)}), np.array([4.0, 0.0, 0.5, 2.0])
    regressed = scales_of(request, bounds, (4, 2), samples, features)
    assert regressed.tolist() == [2 * samples * bound for bound in (1, 1, 4, 1, 16, 1, 0.5, 2, 0.25, 4)]


@pytest.mark.parametrize("value", [0.0, 7.5, -3e8, 1e17])
def test_a_constant_column_has_no_variance_whatever_its_size(value: float) -> None:
    """It is not refused as too coarse for float64, and what rounding leaves of it is divided by its size."""
    varying, target = np.arange(12.0), np.ones((6, 1))
    rows = [DeviceRows(np.column_stack([np.full(6, value), part]), target) for part in (varying[:6], varying[6:])]
    features = FeatureMap.create("none", inputs=2, dtype="float64")
    wanted = scenario({"features.kind": "none", "features.scale": "standard", "features.intercept": True})
    found = prepare(wanted, PlainSummer(rows, features), np.zeros(2, bool), regression=True).preparation
    assert found.shift.tolist() == [value, varying.mean()]
    assert found.unit[0] == max(1.0, abs(value))
    assert found.unit[1] == pytest.approx(varying.std(), rel=1e-12)
