"""The estimators follow scikit-learn's conventions and fit what scikit-learn fits on pooled rows."""

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from jaxtyping import Float, Shaped
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import codedfl
from codedfl import FederatedRidge, FederatedRidgeClassifier, FederatedRidgeCV
from codedfl.task.folds import fold_of_rows

ROWS, RIDGE = 120, 0.01
ALPHA = RIDGE * ROWS
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(ROWS, 6)) * [1, 20, 0.01, 3000, 5, 1e4] + [40, 0, 1, 12_000, -300, 35_000]
Y = X @ [0.3, 0.02, 40, 1e-4, 0.1, 5e-5] + RANDOM.normal(size=ROWS)
LABELS = np.array(["high", "low", "middle"])[np.digitize(Y, np.quantile(Y, [0.4, 0.7]))]
OWNERS = np.array([f"school {number}" for number in np.minimum(np.arange(ROWS) // 17, 5)])
SCHEMES = ["conventional", "sealed", "sealed-coded", "secagg", "one-shot"]


@parametrize_with_checks(
    [FederatedRidge(), FederatedRidgeClassifier(), FederatedRidgeCV(ridge=[1e-3, 1e-1], cv=2, scheme="one-shot")]
)
def test_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def error(found: Float[np.ndarray, "..."], expected: Float[np.ndarray, "..."]) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def pooled(**options: Any) -> Any:
    return make_pipeline(StandardScaler(), Ridge(alpha=ALPHA, **options))


class TestModels:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_values_are_those_of_pooled_rows(self, scheme: str) -> None:
        found = FederatedRidge(scheme=scheme, ridge=RIDGE, random_state=1).fit(X, Y, owners=OWNERS)
        expected = pooled().fit(X, Y)
        deviation = Y.std()
        assert np.abs(found.predict(X) - expected.predict(X)).max() < 1e-6 * deviation
        assert np.abs(X @ found.coef_ + found.intercept_ - expected.predict(X)).max() < 1e-6 * deviation
        assert error(found.coef_, expected[-1].coef_ / expected[0].scale_) < 1e-5

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("classes", [2, 3])
    def test_decisions_are_those_of_pooled_rows(self, scheme: str, classes: int) -> None:
        labels = LABELS if classes == 3 else LABELS == "high"
        found = FederatedRidgeClassifier(scheme=scheme, ridge=RIDGE, random_state=1).fit(X, labels, owners=OWNERS)
        expected = make_pipeline(StandardScaler(), RidgeClassifier(alpha=ALPHA)).fit(X, labels)
        assert np.abs(found.decision_function(X) - expected.decision_function(X)).max() < 1e-6
        linear = X @ found.coef_.T + found.intercept_
        assert np.abs(linear.reshape(expected.decision_function(X).shape) - expected.decision_function(X)).max() < 1e-6
        assert found.coef_.shape == ((3, 6) if classes == 3 else (1, 6))
        assert np.array_equal(found.predict(X), expected.predict(X))
        assert np.array_equal(found.classes_, expected.classes_)
        assert found.predict(X).dtype == labels.dtype

    @pytest.mark.parametrize(("scale", "intercept"), [("none", True), ("none", False), ("standard", False)])
    def test_without_scale_or_intercept(self, scale: str, intercept: bool) -> None:
        small = X / [1, 20, 0.01, 3000, 5, 1e4]
        found = FederatedRidge(scheme="conventional", ridge=RIDGE, scale=scale, fit_intercept=intercept)
        found.fit(small, Y, owners=OWNERS)
        ridge = Ridge(alpha=ALPHA, fit_intercept=intercept)
        expected = (make_pipeline(StandardScaler(), ridge) if scale == "standard" else ridge).fit(small, Y)
        assert error(found.predict(small), expected.predict(small)) < 1e-8

    def test_several_targets(self) -> None:
        both = np.stack([Y, 1000 * X[:, 0] - Y**2], axis=1)
        found, expected = FederatedRidge(scheme="one-shot", ridge=RIDGE).fit(X, both), pooled().fit(X, both)
        assert error(found.predict(X), expected.predict(X)) < 1e-6
        assert found.coef_.shape == (2, 6)
        assert found.intercept_.shape == (2,)
        single = FederatedRidge(scheme="one-shot", ridge=RIDGE).fit(X, Y[:, None])
        assert single.predict(X).shape == (ROWS, 1)
        assert single.coef_.shape == (1, 6)

    def test_random_features(self) -> None:
        features = {"kind": "rbf", "dimension": 40, "gamma": 0.1, "seed": 3}
        found = FederatedRidge(scheme="conventional", features=features, ridge=RIDGE).fit(X, Y, owners=OWNERS)
        drawn = RBFSampler(n_components=40, gamma=0.1, random_state=3)
        expected = make_pipeline(StandardScaler(), drawn, Ridge(alpha=ALPHA)).fit(X, Y)
        assert error(found.predict(X), expected.predict(X)) < 1e-8
        assert not hasattr(found, "coef_")

    def test_missing_values_stand_at_the_mean(self) -> None:
        holes = X.copy()
        holes[::7, 2] = np.nan
        found = FederatedRidge(scheme="conventional", ridge=RIDGE, missing="mean").fit(holes, Y, owners=OWNERS)
        expected = make_pipeline(SimpleImputer(), StandardScaler(), Ridge(alpha=ALPHA)).fit(holes, Y)
        assert error(found.predict(holes), expected.predict(holes)) < 1e-8

    def test_schemes_without_exact_gradients_come_near(self) -> None:
        found = FederatedRidge(scheme="minibatch", ridge=RIDGE, settings={"training.epochs": 200})
        found.fit(X, Y, owners=OWNERS)
        assert error(found.predict(X) - Y.mean(), pooled().fit(X, Y).predict(X) - Y.mean()) < 0.1

    def test_a_single_column_cannot_be_divided_among_workers(self) -> None:
        found = FederatedRidge(ridge=RIDGE).fit(X[:, :1], Y, owners=OWNERS)
        assert found.report_["scheme"] == "one-shot"
        assert error(found.predict(X[:, :1]), pooled().fit(X[:, :1], Y).predict(X[:, :1])) < 1e-6


class TestOwners:
    def test_owners_are_named_in_the_report(self) -> None:
        found = FederatedRidge(scheme="conventional").fit(X, Y, owners=OWNERS)
        assert found.report_["owners"] == sorted(set(OWNERS))
        assert found.scenario_.fleet.size == 6

    def test_whole_numbers_and_owners_of_one_row(self) -> None:
        owners = [0] * (ROWS - 2) + [17, 4]
        found = FederatedRidge(scheme="sealed-coded", ridge=RIDGE).fit(X, Y, owners=owners)
        assert found.report_["owners"] == ["0", "17", "4"]
        assert np.abs(found.predict(X) - pooled().fit(X, Y).predict(X)).max() < 1e-6 * Y.std()

    def test_every_row_has_an_owner_of_its_own(self) -> None:
        found = FederatedRidge(scheme="conventional", ridge=0.1).fit(X[:9], Y[:9], owners=range(9))
        assert found.scenario_.fleet.size == 9
        expected = make_pipeline(StandardScaler(), Ridge(alpha=0.9)).fit(X[:9], Y[:9])
        assert error(found.predict(X), expected.predict(X)) < 1e-8

    def test_an_owner_may_have_one_class(self) -> None:
        found = FederatedRidgeClassifier(scheme="conventional", ridge=RIDGE).fit(X, LABELS, owners=LABELS)
        expected = make_pipeline(StandardScaler(), RidgeClassifier(alpha=ALPHA)).fit(X, LABELS)
        assert np.abs(found.decision_function(X) - expected.decision_function(X)).max() < 1e-8

    @pytest.mark.parametrize(
        ("options", "devices"),
        [
            ({}, 5),
            ({"devices": 3}, 3),
            ({"fleet": "paper-quick"}, 25),
            ({"fleet": "paper-quick", "devices": 4}, 4),
            ({"fleet": [{"count": 2, "mac_rate": 1e6}, {"mac_rate": 1e5}]}, 3),
        ],
    )
    def test_rows_without_owners_are_dealt_to_devices(self, options: dict[str, Any], devices: int) -> None:
        found = FederatedRidge(scheme="conventional", ridge=RIDGE, **options).fit(X, Y)
        assert found.scenario_.fleet.size == devices
        assert "owners" not in found.report_
        assert error(found.predict(X), pooled().fit(X, Y).predict(X)) < 1e-8

    def test_there_are_at_most_as_many_devices_as_rows(self) -> None:
        assert FederatedRidge(scheme="conventional").fit(X[:3], Y[:3]).scenario_.fleet.size == 3

    def test_the_fleet_of_a_scenario_is_spread_over_owners(self) -> None:
        scenario = codedfl.load("paper").with_settings({"links.loss": 0.0})
        found = FederatedRidge(scheme="conventional", fleet=scenario).fit(X, Y, owners=OWNERS)
        assert found.scenario_.fleet == scenario.with_devices(6).fleet
        assert found.scenario_.links.loss == 0
        assert found.scenario_.schemes == scenario.schemes

    def test_a_scenario_by_owners_serves_rows_without_owners(self) -> None:
        by_owner = {"partition.kind": "column", "partition.column": "clinic"}
        found = FederatedRidge(scheme="conventional", fleet=codedfl.load("paper").with_settings(by_owner)).fit(X, Y)
        assert found.scenario_.partition.kind == "iid"


TABLE = {"age": X[:, 0], "town": np.array(["Oslo", "Bonn", "Rome"])[np.arange(ROWS) % 3], "pay": X[:, 3]}


class TestColumns:
    def expected(self) -> Float[np.ndarray, "n"]:
        numbers, towns = np.stack([X[:, 0], X[:, 3]], axis=1), TABLE["town"][:, None]
        columns = np.concatenate([numbers.astype(object), towns], axis=1)
        encoded = make_column_transformer((StandardScaler(), [0, 1]), (OneHotEncoder(), [2]))
        return np.asarray(make_pipeline(encoded, Ridge(alpha=ALPHA)).fit(columns, Y).predict(columns))

    def test_text_columns_are_categories(self) -> None:
        table = pyarrow.table(TABLE)
        found = FederatedRidge(scheme="conventional", ridge=RIDGE).fit(table, Y, owners=OWNERS)
        assert found.feature_names_in_.tolist() == ["age", "town", "pay"]
        assert found.n_features_in_ == 3
        assert found.input_names_ == ["age", "town=Bonn", "town=Oslo", "town=Rome", "pay"]
        assert found.coef_.shape == (5,)
        assert error(found.predict(table), self.expected()) < 1e-8

    def test_a_category_that_was_not_trained_on_is_refused(self) -> None:
        found = FederatedRidge(scheme="conventional").fit(pyarrow.table(TABLE), Y)
        other = pyarrow.table({"age": [40.0], "town": ["Paris"], "pay": [1.0]})
        with pytest.raises(ValueError, match="'town' holds 'Paris', which is none of Bonn, Oslo, Rome, in row 0"):
            found.predict(other)

    def test_missing_cells_name_their_column(self) -> None:
        table = pyarrow.table({"age": [1.0, None, 3.0], "pay": [1.0, 2.0, 3.0]})
        with pytest.raises(ValueError, match=r"FederatedRidge: X holds 1 .* the first in row 1, column 'age'"):
            FederatedRidge().fit(table, [1, 2, 3])

    def test_columns_must_be_those_of_the_fit(self) -> None:
        found = FederatedRidge(scheme="conventional").fit(pyarrow.table(TABLE), Y)
        with pytest.raises(ValueError, match="feature names should match"):
            found.predict(pyarrow.table({"age": [1.0], "city": ["Oslo"], "pay": [1.0]}))


class TestChoice:
    """The weight is that of scikit-learn's cross-validation on the folds that owners make."""

    @pytest.mark.parametrize("scheme", ["conventional", "one-shot", "sealed-coded"])
    def test_the_weight_that_predicts_held_out_rows_best(self, scheme: str) -> None:
        weights = [1e-4, 1e-2, 1.0]
        found = FederatedRidgeCV(scheme=scheme, ridge=weights, cv=4, random_state=3).fit(X, Y, owners=OWNERS)
        fold = np.empty(ROWS, np.int64)
        for device, owner in enumerate(found.report_["owners"]):
            rows = np.flatnonzero(owner == OWNERS)
            fold[rows] = fold_of_rows(len(rows), 4, seed=found.scenario_.partition.seed, device=device)
        errors, z = np.zeros((4, 3)), StandardScaler().fit_transform(X)
        for number, column in np.ndindex(errors.shape):
            out = fold == number
            model = Ridge(alpha=weights[column] * np.sum(~out)).fit(z[~out], Y[~out])
            errors[number, column] = np.mean((model.predict(z[out]) - Y[out]) ** 2)
        path = found.report_["selection"]["path"]
        assert np.allclose([each["error"] for each in path], errors.mean(axis=0), rtol=1e-5)
        assert found.ridge_ == found.report_["selection"]["ridge"] == weights[np.argmin(errors.mean(axis=0))]
        expected = make_pipeline(StandardScaler(), Ridge(alpha=found.ridge_ * ROWS)).fit(X, Y)
        assert np.abs(found.predict(X) - expected.predict(X)).max() < 1e-6 * Y.std()

    def test_a_list_does_the_same_in_the_other_estimators(self) -> None:
        given = {"ridge": np.array([1e-3, 1e-1]), "scheme": "one-shot", "random_state": 0}
        chosen = FederatedRidgeCV(**given).fit(X, Y, owners=OWNERS)
        assert np.array_equal(FederatedRidge(**given).fit(X, Y, owners=OWNERS).coef_, chosen.coef_)
        assert FederatedRidgeClassifier(**given).fit(X, LABELS, owners=OWNERS).ridge_ in (1e-3, 1e-1)

    def test_a_weight_that_is_given_is_kept(self) -> None:
        found = FederatedRidge(scheme="conventional", ridge=0.25).fit(X, Y)
        assert found.ridge_ == 0.25
        assert "selection" not in found.report_

    @pytest.mark.parametrize(("options", "sentence"), [({"cv": 1}, "task.folds = 1"), ({"ridge": [1, 0]}, "increase")])
    def test_wrong_folds_and_weights(self, options: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            FederatedRidgeCV(**options).fit(X, Y)


class TestReports:
    def test_time_traffic_and_secrecy(self) -> None:
        report = FederatedRidge(random_state=0).fit(X, Y, owners=OWNERS).report_
        assert report["scheme"] == "sealed-coded"
        assert report["verdict"] == "server sees sums"
        assert report["epochs"] >= 6
        assert "sums over all devices" in report["leakage"]["server"]
        assert 0 < report["seconds_band"][0] <= report["seconds"] <= report["seconds_band"][1]
        assert all(report["bits_per_device"][link]["largest"] > 0 for link in ("up", "down", "d2d"))
        assert json.loads(json.dumps(report)) == report

    def test_the_model_can_be_saved_and_predicts_the_same(self, tmp_path: Path) -> None:
        found = FederatedRidgeClassifier(scheme="conventional", random_state=0).fit(X, LABELS, owners=OWNERS)
        found.model_.save(tmp_path / "model")
        loaded = codedfl.load_model(tmp_path / "model")
        assert np.array_equal(loaded.predict(X), found.predict(X))
        assert np.array_equal(loaded.decision_function(X), found.decision_function(X))
        assert loaded.scheme == "conventional"

    def test_the_html_shows_what_differs(self) -> None:
        assert "one-shot" in FederatedRidge(scheme="one-shot")._repr_html_()
        assert repr(FederatedRidge(ridge=0.5)) == "FederatedRidge(ridge=0.5)"

    def test_nothing_is_printed_or_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        FederatedRidge(random_state=0).fit(X, Y, owners=OWNERS)
        assert list(tmp_path.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_run_directory_on_request(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "private").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "private"))
        given = {"scheme": "sealed-coded", "random_state": 0}
        found = FederatedRidge(out=tmp_path / "run", **given).fit(X, Y, owners=OWNERS)
        run = codedfl.load_run(tmp_path / "run")
        assert run.summary["owners"] == found.report_["owners"]
        again = FederatedRidge(out=tmp_path / "run", **given).fit(X, Y, owners=OWNERS)
        in_memory = FederatedRidge(**given).fit(X, Y, owners=OWNERS)
        for other in (again, in_memory):
            assert np.array_equal(other.predict(X), found.predict(X))
            timed = other.report_ | {"wall_seconds": 0}
            assert timed["seconds"] == pytest.approx(found.report_["seconds"], rel=1e-6)  # timings.npy has float32
            assert timed["bits_per_device"] == found.report_["bits_per_device"]
        assert list((tmp_path / "private").iterdir()) == []
        with pytest.raises(ValueError, match="holds the run of another scenario"):
            FederatedRidge(out=tmp_path / "run", **given).fit(X + 1, Y, owners=OWNERS)

    def test_progress_is_reported(self) -> None:
        told: list[tuple[str, int, int]] = []
        found = FederatedRidge(scheme="conventional", progress=lambda *stage: told.append(stage)).fit(X, Y)
        assert ("training conventional", found.report_["epochs"], 1000) in told

    def test_further_settings_come_last(self) -> None:
        found = FederatedRidge(scheme="conventional", settings={"training.epochs": 2, "timing.draws": 7}).fit(X, Y)
        assert found.report_["epochs"] == 2
        assert found.scenario_.timing.draws == 7


class TestUse:
    def test_searches_and_folds(self) -> None:
        weights = [1e-4, 1e-2, 1.0]
        search = GridSearchCV(FederatedRidge(scheme="conventional"), {"ridge": weights}, cv=3)
        search.fit(X, Y, owners=OWNERS)
        grid = {"ridge__alpha": [weight * ROWS * 2 / 3 for weight in weights]}  # folds train on 80 rows
        expected = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), grid, cv=3).fit(X, Y)
        assert np.allclose(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-9)
        assert search.best_params_["ridge"] == weights[expected.best_index_]

    def test_cross_validation_by_owner(self) -> None:
        folds = {"cv": GroupKFold(3), "groups": OWNERS}
        found = cross_val_score(
            FederatedRidge(scheme="conventional", ridge=1e-9), X, Y, params={"owners": OWNERS}, **folds
        )
        expected = cross_val_score(make_pipeline(StandardScaler(), Ridge(alpha=1e-7)), X, Y, **folds)
        assert np.allclose(found, expected, atol=1e-6)

    def test_clones_and_pickles(self) -> None:
        fleet = codedfl.load("paper-quick").with_settings({"schemes.sealed-coded.spares": 2})
        found = FederatedRidgeClassifier(fleet=fleet, random_state=0).fit(X, LABELS, owners=OWNERS)
        assert clone(found).fleet == fleet
        again = pickle.loads(pickle.dumps(found))
        assert again.fleet == fleet
        assert again.scenario_ == found.scenario_
        assert np.array_equal(again.decision_function(X), found.decision_function(X))

    def test_threads_do_not_disturb_each_other(self) -> None:
        def trained(seed: int) -> Shaped[np.ndarray, "n"]:
            estimator = FederatedRidge(features={"kind": "rbf", "dimension": 12}, random_state=seed)
            return estimator.fit(X, Y, owners=OWNERS).predict(X)

        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(trained, range(3)))
        assert all(np.array_equal(found, trained(seed)) for seed, found in enumerate(together))

    def test_the_example_of_the_readme(self) -> None:
        text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"```python\n([^`]*FederatedRidge[^`]*)```", text)
        names: dict[str, Any] = {}
        exec(block, names)
        assert names["model"].report_["verdict"] == "server sees sums"
