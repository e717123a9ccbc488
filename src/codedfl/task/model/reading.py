"""Reading of saved models. A model file may be damaged, foreign or made to do harm, so every value is checked."""

import io
import json
import math
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from codedfl.data.preparation import Column, Preparation
from codedfl.errors import CodedflError, RunDirectoryError
from codedfl.storage import DAMAGED
from codedfl.task.description import Description, Label
from codedfl.task.losses import SOFTMAX, SQUARED
from codedfl.task.model.model import SCHEMA, FeatureSettings, Model, digest

_LARGEST_JSON = 256 << 20
_LARGEST_DIMENSION = 100_000
_HEADER = 1024
"""More than an array's header in a .npz takes."""


class _DamagedError(Exception):
    """What is wrong with a model, in words."""


def read_model(path: Path) -> Model:
    """Read the model of a finished run, or of a folder with model.json and model.npz."""
    folder = _folder(path)
    try:
        table = _table(folder / "model.json")
        if table.get("schema_version") != SCHEMA:
            raise _DamagedError(f"its format is {table.get('schema_version')!r:.40}, and this version reads {SCHEMA}")
        return _model(folder, table)
    except _DamagedError as error:
        raise RunDirectoryError(f"the model '{folder}' cannot be used: {error}; copy it again or train again") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot read the model '{folder}' ({error.strerror}); check the path") from None


def _folder(path: Path) -> Path:
    """Find the folder of the model; refuse what is neither a model nor a finished run."""
    try:
        if (path / "scenario.toml").is_file() and not (path / "summary.json").is_file():
            raise RunDirectoryError(f"'{path}' is not a finished run, so it has no model; run it (again)")
        for folder in (path, path / "model"):
            if (folder / "model.json").is_file():
                return folder
        if (path / "summary.json").is_file():
            raise RunDirectoryError(
                f"the run '{path}' has no folder 'model': its server did not know the columns, or an earlier version "
                "trained it; train again"
            )
        there = path.exists()
    except OSError as error:
        raise RunDirectoryError(f"cannot read the model '{path}' ({error.strerror}); check the path") from None
    wrong = f"'{path}' holds no model.json" if there else f"there is no folder '{path}'"
    raise RunDirectoryError(f"{wrong}; give a finished run, its folder 'model', or a copy of that")


def _table(path: Path) -> dict[str, Any]:
    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    with path.open("rb") as file:
        text = file.read(_LARGEST_JSON + 1)
    try:
        if len(text) > _LARGEST_JSON:
            raise ValueError("too large")
        table = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise _DamagedError("model.json is not JSON") from None
    if not isinstance(table, dict):
        raise _DamagedError("model.json holds no table")
    return table


def _get(table: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """Return an entry of a type; truth values do not count as numbers."""
    value = table.get(key)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise _DamagedError(f"'{key}' is {value!r:.40}" if key in table else f"'{key}' is missing")
    if isinstance(value, int | float) and abs(value) > sys.float_info.max:
        raise _DamagedError(f"'{key}' is beyond the numbers of float64")
    return value


def _texts(values: Any, what: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _DamagedError(f"'{what}' must list texts")
    if len(set(values)) < len(values):
        raise _DamagedError(f"'{what}' names one thing twice")
    return tuple(values)


def _model(folder: Path, table: Mapping[str, Any]) -> Model:
    kind = _get(table, "kind", str)
    if kind not in ("classification", "regression"):
        raise _DamagedError(f"'kind' is {kind!r:.40}")
    features, described = _features(_get(table, "features", dict)), _description(table, kind)
    inputs = sum(len(column.inputs) for column in described.columns)
    d = (inputs if features.kind == "none" else features.dimension) + described.constants
    c = len(described.classes) or len(described.targets)
    _check_preparation(described.preparation, inputs, d, c)
    if _get(table, "ridge", (int, float)) < 0 or _get(table, "samples", int) < 1:
        raise _DamagedError("'ridge' or 'samples' is negative")
    loss = _get(table, "loss", str) if "loss" in table else SQUARED  # earlier versions knew no other
    if loss not in ((SQUARED, SOFTMAX) if kind == "classification" else (SQUARED,)):
        raise _DamagedError(f"'loss' is {loss!r:.40}")
    return Model(
        theta=_theta(folder / "model.npz", _get(table, "theta", dict), (d, c)),
        kind=kind,
        description=described,
        features=features,
        ridge=float(table["ridge"]),
        intercept=_get(table, "intercept", bool),
        samples=table["samples"],
        loss=loss,
        privacy=_get(table, "privacy", (dict, type(None))),
        **{name: _get(table, name, str) for name in ("scheme", "scenario_id", "version")},
    )


def _features(table: Mapping[str, Any]) -> FeatureSettings:
    found = FeatureSettings(
        _get(table, "kind", str),
        _get(table, "dimension", int),
        float(_get(table, "gamma", (int, float))),
        _get(table, "seed", int),
        _get(table, "precision", str),
    )
    sound = found.kind in ("rbf", "none") and found.precision in ("float32", "float64")
    if not (sound and 1 <= found.dimension <= _LARGEST_DIMENSION and found.gamma > 0 and 0 <= found.seed < 2**32):
        raise _DamagedError("its feature map is none of codedfl's")
    return found


def _description(table: Mapping[str, Any], kind: str) -> Description:
    columns = []
    for entry in _get(table, "columns", list):
        if not isinstance(entry, dict):
            raise _DamagedError("'columns' must list tables")
        columns.append(Column(_get(entry, "name", str), _texts(entry.get("categories"), "categories")))
    _texts([column.name for column in columns], "columns")
    targets = _texts(table.get("targets"), "targets")
    classes = _labels(_get(table, "classes", list))
    single = len(classes) >= 2 and len(targets) == 1 if kind == "classification" else not classes and targets
    if not columns or not single:
        raise _DamagedError(f"its columns, targets or classes are not those of a {kind}")
    prepared = _get(table, "preparation", (dict, type(None)))
    try:
        found = None if prepared is None else Preparation.from_table(prepared)
        return Description(tuple(columns), targets, classes, found)
    except (CodedflError, RecursionError):
        raise _DamagedError("its preparation of columns holds other things than numbers") from None


def _labels(values: list[Any]) -> tuple[Label, ...]:
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, bool, int, float} or len(set(values)) < len(values):
        raise _DamagedError("'classes' must be different texts, numbers or truth values")
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        raise _DamagedError("'classes' holds a number that is not finite")
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        raise _DamagedError("'classes' holds a number of more than 64 bits")
    return tuple(values)


def _check_preparation(prepared: Preparation | None, inputs: int, d: int, c: int) -> None:
    if prepared is None:
        return
    shapes = {"shift": inputs, "unit": inputs, "fill": inputs, "feature_shift": d, "penalty": d}
    shapes |= {"low": inputs, "high": inputs, "constant": 1}
    shapes |= dict.fromkeys(("target_shift", "target_unit", "target_low", "target_high"), c)
    for name, length in shapes.items():
        value = getattr(prepared, name)
        if value is not None and value.shape != (length,):
            raise _DamagedError(f"'{name}' of its preparation has shape {value.shape} instead of ({length},)")


def _theta(path: Path, table: Mapping[str, Any], shape: tuple[int, int]) -> Float[np.ndarray, "d c"]:
    """Read theta; its size is known before anything is unpacked."""
    if not path.is_file():
        raise _DamagedError("model.npz is missing")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("theta.npy").file_size > 8 * shape[0] * shape[1] + _HEADER:
                raise _DamagedError(f"theta has another shape than its columns and outputs need, {shape}")
            packed = archive.read("theta.npy")
        theta = np.lib.format.read_array(io.BytesIO(packed), allow_pickle=False)
        if theta.shape != shape or theta.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise _DamagedError(f"theta has shape {theta.shape} of {theta.dtype} instead of {shape}")
    except DAMAGED:
        raise _DamagedError("model.npz holds no array theta") from None
    if not np.isfinite(theta).all():
        raise _DamagedError("theta holds numbers that are not finite")
    if digest(theta) != _get(table, "sha256", str):
        raise _DamagedError("model.npz does not belong to model.json")
    return theta
