"""Models fitted on small tables by their normal equations, beside the same fit by scikit-learn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from codedfl.data.preparation import Column, Preparation
from codedfl.task.description import Description
from codedfl.task.model import Model
from codedfl.task.model.model import FeatureSettings

ROWS, RIDGE, GAMMA, DIMENSION = 90, 0.01, 0.1, 40
COLUMNS = (Column("size"), Column("colour", ("blue", "green", "red")), Column("weight"))
LABELS: dict[str, tuple[Any, ...]] = {
    "text": ("ant", "bee", "cow"),
    "integers": (2, 7, 10),
    "two": ("no", "yes"),
    "truth values": (False, True),
    "numbers": (1.0, 2.0),
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model, its rows by column, its targets, and scikit-learn's pipeline on the same rows as an object array."""

    model: Model
    rows: dict[str, np.ndarray]
    targets: np.ndarray
    reference: Pipeline

    @property
    def array(self) -> np.ndarray:
        return np.stack([values.astype(object) for values in self.rows.values()], axis=1)


def fitted(
    labels: str | None = None, *, text: bool = True, rbf: bool = False, outputs: int = 1, intercept: bool = True
) -> Fitted:
    """Fit a classification with these labels, or a regression; with an intercept all columns are standardised."""
    rng = np.random.default_rng(3)
    columns = COLUMNS if text else (COLUMNS[0], COLUMNS[2])
    rows = {
        "size": 3000 + 500 * rng.standard_normal(ROWS),
        "colour": rng.choice(np.array(COLUMNS[1].categories, dtype=object), ROWS),
        "weight": rng.standard_normal(ROWS) / 8,
    }
    signal = np.stack([rows["size"] / 500 - 6, rows["weight"] * 8, 2.0 * (rows["colour"] == "red")], axis=1)
    rows = {column.name: rows[column.name] for column in columns}
    classes = LABELS[labels] if labels else ()
    mixed = signal @ rng.standard_normal((3, len(classes) or outputs)) + 0.5 * rng.standard_normal(
        (ROWS, len(classes) or outputs)
    )
    mixed = mixed * 40 + 900 if not labels else mixed
    targets: np.ndarray = np.array(classes)[mixed.argmax(1)] if labels else mixed
    model = _model(columns, rows, targets, classes, rbf=rbf, intercept=intercept)
    given = targets[:, 0] if targets.ndim == 2 and outputs == 1 else targets
    array = np.stack([values.astype(object) for values in rows.values()], axis=1)
    return Fitted(model, rows, targets, _reference(columns, rbf, intercept, bool(labels)).fit(array, given))


def _reference(columns: tuple[Column, ...], rbf: bool, intercept: bool, classifies: bool) -> Pipeline:
    steps: list[Any] = []
    if len(columns) == 3:
        encoder = OneHotEncoder(sparse_output=False)
        parts = [("size", "passthrough", [0]), ("colour", encoder, [1]), ("weight", "passthrough", [2])]
        steps.append(ColumnTransformer(parts, sparse_threshold=0))
    if intercept:
        steps.append(StandardScaler())
    if rbf:
        steps.append(RBFSampler(gamma=GAMMA, n_components=DIMENSION, random_state=5))
    return make_pipeline(
        *steps, (RidgeClassifier if classifies else Ridge)(alpha=RIDGE * ROWS, fit_intercept=intercept)
    )


def _model(
    columns: tuple[Column, ...],
    rows: dict[str, np.ndarray],
    targets: np.ndarray,
    classes: tuple[Any, ...],
    *,
    rbf: bool,
    intercept: bool,
) -> Model:
    parts = [
        np.stack([rows[column.name] == value for value in column.categories], axis=1).astype(float)
        if column.categories
        else rows[column.name][:, None]
        for column in columns
    ]
    x = np.concatenate(parts, axis=1)
    y = np.stack([targets == label for label in classes], axis=1).astype(float) if classes else targets
    shift, unit = x.mean(axis=0), x.std(axis=0)
    features = (x - shift) / unit if intercept else x
    if rbf:
        features = RBFSampler(gamma=GAMMA, n_components=DIMENSION, random_state=5).fit_transform(features)
    middle = features.mean(axis=0) if intercept else np.zeros(features.shape[1])
    target_shift, target_unit = (
        (y.mean(axis=0), y.std(axis=0)) if intercept else (np.zeros(y.shape[1]), np.ones(y.shape[1]))
    )
    centred = features - middle
    gram = centred.T @ centred + RIDGE * ROWS * np.eye(len(middle))
    theta = np.linalg.solve(gram, centred.T @ ((y - target_shift) / target_unit))
    prepared = Preparation(shift, unit, None, middle if rbf else None, None, target_shift, target_unit)
    kind = "classification" if classes else "regression"
    names = ("kind",) if classes else tuple(f"price{number}" for number in range(y.shape[1]))
    return Model(
        theta=theta,
        kind=kind,
        description=Description(columns, names, classes, prepared if intercept else None),
        features=FeatureSettings("rbf" if rbf else "none", DIMENSION, GAMMA, 5, "float64"),
        ridge=RIDGE,
        intercept=intercept,
        samples=ROWS,
        scheme="conventional",
        scenario_id="0123456789abcdef",
    )
