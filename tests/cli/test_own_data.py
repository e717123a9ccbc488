"""The user's own data, from a file beside the scenario to a finished run."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import confusion_matrix, r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cli.conftest import Command
from codedfl.data import load_file
from codedfl.scenario import load
from rundirs import epochs, strict_json

RIDGE = 0.01
SCENARIO = """
name = "mine"
scheme = "conventional"
[data]
source = "../data/train{ending}"
{more}
[features]
kind = "none"
[task]
ridge = 0.01
precision = "float64"
[training]
epochs = 80
learning_rate = 0.5
decay_epochs = []
targets = [0.2]
[[fleet.devices]]
count = 4
mac_rate = 1e6
[timing]
draws = 50
"""
RNG = np.random.default_rng(1)
X = {"train": RNG.standard_normal((120, 5)), "test": RNG.standard_normal((60, 5))}
WEIGHTS = RNG.standard_normal((5, 2))
VALUES = {part: x @ WEIGHTS + 0.5 * RNG.standard_normal((len(x), 2)) for part, x in X.items()}
NAMES = np.array(["ant", "bee", "cow"])
KINDS = {part: np.argmax(x[:, :3] + 0.7 * RNG.standard_normal((len(x), 3)), axis=1) for part, x in X.items()}


def save(path: Path, x: np.ndarray, targets: dict[str, np.ndarray]) -> None:
    table = pa.table({**{f"x{j}": x[:, j] for j in range(x.shape[1])}, **targets})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)


def prepare(folder: Path, ending: str, targets: dict[str, dict[str, np.ndarray]], more: str) -> None:
    """Write scenarios/own.toml and data/train and data/test; a .npz holds both parts in one."""
    for name in ("scenarios", "data"):
        (folder / name).mkdir()
    if ending == ".npz":
        columns = {part: np.stack(list(found.values()), axis=1) for part, found in targets.items()}
        arrays = {f"y_{part}": y[:, 0] if y.shape[1] == 1 else y for part, y in columns.items()}
        np.savez(folder / "data/train.npz", x_train=X["train"], x_test=X["test"], **arrays)
        more = ""
    else:
        for part, found in targets.items():
            save(folder / f"data/{part}{ending}", X[part], found)
        more += f'\ntest_source = "../data/test{ending}"'
    (folder / "scenarios/own.toml").write_text(SCENARIO.format(ending=ending, more=more))


def solver(y: np.ndarray, x: np.ndarray = X["train"]) -> Pipeline:
    """The model that training must end at: codedfl divides the loss by the samples."""
    return make_pipeline(StandardScaler(), Ridge(alpha=RIDGE * len(y))).fit(x, y)


def run(codedfl: Command) -> dict[str, Any]:
    outcome = codedfl("run", "scenarios/own.toml", "--out", "run", "--json")
    assert outcome.code == 0, outcome.err
    return strict_json(outcome.out)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_regression(codedfl: Command, folder: Path, ending: str) -> None:
    prepare(folder, ending, {part: {"v": v[:, 0]} for part, v in VALUES.items()}, 'target = "v"')
    found = run(codedfl)
    wanted = r2_score(VALUES["test"][:, 0], solver(VALUES["train"][:, 0]).predict(X["test"]))
    assert (found["metric"], found["final_accuracy"], found["best_accuracy"]) == ("r2", None, None)
    assert found["metrics"]["r2"] == pytest.approx(wanted, rel=1e-9)
    assert found["remark"] is None
    assert found["final_r2"] == pytest.approx(wanted, rel=1e-9)
    assert 0.5 < wanted < 1, "an easy problem, but not a trivial one"


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_regression_of_two_targets(codedfl: Command, folder: Path, ending: str) -> None:
    columns = {part: {"v": v[:, 0], "w": v[:, 1]} for part, v in VALUES.items()}
    prepare(folder, ending, columns, 'target = "v,w"')
    wanted = r2_score(VALUES["test"], solver(VALUES["train"]).predict(X["test"]))
    assert run(codedfl)["final_r2"] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_classification(codedfl: Command, folder: Path, ending: str) -> None:
    prepare(folder, ending, {part: {"animal": NAMES[kinds]} for part, kinds in KINDS.items()}, "")
    found = run(codedfl)
    guesses = np.argmax(solver(np.eye(3)[KINDS["train"]]).predict(X["test"]), axis=1)
    assert (found["metric"], found["final_r2"], found["best_r2"]) == ("accuracy", None, None)
    assert found["metrics"]["confusion_matrix"] == confusion_matrix(KINDS["test"], guesses).tolist()
    assert found["metrics"]["classes"] == NAMES.tolist()
    assert found["final_accuracy"] == np.mean(guesses == KINDS["test"])
    assert 0.6 < found["final_accuracy"] < 1


def test_a_part_of_one_file_is_set_aside_for_testing(codedfl: Command, folder: Path) -> None:
    prepare(folder, ".csv", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, "")
    text = (
        (folder / "scenarios/own.toml").read_text().replace('test_source = "../data/test.csv"', "test_fraction = 0.25")
    )
    (folder / "scenarios/own.toml").write_text(text)
    split = load_file(folder / "data/train.csv", test_fraction=0.25, dtype="float64")
    assert (len(split.x_train), len(split.x_test)) == (90, 30)
    model = solver(split.y_train, split.x_train)
    wanted = r2_score(split.y_test, model.predict(split.x_test))
    assert run(codedfl)["final_r2"] == pytest.approx(wanted, rel=1e-9)


def test_single_precision_by_default(codedfl: Command, folder: Path) -> None:
    prepare(folder, ".npz", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, "")
    wanted = r2_score(VALUES["test"][:, 0], solver(VALUES["train"][:, 0]).predict(X["test"]))
    single = ("run", "scenarios/own.toml", "--set", "task.precision=float32", "--json")
    assert 'set task.precision = "float64" or raise task.accuracy' in codedfl(*single).err
    outcome = codedfl(*single, "--set", "task.accuracy=1e-3")
    # 120 products and sums of single precision in every gradient
    assert strict_json(outcome.out)["final_r2"] == pytest.approx(wanted, abs=120 * float(np.finfo(np.float32).eps))


def test_time_to_a_coefficient_of_determination(codedfl: Command, folder: Path) -> None:
    prepare(folder, ".npz", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, "")
    found = run(codedfl)
    columns = epochs(folder / "run")
    first = np.flatnonzero(columns["accuracy"] >= 0.2)[0]
    assert found["time_to_accuracy"]["0.2"] == pytest.approx(columns["time_mean"][first], rel=1e-12)
    people = codedfl("run", "scenarios/own.toml", "--out", "run")
    assert "R²" in people.out
    assert "accuracy" not in people.out


def test_paths_are_relative_to_the_scenario(codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(folder, ".csv", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, 'target = "v"')
    ids = [load("scenarios/own.toml").id()]
    monkeypatch.chdir(folder / "scenarios")
    ids.append(load("own.toml").id())
    monkeypatch.chdir(folder.parent)
    ids.append(load(str(folder / "scenarios/own.toml")).id())
    assert len(set(ids)) == 1
    assert codedfl("run", folder / "scenarios/own.toml", "--set", "training.epochs=2").code == 0


def test_a_run_on_own_data_goes_on_from_anywhere(
    codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(folder, ".csv", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, 'target = "v"')
    first = run(codedfl)
    monkeypatch.chdir(folder / "data")
    outcome = codedfl("run", "../scenarios/own.toml", "--out", "../run", "--json")
    assert strict_json(outcome.out) == first


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_model_no_better_than_a_constant_is_named_in_words(codedfl: Command, folder: Path, kind: str) -> None:
    """Targets of the test set that are turned round: every guess is wrong where it can be."""
    targets: dict[str, dict[str, np.ndarray]] = {part: {"v": v[:, 0]} for part, v in VALUES.items()}
    if kind == "classification":
        targets = {part: {"v": v[:, 0] > 0} for part, v in VALUES.items()}
        targets["test"]["v"] = ~targets["test"]["v"]
    else:
        targets["test"]["v"] = -targets["test"]["v"]
    prepare(folder, ".npz", targets, "")
    sentence = run(codedfl)["remark"]
    assert sentence.startswith("the model predicts no better than a constant: its ")
    assert sentence in codedfl("run", "scenarios/own.toml", "--out", "run").out


def test_compare_on_own_data(codedfl: Command, folder: Path) -> None:
    prepare(folder, ".npz", {part: {"v": v[:, 0]} for part, v in VALUES.items()}, "")
    outcome = codedfl(
        *("compare", "conventional", "drop-slowest", "-s", "scenarios/own.toml", "--out", "out"),
        *("--set", "schemes.drop-slowest.wait_for=3", "--set", "training.epochs=20", "--set", "timing.repeats=2"),
    )
    assert outcome.code == 0, outcome.err
    assert (folder / "out/compare.svg").exists()


def test_own_data_without_data(codedfl: Command, tmp_path: Path) -> None:
    """Nothing stands in for them."""
    done = codedfl("run", "own-data", "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "no data are named; add --set data.source=" in done.err
    assert not (tmp_path / "run").exists()


def test_a_pattern_of_files_that_are_not_said_to_be_owners(codedfl: Command, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    done = codedfl("run", "own-data", "--set", f"data.source={tmp_path}/*.csv", "--out", str(tmp_path / "run"))
    assert done.code == 1
    assert "set partition.kind = 'files' for a pattern" in done.err


def test_a_missing_value_is_named_by_its_own_file(codedfl: Command, tmp_path: Path) -> None:
    (tmp_path / "clinic-a.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    (tmp_path / "clinic-b.csv").write_text("a,b\n1,2\n,4\n5,6\n")
    files = ("--set", f"data.source={tmp_path}/clinic-*.csv", "--set", "partition.kind=files")
    done = codedfl("run", "own-data", *files, "--out", str(tmp_path / "run"))
    assert done.code == 1
    assert "clinic-b: features holds 1 missing or infinite values, the first in row 1, column 'a'" in done.err
