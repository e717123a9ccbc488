"""Preparation of columns by declared ranges, for differential privacy: nothing about it is computed from the data.

With q raw columns, a numeric column is moved to its range, shifted by the midpoint and divided by half the width and by
sqrt(q + 1); a category is 0 or 1 / sqrt(q + 1). A constant 1 / sqrt(q + 1) carries the intercept. Of the categories of
a text column one is 1, so rows have a norm of at most 1 whatever the data. Each of c targets is scaled to
[-1, 1] / sqrt(c). The ridge weight is that of columns and a constant without the division by sqrt(q + 1). Before random
features of a kernel, columns are scaled to [-1, 1]; the constant is 1 there, if it is wanted.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from codedfl.data import Column, Dataset, Preparation, Rows
from codedfl.errors import DataError, ScenarioError
from codedfl.scenario import ColumnRange, Scenario
from codedfl.scenario.privacy import EVERY_COLUMN
from codedfl.settings import did_you_mean
from codedfl.task.description import Description

_SHOWN = 20
"""Names of columns that a sentence lists."""
_CATEGORY = ColumnRange(name="category", low=0, high=1)


def ranged_preparation(scenario: Scenario, loaded: Dataset) -> Preparation | None:
    """Return the preparation of data by declared ranges; None where there is no noise or columns stay as they are.

    Numeric columns without a declared range are refused, and text columns without declared categories.
    """
    if not scenario.private or scenario.data.named:
        return None
    described = Description.of_data(loaded, None)
    targets = () if described.classes else described.targets
    _check_declared(scenario, described.columns, targets)
    return _preparation(scenario, described.columns, targets, loaded.outputs) if scenario.ranged else None


def declared_columns(scenario: Scenario, *, regression: bool) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns of all sites as a scenario declares them, in the order of the model, and the targets."""
    data, ranges = scenario.data, [each.name for each in scenario.privacy.columns]
    if EVERY_COLUMN in ranges:
        raise ScenarioError(f"privacy.columns give a range of '{EVERY_COLUMN}'; on sites name every column")
    if regression and not data.target:
        raise ScenarioError("data.target is empty; name the target, because sites scale it by its range")
    targets = tuple(name.strip() for name in data.target.split(",")) if regression else ()
    texts = [Column(each.column, each.values) for each in scenario.features.categories]
    return (*(Column(name) for name in ranges if name not in targets), *texts), targets


def declared_preparation(scenario: Scenario, outputs: int, *, regression: bool) -> Preparation:
    """Return how all sites prepare their columns."""
    return _preparation(scenario, *declared_columns(scenario, regression=regression), outputs)


def declared_rows(scenario: Scenario, rows: Rows) -> tuple[Rows, Preparation | None]:
    """Return the rows of a site with columns in the declared order, and how they are prepared: None, if not by ranges.

    Columns about which nothing is declared are refused.
    """
    if not scenario.private:
        return rows, None
    regression, outputs = rows.kind == "regression", rows.targets.shape[1]
    own = Description.create(rows.x.shape[1], outputs, rows.columns, rows.target_names, rows.classes)
    targets = own.targets if regression else ()
    _check_declared(scenario, own.columns, targets)
    if not scenario.ranged:
        return rows, None
    columns, names = declared_columns(scenario, regression=regression)
    if names != targets:
        raise DataError(
            f"the target is {', '.join(targets)} here and data.target = '{scenario.data.target}'; rename it"
        )
    ends = np.cumsum([len(column.inputs) for column in own.columns])
    places = {column.name: slice(end - len(column.inputs), end) for column, end in zip(own.columns, ends, strict=True)}
    if lacking := [column.name for column in columns if column.name not in places]:
        raise DataError(f"there is no column {lacking[0]!r}, which the scenario declares; add it")
    x = np.concatenate([rows.x[:, places[column.name]] for column in columns], axis=1)
    return replace(rows, x=x, columns=columns), _preparation(scenario, columns, names, outputs)


def _preparation(scenario: Scenario, columns: Sequence[Column], targets: Sequence[str], outputs: int) -> Preparation:
    """Return the preparation of columns whose ranges are known; ``targets`` are those of a regression."""
    ranges = {each.name: each for each in scenario.privacy.columns}
    others = ranges.get(EVERY_COLUMN, _CATEGORY)
    whole = [_CATEGORY if column.categories else ranges.get(column.name, others) for column in columns]
    wide = [each for each, column in zip(whole, columns, strict=True) for _ in column.inputs]
    dummies = np.array([bool(column.categories) for column in columns for _ in column.inputs])
    low, high = np.array([each.low for each in wide]), np.array([each.high for each in wide])
    shift, half = np.where(dummies, 0.0, low / 2 + high / 2), np.where(dummies, 1.0, high / 2 - low / 2)
    longest, linear = sqrt(len(columns) + 1), scenario.features.kind == "none"
    found: dict[str, Any] = {
        "shift": shift,
        "unit": half * longest if linear else half,
        "low": low,
        "high": high,
        "fill": None,
    }
    constant = np.array([1 / longest if linear else 1.0]) if scenario.intercept else None
    penalty = np.full(len(shift) + int(scenario.intercept), longest**-2) if linear else None
    found |= {"constant": constant, "penalty": penalty, "feature_shift": None}
    if not targets:
        return Preparation(**found, target_shift=np.zeros(outputs), target_unit=np.ones(outputs))
    ends = np.array([ranges[name].low for name in targets]), np.array([ranges[name].high for name in targets])
    found |= {"target_shift": ends[0] / 2 + ends[1] / 2, "target_unit": (ends[1] / 2 - ends[0] / 2) * sqrt(outputs)}
    return Preparation(**found, target_low=ends[0], target_high=ends[1])


def _check_declared(scenario: Scenario, columns: Sequence[Column], targets: Sequence[str]) -> None:
    """Refuse columns about which nothing is declared, and ranges of no column."""
    numeric, given = [column.name for column in columns if not column.categories], scenario.privacy.columns
    names = [*numeric, *targets]
    if unclear := [name for name in targets if name in numeric]:
        raise ScenarioError(f"a column is called '{unclear[0]}' like the target, so a range is unclear; rename it")
    if unknown := [each.name for each in given if each.name not in (*names, EVERY_COLUMN)]:
        raise ScenarioError(
            f"privacy.columns give a range of '{unknown[0]}', which is no numeric column and no target of a regression"
            f"{did_you_mean(unknown[0], names)}; correct or remove it: ranges are for {_listed(names)}"
        )
    known = {each.name for each in given} | (set(numeric) if EVERY_COLUMN in {each.name for each in given} else set())
    lacking = [name for name in names if name not in known] if scenario.ranged else []
    declared = {each.column for each in scenario.features.categories}
    texts = [column.name for column in columns if column.categories and column.name not in declared]
    needs = []
    if lacking:
        example = f'[[privacy.columns]] name = "{lacking[0]}", low = ..., high = ...'
        needs.append(f"a public range of {_listed(lacking)} ({example})")
    if texts and not scenario.data.tabular:
        example = f'[[features.categories]] column = "{texts[0]}", values = [...]'
        needs.append(f"all possible values of {_listed(texts)} ({example})")
    if needs:
        raise ScenarioError(
            f"privacy.epsilon = {scenario.privacy.epsilon:g} needs {' and '.join(needs)}: declare them (ranges of an "
            "estimator) from what is generally known, not from the data"
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
