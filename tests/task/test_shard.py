"""The data of one device and sums over some rows of many: by hand."""

import numpy as np
import pytest

from codedfl.data import FeatureMap, Preparation
from codedfl.task import Shard, make_shard
from codedfl.task.folds import DeviceRows
from codedfl.task.shard import Sums, batch_rows, penalties, prepared_features, row_sums

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
Y = np.array([[1.0], [0.0], [2.0]])
PLAIN = FeatureMap.create("none", inputs=2, dtype="float64")
PREPARED = Preparation(
    np.array([1.0, 0.0]), np.array([2.0, 1.0]), None, None, np.array([4.0, 1.0]), np.array([1.0]), np.array([0.5])
)


@pytest.mark.parametrize(("samples", "compact"), [(2, False), (3, True), (4, True)])
def test_a_gram_matrix_pays_from_half_as_many_rows_as_features_on(samples: int, compact: bool) -> None:
    """d = 6: A Theta takes 36 multiplications a column, X^T (X Theta) 12 a row."""
    assert Shard(np.ones((samples, 6)), np.ones((samples, 1))).compact is compact


def test_a_gram_matrix_that_is_needed_once_is_not_kept() -> None:
    shard = Shard(X, Y)
    first = shard.gram_once()
    assert first.tolist() == [[35, 49], [49, 69]]
    assert shard.gram_once() is not first
    assert shard.gram_once() is not shard.gram
    assert shard.gram_once() is shard.gram, "one that is kept is not computed again"


def test_batches_follow_each_other_and_begin_again() -> None:
    """Ten rows in three parts: 0 to 2, 3 to 5, 6 to 9."""
    parts = [slice(0, 3), slice(3, 6), slice(6, 10)]
    assert [batch_rows(10, 3, epoch) for epoch in range(1, 7)] == parts * 2
    assert batch_rows(10, 1, 5) == slice(0, 10)
    assert [batch_rows(1, 2, epoch) for epoch in (1, 2)] == [slice(0, 0), slice(0, 1)]


def test_sums_over_some_rows_of_each_device() -> None:
    """Rows 1 and 2 of the first device, row 0 of the second."""
    shards = [Shard(X, Y), Shard(X[::-1].copy(), Y[::-1].copy())]
    found = row_sums(shards, [slice(1, 3), np.array([0])])
    assert found.gram.tolist() == [[9 + 25 + 25, 12 + 35 + 35], [12 + 35 + 35, 16 + 49 + 49]]
    assert found.moments.tolist() == [[0 + 10 + 10], [0 + 14 + 14]]
    assert found.samples == 3


def test_a_gradient_of_sums_is_that_of_rows() -> None:
    """Residuals X Theta - Y are -2, -1 and -4."""
    model = np.array([[1.0], [-1.0]])
    for dtype in (np.float32, np.float64):
        found = Sums((X.T @ X).astype(dtype), X.T @ Y, 3).gradient(model.astype(dtype))
        assert found.dtype == np.float64
        assert found.tolist() == [[-2 - 3 - 20], [-4 - 4 - 28]]


class TestMadeShards:
    def test_without_preparation_rows_stay_as_they_are(self) -> None:
        found = make_shard(DeviceRows(X, Y), PLAIN)
        assert (found.x.tolist(), found.y.tolist()) == (X.tolist(), Y.tolist())
        assert penalties(0.5, None) == 0.5

    def test_prepared_rows(self) -> None:
        found = make_shard(DeviceRows(X, Y), PLAIN, PREPARED)
        assert found.x.tolist() == [[0, 2], [1, 4], [2, 7]]
        assert found.y.tolist() == [[0], [-2], [2]]

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_targets_are_less_what_the_first_model_predicts(self, dtype: str) -> None:
        """Of prepared rows it predicts 2 x_0 - x_1 = -2, -2, -3."""
        features = FeatureMap.create("none", inputs=2, dtype=dtype)
        found = make_shard(DeviceRows(X, Y), features, PREPARED, np.array([[2.0], [-1.0]]))
        assert found.y.tolist() == [[2], [0], [5]]
        assert found.x.dtype == found.y.dtype == dtype

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("rows", [0, 1])
    def test_a_device_without_rows_has_one_of_zeros_of_the_same_width(self, dtype: str, rows: int) -> None:
        features = FeatureMap.create("none", inputs=2, dtype=dtype)
        constant = Preparation(**{**vars(PREPARED), "penalty": None, "constant": np.array([1.0])})
        for preparation, width in ((None, 2), (PREPARED, 2), (constant, 3)):
            found = make_shard(DeviceRows(X[:rows], Y[:rows]), features, preparation)
            assert found.x.shape == (1, width)
            assert found.y.shape == (1, 1)
            assert found.x.dtype == found.y.dtype == dtype
            assert bool(found.x.any()) == bool(rows)
            assert found.samples == 1

    def test_weights_of_the_ridge_term(self) -> None:
        assert penalties(0.5, Preparation.identity(2, 1)) == 0.5
        assert np.asarray(penalties(0.5, PREPARED)).tolist() == [[2.0], [0.5]]

    def test_features_are_contiguous(self) -> None:
        """So that products with them are the same whether they were prepared or not."""
        for preparation in (None, PREPARED):
            assert prepared_features(np.asfortranarray(X), PLAIN, preparation).flags.c_contiguous
