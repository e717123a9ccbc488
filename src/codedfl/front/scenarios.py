"""The scenario of an estimator: a fleet, and parameters in the place of a file's settings."""

import math
from collections.abc import Mapping
from functools import cache
from os import PathLike
from typing import Any

from codedfl.data import Dataset
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario, load
from codedfl.scenario.sections import Features
from codedfl.settings import Settings

_DEVICES = 5
"""Devices that rows are dealt to where neither owners nor a fleet are given."""
_DRAWS = 100
"""Timing draws behind the band of the time."""
OWNERS = "owners"
"""The array that names the owner of each row, where arrays are stored."""


def estimator_scenario(given: Mapping[str, Any], data: Dataset, seed: int) -> Scenario:
    """Return what an estimator with these parameters runs; its ``settings`` come last."""
    base, features = _base(given["fleet"]), {"seed": seed, **_features(given["features"])}
    features |= {"scale": given["scale"], "intercept": given["fit_intercept"], "missing": given["missing"]}
    privacy = _privacy(given, features)
    scheme, ridge = given["scheme"], given["ridge"]
    if scheme == "auto":  # sealed-coded divides the features among workers, so it needs two; noise hides what sums tell
        alone = features.get("kind") == "none" and data.inputs < 2
        scheme = "one-shot" if alone or "epsilon" in privacy else "sealed-coded"
    changes: dict[str, Any] = {
        "name": "estimator",
        "scheme": scheme,
        "data": {"source": "arrays.npz", "kind": data.kind, "test_fraction": 0.0},
        "features": features,
        "task.ridge": ridge.tolist() if hasattr(ridge, "tolist") else ridge,
        "task.accuracy": given["accuracy"],
        **({"task.folds": given["cv"]} if "cv" in given else {}),
        "training.solver": given["solver"],
        "training.tolerance": given["tolerance"],
        "training.targets": [],
        "training.start": None,
        "timing.seed": seed,
        "timing.draws": _DRAWS,
    }
    if privacy:
        changes["privacy"] = privacy
    if data.owners is not None:
        changes["partition"] = {"kind": "column", "column": OWNERS, "seed": seed}
    elif base.partition.by_owner:
        changes["partition"] = {"seed": seed}
    else:
        changes["partition.seed"] = seed
    made = base.with_settings(changes | dict(given["settings"] or {}))
    return made.with_devices(_device_count(given, data, made.fleet.size))


def declared_values(ranges: Mapping[Any, Any] | None) -> dict[str, tuple[str, ...]]:
    """Return the declared values of text columns: those entries of ``ranges`` that list texts."""
    return {
        str(name): tuple(values)
        for name, values in _entries(ranges).items()
        if values and all(isinstance(value, str) for value in values)
    }


def _entries(ranges: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Return ranges whose values are lists; refuse others."""
    if ranges is not None and not isinstance(ranges, Mapping):
        raise ScenarioError(f"ranges = {ranges!r:.60} must map the name of each column to (low, high)")
    for name, values in (ranges or {}).items():
        if not isinstance(values, list | tuple):
            raise ScenarioError(f"ranges[{name!r}] = {values!r:.60} must be (low, high), or a list of texts")
    return dict(ranges or {})


def _privacy(given: Mapping[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """Return the section privacy, and change features as noise needs it: ranges scale them instead of sums."""
    told = {name: given[name] for name in ("epsilon", "delta") if given.get(name) is not None}
    values = declared_values(given.get("ranges"))
    limits = {name: each for name, each in _entries(given.get("ranges")).items() if str(name) not in values}
    for name, each in limits.items():
        if len(each) != 2:
            raise ScenarioError(f"ranges[{name!r}] = {each!r:.60} must be (low, high), or a list of texts")
    if limits:
        told["columns"] = [{"name": str(name), "low": low, "high": high} for name, (low, high) in limits.items()]
    if "epsilon" in told:
        features["categories"] = [{"column": name, "values": each} for name, each in values.items()]
        if features["scale"] == "standard":
            features["scale"] = "auto"
        if features.get("kind") == "rbf":
            told["clip_features"] = _longest(features.get("dimension", Features().dimension), features["intercept"])
    return told


def _longest(dimension: Any, intercept: Any) -> float:
    """Return a norm that few rows exceed: squared, random features add up to 1 with a deviation of 1 / sqrt(2 d)."""
    spread = 4 / math.sqrt(2 * dimension) if isinstance(dimension, int) and dimension > 0 else 0.0
    return math.sqrt(1 + spread + bool(intercept))


def _device_count(given: Mapping[str, Any], data: Dataset, fleet: int) -> int:
    wanted = given["devices"]
    if data.owners is not None:
        owners = len(set(data.owners.tolist()))
        if wanted not in (None, owners):
            raise ScenarioError(f"devices = {wanted!r} but the rows have {owners} owners; leave devices out")
        return owners
    if wanted is None:
        return min(_DEVICES if given["fleet"] is None else fleet, data.samples)
    if not isinstance(wanted, int) or wanted < 1:
        raise ScenarioError(f"devices = {wanted!r} must be a whole number of at least 1")
    return wanted


@cache
def _own_data() -> Scenario:
    return load("own-data")


def _base(fleet: Any) -> Scenario:
    """Return the scenario that a fleet belongs to."""
    if fleet is None:
        return _own_data()
    if isinstance(fleet, Scenario):
        return fleet
    if isinstance(fleet, str | PathLike):
        return load(fleet)
    return _own_data().with_settings({"fleet.devices": fleet})


def _features(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"kind": given}
    if isinstance(given, Settings):
        return given.to_table()
    if isinstance(given, Mapping):
        return dict(given)
    raise ScenarioError(f"features = {given!r} must be 'none', 'rbf' or a table with the keys of [features]")
