"""The ridge weight is chosen as scikit-learn chooses it on the same folds, from sums over all devices only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import PredefinedSplit
from sklearn.preprocessing import StandardScaler

import codedfl
from codedfl.errors import CodedflError
from codedfl.runs.directory import Run
from codedfl.runs.selection import fold_count
from codedfl.scenario import Scenario
from codedfl.task import RawData
from codedfl.task.folds import fold_of_rows
from tiny import is_one_sentence

DEVICES = 6


def table(path: Path, kind: str = "regression") -> tuple[np.ndarray, np.ndarray]:
    """Unscaled columns of which few matter, and few rows, so that the weight matters."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(70, 25)) * rng.gamma(1, 100, 25) + rng.normal(size=25) * 50
    y = (x / x.std(axis=0)) @ (rng.normal(size=25) * (rng.random(25) < 0.3)) + 2 * rng.normal(size=70) + 7
    y = y if kind == "regression" else np.where(y > np.median(y), "yes", "no")
    np.savez(path, x=x, y=y)
    return x, y


def scenario(path: Path, **changes: Any) -> Scenario:
    base = {
        "data.source": str(path),
        "data.test_fraction": 0.0,
        "task.ridge": [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
        "timing.draws": 3,
        "fleet.devices": [{"count": DEVICES, "mac_rate": 1e6}],
    }
    return codedfl.load("own-data").with_settings(base | changes)


def folds(wanted: Scenario, count: int) -> np.ndarray:
    """The fold of each row of the file."""
    found, raw = np.empty(70, int), RawData.load(wanted)
    for device, rows in enumerate(raw.parts):
        found[rows] = fold_of_rows(len(rows), count, seed=wanted.partition.seed, device=device)
    return found


@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded", "one-shot", "secagg", "sealed", "coded-padded"])
def test_the_weight_is_that_of_cross_validation(scheme: str, tmp_path: Path) -> None:
    x, y = table(tmp_path / "t.npz")
    wanted = scenario(tmp_path / "t.npz", scheme=scheme, **{"task.ridge": [1e-3, 0.03, 0.3, 3.0]})
    run = codedfl.run(wanted, tmp_path / "run")
    split, z = folds(wanted, 5), StandardScaler().fit_transform(x)
    errors = []
    for fold in range(5):
        seen = split != fold
        models = [Ridge(alpha=ridge * seen.sum()).fit(z[seen], y[seen]) for ridge in wanted.ridges]
        errors.append([np.mean((model.predict(z[~seen]) - y[~seen]) ** 2) for model in models])
    found = run.summary["selection"]
    assert found["ridge"] == wanted.ridges[int(np.argmin(np.mean(errors, axis=0)))]
    assert found["ridge"] in wanted.ridges[1:-1], "neither end of the list"
    assert [each["error"] for each in found["path"]] == pytest.approx(np.mean(errors, axis=0), rel=1e-6)
    best = Ridge(alpha=found["ridge"] * len(x)).fit(z, y)
    assert run.model[:, 0] * y.std() == pytest.approx(best.coef_, rel=1e-6, abs=1e-6)
    assert run.load_model().ridge == found["ridge"]
    assert run.load_model().predict(x) == pytest.approx(best.predict(z), rel=1e-6, abs=1e-6)


def test_folds_of_equal_size_agree_with_ridge_cv(tmp_path: Path) -> None:
    """RidgeCV takes alpha for all folds; where they have the same rows, alpha is lambda times those rows."""
    x, y = table(tmp_path / "t.npz")
    wanted = scenario(tmp_path / "t.npz", **{"fleet.devices": [{"count": 7, "mac_rate": 1e6}]})
    split = folds(wanted, 5)
    assert set(np.bincount(split)) == {14}
    alphas = [ridge * 56 for ridge in wanted.ridges]
    judge = RidgeCV(alphas, cv=PredefinedSplit(split), scoring="neg_mean_squared_error")
    judge.fit(StandardScaler().fit_transform(x), y)
    run = codedfl.run(wanted, tmp_path / "run")
    assert run.summary["selection"]["ridge"] == pytest.approx(judge.alpha_ / 56)


@pytest.mark.parametrize(
    "changes",
    [{"task.held_out": 0.25}, {"features.scale": "none"}, {"features.intercept": False}, {"features.kind": "rbf"}],
)
def test_variants_choose_by_their_own_models(changes: dict[str, Any], tmp_path: Path) -> None:
    """Schemes agree on the weight, whatever the preparation."""
    table(tmp_path / "t.npz")
    more = {"features.dimension": 20, **changes}
    runs = [
        codedfl.run(scenario(tmp_path / "t.npz", scheme=scheme, **more), tmp_path / scheme)
        for scheme in ("conventional", "sealed-coded")
    ]
    first, second = (run.summary["selection"] for run in runs)
    assert first["ridge"] == second["ridge"]
    assert first["folds"] == (1 if "task.held_out" in changes else 5)
    assert [e["error"] for e in first["path"]] == pytest.approx([e["error"] for e in second["path"]], rel=1e-5)


def test_a_share_is_one_fold_of_as_many_as_it_goes_into_all_rows(tmp_path: Path) -> None:
    shares = {None: 5, 0.5: 2, 0.3: 3, 0.25: 4, 0.1: 10}
    for share, expected in shares.items():
        changes = {} if share is None else {"task.held_out": share}
        assert fold_count(scenario(tmp_path / "t.npz", **changes)) == expected


def test_classes_are_judged_by_squared_errors(tmp_path: Path) -> None:
    x, y = table(tmp_path / "t.npz", "classification")
    wanted = scenario(tmp_path / "t.npz")
    found = codedfl.run(wanted, tmp_path / "run").summary["selection"]
    split, z, hot = folds(wanted, 5), StandardScaler().fit_transform(x), (y == "yes").astype(float)
    errors = [
        np.mean([np.mean((_without(z, hot, split, k, ridge) - hot[split == k]) ** 2) for k in range(5)])
        for ridge in wanted.ridges
    ]
    assert [each["error"] for each in found["path"]] == pytest.approx(errors, rel=1e-6)


def _without(z: np.ndarray, y: np.ndarray, split: np.ndarray, fold: int, ridge: float) -> np.ndarray:
    seen = split != fold
    return np.asarray(Ridge(alpha=ridge * seen.sum()).fit(z[seen], y[seen]).predict(z[~seen]))


@pytest.mark.parametrize("rows", [4, 70])
def test_owners_of_a_single_row_leave_folds_empty(rows: int, tmp_path: Path) -> None:
    """In their trainings, and of few rows also where they would be judged: such a fold does not count."""
    x, y = (each[:rows] for each in table(tmp_path / "t.npz"))
    np.savez(tmp_path / "own.npz", x=x, y=y, owners=np.arange(rows))
    own = {"data.source": str(tmp_path / "own.npz"), "partition.kind": "column", "partition.column": "owners"}
    fleet = [{"count": min(rows, DEVICES), "mac_rate": 1e6}]
    wanted = scenario(tmp_path / "own.npz", scheme="conventional", **own, **{"fleet.devices": fleet})
    said: list[tuple[str, int, int]] = []
    run: Run = codedfl.run(wanted, tmp_path / "run", progress=lambda *report: said.append(report))
    assert [report for report in said if "ridge" in report[0]] == [("choosing task.ridge", k, 5) for k in range(6)]
    places = np.argsort(np.argsort([str(i) for i in range(rows)]))
    split = np.array([fold_of_rows(1, 5, seed=0, device=device)[0] for device in places])
    z, found = StandardScaler().fit_transform(x), run.summary["selection"]["path"]
    judged = np.unique(split)
    assert run.summary["selection"]["folds"] == len(judged)
    assert (len(judged) < 5) == (rows == 4)
    error = [
        np.mean([np.mean((_without(z, y, split, k, each["ridge"]) - y[split == k]) ** 2) for k in judged])
        for each in found
    ]
    assert [each["error"] for each in found] == pytest.approx(error, rel=1e-9)


def test_time_and_traffic_of_the_choice_are_counted(tmp_path: Path) -> None:
    table(tmp_path / "t.npz")
    chosen = codedfl.run(scenario(tmp_path / "t.npz", scheme="conventional"), tmp_path / "run")
    given = {"task.ridge": chosen.summary["selection"]["ridge"], "scheme": "conventional"}
    alone = codedfl.run(scenario(tmp_path / "t.npz", **given), tmp_path / "alone")
    assert np.array_equal(chosen.model, alone.model)
    before = chosen.summary["preparation"]
    assert chosen.summary["virtual_seconds"] > before["seconds"] > alone.summary["virtual_seconds"]
    models = 8 * 25 * 64 * DEVICES * 5
    assert before["bits_sent"]["down"] > models
    assert (chosen.timings[:, 0] > before["seconds"] / 2).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task.ridge": []}, "at least one number"),
        ({"task.ridge": [1.0, 0.1]}, "increase"),
        ({"task.ridge": "best"}, "auto"),
        ({"task.ridge": [-1.0]}, "at least 0"),
        ({"task.folds": 1}, "at least 2"),
        ({"task.held_out": 0.9}, "at most 0.5"),
        ({"scheme": "minibatch"}, "solves for one"),
        ({"training.solver": "nesterov"}, "solves for one"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    table(tmp_path / "t.npz")
    with pytest.raises(CodedflError, match=words) as error:
        codedfl.run(scenario(tmp_path / "t.npz", **changes), tmp_path / "run")
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()
