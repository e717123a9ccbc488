"""Rows that devices hold out score the final model as scikit-learn does; only sums over all devices are opened."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import codedfl
from codedfl.data import FeatureMap
from codedfl.errors import CodedflError
from codedfl.runs import execute, run_in_memory
from codedfl.runs.scoring import held_out_counts
from codedfl.runs.sums import SchemeSummer
from codedfl.scenario import Scenario
from codedfl.task import Problem, RawData
from codedfl.task.folds import DeviceRows, fold_of_rows, held_out_rows
from codedfl.task.preparing import PlainSummer
from tiny import is_one_sentence, problem

SCHEMES = ["conventional", "sealed-coded", "one-shot", "secagg"]
OWNERS = np.repeat(["a", "b", "c", "d", "e"], [1, 2, 30, 7, 80])
SHARE = 0.25


def table(path: Path, kind: str = "regression") -> tuple[np.ndarray, np.ndarray]:
    """Unscaled columns, targets far from zero or classes as text, and owners of 1 to 80 rows."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(len(OWNERS), 4)) * [1, 300, 0.01, 20] + [5, 1e4, 0, -3]
    y = (x - x.mean(axis=0)) / x.std(axis=0) @ [3, -2, 1, 0] + rng.normal(size=len(x)) + 5e4
    if kind == "classification":
        y = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.2, 0.6]))]
    np.savez(path, x=x, y=y, owners=OWNERS)
    return x, y


def scenario(path: Path, **changes: Any) -> Scenario:
    base = {
        "data.source": str(path),
        "data.test_fraction": 0.0,
        "data.held_out": SHARE,
        "data.seed": 3,
        "partition.kind": "column",
        "partition.column": "owners",
        "task.ridge": 0.01,
        "timing.draws": 3,
        "fleet.devices": [{"count": 5, "mac_rate": 1e6}],
    }
    return codedfl.load("own-data").with_settings(base | changes)


def held_out() -> np.ndarray:
    """Which rows of the table are held out, by hand: the first of four folds, and never an owner's only row."""
    out = np.zeros(len(OWNERS), bool)
    for device, owner in enumerate("abcde"):
        rows = np.flatnonzero(owner == OWNERS)
        if len(rows) > 1:
            out[rows] = fold_of_rows(len(rows), 4, seed=3, device=device) == 0
    return out


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_regression_is_scored_on_the_held_out_rows(scheme: str, tmp_path: Path) -> None:
    x, y = table(tmp_path / "t.npz")
    summary = codedfl.run(scenario(tmp_path / "t.npz", scheme=scheme), tmp_path / "run").summary
    out = held_out()
    scaler = StandardScaler().fit(x[~out])
    model = Ridge(alpha=0.01 * (~out).sum()).fit(scaler.transform(x[~out]), y[~out])
    truth, found = y[out], model.predict(scaler.transform(x[out]))
    assert summary["final_r2"] == pytest.approx(metrics.r2_score(truth, found), rel=1e-7)
    assert summary["metrics"]["r2"] == summary["final_r2"]
    assert summary["metrics"]["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, found), rel=1e-7)
    assert summary["metrics"]["mae"] == pytest.approx(metrics.mean_absolute_error(truth, found), rel=1e-7)
    assert summary["scored_on"] == "rows held out by devices"
    assert summary["scoring"]["rows"] == out.sum()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_classes_are_counted_on_the_held_out_rows(scheme: str, tmp_path: Path) -> None:
    x, y = table(tmp_path / "t.npz", "classification")
    run = codedfl.run(scenario(tmp_path / "t.npz", scheme=scheme), tmp_path / "run")
    out, classes = held_out(), ["high", "low", "middle"]
    scaler, hot = StandardScaler().fit(x[~out]), (y[:, None] == classes).astype(float)
    model = Ridge(alpha=0.01 * (~out).sum()).fit(scaler.transform(x[~out]), hot[~out])
    truth, found = y[out], np.array(classes)[model.predict(scaler.transform(x[out])).argmax(axis=1)]
    scores, matrix = run.summary["metrics"], metrics.confusion_matrix(truth, found, labels=classes)
    assert scores["confusion_matrix"] == matrix.tolist()
    assert scores["classes"] == classes
    assert run.summary["final_accuracy"] == scores["accuracy"] == metrics.accuracy_score(truth, found)
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(truth, found, average="macro"))
    assert scores["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(truth, found))
    assert (run.load_model().predict(x[out]) == found).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"features.scale": "none", "features.intercept": False},
        {"features.kind": "rbf", "features.dimension": 20},
        {"task.ridge": [0.001, 0.1, 10.0], "task.folds": 3},
    ],
    ids=["raw columns", "kernel", "chosen weight"],
)
def test_scores_are_those_of_the_saved_model(changes: dict[str, Any], tmp_path: Path) -> None:
    """Targets far from zero keep their digits where nothing shifts them, too."""
    x, y = table(tmp_path / "t.npz")
    run = codedfl.run(scenario(tmp_path / "t.npz", **changes), tmp_path / "run")
    out = held_out()
    expected = metrics.r2_score(y[out], run.load_model().predict(x[out]))
    assert run.summary["final_r2"] == pytest.approx(expected, rel=1e-6)


def test_devices_train_on_the_other_rows_only(tmp_path: Path) -> None:
    x, _ = table(tmp_path / "t.npz")
    raw, out = RawData.load(scenario(tmp_path / "t.npz")), held_out()
    assert np.array_equal(np.concatenate([raw.device(i).x for i in range(5)]), x[~out])
    assert np.array_equal(np.concatenate([raw.held_out(i).x for i in range(5)]), x[out])
    assert len(raw.device(0).x) == 1, "a device with one row trains on it"
    assert Problem.build(scenario(tmp_path / "t.npz")).samples == (~out).sum()


@pytest.mark.parametrize("share", [0.5, 0.3, 0.1, 0.001])
def test_every_device_keeps_a_third_of_its_rows(share: float) -> None:
    """Bounds of sums rely on it."""
    for rows in range(1, 40):
        for device in range(10):
            held = int(held_out_rows(rows, share, seed=1, device=device).sum())
            assert held <= 2 * (rows - held)


def test_no_share_holds_nothing_out(tmp_path: Path) -> None:
    x, _ = table(tmp_path / "t.npz")
    run = codedfl.run(scenario(tmp_path / "t.npz", **{"data.held_out": 0.0}), tmp_path / "run")
    assert run.load_model().samples == len(x)
    assert [run.summary[name] for name in ("metrics", "scored_on", "remark", "final_r2")] == [None] * 4
    assert "scoring" not in run.summary
    assert "held-out" not in run.summary["leakage"]["server"]


def test_the_training_takes_its_own_time_and_scoring_is_counted_apart(tmp_path: Path) -> None:
    """The training is that on the other rows, in time and bits; the model goes to all devices once more."""
    x, y = table(tmp_path / "t.npz")
    out = held_out()
    np.savez(tmp_path / "rest.npz", x=x[~out], y=y[~out], owners=OWNERS[~out])
    scored = codedfl.run(scenario(tmp_path / "t.npz"), tmp_path / "scored")
    alone = codedfl.run(scenario(tmp_path / "rest.npz", **{"data.held_out": 0.0}), tmp_path / "alone")
    assert np.array_equal(scored.model, alone.model)
    assert np.array_equal(scored.timings, alone.timings)
    for name in ("virtual_seconds", "bits_sent", "preparation"):
        assert scored.summary[name] == alone.summary[name]
    costs = scored.summary["scoring"]
    assert costs["seconds"] > 0
    assert costs["bits_sent"]["down"] >= 5 * 64 * 4
    assert costs["bits_sent"]["up"] > 0


def test_a_test_set_comes_first(tmp_path: Path) -> None:
    table(tmp_path / "t.npz")
    summary = codedfl.run(scenario(tmp_path / "t.npz", **{"data.test_fraction": 0.2}), tmp_path / "run").summary
    assert summary["scored_on"] == "test set"
    assert summary["final_r2"] == pytest.approx(summary["metrics"]["r2"])
    assert summary["scoring"]["metrics"]["r2"] not in (None, summary["final_r2"])


def test_devices_of_one_row_score_nothing(tmp_path: Path) -> None:
    x, y = table(tmp_path / "t.npz")
    np.savez(tmp_path / "own.npz", x=x[:20], y=y[:20], owners=np.arange(20))
    run = codedfl.run(scenario(tmp_path / "own.npz", scheme="conventional"), tmp_path / "run")
    assert (run.summary["metrics"], run.summary["scored_on"], run.load_model().samples) == (None, None, 20)
    assert is_one_sentence(run.summary["remark"])
    assert "no device holds a row out" in run.summary["remark"]
    assert run.summary["scoring"]["rows"] == 0


@pytest.mark.parametrize("value", [1 / 3, 1e6 / 3, -1e17 / 3])
def test_a_constant_target_has_no_r2(value: float) -> None:
    """Also where rounding leaves a trace of variance."""
    rng = np.random.default_rng(0)
    rows = [DeviceRows(rng.normal(size=(count, 2)), np.full((count, 1), value)) for count in (9, 7, 11)]
    given = FeatureMap.create("none", inputs=2, dtype="float64")
    for summer in (PlainSummer(rows, given), SchemeSummer(small("secagg"), rows, given, [])):
        found = held_out_counts(summer, "regression", np.ones((2, 1)), None)
        assert found.metrics()["r2"] is None
        assert not found.table[1:3].any(), "sums of what differs from the constant"
        errors = np.concatenate([each.y[:, 0] - each.x.sum(axis=1) for each in rows])
        assert found.metrics()["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "off", "counted"),
    [
        *(("classification", 0.25, True), ("classification", 0.26, False), ("classification", -0.26, False)),
        *(("regression", 0.24, True), ("regression", -0.26, False)),
    ],
)
def test_counts_off_by_more_than_a_quarter_are_refused(
    kind: str, off: float, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it a single one of them: 6 rows of class 0, 3 of them predicted so, and 2 of class 1, or 8 rows."""
    add = PlainSummer.add

    def coarse(self: PlainSummer, request: Any, scales: np.ndarray) -> np.ndarray:
        found = add(self, request, scales)
        found[0] += off / scales[0]
        return found

    monkeypatch.setattr(PlainSummer, "add", coarse)
    x = np.array([[2.0, 1], [2, 1], [2, 1], [1, 2], [1, 2], [1, 2], [1, 2], [2, 1]])
    y = np.eye(2)[[0, 0, 0, 0, 0, 0, 1, 1]]
    summer = PlainSummer([DeviceRows(x, y)], FeatureMap.create("none", inputs=2, dtype="float64"))
    if counted:
        found = held_out_counts(summer, kind, np.eye(2), None)
        assert found.rows == 8
        if kind == "classification":
            assert found.table.tolist() == [[3, 3], [1, 1]]
    else:
        with pytest.raises(CodedflError, match="too inaccurate to count"):
            held_out_counts(summer, kind, np.eye(2), None)


@pytest.mark.parametrize("mean", [0.0, 1e9])
def test_a_target_far_from_zero_keeps_the_digits_of_its_variance(mean: float) -> None:
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(3, 9, 2)), rng.normal(size=(3, 9, 1))
    y = mean + x.sum(axis=2, keepdims=True) + noise
    rows = [DeviceRows(np.column_stack([part, np.ones(9)]), target) for part, target in zip(x, y, strict=True)]
    summer = PlainSummer(rows, FeatureMap.create("none", inputs=3, dtype="float64"))
    found = held_out_counts(summer, "regression", np.array([[1.0], [1.0], [mean]]), None)
    # targets are rounded to 2^-23 where they are near 1e9
    assert found.metrics()["r2"] == pytest.approx(1 - np.mean(noise**2) / (y - mean).var(), rel=1e-6)


def small(scheme: str) -> Scenario:
    return codedfl.load("own-data").with_settings({"scheme": scheme, "data.source": "t.npz"}).with_devices(3)


def test_a_model_that_cannot_be_scored_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path / "t.npz", "classification")
    total = SchemeSummer.add

    def coarse(self: SchemeSummer, request: Any, scales: np.ndarray) -> np.ndarray:
        found = total(self, request, scales)
        return found + 0.4 / scales if request.kind == "counts" else found

    monkeypatch.setattr(SchemeSummer, "add", coarse)
    run = codedfl.run(scenario(tmp_path / "t.npz"), tmp_path / "run")
    assert run.summary["metrics"] is None
    assert "too inaccurate to count" in run.summary["remark"]
    assert run.load_model().predict(np.ones((1, 4))).shape == (1,)


def test_runs_in_memory_are_scored_alike(tmp_path: Path) -> None:
    x, _ = table(tmp_path / "t.npz")
    wanted = scenario(tmp_path / "t.npz")
    run = codedfl.run(wanted, tmp_path / "run")
    found = run_in_memory(wanted.with_devices(5), RawData.load(wanted))
    for name in ("metrics", "scoring", "scored_on", "leakage"):
        assert found.summary[name] == run.summary[name]
    assert np.array_equal(found.model.predict(x), run.load_model().predict(x))


class TestLeakage:
    """What the sums reveal is said beside what the scheme reveals."""

    def sentences(self, path: Path, **changes: Any) -> dict[str, str]:
        wanted = scenario(path / "t.npz", **{"training.epochs": 3, **changes})
        found: dict[str, str] = codedfl.run(wanted, path / "run").summary["leakage"]
        return found

    @pytest.mark.parametrize("scheme", ["conventional", "minibatch"])
    def test_sums_in_clear_are_those_of_each_device(self, scheme: str, tmp_path: Path) -> None:
        table(tmp_path / "t.npz")
        more = {"schemes.minibatch.parts": 1} if scheme == "minibatch" else {}
        words = self.sentences(tmp_path, scheme=scheme, **more)["server"]
        assert "before the training: sums of each device, in clear, of every column" in words
        assert "held-out rows: sums of each device, in clear, of counts" in words

    @pytest.mark.parametrize("scheme", ["sealed-coded", "secagg"])
    def test_sums_under_a_scheme_are_those_of_all(self, scheme: str, tmp_path: Path) -> None:
        table(tmp_path / "t.npz")
        words = self.sentences(tmp_path, scheme=scheme, **{"data.held_out": 0.0})
        assert "before the training: sums over all devices of every column" in words["server"]
        assert "from each device its number of rows and powers of two that bound each column" in words["server"]
        assert "in clear" not in words["server"]
        assert "held-out" not in words["server"]
        assert "means and variances of columns and targets over all devices" in words["devices"]

    def test_a_choice_of_weights_is_said_after_the_choice_too(self, tmp_path: Path) -> None:
        table(tmp_path / "t.npz")
        words = self.sentences(tmp_path, **{"task.ridge": [0.01, 0.1], "task.folds": 2, "training.epochs": 50})
        assert "for each fold" in words["server"]

    def test_nothing_is_added_where_columns_are_not_prepared(self, tmp_path: Path) -> None:
        table(tmp_path / "t.npz")
        raw = {"features.scale": "none", "features.intercept": False, "data.held_out": 0.0, "scheme": "conventional"}
        assert self.sentences(tmp_path, **raw)["server"] == "the gradient of every device in every epoch, in clear"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-0.1, "at least 0"),
        (0.6, "at most 0.5"),
        (1e-9, "0 or at least 0.001"),
        ("half", "number"),
        (float("nan"), "nan"),
    ],
)
def test_bad_shares_are_refused(value: Any, words: str, tmp_path: Path) -> None:
    table(tmp_path / "t.npz")
    with pytest.raises(CodedflError, match=words) as error:
        codedfl.run(scenario(tmp_path / "t.npz", **{"data.held_out": value}), tmp_path / "run")
    assert is_one_sentence(str(error.value))
    assert "data.held_out" in str(error.value)
    assert not (tmp_path / "run").exists()


def test_shards_cannot_be_divided(tmp_path: Path) -> None:
    table(tmp_path / "t.npz")
    wanted = scenario(tmp_path / "t.npz", scheme="conventional", **{"features.scale": "none"})
    with pytest.raises(CodedflError, match="given as shards"):
        execute(wanted, tmp_path / "run", problem=lambda: problem([5] * 5))
