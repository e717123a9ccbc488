"""Models with given numbers, prepared by ranges, by means and by random features, and rows beyond any range."""

from typing import Any

import numpy as np

from codedfl.data.preparation import Column, Preparation
from codedfl.task.description import Description
from codedfl.task.model import Model
from codedfl.task.model.model import FeatureSettings

COLUMNS = (Column("b"), Column("a"), Column("city", ("rome", "bern")), Column("c"), Column("kind", ("x", "y", "z")))
"""Two numbers beside each other, and texts whose categories are not sorted."""
INPUTS = sum(len(column.inputs) for column in COLUMNS)


def made(
    preparation: str = "means",
    *,
    classes: tuple[Any, ...] = (),
    outputs: int = 1,
    rbf: bool = False,
    columns: tuple[Column, ...] = COLUMNS,
    precision: str = "float64",
) -> Model:
    """Make a model: with ``ranges`` it has a constant, with ``means`` an intercept, ``as they are`` neither."""
    rng, inputs = np.random.default_rng(5), sum(len(column.inputs) for column in columns)
    width, number = 30 if rbf else inputs, len(classes) or outputs
    shift, unit = rng.standard_normal(inputs), rng.uniform(0.5, 2, inputs)
    targets = rng.standard_normal(number), rng.uniform(0.5, 2, number)
    found: dict[str, Preparation | None] = {
        "as they are": None,
        "means": Preparation(shift, unit, None, rng.standard_normal(width) if rbf else None, None, *targets),
        "ranges": Preparation(
            *(shift, unit, None, None, None, *targets),
            low=shift - unit,
            high=shift + 2 * unit,
            constant=np.array([0.4]),
        ),
    }
    theta = rng.standard_normal((width + (preparation == "ranges"), number))
    names = ("kind",) if classes else tuple(f"y{place}" for place in range(outputs))
    return Model(
        theta=theta.astype(precision),
        kind="classification" if classes else "regression",
        description=Description(columns, names, classes, found[preparation]),
        features=FeatureSettings("rbf" if rbf else "none", 30, 0.05, 3, precision),
        ridge=0.25,
        intercept=preparation != "as they are",
        samples=40,
        scheme="conventional",
        scenario_id="0123456789abcdef",
        version="0.1.0",
    )


def rows_of(model: Model, count: int = 50) -> dict[str, np.ndarray]:
    """Rows whose numbers lie beyond the ranges of some columns."""
    rng = np.random.default_rng(6)
    return {
        column.name: rng.choice(np.array(column.categories, dtype=object), count)
        if column.categories
        else 3 * rng.standard_normal(count)
        for column in model.columns
    }


def inputs_of_rows(model: Model, rows: dict[str, np.ndarray]) -> np.ndarray:
    """The inputs of rows, by another way than the model's."""
    parts = []
    for column in model.columns:
        values = rows[column.name]
        parts.append(
            np.array([[float(value == word) for word in column.categories] for value in values])
            if column.categories
            else values[:, None].astype(float)
        )
    return np.hstack(parts)


def outputs_of_rows(model: Model, rows: dict[str, np.ndarray]) -> np.ndarray:
    """The outputs of a model without random features, from its numbers."""
    inputs, prepared = inputs_of_rows(model, rows), model.preparation
    if prepared is None:
        return inputs @ model.theta
    if prepared.low is not None and prepared.high is not None:
        inputs = np.minimum(np.maximum(inputs, prepared.low), prepared.high)
    inputs = (inputs - prepared.shift) / prepared.unit
    if prepared.constant is not None:
        inputs = np.hstack([inputs, np.full((len(inputs), 1), prepared.constant[0])])
    return (inputs @ model.theta) * prepared.target_unit + prepared.target_shift


def array_of(rows: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([values.astype(object) for values in rows.values()], axis=1)


LABELS: tuple[tuple[Any, ...], ...] = ((), ("no", "yes"), ("yes", "no"), ("c", "a", "b"), (7, 2, 10), (2.0, 1.0))
"""No classes, and classes in any order, as sites may have agreed on them."""
