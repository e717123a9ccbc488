import numpy as np
import pytest

from codedfl.data.dataset import Dataset, classification, regression
from codedfl.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def with_value(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def test_classification_has_one_hot_targets():
    data = Dataset("d", "classification", X, LABELS, X[:2], LABELS[:2], ("a", "b", "c"))
    assert (data.classes, data.outputs, data.samples, data.inputs) == (3, 3, 6, 2)
    targets = data.targets(data.y_train)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, np.eye(3)[LABELS])


def test_regression_targets_are_the_values():
    y = X[:, :1] * 2
    data = regression("d", X, y[:, 0], X[:2], y[:2])
    assert (data.classes, data.outputs) == (0, 1)
    np.testing.assert_array_equal(data.targets(data.y_train), y)


def test_labels_become_classes_in_sorted_order():
    labels = np.array(["cat", "ant", "bee", "cat", "ant", "bee"])
    data = classification("d", X, labels, X[:2], labels[:2])
    assert data.class_names == ("ant", "bee", "cat")
    np.testing.assert_array_equal(data.y_train, [2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(data.y_test, [2, 0])


GOOD = {"x_train": X, "y_train": LABELS, "x_test": X[:3], "y_test": LABELS[:3]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x_train": with_value(X, (3, 1), np.nan)}, "x_train holds 1 missing .* row 3, column 1"),
        ({"x_test": with_value(X[:3], (2, 0), np.inf)}, "x_test holds 1 .* row 2, column 0"),
        ({"x_train": X[:, 0]}, r"x_train has 1 dimensions \(shape \(6,\)\) where 2"),
        ({"x_train": X.astype(np.int64)}, "x_train holds int64"),
        ({"x_train": X.astype(str)}, "x_train holds <U"),
        ({"x_train": [[1.0]]}, "x_train holds list"),
        ({"y_train": LABELS.astype(float)}, "y_train holds float64"),
        ({"y_train": LABELS[:, None]}, "y_train has 2 dimensions"),
        ({"y_train": LABELS[:5]}, "x_train has 6 rows but y_train has 5"),
        ({"x_train": X[:0], "y_train": LABELS[:0]}, "the train set is empty"),
        ({"x_test": X[:0, :0], "y_test": LABELS[:0]}, "the test set is empty"),
        ({"x_test": X[:3, :1]}, "x_train has 2 columns but x_test has 1"),
        ({"y_test": np.array([0, 1, 3])}, "labels from 0 to 3"),
        ({"y_train": LABELS - 1}, "labels from -1 to 1"),
        ({"y_train": LABELS % 2}, "test set holds 'c', which never occurs"),
        ({"y_train": LABELS % 2, "y_test": LABELS[:3] % 2}, "class 'c' has no training sample"),
        ({"kind": "ranking"}, "kind is 'ranking'"),
    ],
)
def test_unusable_data_is_refused_in_one_sentence(change, sentence):
    fields = {"name": "d", "kind": "classification", "class_names": ("a", "b", "c")} | GOOD | change
    with pytest.raises(DataError, match=sentence) as caught:
        Dataset.create(**fields)
    assert "\n" not in str(caught.value)


def test_regression_with_different_target_columns_is_refused():
    with pytest.raises(DataError, match="y_train has 2 columns but y_test has 1"):
        regression("d", X, X, X, X[:, :1])


def test_missing_targets_are_refused():
    with pytest.raises(DataError, match=r"y_train holds 1 .* row 4, column 0"):
        regression("d", X, with_value(X[:, 0], 4, np.nan), X, X[:, 0])


def test_labels_unknown_to_training_are_refused():
    with pytest.raises(DataError, match="holds 7, 8, 9 and 1 more, which never occurs"):
        classification("d", X, LABELS, X[:4], np.array([7, 8, 9, 10]))


def test_text_and_number_labels_do_not_mix():
    with pytest.raises(DataError, match="both as text or both as numbers"):
        classification("d", X, LABELS, X, LABELS.astype(str))
