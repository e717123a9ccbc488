"""ONNX graphs run by onnxruntime predict what the model predicts."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from codedfl.data.preparation import Column
from codedfl.errors import DataError, MissingExtraError
from codedfl.task.model.onnx_export import TOLERANCE, checked_graph
from task.model.fitted import Fitted, fitted
from task.model.test_model import KINDS


def run(graph: bytes, given: Fitted) -> list[Any]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    numeric = [values for values in given.rows.values() if values.dtype.kind == "f"]
    rows: dict[str, Any] = {"inputs": np.stack(numeric, axis=1).astype(np.float32)}
    if "colour" in given.rows:
        rows["colour"] = given.rows["colour"][:, None]
    return session.run(None, rows)


@pytest.mark.parametrize("name", KINDS)
def test_graphs_agree_with_the_model(name: str) -> None:
    given = fitted(**KINDS[name])
    graph, difference = checked_graph(given.model)
    assert 0 < difference < TOLERANCE
    *label, scores = run(graph, given)
    outputs = given.model.outputs(given.rows)
    if not given.model.classes:
        assert label == []
        assert scores == pytest.approx(outputs, abs=1e-5 * np.abs(outputs).max())
        return
    assert label[0].tolist() == given.model.predict(given.rows).tolist()
    assert scores.argmax(axis=1).tolist() == outputs.argmax(axis=1).tolist()
    decisions = given.model.decision_function(given.rows)
    scores = scores[:, 1] if len(given.model.classes) == 2 else scores
    assert scores == pytest.approx(decisions, abs=1e-5 * np.abs(decisions).max())


@pytest.mark.parametrize(
    ("given", "wanted"), [(fitted("text"), 3), (fitted("two"), 2), (fitted(), 1), (fitted(outputs=3), 3)]
)
def test_graphs_state_the_shapes_of_what_they_return(given: Fitted, wanted: int) -> None:
    session = onnxruntime.InferenceSession(checked_graph(given.model)[0], providers=["CPUExecutionProvider"])
    *label, scores = session.get_outputs()
    assert (scores.name, scores.shape[1:]) == ("scores", [wanted])
    assert [(each.name, len(each.shape)) for each in label] == [("label", 1)] * bool(given.model.classes)


def test_missing_values_are_filled() -> None:
    given = fitted(text=False)
    prepared = given.model.preparation
    assert prepared is not None
    described = replace(given.model.description, preparation=replace(prepared, fill=prepared.shift))
    model = replace(given.model, description=described)
    holed = np.array([[np.nan, 0.1], [2500, np.nan]], np.float32)
    session = onnxruntime.InferenceSession(checked_graph(model)[0], providers=["CPUExecutionProvider"])
    assert session.run(None, {"inputs": holed})[0][:, 0] == pytest.approx(model.predict(holed), rel=1e-5)


def test_an_unseen_category_is_refused_by_the_graph() -> None:
    given = fitted("text")
    rows = {**given.rows, "colour": np.array(["violet"] * len(given.rows["colour"]), dtype=object)}
    with pytest.raises(Exception, match="Unknown Category"):
        run(checked_graph(given.model)[0], replace(given, rows=rows))


def test_columns_that_single_precision_cannot_hold_are_refused() -> None:
    """A column around 1e9 that varies by 1 has no digit left in single precision."""
    given = fitted(text=False)
    prepared = given.model.preparation
    assert prepared is not None
    far = replace(prepared, shift=prepared.shift + np.array([1e9, 0]), unit=prepared.unit / np.array([500, 1]))
    model = replace(given.model, description=replace(given.model.description, preparation=far))
    with pytest.raises(DataError, match=r"differs from the model by .* more than 1e-05"):
        checked_graph(model)


def test_a_column_may_not_have_a_name_of_the_graph() -> None:
    given = fitted("text")
    columns = (Column("size"), Column("scores", ("blue", "green", "red")), Column("weight"))
    model = replace(given.model, description=replace(given.model.description, columns=columns))
    with pytest.raises(DataError, match="value of its own called 'scores'"):
        checked_graph(model)


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[export\]'"):
        checked_graph(fitted().model)
