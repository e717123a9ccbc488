"""The user's own data: .npz, .parquet and .csv files."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from codedfl.data.dataset import Dataset, check_finite, classification, regression
from codedfl.data.preparation import Column
from codedfl.data.tables import Declared, Part, open_table, owner_values, read_table, read_tables
from codedfl.errors import DataError, ScenarioError
from codedfl.storage import DAMAGED

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
    owner: str = "",
    by_file: bool = False,
    categories: Declared | None = None,
    missing: str = "refuse",
) -> Dataset:
    """Load the user's own features and targets.

    A ``.npz`` holds ``x_train, y_train, x_test, y_test``, or ``x`` and ``y``; a table (``.parquet``, ``.csv``) holds
    the column ``target`` (by default the last; several, separated by commas, for a regression) and features. Text
    becomes columns of zeros and ones for its ``categories``, by default those found. The column ``owner`` names the
    owner of each row; with ``by_file``, ``path`` is a pattern and each file is an owner's.
    Without separate test samples a fraction of each class is drawn for testing; every owner keeps a training row.
    ``auto`` means a classification where the target holds at most 100 different whole numbers, texts or truth values.
    """
    if kind not in ("auto", "classification", "regression"):
        raise ScenarioError(f"the kind {kind!r} is unknown; choose auto, classification or regression.")
    if dtype not in ("float32", "float64"):
        raise ScenarioError(f"features cannot be kept as {dtype!r}; choose float32 or float64.")
    name = Path(path).stem.replace("*", "") or "data"
    if by_file:
        train, test = read_tables(owner_files(str(path)), target, categories=categories), None
    else:
        train, test = read_parts(Path(path), target, owner=owner, categories=categories)
    if test_path is not None:
        if test is not None:
            raise ScenarioError(
                f"{path} already holds test samples, so the test file {test_path} is one too many; give only one."
            )
        test = _test_part(Path(test_path), target, train, owner)
    chosen = kind_of(name, train.y, pooled=True) if kind == "auto" else kind
    # before the split, so that the row is that of the file
    by_name = {name: train.x}
    if by_file and train.owners is not None:
        by_name = {str(owner): train.x[train.owners == owner] for owner in np.unique(train.owners)}
    for whose, rows in by_name.items():
        check_finite(whose, "features", rows, train.columns, allow_missing=missing == "mean")
    if test is None:
        train, test = _split(train, chosen, test_fraction, seed)
    else:
        check_finite(name, "test features", test.x, train.columns, allow_missing=missing == "mean")
    x_train, x_test = numbers(train.x, dtype), numbers(test.x, dtype)
    more: dict[str, Any] = {"columns": train.columns, "target_names": train.targets, "owners": train.owners}
    more["missing"] = missing == "mean"
    if chosen == "classification":
        return classification(name, x_train, train.y, x_test, test.y, **more)
    for y in (train.y, test.y):
        check_numeric_target(name, y)
    return regression(name, x_train, numbers(train.y, dtype), x_test, numbers(test.y, dtype), **more)


def owner_files(pattern: str) -> list[Path]:
    """Return the files of a pattern in the order of their names; refuse fewer than two."""
    place = Path(pattern)
    found = sorted(path for path in place.parent.glob(place.name) if path.is_file()) if place.name else []
    if len(found) < 2:
        raise DataError(f"{pattern} matches {len(found)} files; give a pattern such as hospital-*.csv for two or more.")
    for path in found:
        if path.suffix.lower() not in FILE_ENDINGS[1:]:
            raise DataError(f"{path} ends in {path.suffix!r}; owners' files must end in .parquet or .csv.")
    return found


def owner_count(path: str, owner: str, *, by_file: bool) -> int:
    """Return the number of owners of a file or of a pattern of files."""
    if by_file:
        return len(owner_files(path))
    place = Path(path)
    if not place.is_file():
        raise DataError(f"there is no file {path}; check the path.")
    if place.suffix.lower() == ".npz":
        owners = read_parts(place, None, owner=owner)[0].owners
    else:
        owners = owner_values(open_table(place), place, owner)
    return len(np.unique(np.asarray(owners)))


def read_parts(
    path: Path, target: str | None, *, owner: str = "", categories: Declared | None = None
) -> tuple[Part, Part | None]:
    """Read the training samples of a file, and the test samples where it separates them."""
    _check_file(path)
    if path.suffix.lower() != ".npz":
        return read_table(path, target, owner=owner, categories=categories), None
    if target is not None:
        raise ScenarioError(
            f"the target {target!r} names a column of a table, but {path} is a .npz whose targets are y;"
            " leave the target out."
        )
    return _read_npz(path, owner)


def read_rows(path: Path) -> Any:
    """Read rows to predict: a table with named columns, or the array x of a .npz."""
    _check_file(path)
    if path.suffix.lower() != ".npz":
        return open_table(path)
    arrays = _arrays(path)
    if "x" not in arrays:
        raise DataError(f"{path} holds the arrays {', '.join(arrays) or 'none'}; it must hold the rows as x.")
    return arrays["x"]


def _check_file(path: Path) -> None:
    if path.suffix.lower() not in FILE_ENDINGS:
        raise DataError(f"{path} has the ending {path.suffix!r}; give a file that ends in {', '.join(FILE_ENDINGS)}.")
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path.")


def _arrays(path: Path) -> dict[str, Any]:
    try:
        # np.load would also accept a single array or a pickle
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as archive:
            return {name.lower(): archive[name] for name in archive.files}
    except DAMAGED as error:
        # NumPy refuses object arrays, which could execute code of the file's author
        cause = "it holds objects instead of numbers" if "bject array" in str(error) else str(error)
        raise DataError(f"{path} cannot be read as .npz ({cause}); save plain numeric arrays.") from error


def _read_npz(path: Path, owner: str) -> tuple[Part, Part | None]:
    arrays = _arrays(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        return _part(arrays, path, "x_train", "y_train", owner), _part(arrays, path, "x_test", "y_test")
    if {"x", "y"} <= arrays.keys():
        return _part(arrays, path, "x", "y", owner), None
    raise DataError(
        f"{path} holds the arrays {', '.join(arrays) or 'none'};"
        " it must hold x_train, y_train, x_test and y_test, or x and y."
    )


def _part(
    arrays: Mapping[str, Shaped[np.ndarray, "..."]], path: Path, x_name: str, y_name: str, owner: str = ""
) -> Part:
    x, y = arrays[x_name], arrays[y_name]
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path}: {x_name} holds {x.dtype}, which is not a real number; save numeric features.")
    if y.dtype.kind not in "biufUS":
        raise DataError(f"{path}: {y_name} holds {y.dtype}; save numbers or text as targets.")
    if y.ndim == 0 or x.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{path}: {x_name} has shape {x.shape} but {y_name} has shape {y.shape}; give one target for each sample."
        )
    owners = None
    if owner:
        given = arrays.get(owner.lower())
        if given is None or given.shape != (len(x),):
            raise DataError(f"{path} holds no array {owner!r} with the owner of each of {len(x)} samples; add it.")
        owners = given.astype(np.str_)
    columns = tuple(Column(str(number)) for number in range(x.shape[1])) if x.ndim == 2 else ()
    return Part(x, y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, columns, (), owners)


def _test_part(path: Path, target: str | None, train: Part, owner: str) -> Part:
    known = {column.name: column.categories for column in train.columns if column.categories}
    has_owner = owner and path.suffix.lower() in FILE_ENDINGS[1:] and owner in open_table(path).column_names
    test, surplus = read_parts(path, target, owner=owner if has_owner else "", categories=known)
    if surplus is not None:
        raise DataError(f"the test file {path} holds a training part of its own; save only x and y in it.")
    names, own = ([column.name for column in part.columns] for part in (train, test))
    if set(names) != set(own):
        odd = sorted(set(names) ^ set(own))
        raise DataError(
            f"the test file {path} has other feature columns than the training file (they differ in"
            f" {', '.join(odd[:5])}); give both the same columns."
        )
    places, start = {}, 0
    for column in test.columns:
        places[column.name] = range(start, start + len(column.inputs))
        start += len(column.inputs)
    kinds = {column.name: bool(column.categories) for column in test.columns}
    for column in train.columns:
        if kinds[column.name] != bool(column.categories):
            held = "text" if kinds[column.name] else "numbers"
            raise DataError(
                f"the column {column.name!r} of the test file {path} holds {held}, unlike in the training file; give "
                "both the same kind of values."
            )
    order = [place for column in train.columns for place in places[column.name]]
    return Part(test.x[:, order], test.y, train.columns, test.targets)


def kind_of(name: str, y: Shaped[np.ndarray, "..."], *, pooled: bool = False) -> str:
    """Return classification or regression, by the type of the targets.

    With ``pooled``, ``y`` are the targets of all owners: whole numbers of which half or more occur once are no classes.
    """
    if y.ndim == 1 and y.dtype.kind in "biuUS" and (kinds := len(np.unique(y))) <= LARGEST_CLASS_COUNT:
        few = y.dtype.kind not in "iu" or kinds == 2 or 2 * kinds <= len(y)
        if few or not pooled:
            return "classification"
    if y.dtype.kind in "US":
        raise DataError(
            f"{name}: the target is text of more than {LARGEST_CLASS_COUNT} kinds, so it looks like neither"
            " classes nor numbers; name another target or ask for a classification."
        )
    return "regression"


def _split(part: Part, kind: str, fraction: float | int, seed: int) -> tuple[Part, Part]:
    """Draw the test samples, the same fraction of each class, so that the training set keeps every class."""
    if not 0 <= fraction < 1:
        raise ScenarioError(f"test_fraction is {fraction}; it must be at least 0 and below 1.")
    if seed < 0:
        raise ScenarioError(f"the seed of the test split is {seed}; it must not be negative.")
    generator = np.random.default_rng(seed)
    test: Bool[np.ndarray, " m"] = np.zeros(len(part.y), dtype=bool)
    stratified = kind == "classification" and part.y.ndim == 1
    groups = np.unique(part.y, return_inverse=True)[1] if stratified else np.zeros(len(part.y), int)
    for group in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == group))
        test[members[: min(round(fraction * len(members)), len(members) - 1)]] = True
    if part.owners is not None:
        test &= ~_only_rows(part.owners, test)
    if fraction > 0 and not test.any():
        raise DataError(
            f"a test_fraction of {fraction} of {len(part.y)} samples leaves no test sample;"
            " raise it or give a test file."
        )
    return part.rows(~test), part.rows(test)


def _only_rows(owners: Shaped[np.ndarray, " m"], test: Bool[np.ndarray, " m"]) -> Bool[np.ndarray, " m"]:
    """Return the first row of each owner all of whose rows are drawn for testing."""
    _, first, owner = np.unique(owners, return_index=True, return_inverse=True)
    training = np.bincount(owner, weights=~test, minlength=len(first))
    chosen: Bool[np.ndarray, " m"] = np.zeros(len(owners), bool)
    chosen[first[training == 0]] = True
    return chosen


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
