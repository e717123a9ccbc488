"""``codedfl predict``: rows of files in, predictions out."""

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import codedfl as package
from cli.conftest import Command
from rundirs import strict_json, tree
from task.model.fitted import LABELS, RIDGE, ROWS, Fitted, fitted


def put(folder: Path, given: Fitted, name: str = "rows.csv") -> None:
    """Save a model as that of a finished run, and its rows with their columns in another order."""
    given.model.save(folder / "run/model")
    for file in ("scenario.toml", "summary.json"):
        (folder / "run" / file).write_text("")
    table = pa.table({column: given.rows[column] for column in reversed(given.rows)})
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, folder / name)
    else:
        pyarrow.csv.write_csv(table, folder / name)


def parsed(text: str) -> dict[str, list[str]]:
    header, *rows = csv.reader(io.StringIO(text))
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


@pytest.mark.parametrize("labels", LABELS)
def test_labels_come_back_as_they_were_given(codedfl: Command, folder: Path, labels: str) -> None:
    given = fitted(labels)
    put(folder, given)
    outcome = codedfl("predict", "run", "rows.csv", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = strict_json(outcome.out)
    assert found == given.reference.predict(given.array).tolist()
    assert {type(value) for value in found} == {type(LABELS[labels][0])}


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_csv_on_the_output_and_in_a_file(codedfl: Command, folder: Path, name: str) -> None:
    given = fitted("text")
    put(folder, given, name)
    shown = codedfl("predict", "run/model", name)
    wanted = given.reference.predict(given.array).tolist()
    assert parsed(shown.out) == {"kind": wanted}
    assert codedfl("predict", "run", name, "--out", "out.csv").out == f"predictions of {len(wanted)} rows: out.csv\n"
    assert (folder / "out.csv").read_text() == shown.out
    assert codedfl("predict", "run", name, "--out", "out.parquet").code == 0
    assert pyarrow.parquet.read_table(folder / "out.parquet").to_pydict() == {"kind": wanted}


@pytest.mark.parametrize("labels", ["text", "two"])
def test_scores_are_decision_values(codedfl: Command, folder: Path, labels: str) -> None:
    given = fitted(labels)
    put(folder, given)
    found = parsed(codedfl("predict", "run", "rows.csv", "--scores").out)
    names = {"text": ["kind=ant", "kind=bee", "kind=cow"], "two": ["kind=yes"]}[labels]
    assert list(found) == ["kind", *names]
    scores = np.stack([np.array(found[name], float) for name in names], axis=1)
    wanted = given.reference.decision_function(given.array).reshape(scores.shape)
    assert scores == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    rows = strict_json(codedfl("predict", "run", "rows.csv", "--scores", "--json").out)
    assert rows[0] == {"kind": found["kind"][0], **{name: float(found[name][0]) for name in names}}


@pytest.mark.parametrize("outputs", [1, 3])
def test_regressions(codedfl: Command, folder: Path, outputs: int) -> None:
    given = fitted(outputs=outputs)
    put(folder, given)
    wanted = given.reference.predict(given.array)
    assert strict_json(codedfl("predict", "run", "rows.csv", "--json").out) == pytest.approx(wanted, rel=1e-9)
    assert list(parsed(codedfl("predict", "run", "rows.csv").out)) == list(given.model.targets)


def test_other_columns_are_named_once(codedfl: Command, folder: Path) -> None:
    given = fitted("text")
    put(folder, given)
    text = (folder / "rows.csv").read_text().splitlines()
    (folder / "more.csv").write_text(
        "\n".join([f"id,{text[0]}", *(f"{row},{line}" for row, line in enumerate(text[1:]))])
    )
    outcome = codedfl("predict", "run", "more.csv", "--scores")
    assert outcome.err == "warning: the model does not use these columns: id\n"
    assert parsed(outcome.out)["kind"] == given.reference.predict(given.array).tolist()


OWN = """
scheme = "conventional"
[data]
source = "own.csv"
target = "{target}"
test_fraction = 0.0
[features]
kind = "none"
[task]
ridge = {ridge}
[training]
targets = []
[[fleet.devices]]
count = 3
mac_rate = 1e6
[timing]
draws = 2
"""


@pytest.mark.parametrize("labels", ["text", "integers", "truth values", None])
def test_a_run_on_own_columns_predicts_as_the_pooled_pipeline(
    codedfl: Command, folder: Path, labels: str | None
) -> None:
    given = fitted(labels)
    target = given.targets if labels else given.targets[:, 0]
    pyarrow.csv.write_csv(pa.table({"kind": target, **given.rows}), folder / "own.csv")
    (folder / "own.toml").write_text(OWN.format(target="kind", ridge=RIDGE))
    outcome = codedfl("run", "own.toml", "--out", "run")
    assert outcome.code == 0, outcome.err
    outcome = codedfl("predict", "run", "own.csv", "--json")
    assert outcome.err == "warning: the model does not use these columns: kind\n"
    parts = [("numbers", StandardScaler(), [0, 2]), ("text", OneHotEncoder(), [1])]
    model = (RidgeClassifier if labels else Ridge)(alpha=RIDGE * ROWS)
    pooled = make_pipeline(ColumnTransformer(parts), model).fit(given.array, target)
    found, wanted = strict_json(outcome.out), pooled.predict(given.array).tolist()
    assert found == (wanted if labels else pytest.approx(wanted, rel=1e-8))
    made = package.load_model(folder / "run")
    assert (made.targets, made.columns) == (("kind",), given.model.columns)
    assert codedfl("export", "run", "model.onnx").code == 0


def test_the_run_of_a_scenario_predicts_without_its_data(codedfl: Command, folder: Path) -> None:
    assert codedfl("run", "small.toml", "--out", "run").code == 0
    pixels, digits = load_digits(return_X_y=True)
    np.savez(folder / "rows.npz", x=pixels / 16)
    shutil.copytree(folder / "run/model", folder / "copy")
    model = package.load_run(folder / "run").load_model()
    shutil.rmtree(folder / "run")
    before = tree(folder)
    found = strict_json(codedfl("predict", "copy", "rows.npz", "--json").out)
    assert tree(folder) == before
    assert found == model.predict(pixels / 16).tolist()
    assert np.mean(np.array(found) == digits) > 0.7
