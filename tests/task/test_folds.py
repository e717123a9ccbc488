"""The choice of a ridge weight: folds that are balanced, and the weight that scikit-learn chooses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import PredefinedSplit

from codedfl.task.folds import best_weight, fold_of_rows

WEIGHTS = np.geomspace(1e-3, 1e3, 13)


@given(rows=st.integers(0, 60), folds=st.integers(2, 10), seed=st.integers(0, 10**6), device=st.integers(0, 10**5))
def test_folds_of_a_device_are_balanced_and_always_the_same(rows: int, folds: int, seed: int, device: int) -> None:
    found = fold_of_rows(rows, folds, seed=seed, device=device)
    sizes = np.bincount(found, minlength=folds)
    assert len(sizes) == folds and sizes.sum() == len(found) == rows
    assert np.ptp(sizes) <= 1
    assert np.array_equal(found, fold_of_rows(rows, folds, seed=seed, device=device))


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_devices_of_fewer_rows_than_folds_fill_all_folds_alike(rows: int) -> None:
    """Every five devices have each of the five folds as often as each of their rows; 1,000 are 200 times five."""
    found = np.concatenate([fold_of_rows(rows, 5, seed=3, device=device) for device in range(1000)])
    assert np.bincount(found).tolist() == [200 * rows] * 5


def test_another_seed_or_device_has_other_folds() -> None:
    found = [fold_of_rows(50, 5, seed=seed, device=device) for seed, device in ((0, 0), (1, 0), (0, 1))]
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("seed", range(12))
def test_the_weight_is_that_of_scikit_learn_on_the_same_folds(seed: int) -> None:
    """Folds of unequal size, so that it matters whether rows or folds count alike."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 12))
    y = x @ rng.standard_normal((12, 2)) + 4 * rng.standard_normal((40, 2))
    fold = rng.choice(4, 40, p=[0.1, 0.2, 0.3, 0.4])
    errors, rows = np.zeros((4, len(WEIGHTS))), np.bincount(fold, minlength=4)
    for k, number in np.ndindex(errors.shape):
        model = Ridge(alpha=WEIGHTS[number]).fit(x[fold != k], y[fold != k])
        errors[k, number] = np.sum((model.predict(x[fold == k]) - y[fold == k]) ** 2)
    cv = RidgeCV(alphas=WEIGHTS, cv=PredefinedSplit(fold), scoring="neg_mean_squared_error").fit(x, y)
    assert WEIGHTS[best_weight(errors / rows[:, None])] == cv.alpha_


def test_folds_count_alike() -> None:
    """By hand: means of 1 and 0.5 of the folds give 0.75; 3 and 0.1 give 1.55. Over all rows the second was better."""
    assert best_weight(np.array([[1.0, 3.0], [0.5, 0.1]])) == 0


def test_of_equal_weights_the_largest_is_taken() -> None:
    assert best_weight(np.array([[2.0, 1.0, 1.0, 3.0]])) == 2
