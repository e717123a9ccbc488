"""Pipelines of scikit-learn have the numbers of the model, whatever its columns, preparation and classes are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.data.preparation import Column
from codedfl.errors import UsageError
from codedfl.task.model import Model
from task.model.made import LABELS, array_of, made, outputs_of_rows, rows_of


def same(model: Model) -> None:
    rows, pipeline = rows_of(model), model.to_sklearn()
    array = array_of(rows)
    if model.classes:
        assert np.array_equal(pipeline.predict(array), model.predict(rows))
        assert pipeline.classes_.tolist() == sorted(model.classes)
        places, wanted = np.argsort(np.array(model.classes)), model.decision_function(rows)
        wanted = wanted[:, places] if len(places) > 2 else wanted * (1 if places[1] else -1)
        assert pipeline.decision_function(array) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    else:
        assert pipeline.predict(array).shape == model.predict(rows).shape
        assert pipeline.predict(array) == pytest.approx(model.predict(rows), rel=1e-9, abs=1e-9)
    assert pipeline[-1].alpha == 0.25 * 40
    assert pipeline[-1].fit_intercept == model.intercept
    assert pipeline[-1].n_features_in_ == pipeline[:-1].transform(array).shape[1]


@pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
@pytest.mark.parametrize("classes", LABELS)
def test_outputs_of_any_preparation_and_classes(preparation: str, classes: tuple[Any, ...]) -> None:
    model = made(preparation, classes=classes)
    rows = rows_of(model)
    assert model.outputs(rows) == pytest.approx(outputs_of_rows(model, rows), rel=1e-12)
    same(model)


@pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
@pytest.mark.parametrize("outputs", [2, 3])
def test_several_targets(preparation: str, outputs: int) -> None:
    same(made(preparation, outputs=outputs))


@pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
@pytest.mark.parametrize("classes", LABELS[:4])
def test_random_features(preparation: str, classes: tuple[Any, ...]) -> None:
    same(made(preparation, classes=classes, rbf=True))


@pytest.mark.parametrize(
    "columns",
    [
        (Column("a"),),
        (Column("a"), Column("b")),
        (Column("t", ("x", "y")),),
        (Column("t", ("x", "y")), Column("a"), Column("b"), Column("c")),
        (Column("a"), Column("b"), Column("t", ("y", "x")), Column("u", ("z", "w"))),
    ],
)
def test_columns_in_any_order(columns: tuple[Column, ...]) -> None:
    same(made("means", columns=columns))
    same(made("ranges", columns=columns, classes=("c", "a", "b")))


def test_steps_are_named_by_what_they_do() -> None:
    numbers = (Column("a"), Column("b"))
    assert list(made("as they are", columns=numbers).to_sklearn().named_steps) == ["model"]
    assert list(made("means", columns=numbers).to_sklearn().named_steps) == ["scale", "model"]
    assert list(made("ranges", columns=numbers).to_sklearn().named_steps) == ["range", "scale", "model"]
    every = made("ranges", rbf=True).to_sklearn().named_steps
    assert list(every) == ["columns", "range", "scale", "features", "model"]
    filling = made("means", columns=numbers)
    prepared = filling.preparation
    assert prepared is not None
    filled = replace(filling.description, preparation=replace(prepared, fill=prepared.shift))
    assert list(replace(filling, description=filled).to_sklearn().named_steps) == ["missing", "scale", "model"]


def test_units_are_kept_with_their_squares() -> None:
    model = made("means", columns=(Column("a"), Column("b")))
    prepared, scaler = model.preparation, model.to_sklearn()["scale"]
    assert prepared is not None
    assert scaler.mean_.tolist() == prepared.shift.tolist()
    assert scaler.scale_.tolist() == prepared.unit.tolist()
    assert scaler.var_.tolist() == (prepared.unit**2).tolist()


@pytest.mark.parametrize("classes", [(0.5, 1.5), (1.0, 1.5), (0.5, 1.0)])
def test_one_fractional_class_is_enough_to_be_refused(classes: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="scikit-learn has no classes such as"):
        made(classes=classes).to_sklearn()


def test_text_that_is_filled_is_refused() -> None:
    for columns, refused in (((Column("a"), Column("t", ("x", "y"))), True), ((Column("a"),), False)):
        model = made("means", columns=columns)
        prepared = model.preparation
        assert prepared is not None
        filled = replace(
            model, description=replace(model.description, preparation=replace(prepared, fill=prepared.shift))
        )
        if refused:
            with pytest.raises(UsageError, match="fills missing values of the text column 't', which a scikit-learn"):
                filled.to_sklearn()
        else:
            filled.to_sklearn()
