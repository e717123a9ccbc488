"""The user's own data: .npz, .parquet and .csv files."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from codedfl.data.dataset import Dataset, check_finite, classification, regression
from codedfl.data.tables import Part, read_table
from codedfl.errors import DataError, ScenarioError

FILE_ENDINGS = (".npz", ".parquet", ".csv")
LARGEST_CLASS_COUNT = 100


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
    """Load the user's own features and targets.

    A ``.npz`` holds ``x_train, y_train, x_test, y_test``, or ``x`` and ``y``; a table (``.parquet``, ``.csv``) holds
    the column ``target`` (by default the last; several, separated by commas, for a regression) and numeric features.
    Without separate test samples a fraction of each class is drawn for testing. ``auto`` means a classification where
    the target holds at most 100 different whole numbers, texts or truth values.
    """
    if kind not in ("auto", "classification", "regression"):
        raise ScenarioError(f"the kind {kind!r} is unknown; choose auto, classification or regression.")
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    name = Path(path).stem
    train, test = read_parts(Path(path), target)
    if test_path is not None:
        if test is not None:
            raise ScenarioError(
                f"{path} already holds test samples, so the test file {test_path} is one too many; give only one."
            )
        test = _test_part(Path(test_path), target, train)
    chosen = kind_of(name, train.y) if kind == "auto" else kind
    if test is None:
        check_finite(name, "features", train.x)  # before the split, so that the row is that of the file
        train, test = _split(train, chosen, test_fraction, seed)
    x_train, x_test = numbers(train.x, dtype), numbers(test.x, dtype)
    if chosen == "classification":
        return classification(name, x_train, train.y, x_test, test.y)
    for y in (train.y, test.y):
        check_numeric_target(name, y)
    return regression(name, x_train, numbers(train.y, dtype), x_test, numbers(test.y, dtype))


def read_parts(path: Path, target: str | None) -> tuple[Part, Part | None]:
    """Read the training samples of a file, and the test samples where it separates them."""
    if path.suffix.lower() not in FILE_ENDINGS:
        raise DataError(f"{path} has the ending {path.suffix!r}; give a file that ends in {', '.join(FILE_ENDINGS)}.")
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path.")
    if path.suffix.lower() != ".npz":
        return read_table(path, target), None
    if target is not None:
        raise ScenarioError(
            f"the target {target!r} names a column of a table, but {path} is a .npz whose targets are y;"
            " leave the target out."
        )
    return _read_npz(path)


def _read_npz(path: Path) -> tuple[Part, Part | None]:
    try:
        # np.load would also accept a single array or a pickle
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name.lower(): archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        # NumPy refuses object arrays, which could execute code of the file's author
        cause = "it holds objects instead of numbers" if "bject array" in str(error) else str(error)
        raise DataError(f"{path} cannot be read as .npz ({cause}); save plain numeric arrays.") from error
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        return _part(arrays, path, "x_train", "y_train"), _part(arrays, path, "x_test", "y_test")
    if {"x", "y"} <= arrays.keys():
        return _part(arrays, path, "x", "y"), None
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
    test, surplus = read_parts(path, target)
    if surplus is not None:
        raise DataError(f"the test file {path} holds a training part of its own; save only x and y in it.")
    if train.columns != test.columns and train.columns and test.columns:
        odd = sorted(set(train.columns) ^ set(test.columns)) or ["their order"]
        raise DataError(
            f"the test file {path} has other feature columns than the training file (they differ in"
            f" {', '.join(odd[:5])}); give both the same columns in the same order."
        )
    return test


def kind_of(name: str, y: Shaped[np.ndarray, "..."]) -> str:
    """Return classification or regression, by the type of the targets."""
    if y.ndim == 1 and y.dtype.kind in "biuUS" and len(np.unique(y)) <= LARGEST_CLASS_COUNT:
        return "classification"
    if y.dtype.kind in "US":
        raise DataError(
            f"{name}: the target is text of more than {LARGEST_CLASS_COUNT} kinds, so it looks like neither"
            " classes nor numbers; name another target or ask for a classification."
        )
    return "regression"


def _split(part: Part, kind: str, fraction: float | int, seed: int) -> tuple[Part, Part]:
    """Draw the test samples, the same fraction of each class, so that the training set keeps every class."""
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


def check_numeric_target(name: str, y: Shaped[np.ndarray, "..."]) -> None:
    """Refuse text as target of a regression."""
    if y.dtype.kind in "US":
        raise DataError(
            f"{name}: the target is text ({y.reshape(-1)[0]!r} for one), but a regression needs numbers;"
            " name another target or ask for a classification."
        )


def numbers(values: Shaped[np.ndarray, "..."], dtype: str) -> Any:
    """Return contiguous values in the precision of a scenario."""
    # values that overflow float32 become infinite, and check_finite refuses them with their position
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=dtype)
