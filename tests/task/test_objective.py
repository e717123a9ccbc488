"""What a server without training data knows of its task: scores on a test set, and NaN for everything else."""

import math

import numpy as np

from codedfl.task.metrics import accuracies, accuracy
from codedfl.task.objective import PublicObjective, TestSet

MODELS = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
"""The first model tells by the larger feature, the second by the smaller one, the third says 0 always."""
TEST = TestSet(np.array([[3.0, 1.0], [2.0, 1.0], [1.0, 4.0]]), np.array([0, 0, 1]), "classification")


def objective(test: TestSet | None) -> PublicObjective:
    return PublicObjective(
        samples=10, shape=(2, 2), dtype=np.dtype("float64"), ridge=0.1, kind="classification", test=test
    )


def test_what_follows_from_training_data_is_unknown() -> None:
    for known in (objective(None), objective(TEST)):
        assert math.isnan(known.zero_loss)
        assert math.isnan(known.largest_stable_rate())
        assert known.zero_gradient.shape == (2, 2)
        assert np.isnan(known.zero_gradient).all()


def test_scores_are_those_of_the_test_set_alone() -> None:
    """One gradient for each model and each further point."""
    for points, gradients in ((None, 3), (MODELS[:2], 5)):
        without, with_test = (objective(test).score(MODELS, points) for test in (None, TEST))
        assert np.isnan(without.accuracy).all()
        assert with_test.accuracy.tolist() == [1.0, 0.0, 2 / 3]
        for scores in (without, with_test):
            assert np.isnan(scores.loss).all()
            assert len(scores.accuracy) == len(scores.loss) == 3
            assert scores.gradient.shape == (gradients, 2, 2)
            assert np.isnan(scores.gradient).all()


def test_accuracies_of_many_models_are_those_of_each_alone() -> None:
    """Of equal outputs the first counts, and an output that is no number counts as the largest."""
    rng = np.random.default_rng(0)
    outputs, labels = rng.integers(0, 3, (50, 4, 3)).astype(np.float32), rng.integers(0, 3, 50)
    outputs[::7, 1, 2] = np.nan
    alone = [sum(np.argmax(outputs[i, m]) == labels[i] for i in range(50)) / 50 for m in range(4)]
    assert accuracies(outputs, labels).tolist() == alone
    assert [accuracy(outputs[:, m], labels) for m in range(4)] == alone
    assert len(set(alone)) > 1
