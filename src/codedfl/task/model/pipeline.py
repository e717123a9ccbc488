"""A model as a scikit-learn pipeline."""

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from codedfl.errors import UsageError
from codedfl.task.model.model import Model


def pipeline(model: Model) -> Pipeline:
    """Return the steps of a model, fitted; each is fitted on a row or two, then given the model's numbers."""
    steps: list[tuple[str, Any]] = []
    inputs, prepared, features = model.feature_map.inputs, model.preparation, model.features
    if any(column.categories for column in model.columns):
        steps.append(("columns", _encoder(model)))
    if prepared is not None:
        if prepared.fill is not None:
            steps.append(("missing", SimpleImputer().fit(prepared.fill[None])))
        if prepared.low is not None:
            limits = {"a_min": prepared.low, "a_max": prepared.high}
            steps.append(("range", FunctionTransformer(np.clip, kw_args=limits).fit(np.zeros((1, inputs)))))
        scaler = StandardScaler().fit(np.zeros((1, inputs)))
        scaler.mean_, scaler.scale_, scaler.var_ = prepared.shift, prepared.unit, prepared.unit**2
        steps.append(("scale", scaler))
    if features.kind == "rbf":
        sampler = RBFSampler(gamma=features.gamma, n_components=features.dimension, random_state=features.seed)
        steps.append(("features", sampler.fit(np.zeros((1, inputs)))))
    return Pipeline([*steps, ("model", _ridge(model))])


def _encoder(model: Model) -> ColumnTransformer:
    """Return the encoder of text columns; inputs keep the order of the columns."""
    parts: list[tuple[str, Any, list[int]]] = []
    for place, column in enumerate(model.columns):
        if column.categories:
            encoder = OneHotEncoder(categories=[list(column.categories)], sparse_output=False)
            parts.append((f"categories {place}", encoder, [place]))
        elif parts and parts[-1][1] == "passthrough":
            parts[-1][2].append(place)
        else:
            parts.append((f"numbers {place}", "passthrough", [place]))
    row = [column.categories[0] if column.categories else 0.0 for column in model.columns]
    return ColumnTransformer(parts, sparse_threshold=0).fit(np.array([row], dtype=object))


def _ridge(model: Model) -> Ridge | RidgeClassifier:
    prepared, theta = model.preparation, model.theta.astype(np.float64)
    intercept = np.zeros(theta.shape[1])
    if prepared is not None:
        theta = theta * prepared.target_unit
        shift = 0 if prepared.feature_shift is None else prepared.feature_shift @ theta
        intercept = prepared.target_shift - shift
        if prepared.constant is not None:
            theta, intercept = theta[:-1], intercept + prepared.constant @ theta[-1:]
    if any(isinstance(label, float) and not label.is_integer() for label in model.classes):
        raise UsageError(f"scikit-learn has no classes such as {model.classes[0]}; train on whole numbers or texts")
    kind, labels = (RidgeClassifier, np.array(model.classes)) if model.classes else (Ridge, np.zeros(2))
    if len(model.targets) > 1:
        labels = np.zeros((2, len(model.targets)))
    found = kind(fit_intercept=model.intercept).fit(np.zeros((len(labels), len(theta))), labels)
    found.set_params(alpha=model.ridge * model.samples)
    if model.classes:
        # as in Model.decision_function: the fit of -1 and 1 from that of 0 and 1; scikit-learn sorts classes
        order = np.argsort(labels)[1:] if len(labels) == 2 else np.argsort(labels)
        theta, intercept = (
            (2 * theta - theta.sum(axis=1, keepdims=True))[:, order],
            intercept[order] * 2 - intercept.sum(),
        )
    single = found.coef_.ndim == 1
    found.coef_, found.intercept_ = theta[:, 0] if single else theta.T, float(intercept[0]) if single else intercept
    return found
