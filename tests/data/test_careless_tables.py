"""Tables as people have them: what looks like one thing and is another is refused in words, never guessed wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import codedfl
from codedfl.data import load_file
from codedfl.data.files import owner_count
from codedfl.data.rows import load_rows
from codedfl.errors import CodedflError, DataError
from tiny import is_one_sentence

ROWS = 60
A = np.random.default_rng(2).normal(size=ROWS).round(4)


def write(path: Path, **columns: Any) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_inputs_of_the_same_name_are_told_apart(tmp_path: Path, rng: np.random.Generator) -> None:
    """A numeric column called like a category of another."""
    town = ["x", "y"] * (ROWS // 2)
    columns = {"t=x": rng.uniform(0, 1e4, ROWS), "a": A, "t": town, "y": A + [value == "x" for value in town]}
    path = write(tmp_path / "t.csv", **columns)
    test = write(tmp_path / "u.csv", **{name: columns[name] for name in ("t", "y", "a", "t=x")})
    data = load_file(path, target="y", test_path=test, dtype="float64")
    assert np.array_equal(data.x_train, data.x_test)


REFUSED = {
    "empty labels": ({"y": ["u", "v", ""] * 20}, "target 'y' is missing in 20 of 60 rows"),
    "NA among labels": ({"y": ["u", "v", "NA"] * 20}, "target 'y' is missing in 20 of 60 rows"),
    "one class": ({"y": ["k"] * ROWS}, "all training labels are 'k'"),
    "one whole number": ({"y": [1] * ROWS}, "all training labels are 1"),
    "thousands": ({"b": [f'"{n:,}"' for n in range(1000, 1060)], "y": A}, "'b' holds '1,000', a number or date"),
    "money": ({"b": [f"$12.{n}" for n in range(10, 70)], "y": A}, "'b' holds '\\$12.10', a number or date"),
    "percent": ({"b": [f"{n}.5%" for n in range(ROWS)], "y": A}, "a number or date"),
    "dates of our own": ({"b": [f"{n % 28 + 1}.02.2024" for n in range(ROWS)], "y": A}, "a number or date"),
    "names": ({"b": [f"id{n}" for n in range(ROWS)], "y": A}, "'b' holds text of 60 kinds in 60 rows"),
    "a target with separators": ({"y": [f'"{n:,}"' for n in range(1000, 1060)]}, "'y' holds '1,000', a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_guessed_wrong_is_refused(case: str, tmp_path: Path) -> None:
    columns, words = REFUSED[case]
    with pytest.raises(DataError, match=words) as error:
        load_file(write(tmp_path / "t.csv", a=A, **columns), target="y")
    assert is_one_sentence(str(error.value))


def column(path: Path, values: list[Any], kind: str) -> Path:
    """A table of one feature and a column that is text, or of a type of Parquet that CSV files do not have."""
    if kind == "csv":
        return write(path.with_suffix(".csv"), a=A[: len(values)], id=values)
    pyarrow.parquet.write_table(
        pyarrow.table({"a": A[: len(values)], "id": np.array(values, kind)}), path.with_suffix(".parquet")
    )
    return path.with_suffix(".parquet")


TOO_LARGE = {
    "beyond 64 bits": ("csv", 2**64 + 1),
    "64 bits without a sign": ("uint64", 2**63),
    "where float64 begins to round": ("float64", 2**53),
    "below zero": ("float64", -(2**53)),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_labels_that_could_be_mixed_up_are_refused(case: str, tmp_path: Path) -> None:
    """2^64 + 1 and 2^64 + 2 in a CSV file are one number in float64."""
    kind, number = TOO_LARGE[case]
    path = column(tmp_path / "t", [number, number + (1 if number > 0 else -2), 1, 2] * 5, kind)
    for load in (lambda: load_file(path, target="id", kind="classification"), lambda: as_site(path)):
        with pytest.raises(DataError, match=r"holds .*, and numbers of this size may not be told apart") as error:
            load()
        assert is_one_sentence(str(error.value))


def as_site(path: Path) -> Any:
    return load_rows(path, target="id", kind="classification")


@pytest.mark.parametrize(
    ("kind", "number"), [("csv", 2**63 - 1), ("uint64", 2**63 - 1), ("float64", 2**53 - 1), ("float64", 1 - 2**53)]
)
def test_labels_up_to_the_limit_are_classes(kind: str, number: int, tmp_path: Path) -> None:
    path = column(tmp_path / "t", [number, number - 1 if number > 0 else number + 1, 1, 2] * 5, kind)
    assert load_file(path, target="id", kind="classification").classes == as_site(path).y.max() + 1 == 4


def test_owners_that_could_be_mixed_up_are_refused(tmp_path: Path) -> None:
    owners = [2**64 + number % 3 for number in range(12)]
    path = write(tmp_path / "t.csv", a=A[:12], y=A[:12], id=owners)
    for call in (lambda: load_file(path, target="y", owner="id"), lambda: owner_count(str(path), "id", by_file=False)):
        with pytest.raises(DataError, match=r"column 'id' of owners holds 1\.8.*e\+19, and numbers") as error:
            call()
        assert is_one_sentence(str(error.value))
    path = write(tmp_path / "u.csv", a=A[:12], y=A[:12], id=[f"u{owner}" for owner in owners])
    assert owner_count(str(path), "id", by_file=False) == len(set(load_file(path, target="y", owner="id").owners)) == 3


def test_a_test_file_with_text_for_numbers_is_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", a=A, b=A, y=A)
    test = write(tmp_path / "u.csv", a=["foo", "bar"], b=[1.5, 2.5], y=[0.5, 1.5])
    with pytest.raises(DataError, match=r"'a' of the test file .* holds text") as error:
        load_file(train, target="y", test_path=test)
    assert is_one_sentence(str(error.value))


def test_whole_numbers_that_hardly_repeat_are_a_regression(tmp_path: Path, rng: np.random.Generator) -> None:
    assert load_file(write(tmp_path / "t.csv", a=A, y=rng.permutation(ROWS) + 10_000), target="y").kind == "regression"
    assert load_file(write(tmp_path / "u.csv", a=A, y=np.arange(ROWS) % 5), target="y").kind == "classification"
    few = write(tmp_path / "v.csv", a=A[:3], y=[0, 1, 0])
    assert load_file(few, target="y", test_fraction=0.0).kind == "classification"


def test_missing_text_is_missing_however_it_is_spelled(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", a=A, b=["u", "", "NA", "v"] * 15, y=A)
    data = load_file(path, target="y", missing="mean", dtype="float64", test_fraction=0.0)
    assert data.columns[1].categories == ("u", "v")
    assert np.isnan(data.x_train[:, 1]).tolist() == [False, True, True, False] * 15


def run(path: Path, folder: Path, **changes: Any) -> Any:
    devices = [{"count": 3, "mac_rate": 1e6}]
    settings = {"data.source": str(path), "data.target": "y", "fleet.devices": devices, "timing.draws": 2, **changes}
    return codedfl.run("own-data", folder / "run", {"data.test_fraction": 0.0, **settings})


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (1e15 + A, "the column 'b' has the mean 1e.15 and the standard deviation"),
        (2.0**53 + 1 + np.arange(ROWS), "subtract a constant"),
        (A * 1e-200, "whose squares cannot be summed"),
        (A * 1e200, "whose squares cannot be summed"),
    ],
)
@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded", "one-shot"])
def test_columns_that_float64_cannot_hold_are_refused(
    scheme: str, column: np.ndarray, words: str, tmp_path: Path
) -> None:
    path = (
        tmp_path / "t.npz"
        if words[0] != "t"
        else write(tmp_path / "t.csv", a=A, b=[repr(float(v)) for v in column], y=A)
    )
    more: dict[str, Any] = {}
    if path.suffix == ".npz":
        np.savez(path, x=np.column_stack([A, column]), y=A)
        more = {"data.target": ""}
    with pytest.raises(CodedflError, match=words) as error:
        run(path, tmp_path, scheme=scheme, **more)
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("scheme", ["sealed-coded", "one-shot", "secagg", "coded-padded"])
def test_small_targets_of_kernel_features_are_no_breach(scheme: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", a=A, b=A[::-1] * 1e4, y=[repr(float(v)) for v in 1e-8 * np.sin(A)])
    more = {"features.kind": "rbf", "features.dimension": 20, "features.gamma": 0.3}
    done = run(path, tmp_path, scheme=scheme, **more)
    found = codedfl.load_model(done.path).predict({"a": A, "b": A[::-1] * 1e4})
    assert np.corrcoef(found, np.sin(A))[0, 1] > 0.9


def test_plan_takes_large_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", a=A, b=A * 3.5e13, y=A, owner=["u", "v", "w"] * 20)
    settings = {"data.source": str(path), "data.target": "y", "partition.kind": "column", "partition.column": "owner"}
    plan = codedfl.plan("own-data", ["sealed-coded", "conventional"], settings, draws=5)
    assert {offer.scheme.name for offer in plan.offers} == {"sealed-coded", "conventional"}
