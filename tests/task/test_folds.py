"""The choice of a ridge weight: folds that are balanced, and the weight that scikit-learn chooses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import PredefinedSplit

from codedfl.task.folds import DeviceRows, RowChoice, best_weight, fold_of_rows, held_out_rows

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


@pytest.mark.parametrize("device", range(9))
def test_folds_are_those_that_seeds_have_always_given(device: int) -> None:
    """Every three devices are a block with an order of folds; orders and rows are drawn from streams of their own."""
    order = np.random.default_rng([5, 0, device // 3]).permutation(3)
    fold = [(order[device % 3] + row) % 3 for row in range(8)]
    expected = np.random.default_rng([5, 1, device]).permutation(fold)
    assert fold_of_rows(8, 3, seed=5, device=device).tolist() == expected.tolist()


class TestHeldOutRows:
    @pytest.mark.parametrize(("share", "folds"), [(0.5, 2), (0.25, 4), (0.3, 3), (0.1, 10), (0.4, 2)])
    @pytest.mark.parametrize("rows", [0, 2, 3, 10, 41])
    def test_they_are_the_first_of_as_many_folds_as_the_share_tells(self, rows: int, share: float, folds: int) -> None:
        for device in range(4):
            found = held_out_rows(rows, share, seed=3, device=device)
            assert found.tolist() == (fold_of_rows(rows, folds, seed=3, device=device) == 0).tolist()

    def test_without_a_share_and_of_a_single_row_there_are_none(self) -> None:
        assert held_out_rows(5, 0.0, seed=0, device=0).tolist() == [False] * 5
        for device in range(6):
            assert held_out_rows(1, 0.5, seed=0, device=device).tolist() == [False]


def test_the_rows_of_a_fold_and_the_others() -> None:
    rows = DeviceRows(np.arange(14.0).reshape(7, 2), np.arange(7.0)[:, None])
    for device in range(3):
        fold = fold_of_rows(7, 3, seed=2, device=device)
        held, others = (RowChoice(1, 3, 2, held_out) for held_out in (True, False))
        assert held.chosen(7, device).tolist() == (fold == 1).tolist()
        assert others.chosen(7, device).tolist() == (fold != 1).tolist()
        for choice, wanted in ((held, fold == 1), (others, fold != 1)):
            found = choice.of(rows, device)
            assert found.x.tolist() == rows.x[wanted].tolist()
            assert found.y.tolist() == rows.y[wanted].tolist()


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
