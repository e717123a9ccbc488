"""Models predict what scikit-learn's pipeline on the same rows predicts, and are the same after saving."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from codedfl import storage
from codedfl.errors import RunDirectoryError, UsageError
from codedfl.task.model import Model
from rundirs import files
from task.model.fitted import LABELS, Fitted, fitted

KINDS: dict[str, dict[str, Any]] = {
    **{labels: {"labels": labels} for labels in LABELS},
    "kernel": {"labels": "text", "rbf": True},
    "kernel, two": {"labels": "two", "rbf": True, "text": False},
    "without intercept": {"labels": "text", "intercept": False},
    "two without intercept": {"labels": "two", "intercept": False},
    "regression": {},
    "numbers only": {"text": False},
    "three targets": {"outputs": 3},
    "regression with a kernel": {"rbf": True, "outputs": 2},
    "regression without intercept": {"intercept": False},
    "three targets without intercept": {"outputs": 3, "intercept": False},
}


@pytest.fixture(params=KINDS)
def given(request: pytest.FixtureRequest) -> Fitted:
    return fitted(**KINDS[request.param])


def test_predictions_are_those_of_scikit_learn(given: Fitted) -> None:
    found, wanted = given.model.predict(given.rows), given.reference.predict(given.array)
    assert found.dtype.kind == wanted.dtype.kind
    if given.model.classes:
        assert np.array_equal(found, wanted)
        decisions = given.reference.decision_function(given.array)
        assert given.model.decision_function(given.rows) == pytest.approx(decisions, rel=1e-9, abs=1e-9)
    else:
        assert found.shape == wanted.shape
        assert found == pytest.approx(wanted, rel=1e-9)


def test_the_pipeline_predicts_the_same(given: Fitted) -> None:
    made = given.model.to_sklearn()
    found, wanted = made.predict(given.array), given.model.predict(given.rows)
    assert found.shape == wanted.shape
    assert found.dtype.kind == wanted.dtype.kind
    if given.model.classes:
        assert np.array_equal(found, wanted)
        assert made.classes_.tolist() == sorted(given.model.classes)
        wanted = given.model.decision_function(given.rows)
        assert made.decision_function(given.array) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    else:
        assert found == pytest.approx(wanted, rel=1e-9)
    assert made[-1].alpha == pytest.approx(given.model.ridge * given.model.samples)


def test_classes_in_another_order_than_sorted() -> None:
    """Sites may agree on classes in any order, and scikit-learn sorts them."""
    for labels, order in (("text", [2, 0, 1]), ("two", [1, 0])):
        given = fitted(labels)
        model, prepared = given.model, given.model.preparation
        assert prepared is not None
        moved = replace(prepared, target_shift=prepared.target_shift[order], target_unit=prepared.target_unit[order])
        classes = tuple(model.classes[place] for place in order)
        described = replace(model.description, classes=classes, preparation=moved)
        other = replace(model, theta=model.theta[:, order], description=described)
        assert np.array_equal(other.predict(given.rows), model.predict(given.rows))
        assert np.array_equal(other.to_sklearn().predict(given.array), model.predict(given.rows))


def test_missing_values_are_filled_where_the_model_fills_them() -> None:
    given = fitted()
    prepared = given.model.preparation
    assert prepared is not None
    filling = replace(given.model.description, preparation=replace(prepared, fill=prepared.shift))
    model = replace(given.model, description=filling)
    rows = {"size": [np.nan, 3000.0], "colour": ["red", None], "weight": [0.1, 0.1]}
    shares = prepared.shift[1:4]
    inputs = np.array([[prepared.shift[0], 0, 0, 1, 0.1], [3000, *shares, 0.1]])
    wanted = ((inputs - prepared.shift) / prepared.unit) @ model.theta * prepared.target_unit + prepared.target_shift
    assert model.outputs(rows) == pytest.approx(wanted, rel=1e-12)
    numeric = fitted(text=False)
    prepared = numeric.model.preparation
    assert prepared is not None
    filling = replace(numeric.model.description, preparation=replace(prepared, fill=prepared.shift))
    model, holed = replace(numeric.model, description=filling), np.array([[np.nan, 0.1], [2500, np.nan]])
    assert model.to_sklearn().predict(holed) == pytest.approx(model.predict(holed), rel=1e-12)


def test_scikit_learn_has_no_fractional_classes() -> None:
    given = fitted("two")
    described = replace(given.model.description, classes=(0.5, 1.5))
    with pytest.raises(UsageError, match=r"no classes such as 0\.5"):
        replace(given.model, description=described).to_sklearn()


def test_a_copied_folder_predicts_the_same(given: Fitted, tmp_path: Path) -> None:
    given.model.save(tmp_path / "run/model")
    shutil.copytree(tmp_path / "run/model", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "run")
    assert files(tmp_path) == {"elsewhere/model.json", "elsewhere/model.npz"}
    found = Model.load(tmp_path / "elsewhere")
    assert found.to_table() == given.model.to_table()
    assert np.array_equal(found.outputs(given.rows), given.model.outputs(given.rows))
    assert found.predict(given.rows).dtype == given.model.predict(given.rows).dtype


def test_columns_are_matched_by_name_in_any_form() -> None:
    given = fitted("text")
    wanted = given.model.outputs(given.array)
    shuffled = {name: given.rows[name] for name in ("weight", "size", "colour")}
    for rows in (shuffled, pa.table(shuffled), Frame(shuffled), given.array.tolist()):
        assert np.array_equal(given.model.outputs(rows), wanted)


class Frame:
    """Stands for a pandas data frame, which is not installed for the tests."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = list(columns)
        self._values = columns

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[name]


def test_many_rows_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = fitted("text", rbf=True)
    wanted = given.model.outputs(given.rows)
    for numbers in (7 * 40, 39):  # seven rows of forty features, or less than one
        monkeypatch.setattr("codedfl.task.model.model._BLOCK_NUMBERS", numbers)
        assert given.model.outputs(given.rows) == pytest.approx(wanted, rel=1e-12)
    none = {name: values[:0] for name, values in given.rows.items()}
    assert given.model.predict(none).shape == (0,)


def test_a_regression_has_no_decision_values() -> None:
    given = fitted()
    with pytest.raises(UsageError, match="a regression has no decision values; use its predictions"):
        given.model.decision_function(given.rows)


def test_a_save_that_is_interrupted_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix of a new model beside the table of an old one is refused, never predicted with."""
    fitted("text").model.save(tmp_path)
    monkeypatch.setattr(storage, "write_json", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        fitted("text", intercept=False).model.save(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"model\.npz does not belong to model\.json"):
        Model.load(tmp_path)


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("text").model
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *given, **options: None)  # a process that is killed removes nothing
        patch.setattr("os.replace", lambda *given: (_ for _ in ()).throw(OSError(5, "Killed")))
        with pytest.raises(OSError, match="Killed"):
            model.save(tmp_path)
    assert files(tmp_path) - {"model.json", "model.npz"}
    model.save(tmp_path)
    assert files(tmp_path) == {"model.json", "model.npz"}
