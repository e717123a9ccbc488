"""Rows in many forms become inputs, or are refused with the place of what is wrong."""

import decimal
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from codedfl.data.preparation import Column
from codedfl.errors import CodedflWarning, DataError
from codedfl.task.model.inputs import inputs_of
from tiny import is_one_sentence

COLUMNS = (Column("a"), Column("kind", ("x", "3")), Column("b"))
WANTED = np.array([[1.5, 1, 0, 2], [4, 0, 1, 0]])
GOOD: dict[str, Any] = {"a": [1.5, 4], "kind": ["x", "3"], "b": [2, 0]}


@pytest.mark.parametrize(
    "rows",
    [
        GOOD,
        {name: GOOD[name] for name in ("b", "kind", "a")},
        pa.table(GOOD),
        pa.table({**GOOD, "kind": pa.array(["x", "3"]).dictionary_encode()}),
        pa.table({**GOOD, "b": pa.array([decimal.Decimal("2.0"), decimal.Decimal("0.0")])}),
        pa.table({**GOOD, "a": pa.array([1.5, 4.0], pa.float32())}),
        {"a": np.array(["1.5", "4"]), "kind": np.array([b"x", b"3"]), "b": np.array([2, False], dtype=object)},
        [[1.5, "x", 2], [4, "3", 0]],
        np.array([[1.5, "x", 2], [4, 3, 0]], dtype=object),
        np.array([[1.5, "x", 2], [4, 3.0, 0]], dtype=object),
    ],
)
def test_forms(rows: Any) -> None:
    assert np.array_equal(inputs_of(rows, COLUMNS, may_miss=False), WANTED)


def test_truth_values_and_names_that_are_numbers() -> None:
    columns = (Column("0"), Column("1"))
    assert inputs_of({1: [True, False], 0: [2, 3]}, columns, may_miss=False).tolist() == [[2, 1], [3, 0]]
    assert inputs_of(pa.table({"1": [True, None], "0": [2, None]}), columns, may_miss=True)[0].tolist() == [2, 1]


def test_columns_that_are_not_used_are_named_in_one_warning() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = inputs_of({"id": ["p", "q"], **GOOD, "when": [0, 0]}, COLUMNS, may_miss=False)
    assert np.array_equal(found, WANTED)
    assert [(entry.category, str(entry.message)) for entry in seen] == [
        (CodedflWarning, "the model does not use these columns: id, when")
    ]


@pytest.mark.parametrize("gap", [None, np.nan, ""])
def test_missing_values_are_nan_where_they_may_be_missing(gap: Any) -> None:
    rows = {"a": np.array([gap, 4], dtype=object), "kind": np.array(["x", gap], dtype=object), "b": [2, 0]}
    wanted = np.array([[np.nan, 1, 0, 2], [4, np.nan, np.nan, 0]])
    assert np.array_equal(inputs_of(rows, COLUMNS, may_miss=True), wanted, equal_nan=True)


def test_an_empty_text_may_be_a_category() -> None:
    found = inputs_of({"kind": ["", "x"]}, (Column("kind", ("", "x")),), may_miss=True)
    assert found.tolist() == [[1, 0], [0, 1]]


class Twice:
    """A data frame with a column twice."""

    columns = ("kind", "a", "kind", "b")

    def __getitem__(self, name: str) -> list[float]:
        raise AssertionError


WRONG: dict[str, tuple[Any, str]] = {
    "a column is missing": ({"a": [1], "b": [2]}, r"no column 'kind'; the model needs a, kind, b"),
    "more are missing": ({"kind": ["x"]}, r"no column 'a' \(and 1 more are missing\)"),
    "a column is misspelt": ({"a": [1], "kinds": ["x"], "b": [2]}, r"no column 'kind' \(did you mean 'kinds'\?\)"),
    "a column twice": (Twice(), "more than one column named 'kind'"),
    "a name as text and number": (
        {**GOOD, 1: [0, 0], "1": [0, 0]},
        "more than one column named '1'",
    ),
    "lengths differ": ({**GOOD, "b": [1]}, "different lengths, from 1 to 2"),
    "a matrix as column": ({**GOOD, "b": np.zeros((2, 2))}, r"'b' has shape \(2, 2\)"),
    "an unseen category": ({**GOOD, "kind": ["x", "y"]}, r"'kind' holds 'y', which is none of x, 3, in row 1"),
    "a category in other letters": ({**GOOD, "kind": ["X", "3"]}, "'kind' holds 'X'"),
    "text as number": ({**GOOD, "a": ["1", "one"]}, "'a' holds 'one', which is not a number, in row 1"),
    "NaN": ({**GOOD, "b": [1.0, np.nan]}, r"'b' holds a missing value, in row 1 \(counted from 0\)"),
    "null": (pa.table({**GOOD, "b": [None, 1]}), "'b' holds a missing value, in row 0"),
    "no category": ({**GOOD, "kind": ["x", None]}, "'kind' holds a missing value, in row 1"),
    "infinite": ({**GOOD, "a": [np.inf, 1]}, "'a' holds an infinite value, in row 0"),
    "several gaps": (
        {"a": [1, np.nan, np.inf], "kind": ["x", "x", "x"], "b": [2, 3, np.nan]},
        "'a' holds a missing value, in row 1",
    ),
    "too large": ({**GOOD, "a": np.array([10**400, 1], dtype=object)}, "'a' holds 1000.*, which is not a number"),
    "complex": ({**GOOD, "a": np.array([1j, 1])}, "'a' holds complex128"),
    "dates": ({**GOOD, "a": np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")}, "'a' holds datetime64"),
    "one dimension": ([1.0, 2.0, 3.0], r"shape \(3,\)"),
    "too few columns": (np.zeros((4, 2)), r"shape \(4, 2\).* 3 columns: a, kind, b"),
    "a single number": (5, r"shape \(\)"),
    "ragged rows": ([[1, "x", 2], [1]], "differ in length"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows(name: str) -> None:
    rows, says = WRONG[name]
    with pytest.raises(DataError, match=says) as refused:
        inputs_of(rows, COLUMNS, may_miss=False)
    assert is_one_sentence(str(refused.value))
    assert len(str(refused.value)) < 200


def test_infinite_values_are_refused_even_where_values_may_be_missing() -> None:
    with pytest.raises(DataError, match="'a' holds an infinite value, in row 1"):
        inputs_of({**GOOD, "a": [np.nan, -np.inf]}, COLUMNS, may_miss=True)
