"""Damaged, foreign and hostile models: one sentence each, and nothing of them is used."""

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shape_checker
from codedfl.data.preparation import Column
from codedfl.errors import RunDirectoryError
from codedfl.task.model import Model
from task.model.fitted import fitted
from task.model.made import LABELS, made
from tiny import is_one_sentence

Change = Callable[[dict[str, Any]], object]


def arrays(**values: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def bomb() -> bytes:
    """A small file that unpacks to 128 megabytes of zeros."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("theta.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (1 << 24, 1)})
        for _ in range(8):
            member.write(bytes(1 << 24))
    return file.getvalue()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fitted("text", rbf=True).model.save(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path) -> str:
    with pytest.raises(RunDirectoryError) as error:
        Model.load(folder)
    assert is_one_sentence(str(error.value))
    return str(error.value)


TABLES: dict[str, tuple[Change, str]] = {
    "a later format": (lambda t: t.update(schema_version=2), "its format is 2, and this version reads 1"),
    "no format": (lambda t: t.pop("schema_version"), "its format is None"),
    "no columns": (lambda t: t.update(columns=[]), "not those of a classification"),
    "columns that are texts": (lambda t: t.update(columns=["a"]), "'columns' must list tables"),
    "a column twice": (lambda t: t["columns"].append({"name": "size", "categories": []}), "names one thing twice"),
    "a category twice": (lambda t: t["columns"][1]["categories"].append("red"), "names one thing twice"),
    "a name that is a number": (lambda t: t["columns"][0].update(name=5), "'name' is 5"),
    "a column less": (lambda t: t["columns"].pop(), "'shift' of its preparation has shape (5,) instead of (4,)"),
    "a category more": (lambda t: t["columns"][1]["categories"].append("pink"), "instead of (6,)"),
    "a class more": (lambda t: t["classes"].append("dog"), "'target_shift' of its preparation has shape (3,)"),
    "a class twice": (lambda t: t.update(classes=["ant", "ant", "cow"]), "'classes' must be different"),
    "classes of two types": (lambda t: t.update(classes=["ant", 1, "cow"]), "'classes' must be different"),
    "classes that are lists": (lambda t: t.update(classes=[[1], [2], [3]]), "'classes' must be different"),
    "a class of 65 bits": (lambda t: t.update(classes=[1, 2, 2**63]), "more than 64 bits"),
    "a negative class of 65 bits": (lambda t: t.update(classes=[1, 2, -(2**63) - 1]), "more than 64 bits"),
    "a class that is infinite": (lambda t: t.update(classes=[1.0, 2.0, 1e999]), "not JSON"),
    "a single class": (lambda t: t.update(classes=["ant"]), "not those of a classification"),
    "a classification of two columns": (lambda t: t["targets"].append("price"), "not those of a classification"),
    "an unknown loss": (lambda t: t.update(loss="absolute"), "'loss' is 'absolute'"),
    "a regression with classes": (lambda t: t.update(kind="regression"), "not those of a regression"),
    "an unknown kind": (lambda t: t.update(kind="ranking"), "'kind' is 'ranking'"),
    "no targets": (lambda t: t.pop("targets"), "'targets' must list texts"),
    "an unknown feature map": (lambda t: t["features"].update(kind="poly"), "feature map is none of codedfl's"),
    "no dimension": (lambda t: t["features"].update(dimension=0), "feature map is none"),
    "a dimension too many": (lambda t: t["features"].update(dimension=100_001), "feature map is none"),
    "a width of zero": (lambda t: t["features"].update(gamma=0.0), "feature map is none"),
    "a negative seed": (lambda t: t["features"].update(seed=-1), "feature map is none"),
    "a seed of 33 bits": (lambda t: t["features"].update(seed=2**32), "feature map is none"),
    "a width that is text": (lambda t: t["features"].update(gamma="wide"), "'gamma' is 'wide'"),
    "a truth value as number": (lambda t: t["features"].update(seed=True), "'seed' is True"),
    "another dimension": (lambda t: t["features"].update(dimension=41), "'feature_shift' of its preparation"),
    "half precision": (lambda t: t["features"].update(precision="float16"), "feature map is none"),
    "a unit of zero": (lambda t: t["preparation"]["unit"].__setitem__(0, 0.0), "other things than numbers"),
    "a shift that is text": (lambda t: t["preparation"]["shift"].__setitem__(0, "a"), "other things than numbers"),
    "a huge shift": (lambda t: t["preparation"]["shift"].__setitem__(0, 10**400), "other things than numbers"),
    "a huge width": (
        lambda t: t["features"].update(gamma=10**400),
        "'gamma' is beyond the numbers of float64",
    ),
    "a huge ridge": (lambda t: t.update(ridge=10**400), "'ridge' is beyond the numbers of float64"),
    "half a preparation": (lambda t: t["preparation"].pop("unit"), "other things than numbers"),
    "a preparation that is a list": (lambda t: t.update(preparation=[1]), "'preparation' is [1]"),
    "a negative ridge": (lambda t: t.update(ridge=-5e-324), "'ridge' or 'samples'"),
    "no samples": (lambda t: t.update(samples=0), "'ridge' or 'samples'"),
    "no intercept": (lambda t: t.pop("intercept"), "'intercept' is missing"),
    "privacy that is a text": (lambda t: t.update(privacy="much"), "'privacy' is 'much'"),
    "a scheme that is a list": (lambda t: t.update(scheme=[]), "'scheme' is []"),
    "another digest": (lambda t: t["theta"].update(sha256="0" * 64), "model.npz does not belong to model.json"),
    "no digest": (lambda t: t.pop("theta"), "'theta' is missing"),
}


@pytest.mark.parametrize("name", TABLES)
def test_damaged_tables(saved: Path, name: str) -> None:
    change, says = TABLES[name]
    table = json.loads((saved / "model.json").read_text())
    change(table)
    (saved / "model.json").write_text(json.dumps(table))
    assert says in refused(saved)


def changed(model: Model, folder: Path, change: Change) -> dict[str, Any]:
    """Save a model with other entries, and return them."""
    model.save(folder)
    table: dict[str, Any] = json.loads((folder / "model.json").read_text())
    change(table)
    (folder / "model.json").write_text(json.dumps(table))
    return table


RANGES: dict[str, tuple[Change, str]] = {
    "ranges of fewer inputs": (lambda p: p.update(low=[-9.0], high=[9.0]), "'low' of its preparation has shape (1,)"),
    "an end of fewer inputs": (lambda p: p.update(high=[99.0]), "'high' of its preparation has shape (1,)"),
    "two constants": (lambda p: p["constant"].append(0.4), "'constant' of its preparation has shape (2,)"),
    "an empty constant": (lambda p: p["constant"].clear(), "'constant' of its preparation has shape (0,)"),
    "a range of two targets": (
        lambda p: p.update(target_low=[0.0, 0.0], target_high=[1.0, 1.0]),
        "'target_low' of its preparation has shape (2,)",
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_damaged_ranges(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_checker, "CALLS", 0)  # which would refuse them before the product does
    change, says = RANGES[name]
    changed(made("ranges"), tmp_path, lambda table: change(table["preparation"]))
    assert says in refused(tmp_path)


@pytest.mark.parametrize("preparation", ["as they are", "means", "ranges"])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("rbf", [True, False])
def test_what_is_read_is_what_was_saved(tmp_path: Path, preparation: str, labels: tuple[Any, ...], rbf: bool) -> None:
    model = made(preparation, classes=labels, outputs=2, rbf=rbf)
    model.save(tmp_path)
    found = Model.load(tmp_path)
    assert found.to_table() == model.to_table()
    assert np.array_equal(found.theta, model.theta)


def test_losses(tmp_path: Path) -> None:
    """Earlier versions wrote no loss, and trained with squares; a regression knows nothing else."""
    changed(fitted("text").model, tmp_path, lambda table: table.pop("loss"))
    assert Model.load(tmp_path).loss == "squared"
    changed(fitted("text").model, tmp_path, lambda table: table.update(loss="softmax"))
    assert Model.load(tmp_path).loss == "softmax"
    changed(fitted().model, tmp_path, lambda table: table.update(loss="softmax"))
    assert "'loss' is 'softmax'" in refused(tmp_path)


LIMITS: dict[str, Change] = {
    "integers of 64 bits": lambda t: t.update(classes=[2**63 - 1, 0, -(2**63)]),
    "the largest numbers": lambda t: t.update(classes=[sys.float_info.max, 0.0, -sys.float_info.max]),
    "a seed of 32 bits": lambda t: t["features"].update(seed=2**32 - 1),
    "a seed of zero": lambda t: t["features"].update(seed=0),
    "one dimension": lambda t: t["features"].update(dimension=1),
    "100000 dimensions": lambda t: t["features"].update(dimension=100_000),
    "the smallest width": lambda t: t["features"].update(gamma=5e-324),
    "the largest width": lambda t: t["features"].update(gamma=sys.float_info.max),
    "no ridge": lambda t: t.update(ridge=0.0),
    "one sample": lambda t: t.update(samples=1),
}


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_at_their_limits_are_kept(tmp_path: Path, name: str) -> None:
    table = changed(fitted("integers").model, tmp_path, LIMITS[name])
    assert Model.load(tmp_path).to_table() == table


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"gamma": 0.1', '"gamma": 1e999', "'gamma' is beyond the numbers of float64"),
        ('"ridge": 0.01', '"ridge": -1e999', "'ridge' is beyond the numbers of float64"),
        ("1.0,", "1e999,", "'classes' holds a number that is not finite"),
    ],
)
def test_numbers_beyond_float64(tmp_path: Path, before: str, after: str, says: str) -> None:
    """Python reads a number with such an exponent as infinite."""
    fitted("numbers").model.save(tmp_path)
    text = (tmp_path / "model.json").read_text()
    assert before in text
    (tmp_path / "model.json").write_text(text.replace(before, after))
    assert says in refused(tmp_path)


TEXTS = {
    "empty": b"",
    "cut": b'{"schema_version": 1, "kind"',
    "a list": b"[]",
    "no text": b"\xff\xfe\x00",
    "nested": b"[" * 200_000,
    "long numbers": b'{"schema_version": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", TEXTS)
def test_tables_that_are_none(saved: Path, name: str) -> None:
    (saved / "model.json").write_bytes(TEXTS[name])
    assert "model.json" in refused(saved)


def test_a_huge_table(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (saved / "model.json").read_text().strip()
    size = (saved / "model.json").write_text(text)
    monkeypatch.setattr("codedfl.task.model.reading._LARGEST_JSON", size)
    assert Model.load(saved)
    (saved / "model.json").write_text(text + " ")
    assert "model.json is not JSON" in refused(saved)


THETA = np.zeros((40, 3))
ARRAYS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no array theta"),
    "garbage": (b"PK\x03\x04 is how it begins", "holds no array theta"),
    "a pickle": (pickle.dumps(THETA), "holds no array theta"),
    "objects": (arrays(theta=np.array([[{}] * 3] * 40, dtype=object)), "holds no array theta"),
    "another name": (arrays(model=THETA), "holds no array theta"),
    "another shape": (arrays(theta=THETA.T), "shape (3, 40)"),
    "too large": (arrays(theta=np.zeros((4000, 3))), "theta has another shape"),
    "whole numbers": (arrays(theta=THETA.astype(np.int64)), "int64"),
    "not finite": (arrays(theta=THETA + np.nan), "not finite"),
    "other numbers": (arrays(theta=THETA), "does not belong"),
    "cut": (arrays(theta=THETA)[:-60], "holds no array theta"),
}


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_single_weight_that_is_not_finite(tmp_path: Path, number: float) -> None:
    model = fitted("text").model
    theta = model.theta.copy()
    theta[1, 2] = number
    replace(model, theta=theta).save(tmp_path)
    assert "theta holds numbers that are not finite" in refused(tmp_path)


WIDE = tuple(Column(f"x{number}") for number in range(2000))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_large_models_of_both_precisions(tmp_path: Path, precision: str) -> None:
    """Their numbers take more than what is allowed for a header."""
    model = made("as they are", columns=WIDE, outputs=3, precision=precision)
    model.save(tmp_path)
    found = Model.load(tmp_path).theta
    assert found.dtype == precision
    assert np.array_equal(found, model.theta)


def test_no_more_is_unpacked_than_the_numbers_take(tmp_path: Path) -> None:
    made("as they are", columns=WIDE, outputs=3).save(tmp_path)
    (tmp_path / "model.npz").write_bytes(arrays(theta=np.zeros((len(WIDE) + 60, 3))))
    assert "theta has another shape" in refused(tmp_path), "what is said of an array that was unpacked differs"


@pytest.mark.parametrize("name", ARRAYS)
def test_damaged_arrays(saved: Path, name: str) -> None:
    content, says = ARRAYS[name]
    (saved / "model.npz").write_bytes(content)
    assert says in refused(saved)


def test_a_bomb_is_refused_before_it_is_unpacked(saved: Path) -> None:
    content = bomb()
    assert len(content) < 1 << 18
    (saved / "model.npz").write_bytes(content)
    assert "theta has another shape" in refused(saved), "what is said of an array that was unpacked is another sentence"


def test_a_flipped_bit(saved: Path) -> None:
    content = bytearray((saved / "model.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (saved / "model.npz").write_bytes(bytes(content))
    refused(saved)


class TestFolders:
    def test_no_such_folder(self, tmp_path: Path) -> None:
        assert "there is no folder" in refused(tmp_path / "nothing")

    def test_a_file(self, saved: Path) -> None:
        assert "model.npz' holds no model.json" in refused(saved / "model.npz")

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        assert "holds no model.json; give a finished run" in refused(tmp_path)

    def test_no_matrix(self, saved: Path) -> None:
        (saved / "model.npz").unlink()
        assert "model.npz is missing" in refused(saved)

    def test_an_unfinished_run(self, saved: Path) -> None:
        (saved.parent / "scenario.toml").write_text("")
        assert "is not a finished run, so it has no model" in refused(saved.parent)

    def test_a_run_without_model(self, tmp_path: Path) -> None:
        for name in ("scenario.toml", "summary.json"):
            (tmp_path / name).write_text("")
        assert "has no folder 'model'" in refused(tmp_path)

    def test_a_name_too_long(self, tmp_path: Path) -> None:
        assert "cannot read" in refused(tmp_path / ("n" * 300))
