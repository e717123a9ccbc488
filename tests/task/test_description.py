"""What is known of columns, targets and labels."""

import numpy as np
import pytest

from codedfl.data import Column
from codedfl.data.dataset import classification, regression
from codedfl.task.description import Description, likely_labels

X = np.eye(4)


@pytest.mark.parametrize(
    "labels", [["a", "b", "a", "b"], [3, 10, 3, 10], [-1, 0, 1, 2], [True, False, True, True], [0.5, 1.0, 1.0, 0.5]]
)
def test_labels_are_as_they_were_given(labels: list[object]) -> None:
    given = np.array(labels)
    found = Description.of_data(classification("data", X, given, X, given), None).classes
    assert found == tuple(sorted(set(labels)))  # type: ignore[type-var]
    assert {type(label) for label in found} == {type(labels[0])}


def test_what_has_no_name_is_named_by_position() -> None:
    found = Description.of_data(regression("data", X, X[:, :2], X, X[:, :2]), None)
    assert [column.name for column in found.columns] == ["0", "1", "2", "3"]
    assert (found.targets, found.classes) == (("y0", "y1"), ())
    assert Description.create(2, 1).targets == Description.create(2, 3, classes=("a", "b", "c")).targets == ("y",)


def test_names_are_kept() -> None:
    columns = (Column("a"), Column("b", ("x", "y", "z")))
    named = regression("data", X, X[:, :1], X, X[:, :1], columns=columns, target_names=("price",))
    found = Description.of_data(named, None)
    assert (found.columns, found.targets) == (columns, ("price",))


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("0", "1", "-2"), (0, 1, -2)),
        (("00", "1"), ("00", "1")),
        (("1.0", "2.0"), ("1.0", "2.0")),
        (("9223372036854775807", "-9223372036854775808"), (2**63 - 1, -(2**63))),
        (("9223372036854775808", "1"), ("9223372036854775808", "1")),
        (("1", "-9223372036854775809"), ("1", "-9223372036854775809")),
        (("9" * 5000, "1"), ("9" * 5000, "1")),
        (("True", "False"), (True, False)),
        (("True", "no"), ("True", "no")),
        ((), ()),
    ],
)
def test_labels_of_which_only_the_text_is_known(names: tuple[str, ...], labels: tuple[object, ...]) -> None:
    found = likely_labels(names)
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]
