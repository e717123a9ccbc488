"""``codedfl owners``: each owner alone, federated and pooled, on small tables."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cli.conftest import Command
from rundirs import strict_json, tree

RIDGE = 0.01
SCENARIO = f"""
name = "shops"
extends = "own-data"
scheme = "conventional"
[data]
source = "rows.csv"
test_fraction = 0.25
[partition]
kind = "column"
column = "shop"
[task]
ridge = {RIDGE}
[timing]
draws = 5
"""
RNG = np.random.default_rng(3)
SHOP = np.repeat([f"shop {number}" for number in range(12)], 6)
SIZE, COLOUR = RNG.normal(2000, 900, 72), RNG.choice(["red", "blue", "green"], 72)
COLOUR[5] = "rare"  # one row only, which may be held out
PRICE = SIZE / 300 + 2.0 * (COLOUR == "red") + RNG.normal(size=72)
GRADE = np.digitize(PRICE, np.quantile(PRICE, [1 / 3, 2 / 3])) * 5 + 5  # 5, 10, 15: not sorted as text


def write(folder: Path, target: np.ndarray, name: str = "rows.csv", **more: np.ndarray) -> None:
    table = pa.table({"size": SIZE, "colour": COLOUR, **more, "shop": SHOP, "target": target})
    (folder / "mine.toml").write_text(SCENARIO.replace("rows.csv", name))
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(table, folder / name)
    else:
        pyarrow.parquet.write_table(table, folder / name)


def parts(folder: Path) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """The training rows that the command wrote, and all others."""
    train = pyarrow.parquet.read_table(folder / "out/train.parquet")
    held = ~np.isin(SIZE, train["size"].to_numpy())
    return train, {"size": SIZE[held], "colour": COLOUR[held], "held": held}


def pooled(train: pa.Table, model: Ridge | RidgeClassifier) -> Pipeline:
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), [0]), ("texts", OneHotEncoder(handle_unknown="ignore"), [1])]
    )
    x = np.column_stack([train["size"].to_numpy().astype(object), train["colour"].to_pylist()])
    return make_pipeline(columns, model).fit(x, train["target"].to_numpy())


@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_regression(codedfl: Command, folder: Path, scheme: str, name: str) -> None:
    write(folder, PRICE, name)
    outcome = codedfl("owners", "mine.toml", "--set", f"scheme={scheme}", "--out", "out", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = strict_json(outcome.out)
    train, rows = parts(folder)
    assert (found["owners"], found["rows"], found["held_out"]) == (12, 48, 24), "6 rows each, of which 2 are held out"
    x = np.column_stack([rows["size"].astype(object), rows["colour"]])
    reference = pooled(train, Ridge(RIDGE * train.num_rows)).predict(x)
    expected = r2_score(PRICE[rows["held"]], reference)
    assert found["ways"]["federated"]["r2"] == pytest.approx(expected, abs=1e-9)
    assert found["ways"]["pooled"]["r2"] == pytest.approx(expected, abs=1e-9)
    assert found["difference"] < 1e-9
    assert found["equal"] is True
    assert found["verdict"].startswith("federation pays: r2 ")
    assert (found["scheme"], found["owner"]) == (scheme, "shop")


def test_classes(codedfl: Command, folder: Path) -> None:
    write(folder, GRADE)
    found = strict_json(codedfl("owners", "mine.toml", "--out", "out", "--set", "data.test_fraction=0.5", "--json").out)
    train, rows = parts(folder)
    x = np.column_stack([rows["size"].astype(object), rows["colour"]])
    labels = pooled(train, RidgeClassifier(RIDGE * train.num_rows)).predict(x)
    for way in ("federated", "pooled"):
        assert found["ways"][way] == {"accuracy": pytest.approx(accuracy_score(GRADE[rows["held"]], labels))}
    assert found["difference"] < 1e-9


def test_the_weight_of_the_run_is_that_of_the_pooled_model(codedfl: Command, folder: Path) -> None:
    write(folder, PRICE)
    found = strict_json(codedfl("owners", "mine.toml", "--set", "task.ridge=[1e-3,1.0]", "--out", "o", "--json").out)
    assert found["difference"] < 1e-9


def test_what_people_read(codedfl: Command, folder: Path) -> None:
    write(folder, PRICE)
    rows = ("--set", "data.source=rows.csv", "--set", "data.test_fraction=0.25", "--owner", "shop")
    shown = codedfl("owners", "own-data", *rows, "--out", "out").out
    for words in ("own-data by shop", "R²", "mean of own rows", "alone", "federated", "pooled", "12 owners"):
        assert words in shown
    assert "federation pays: r2 " in shown
    assert "equal (below 1e-06)" in shown
    assert f"run directory: {Path('out/run')}" in shown
    before = tree(folder)
    again = codedfl("owners", "-s", "own-data", *rows, "--out", "out")
    assert (again.code, again.out) == (0, shown)
    assert tree(folder) == before, "a finished run is read"


def test_a_training_that_stops_early_is_told(codedfl: Command, folder: Path) -> None:
    write(folder, PRICE)
    shown = codedfl("owners", "mine.toml", "--set", "training.epochs=1").out
    assert "not equal (above 1e-06); conventional ended at epoch 1" in shown


def test_groups_are_held_out_together_and_are_no_feature(codedfl: Command, folder: Path) -> None:
    day = np.tile([1, 1, 2, 2, 3, 3], 12)
    write(folder, PRICE, day=day)
    assert codedfl("owners", "mine.toml", "--group", "day", "--out", "out").code == 0
    train, rows = parts(folder)
    assert train.column_names == ["size", "colour", "shop", "target"]
    kept, held = (set(zip(SHOP[chosen], day[chosen], strict=True)) for chosen in (~rows["held"], rows["held"]))
    assert not kept & held
    assert len(held) == 12


def test_categories_may_be_declared_of_numbers(codedfl: Command, folder: Path) -> None:
    write(folder, PRICE, floor=np.tile([0, 1, 2], 24))
    declared = '\n[[features.categories]]\ncolumn = "floor"\nvalues = ["0", "1", "2", "3"]\n'
    (folder / "mine.toml").write_text((folder / "mine.toml").read_text() + declared)
    outcome = codedfl("owners", "mine.toml", "--json")
    assert outcome.code == 0, outcome.err
    assert strict_json(outcome.out)["difference"] < 1e-9


def test_a_full_disk(codedfl: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    write(folder, PRICE)
    before = tree(folder)
    with monkeypatch.context() as patched:
        patched.setattr("codedfl.storage.os.replace", full)
        outcome = codedfl("owners", "mine.toml", "--out", "new/out")
    assert (outcome.code, outcome.out) == (1, "")
    assert "cannot write to 'new/out' (No space left on device)" in outcome.err
    assert tree(folder) == before


def test_other_rows_do_not_replace_those_of_a_run(codedfl: Command, folder: Path) -> None:
    write(folder, PRICE)
    assert codedfl("owners", "mine.toml", "--out", "out").code == 0
    before = tree(folder)
    for change, words in (("data.seed=1", "other training rows"), ("task.ridge=0.5", "another scenario")):
        outcome = codedfl("owners", "mine.toml", "--out", "out", "--set", change)
        assert outcome.code == 1
        assert words in outcome.err
    assert tree(folder) == before
