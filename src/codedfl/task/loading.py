"""Loading of a scenario's data: the raw rows of every device, the feature map, and the first model of a training."""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from codedfl import data
from codedfl.data.files import owner_count
from codedfl.errors import ScenarioError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.task.folds import DeviceRows, held_out_rows


def load_data(scenario: Scenario, progress: Progress = silent) -> data.Dataset:
    """Load the raw data of a scenario, without features; what is to be prepared is not rounded before."""
    wanted, split = scenario.data, scenario.partition
    return data.load(
        wanted.source,
        kind=wanted.kind,
        target=wanted.target or None,
        test_path=wanted.test_source or None,
        test_fraction=wanted.test_fraction,
        seed=wanted.seed,
        dtype="float64" if scenario.prepared else scenario.precision,
        owner=split.column,
        by_file=split.kind == "files",
        categories=declared_categories(scenario),
        missing=scenario.features.missing,
        progress=progress,
    )


def declared_categories(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    """Return the declared categories by column."""
    return {each.column: each.values for each in scenario.features.categories}


def with_owners(scenario: Scenario) -> Scenario:
    """Return the scenario with one device for each owner, where the data name owners."""
    if not scenario.partition.by_owner or scenario.data.named or scenario.data.elsewhere:
        return scenario
    kind, column = scenario.partition.kind, scenario.partition.column
    source = str(data.resolve(scenario.data.source, column))
    return scenario.with_devices(owner_count(source, column, by_file=kind == "files"))


def partition_rows(
    scenario: Scenario,
    labels: Shaped[np.ndarray, "n ..."],
    samples: int,
    owners: Shaped[np.ndarray, "n"] | None = None,
) -> tuple[Int[np.ndarray, "_"], ...]:
    """Return the row numbers of each device of a scenario."""
    options = {name: value for name, value in vars(scenario.partition).items() if name != "column"}
    return data.partition(labels, samples, scenario.fleet.size, owners=owners, **options)


def divide_rows(
    scenario: Scenario, parts: Sequence[Int[np.ndarray, "_"]]
) -> tuple[tuple[Int[np.ndarray, "_"], ...], tuple[Int[np.ndarray, "_"], ...]]:
    """Return the row numbers that each device trains on, and those that it holds out."""
    share, seed = scenario.data.held_out, scenario.data.seed
    held = [held_out_rows(len(rows), share, seed=seed, device=device) for device, rows in enumerate(parts)]
    pairs = list(zip(parts, held, strict=True))
    return tuple(rows[~out] for rows, out in pairs), tuple(rows[out] for rows, out in pairs)


def feature_map(scenario: Scenario, inputs: int) -> data.FeatureMap:
    """Return the map from prepared inputs to features, the same on every device of a scenario."""
    wanted = scenario.features
    drawn: dict[str, Any] = {"dimension": wanted.dimension, "gamma": wanted.gamma, "seed": wanted.seed}
    return data.FeatureMap.create(wanted.kind, inputs=inputs, dtype=scenario.precision, **drawn)


@final
@dataclass(frozen=True, eq=False)
class RawData:
    """The raw rows of all devices and of the test set, and the feature map."""

    loaded: data.Dataset
    parts: tuple[Int[np.ndarray, "_"], ...]
    """The rows that each device trains on."""
    held: tuple[Int[np.ndarray, "_"], ...]
    """The rows that each device holds out."""
    features: data.FeatureMap

    @classmethod
    def load(cls, scenario: Scenario, progress: Progress = silent) -> "RawData":
        """Load and partition the data of a scenario."""
        return cls.create(scenario, load_data(scenario, progress))

    @classmethod
    def create(cls, scenario: Scenario, loaded: data.Dataset) -> "RawData":
        """Partition data as a scenario says."""
        parts = partition_rows(scenario, loaded.y_train, loaded.samples, loaded.owners)
        return cls(loaded, *divide_rows(scenario, parts), feature_map(scenario, loaded.inputs))

    def device(self, index: int) -> DeviceRows:
        """Return the rows that a device trains on."""
        return self._rows(self.parts[index])

    def held_out(self, index: int) -> DeviceRows:
        """Return the rows that a device holds out."""
        return self._rows(self.held[index])

    def _rows(self, rows: Int[np.ndarray, "n"]) -> DeviceRows:
        return DeviceRows(self.loaded.x_train[rows], self.loaded.targets(self.loaded.y_train[rows]))

    @property
    def dummies(self) -> Bool[np.ndarray, "p"]:
        """Which inputs stand for categories."""
        columns = self.loaded.columns
        if not columns:
            return np.zeros(self.loaded.inputs, bool)
        return np.array([bool(column.categories) for column in columns for _ in column.inputs])

    @property
    def owners(self) -> tuple[str, ...]:
        """The owner of each device, where the data name them."""
        owners = self.loaded.owners
        return () if owners is None else tuple(str(owners[rows[0]]) for rows in self.parts)


_UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, SyntaxError, RuntimeError, MemoryError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What a damaged or foreign file raises when arrays are read from it."""


def load_start(scenario: Scenario, shape: tuple[int, int]) -> Float[np.ndarray, "d c"] | None:
    """Read the first model of a training; None: zero."""
    path = scenario.training.start
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = np.asarray(arrays["theta"])
        if found.dtype.kind not in "fiu":
            raise TypeError(f"theta holds {found.dtype}")
        model = found.astype(np.float64)
    except _UNREADABLE:
        raise ScenarioError(
            f"training.start = '{path}' holds no array theta of real numbers; give the model.npz of a finished run"
        ) from None
    if model.shape != shape or not np.isfinite(model).all():
        wrong = f"has shape {model.shape}" if model.shape != shape else "holds numbers that are not finite"
        raise ScenarioError(f"the model of training.start = '{path}' {wrong}; this task needs finite {shape}")
    return model
