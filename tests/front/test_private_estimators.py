"""Estimators with noise: the pooled model of scikit-learn where noise is small, and nothing but sentences else."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeClassifier

import codedfl
from codedfl import FederatedRidge, FederatedRidgeClassifier, FederatedRidgeCV
from codedfl.data import Column
from codedfl.schemes.private import release_of
from codedfl.task.model.onnx_export import TOLERANCE, checked_graph

RIDGE, LARGE = 0.01, 1e6
NOISELESS = 1e10
"""An epsilon at which noise is below 1e-4 of every sum, also where features are many and rows few."""
RNG = np.random.default_rng(5)


def _table(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, dict[str, tuple[float, float]]]:
    """Rows that nobody has prepared, their targets, and ranges that do not come from them."""
    rows = {"tiny": 12, "wide": 120}.get(kind, 400)
    columns = {"tiny": 2, "wide": 40}.get(kind, 4)
    u = rng.uniform(-1, 1, (rows, columns))
    if kind == "collinear":
        u[:, 3] = u[:, 0] / 2 - u[:, 1] / 2
    weights = rng.normal(size=columns)
    y = 1e4 + 300 * (u @ weights) / np.sqrt(columns) + 30 * rng.normal(size=rows)
    centre, half = 10.0 ** rng.integers(-4, 6, columns), 10.0 ** rng.integers(-3, 5, columns)
    x = centre + half * u
    if kind == "outlier":
        x[7, 1], y[7] = centre[1] + 1e9 * half[1], -1e12
    ranges = {str(j): (centre[j] - half[j] * 1.1, centre[j] + half[j] * 1.3) for j in range(columns)}
    return x, y, ranges | {"y": (8e3, 12e3)}


TABLES = {kind: _table(kind, RNG) for kind in ("unscaled", "collinear", "tiny", "wide", "outlier")}


def scaled(x: np.ndarray, ranges: Mapping[str, tuple[float, float]]) -> np.ndarray:
    """Columns within their ranges, from -1 to 1, and a constant."""
    columns = [np.interp(x[:, j], ranges[str(j)], (-1, 1)) for j in range(x.shape[1])]
    return np.stack([*columns, np.ones(len(x))], axis=1)


@cache
def fitted(kind: str, scheme: str, epsilon: float = LARGE) -> FederatedRidge:
    x, y, ranges = TABLES[kind]
    made = FederatedRidge(epsilon=epsilon, ranges=ranges, ridge=RIDGE, scheme=scheme, devices=4, random_state=0)
    return made.set_params(settings={"privacy.seed": 1}).fit(x, y)


def reference(kind: str) -> np.ndarray:
    x, y, ranges = TABLES[kind]
    u, v = scaled(x, ranges), np.interp(y, ranges["y"], (-1, 1))
    return 1e4 + 2e3 * Ridge(alpha=RIDGE * len(x), fit_intercept=False).fit(u, v).predict(u)


def bound(kind: str, found: FederatedRidge) -> float:
    """What noise of the release can change in any prediction, by the perturbation theory of linear systems."""
    x, y, ranges = TABLES[kind]
    n, d = len(x), x.shape[1] + 1
    z, v = scaled(x, ranges) / np.sqrt(d), np.interp(y, ranges["y"], (-1, 1))
    system = z.T @ z / n + RIDGE / d * np.eye(d)
    theta = np.linalg.solve(system, z.T @ v / n)
    release = release_of(found.scenario_, [-(-n // 4)] * 4, d, 1)
    assert release is not None
    gram, side = d * release.gram_reach(4) / n, np.sqrt(d) * release.moments_reach(4) / n
    norm = 1 / np.linalg.eigvalsh(system)[0]
    assert norm * gram < 0.5, "the bound says nothing"
    return float(2e3 * norm * (gram * np.linalg.norm(theta) + side) / (1 - norm * gram))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("scheme", ["sealed-coded", "secagg"])
def test_with_little_noise_the_model_is_that_of_pooled_rows(kind: str, scheme: str) -> None:
    found = fitted(kind, scheme, NOISELESS if kind == "wide" else LARGE)
    difference = np.abs(found.predict(TABLES[kind][0]) - reference(kind)).max()
    assert 0 < difference <= bound(kind, found)


@pytest.mark.parametrize("kind", TABLES)
def test_one_shot_with_little_noise_is_near(kind: str) -> None:
    x, _, _ = TABLES[kind]
    expected = reference(kind)
    found = fitted(kind, "one-shot", NOISELESS if kind == "wide" else LARGE)
    assert np.abs(found.predict(x) - expected).max() < 0.05 * expected.std()


@pytest.mark.parametrize("kind", ["unscaled", "outlier"])
def test_coefficients_are_in_units_of_the_columns(kind: str) -> None:
    found, (x, _, ranges) = fitted(kind, "one-shot"), TABLES[kind]
    inside = np.stack([np.clip(x[:, j], *ranges[str(j)]) for j in range(x.shape[1])], axis=1)
    assert found.predict(x) == pytest.approx(inside @ found.coef_ + found.intercept_, rel=1e-9)


def test_more_noise_costs_more() -> None:
    x, expected = TABLES["unscaled"][0], reference("unscaled")
    found = [fitted("unscaled", "one-shot", epsilon).predict(x) for epsilon in (1e6, 1e3, 1)]
    errors = [((each - expected) ** 2).mean() for each in found]
    assert errors[0] < errors[1] < errors[2]


class TestTextAndClasses:
    X: Mapping[str, Any] = {"age": RNG.uniform(20, 80, 300), "town": RNG.choice(["ulm", "bonn"], 300)}
    LABELS = np.where(X["age"] + 20 * (X["town"] == "ulm") + RNG.normal(0, 3, 300) > 60, "old", "young")
    RANGES: Mapping[str, Any] = {"age": (0, 100), "town": ["bonn", "ulm", "trier"]}

    def frame(self) -> Any:
        import pandas as pd

        return pd.DataFrame(self.X)

    def fit(self, epsilon: float = LARGE, **more: Any) -> FederatedRidgeClassifier:
        made = FederatedRidgeClassifier(epsilon=epsilon, ranges=self.RANGES, ridge=RIDGE, random_state=0, **more)
        with pytest.warns(
            codedfl.CodedflWarning, match=r"the names of the 2 classes \(old, young\) .* taken as public"
        ):
            return made.fit(self.frame(), self.LABELS)

    def test_decisions_are_those_of_pooled_rows(self) -> None:
        found = self.fit(NOISELESS, scheme="secagg")
        dummies = [self.X["town"] == name for name in self.RANGES["town"]]
        u = np.stack([self.X["age"] / 50 - 1, *dummies, np.ones(300)], axis=1)
        expected = RidgeClassifier(alpha=RIDGE * 300, fit_intercept=False).fit(u, self.LABELS)
        assert found.decision_function(self.frame()) == pytest.approx(expected.decision_function(u), abs=1e-4)
        assert found.predict(self.frame()).tolist() == expected.predict(u).tolist()
        assert found.model_.columns == (Column("age"), Column("town", ("bonn", "ulm", "trier")))

    def test_the_pipeline_and_the_graph_predict_the_same(self) -> None:
        model, rows = self.fit().model_, self.frame()
        rows.loc[0, "age"] = 1e6  # beyond its range
        assert model.to_sklearn().predict(rows.to_numpy()).tolist() == model.predict(rows).tolist()
        assert 0 < checked_graph(model)[1] < TOLERANCE

    def test_a_saved_model_is_read_again(self, tmp_path: Path) -> None:
        model = self.fit(out=tmp_path / "run").model_
        model.save(tmp_path / "copy")
        again = codedfl.load_model(tmp_path / "copy")
        assert again.outputs(self.frame()).tolist() == model.outputs(self.frame()).tolist()
        assert again.preparation == model.preparation

    def test_undeclared_text_is_refused(self) -> None:
        with pytest.raises(ValueError, match="needs all possible values of town"):
            self.fit_with({"age": (0, 100)})
        with pytest.raises(ValueError, match="'ulm', which is none of its categories bonn"):
            self.fit_with({"age": (0, 100), "town": ["bonn"]})
        with pytest.raises(ValueError, match="declare the values of 'city', which is no column"):
            self.fit_with({"age": (0, 100), "city": ["bonn"]})

    def fit_with(self, ranges: Mapping[str, Any]) -> None:
        FederatedRidgeClassifier(epsilon=1, ranges=ranges).fit(self.frame(), self.LABELS)


def test_random_features_with_an_intercept() -> None:
    x, y, ranges = TABLES["unscaled"]
    features = {"kind": "rbf", "dimension": 60, "gamma": 0.5, "seed": 3}
    made = FederatedRidge(ranges=ranges, ridge=RIDGE, features=features, scheme="secagg", random_state=0)
    found = made.set_params(epsilon=NOISELESS).fit(x, y)
    phi = np.column_stack([found.model_.feature_map.transform(scaled(x, ranges)[:, :-1]), np.ones(len(x))])
    assert np.linalg.norm(phi, axis=1).max() < found.scenario_.privacy.clip_features == pytest.approx(np.sqrt(2.36515))
    pooled = Ridge(alpha=RIDGE * len(x), fit_intercept=False).fit(phi, np.interp(y, ranges["y"], (-1, 1)))
    expected = 1e4 + 2e3 * pooled.predict(phi)
    assert np.abs(found.predict(x) - expected).max() < 1e-3 * expected.std()
    assert found.model_.to_sklearn().predict(x) == pytest.approx(found.predict(x), rel=1e-9)
    assert 0 < checked_graph(found.model_)[1] < TOLERANCE


def test_parameters_can_be_cloned() -> None:
    made = FederatedRidge(epsilon=2.0, delta=1e-6, ranges={"y": (0, 1)})
    assert clone(made).get_params() == made.get_params()


def test_what_was_run() -> None:
    found = fitted("unscaled", "auto", 2.0)
    assert found.scenario_.scheme == "one-shot"
    assert (found.scenario_.privacy.epsilon, found.scenario_.privacy.delta) == (2.0, 1e-5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0}, "privacy.epsilon = 0.0 must be a number above 0 and at most"),
    ({"epsilon": -1}, "privacy.epsilon = -1.0 must be a number above 0 and at most"),
    ({"epsilon": float("nan")}, "privacy.epsilon = nan must be a number above 0 and at most"),
    ({"epsilon": float("inf")}, "privacy.epsilon = inf must be a number above 0 and at most"),
    ({"epsilon": "1"}, "privacy.epsilon = '1' must be a number above 0 and at most"),
    ({"delta": 1}, "privacy.delta = 1.0 must be a number at least 1e-300 and below 1"),
    ({"delta": 0.01}, "privacy.delta is 0.01, too large for 400 records"),
    ({"epsilon": None, "delta": 1e-6}, "privacy.delta needs privacy.epsilon"),
    ({"epsilon": None}, "privacy.columns needs privacy.epsilon"),
    ({"ranges": None}, "needs a public range of 0, 1, 2, 3, y "),
    ({"ranges": [0, 1]}, r"ranges = \[0, 1\] must map the name of each column to \(low, high\)"),
    ({"ranges": {"*": 5}}, r"ranges\['\*'\] = 5 must be \(low, high\)"),
    ({"ranges": {"*": (1, 2, 3)}}, r"ranges\['\*'\] = \(1, 2, 3\) must be \(low, high\)"),
    ({"ranges": {"*": ("a", 2)}}, "privacy.columns.low = 'a' must be a number"),
    ({"ranges": {"*": (2, 2)}}, "gives '\\*' the range from 2 to 2; low must be below high"),
    ({"ranges": {"*": (0, float("inf"))}}, "privacy.columns.high = inf must be a number"),
    ({"ranges": {"*": (0, 1)}}, "needs a public range of y "),
    ({"ranges": {"*": (0, 1), "y": (0, 1), "7": (0, 1)}}, "range of '7', which is no numeric column"),
    ({"scale": "none"}, "does not go with features.scale = 'none' and features.intercept = true"),
    ({"scale": "none", "fit_intercept": False}, "range of '0', but columns are used as they are"),
    ({"missing": "mean"}, "does not go with features.missing"),
    ({"ridge": [1e-3, 1e-2]}, "does not go with task.ridge with several weights"),
    ({"scheme": "conventional"}, "cannot be kept by scheme = 'conventional'"),
    ({"settings": {"privacy.colluding": 5}}, "leave none of the 5 devices"),
    ({"settings": {"privacy.clip_features": 2}}, "privacy.clip_features = 2 does not go with privacy.columns"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_wrong_parameters_are_refused_in_one_sentence(options: dict[str, Any], sentence: str) -> None:
    x, y, ranges = TABLES["unscaled"]
    with pytest.raises(ValueError, match=sentence) as caught:
        FederatedRidge(**{"epsilon": 1.0, "ranges": ranges, **options}).fit(x, y)
    assert isinstance(caught.value.__cause__, codedfl.CodedflError)
    assert "\n" not in str(caught.value)


def test_a_weight_cannot_be_chosen_on_rows() -> None:
    x, y, _ = TABLES["unscaled"]
    with pytest.raises(ValueError, match=r"does not go with task\.ridge with several weights"):
        FederatedRidgeCV(settings={"privacy.epsilon": 1}, scale="auto", scheme="one-shot").fit(x, y)


def test_the_report_and_the_model_state_what_noise_promises() -> None:
    made = fitted("unscaled", "one-shot")
    assert made.report_["epsilon"] == pytest.approx(LARGE, rel=1e-3)
    assert made.report_["delta"] == 1e-5
    assert made.report_["privacy"] == made.model_.privacy
    assert made.report_["privacy"]["known_seed"] is True


@pytest.mark.parametrize(("far", "what"), [((1, 100), "targets"), ((100, 0), "features")])
def test_rows_that_clips_change_much_are_named(far: tuple[float, float], what: str, rng: np.random.Generator) -> None:
    """Without a word, a target of 100 would be learned as 1."""
    x = far[0] * rng.uniform(-0.3, 0.3, (200, 3))
    y = x @ [0.001, 0.002, 0.003] + far[1]
    made = FederatedRidge(epsilon=100, scale="none", fit_intercept=False, random_state=0)
    with pytest.warns(
        codedfl.CodedflWarning, match=rf"of the rows have {what} more than twice as long as privacy.clip"
    ):
        made.fit(x, y)


def test_rows_within_the_clips_cause_no_words(recwarn: pytest.WarningsRecorder, rng: np.random.Generator) -> None:
    FederatedRidge(epsilon=100, scale="none", fit_intercept=False).fit(
        rng.uniform(-1, 1, (200, 3)), rng.uniform(size=200)
    )
    assert not recwarn.list
