"""Accuracies of many models where outputs tie up to rounding: they are those of float64, whatever was known before."""

import numpy as np
import pytest

from codedfl.task.metrics import NearbyModels


@pytest.mark.parametrize("classes", [2, 255, 256, 257, 300, 513])
def test_models_of_zeros_say_the_first_of_any_number_of_classes(classes: int) -> None:
    labels = np.array([0, 1, classes - 1, 1])
    nearby = NearbyModels(np.ones((4, 2), np.float32), labels)
    for _ in range(3):
        assert nearby.accuracies(np.zeros((2, 2 * classes), np.float32), 2).tolist() == [0.25, 0.25]
