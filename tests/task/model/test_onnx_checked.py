"""What an exported graph holds, and the comparison with the model: another runtime that computes wrongly is noticed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from codedfl.data.preparation import Column
from codedfl.errors import DataError, UsageError
from codedfl.task.model import Model
from codedfl.task.model.onnx_export import TOLERANCE, checked_graph
from task.model.made import COLUMNS, LABELS, made, rows_of

NUMBERS = (Column("a"), Column("b"))


def run(model: Model, rows: dict[str, np.ndarray]) -> list[Any]:
    session = onnxruntime.InferenceSession(checked_graph(model)[0], providers=["CPUExecutionProvider"])
    given: dict[str, Any] = {name: rows[name][:, None] for name in rows if rows[name].dtype == object}
    if numbers := [values for values in rows.values() if values.dtype != object]:
        given["inputs"] = np.stack(numbers, axis=1).astype(np.float32)
    return session.run(None, given)


@pytest.mark.parametrize("rbf", [False, True])
@pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
@pytest.mark.parametrize("classes", [*LABELS, "three targets"])
def test_graphs_of_any_preparation_and_classes(preparation: str, classes: Any, rbf: bool) -> None:
    targets = {"outputs": 3} if classes == "three targets" else {"classes": classes}
    model = made(preparation, rbf=rbf, **targets)
    rows = rows_of(model)
    rows = {name: values if values.dtype == object else np.float32(values) for name, values in rows.items()}
    *label, scores = run(model, rows)
    outputs = model.outputs(rows)
    if model.classes:
        assert label[0].tolist() == model.predict(rows).tolist()
        outputs = 2 * outputs - outputs.sum(axis=1, keepdims=True)
    assert scores == pytest.approx(outputs, abs=1e-6 * np.abs(outputs).max())


@pytest.mark.parametrize("columns", [NUMBERS, (Column("t", ("x", "y")),), COLUMNS[::-1]])
def test_graphs_of_any_columns(columns: tuple[Column, ...]) -> None:
    for preparation in ("means", "ranges"):
        model = made(preparation, columns=columns)
        rows = rows_of(model)
        rows = {name: values if values.dtype == object else np.float32(values) for name, values in rows.items()}
        outputs = model.outputs(rows)
        assert run(model, rows)[0] == pytest.approx(outputs, abs=1e-6 * np.abs(outputs).max())


def test_random_features_of_single_precision() -> None:
    """Their weights are stored in turns."""
    model = made("ranges", rbf=True, precision="float32")
    rows = {name: values if values.dtype == object else np.float32(values) for name, values in rows_of(model).items()}
    outputs = model.outputs(rows)
    assert run(model, rows)[0] == pytest.approx(outputs, abs=1e-5 * np.abs(outputs).max())


def test_a_graph_says_what_it_was_made_of() -> None:
    graph = onnx.load_from_string(checked_graph(made("means", outputs=2))[0])
    facts = {each.key: each.value for each in graph.metadata_props}
    assert facts == {"inputs": "b,a,c", "targets": "y0,y1", "scenario_id": "0123456789abcdef"}
    assert (graph.producer_name, graph.producer_version, graph.ir_version) == ("codedfl", "0.1.0", 8)
    assert {each.domain: each.version for each in graph.opset_import} == {"": 17, "ai.onnx.ml": 3}
    assert [each.name for each in graph.graph.input] == ["inputs", "city", "kind"]
    assert [each.name for each in graph.graph.output] == ["scores"]
    assert [each.name for each in onnx.load_from_string(checked_graph(made(classes=(1, 2, 3)))[0]).graph.output] == [
        "label",
        "scores",
    ]


@pytest.mark.parametrize("name", ["inputs", "label", "scores"])
def test_names_of_the_graph_are_refused_for_text_only(name: str) -> None:
    checked_graph(made(columns=(Column(name), Column("a"))))
    with pytest.raises(DataError, match=f"value of its own called '{name}'"):
        checked_graph(made(columns=(Column(name, ("x", "y")), Column("a"))))


def test_text_that_is_filled_is_refused() -> None:
    model = made()
    assert model.preparation is not None
    filling = replace(model.preparation, fill=model.preparation.shift)
    with pytest.raises(UsageError, match="the text column 'city', which an ONNX graph cannot"):
        checked_graph(replace(model, description=replace(model.description, preparation=filling)))


Change = Callable[[dict[str, Any], list[Any]], None]


def checked_by(change: Change, model: Model, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the difference to a runtime whose results are changed."""
    right = onnxruntime.InferenceSession

    class Changed:
        def __init__(self, text: bytes, **options: Any) -> None:
            self._session = right(text, **options)

        def run(self, names: None, given: dict[str, Any]) -> list[Any]:
            found = [np.array(each) for each in self._session.run(names, given)]
            change(given, found)
            return found

    monkeypatch.setattr(onnxruntime, "InferenceSession", Changed)
    return checked_graph(model)[1]


def rows_given(given: dict[str, Any], model: Model) -> dict[str, np.ndarray]:
    numbers = iter(given["inputs"].T if "inputs" in given else ())
    return {column.name: given[column.name][:, 0] if column.categories else next(numbers) for column in model.columns}


class TestComparison:
    @pytest.mark.parametrize("classes", [(), ("no", "yes"), ("c", "a", "b")])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_a_score_that_is_off(self, classes: Any, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """By parts of the tolerance of the largest score, and by twice the tolerance."""
        model = made("as they are", classes=classes, columns=NUMBERS)

        def off(by: float) -> Change:
            def change(given: dict[str, Any], found: list[Any]) -> None:
                scores = model.outputs(rows_given(given, model))
                scores = 2 * scores - scores.sum(axis=1, keepdims=True) if classes else scores
                found[-1] = scores
                found[-1][7, 0] += sign * by * TOLERANCE * np.abs(scores).max()

            return change

        for by in (0.5, 0.9):
            with monkeypatch.context() as patch:
                assert checked_by(off(by), model, patch) == pytest.approx(by * TOLERANCE, rel=0.02)
        with pytest.raises(DataError, match=r"the ONNX graph differs from the model by 2\.0e-05 of the largest score"):
            checked_by(off(2.0), model, monkeypatch)

    def test_numbers_that_are_none_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def change(given: dict[str, Any], found: list[Any]) -> None:
            found[-1][3, 0] = np.nan

        with pytest.raises(DataError, match="differs from the model by nan of the largest score"):
            checked_by(change, made(columns=NUMBERS), monkeypatch)

    @pytest.mark.parametrize("classes", [("no", "yes"), ("c", "a", "b")])
    def test_a_label_that_is_wrong_where_it_is_clear(self, classes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        model = made("as they are", classes=classes, columns=NUMBERS)

        def leads(given: dict[str, Any]) -> np.ndarray:
            scores = model.outputs(rows_given(given, model))
            ordered = np.sort(2 * scores - scores.sum(axis=1, keepdims=True), axis=1)
            return np.asarray(ordered[:, -1] - ordered[:, -2])

        def wrong(place: int) -> Change:
            def change(given: dict[str, Any], found: list[Any]) -> None:
                row = np.argsort(leads(given))[place]
                found[0][row] = next(label for label in classes if label != found[0][row])

            return change

        for place in (0, 50, -1):
            with monkeypatch.context() as patch, pytest.raises(DataError, match="differs from the model by inf"):
                checked_by(wrong(place), model, patch)

    def test_a_label_may_differ_where_two_scores_tie(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Scores of a row a are a, a plus twice the lead, and -3 a, and each of them may be off by the tolerance.

        So two of them may change places where they differ by 6 a times the tolerance at most, for the largest a.
        """
        model = made("as they are", classes=("no", "yes", "no idea"), columns=(Column("a"), Column("b")))

        def change(given: dict[str, Any], found: list[Any]) -> None:
            found[0][:] = "no"

        for lead in (1 / 3, 2.9):
            model.theta[:] = [[1.0, 1.0 + lead * TOLERANCE, -1.0], [0.0, 0.0, 0.0]]
            with monkeypatch.context() as patch:
                assert checked_by(change, model, patch) < TOLERANCE
        model.theta[:] = [[1.0, 1.0 + 3.1 * TOLERANCE, -1.0], [0.0, 0.0, 0.0]]
        with pytest.raises(DataError, match="differs from the model by inf"):
            checked_by(change, model, monkeypatch)

    def test_a_model_of_zeros_differs_by_nothing(self) -> None:
        model = made("as they are", columns=NUMBERS)
        model.theta[:] = 0
        assert checked_graph(model)[1] == 0

    @pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
    def test_rows_are_those_that_the_preparation_tells(self, preparation: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Numbers within three units of the shift, or from 0 to 1; every category; two hundred rows."""
        seen: list[dict[str, Any]] = []
        model = made(preparation)
        checked_by(lambda given, found: seen.append(given), model, monkeypatch)
        (given,) = seen
        assert {name: values.shape for name, values in given.items()} == {
            "inputs": (200, 3),
            "city": (200, 1),
            "kind": (200, 1),
        }
        low, high, prepared = np.zeros(3), np.ones(3), model.preparation
        if prepared is not None:
            places = [0, 1, 4]
            low = prepared.shift[places] - 3 * prepared.unit[places]
            high = prepared.shift[places] + 3 * prepared.unit[places]
        share = (given["inputs"] - low) / (high - low)
        assert share.min() >= -1e-6 and share.max() <= 1 + 1e-6
        assert (share.min(axis=0) < 0.1).all() and (share.max(axis=0) > 0.9).all()
        assert [set(given[name][:, 0]) for name in ("city", "kind")] == [{"rome", "bern"}, {"x", "y", "z"}]
