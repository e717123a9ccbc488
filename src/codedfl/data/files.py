"""The user's own features: .npz, .parquet and .csv files."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from codedfl.data.dataset import Dataset, check_finite, classification, regression
from codedfl.data.tables import Part, read_table
from codedfl.errors import DataError, ScenarioError

FILE_ENDINGS = (".npz", ".parquet", ".csv")
LARGEST_CLASS_COUNT = 100


@dataclass(frozen=True)
class Parts:
    """What a file holds: training samples, and test samples where it separates them."""

    train: Part
    test: Part | None


def load_file(
    path: str | Path,
    *,
    kind: str = "auto",
    target: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float | int = 0.2,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Load features and targets of the user's own.

    A ``.npz`` holds ``x_train, y_train, x_test, y_test``, or ``x`` and ``y``; a table (``.parquet``,
    ``.csv``) holds the column ``target`` (by default the last; several, separated by commas, for a
    regression) and numeric features. Without separate test samples a fraction of each class is drawn
    for testing. ``auto`` takes whole numbers, text and truth values of at most 100 kinds for classes.
    """
    if kind not in ("auto", "classification", "regression"):
        raise ScenarioError(f"the kind {kind!r} is unknown; choose auto, classification or regression.")
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    parts = read_parts(Path(path), target)
    name = Path(path).stem
    if test_path is not None:
        if parts.test is not None:
            raise ScenarioError(
                f"{path} already holds test samples, so the test file {test_path} is one too many;"
                " give only one of them."
            )
        parts = Parts(parts.train, _test_part(Path(test_path), target, parts.train))
    chosen = kind_of(name, parts.train.y) if kind == "auto" else kind
    train, test = parts.train, parts.test
    if test is None:
        check_finite(name, "features", train.x)  # before the split, so that the row is that of the file
        train, test = _split(train, chosen, test_fraction, seed)
    return _assemble(name, chosen, train, test, dtype)


def read_parts(path: Path, target: str | None) -> Parts:
    """Read a file as it is."""
    if path.suffix.lower() not in FILE_ENDINGS:
        raise DataError(f"{path} has the ending {path.suffix!r}; give a file that ends in {', '.join(FILE_ENDINGS)}.")
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path.")
    if path.suffix.lower() != ".npz":
        return Parts(read_table(path, target), None)
    if target is not None:
        raise ScenarioError(
            f"the target {target!r} names a column of a table, but {path} is a .npz whose targets are y;"
            " leave the target out."
        )
    return _read_npz(path)


def _read_npz(path: Path) -> Parts:
    try:
        # np.load would also take a lone array or a pickle under this name; only an archive is meant
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name.lower(): archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        # numpy says "Object arrays cannot be loaded": they would run code of the file's author
        cause = "it holds objects instead of numbers" if "bject array" in str(error) else str(error)
        raise DataError(f"{path} cannot be read as .npz ({cause}); save plain numeric arrays.") from error
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        return Parts(_part(arrays, path, "x_train", "y_train"), _part(arrays, path, "x_test", "y_test"))
    if {"x", "y"} <= arrays.keys():
        return Parts(_part(arrays, path, "x", "y"), None)
    raise DataError(
        f"{path} holds the arrays {', '.join(arrays) or 'none'};"
        " it must hold x_train, y_train, x_test and y_test, or x and y."
    )


def _part(arrays: Mapping[str, Shaped[np.ndarray, "..."]], path: Path, x_name: str, y_name: str) -> Part:
    x, y = arrays[x_name], arrays[y_name]
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path}: {x_name} holds {x.dtype}, which is not a real number; save numeric features.")
    if y.dtype.kind not in "biufUS":
        raise DataError(f"{path}: {y_name} holds {y.dtype}; save numbers or text as targets.")
    if y.ndim == 0 or x.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{path}: {x_name} has shape {x.shape} but {y_name} has shape {y.shape}; give one target for each sample."
        )
    return Part(x, y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)


def _test_part(path: Path, target: str | None, train: Part) -> Part:
    parts = read_parts(path, target)
    if parts.test is not None:
        raise DataError(f"the test file {path} holds a training part of its own; save only x and y in it.")
    if train.columns != parts.train.columns and train.columns and parts.train.columns:
        odd = sorted(set(train.columns) ^ set(parts.train.columns)) or ["their order"]
        raise DataError(
            f"the test file {path} has other feature columns than the training file (they differ in"
            f" {', '.join(odd[:5])}); give both the same columns in the same order."
        )
    return parts.train


def kind_of(name: str, y: Shaped[np.ndarray, "..."]) -> str:
    """Tell by the targets what is to be learned."""
    few = y.ndim == 1 and y.dtype.kind in "biuUS" and len(np.unique(y)) <= LARGEST_CLASS_COUNT
    if few:
        return "classification"
    if y.dtype.kind in "US":
        raise DataError(
            f"{name}: the target is text of more than {LARGEST_CLASS_COUNT} kinds, so it looks like neither"
            " classes nor numbers; name another target or ask for a classification."
        )
    return "regression"


def _split(part: Part, kind: str, fraction: float | int, seed: int) -> tuple[Part, Part]:
    """Draw the test samples, from each class the same fraction, so that no class leaves the training set."""
    if not 0 < fraction < 1:
        raise ScenarioError(f"test_fraction is {fraction}; it must lie between 0 and 1.")
    if seed < 0:
        raise ScenarioError(f"the seed of the test split is {seed}; it must not be negative.")
    generator = np.random.default_rng(seed)
    test: Bool[np.ndarray, " m"] = np.zeros(len(part.y), dtype=bool)
    stratified = kind == "classification" and part.y.ndim == 1
    groups = np.unique(part.y, return_inverse=True)[1] if stratified else np.zeros(len(part.y), int)
    for group in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == group))
        test[members[: min(round(fraction * len(members)), len(members) - 1)]] = True
    if not test.any():
        raise DataError(
            f"a test_fraction of {fraction} of {len(part.y)} samples leaves no test sample;"
            " raise it or give a test file."
        )
    return part.rows(~test), part.rows(test)


def _assemble(name: str, kind: str, train: Part, test: Part, dtype: str) -> Dataset:
    x_train, x_test = numbers(train.x, dtype), numbers(test.x, dtype)
    if kind == "classification":
        return classification(name, x_train, train.y, x_test, test.y)
    for y in (train.y, test.y):
        if y.dtype.kind in "US":
            raise DataError(
                f"{name}: the target is text ({y.reshape(-1)[0]!r} for one), but a regression needs numbers;"
                " name another target or ask for a classification."
            )
    return regression(name, x_train, numbers(train.y, dtype), x_test, numbers(test.y, dtype))


def numbers(values: Shaped[np.ndarray, "..."], dtype: str) -> Any:
    """Return values in the precision of a scenario."""
    # what overflows float32 becomes infinite here and is refused, with its place, by the data set's check
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=dtype)
