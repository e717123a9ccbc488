"""Estimators with noise on tables that nobody has prepared: scores beside scikit-learn's Ridge on pooled rows.

    python -m benchmarks.private_tables

Each table is split in half at random into training and test rows; ranges are round numbers that do not come from the
rows. "pooled" is scikit-learn's StandardScaler before Ridge, and "clear" the estimator without noise, whose model is
the same. Five devices, five noises; R² for values, accuracy for classes. "differs" is the largest difference of
predictions at epsilon 1e6 to the ridge model of the range-scaled columns, fitted by scikit-learn, in deviations of
its predictions.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from codedfl import FederatedRidge, FederatedRidgeClassifier

RIDGE, SEEDS, LARGE = 1e-3, range(5), 1e6
EPSILONS = (1.0, 10.0, LARGE)
SCHEMES = ("one-shot", "sealed-coded")


class Table(NamedTuple):
    """Rows, values or labels, and ranges."""

    x: Any
    y: Any
    ranges: Mapping[str, tuple[float, float]]


def _linear(rows: int, columns: int, seed: int, *, collinear: bool = False, outlier: bool = False) -> Table:
    """Columns in units that differ by up to 10^7, far from zero."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, (rows, columns))
    if collinear:
        u[:, 1::2] = u[:, : columns // 2 * 2 : 2]
    y = 200 + 30 * u @ rng.normal(size=columns) / np.sqrt(columns) + 10 * rng.normal(size=rows)
    unit = 10.0 ** np.arange(columns).clip(max=7)
    x = unit * (3 + u)
    if outlier:
        x[0, 0], y[0] = 1e12, -1e12
    ranges = {str(place): (2 * each, 4 * each) for place, each in enumerate(unit)}
    return Table(x, y, ranges | {"y": (0.0, 400.0)})


def tables() -> dict[str, Table]:
    """Return all tables."""
    diabetes, digits, iris = load_diabetes(scaled=False), load_digits(), load_iris()
    known = [(0, 100), (1, 2), (15, 45), (50, 150), (80, 320), (30, 250), (10, 110), (1, 10), (3, 7), (50, 130)]
    blood = {str(place): each for place, each in enumerate(known)}
    text = _linear(20_000, 6, 5)
    return {
        "diabetes": Table(diabetes.data, diabetes.target, blood | {"y": (0, 400)}),
        "iris": Table(iris.data, iris.target_names[iris.target], {"*": (0, 10)}),
        "digits": Table(digits.data, digits.target, {"*": (0, 16)}),
        "unscaled": _linear(20_000, 8, 0),
        "collinear": _linear(20_000, 8, 1, collinear=True),
        "one outlier": _linear(20_000, 8, 2, outlier=True),
        "wide": _linear(2_000, 200, 3),
        "tiny": _linear(40, 3, 4),
        "text classes": Table(text.x, np.where(text.y > 200, "high", "low"), dict(list(text.ranges.items())[:-1])),
    }


def scaled(table: Table, x: Any) -> Any:
    """Return columns within their ranges, from -1 to 1, and a constant."""
    ends = [table.ranges.get(str(place), table.ranges.get("*", (0, 0))) for place in range(x.shape[1])]
    columns = [np.interp(x[:, place], each, (-1, 1)) for place, each in enumerate(ends)]
    return np.stack([*columns, np.ones(len(x))], axis=1)


def measured(table: Table) -> dict[str, Any]:
    """Return one row of the table for each scheme."""
    order = np.append(0, 1 + np.random.default_rng(0).permutation(len(table.x) - 1))  # the outlier is the first row
    train, test = np.array_split(order, 2)
    values = "y" in table.ranges
    fed, pool = (FederatedRidge, Ridge) if values else (FederatedRidgeClassifier, RidgeClassifier)
    x, y, x_test, y_test = table.x[train], table.y[train], table.x[test], table.y[test]
    found = {"rows": len(x), "columns": x.shape[1]}
    found["pooled"] = make_pipeline(StandardScaler(), pool(alpha=RIDGE * len(x))).fit(x, y).score(x_test, y_test)
    found["clear"] = fed(ridge=RIDGE, random_state=0).fit(x, y).score(x_test, y_test)
    for scheme in SCHEMES:
        for epsilon in EPSILONS:
            made = [
                fed(epsilon=epsilon, ranges=table.ranges, ridge=RIDGE, scheme=scheme, random_state=0)
                .set_params(settings={"privacy.seed": seed})
                .fit(x, y)
                for seed in SEEDS
            ]
            scores = [each.score(x_test, y_test) for each in made]
            found[f"{scheme} {epsilon:g}"] = float(np.mean(scores))
            if epsilon == LARGE:
                found[f"{scheme} differs"] = _difference(table, made[0], pool, (x, y, x_test))
    return found


def _difference(table: Table, made: Any, pool: Any, rows: tuple[Any, Any, Any]) -> float:
    """Return how far predictions are from those of scikit-learn on columns scaled by ranges."""
    x, y, x_test = rows
    values = "y" in table.ranges
    target = np.interp(y, table.ranges["y"], (-1, 1)) if values else y
    fitted = pool(alpha=RIDGE * len(x), fit_intercept=False).fit(scaled(table, x), target)
    if not values:
        decided = fitted.decision_function(scaled(table, x_test))
        return float(np.abs(made.decision_function(x_test) - decided).max() / decided.std())
    low, high = table.ranges["y"]
    expected = (low + high) / 2 + (high - low) / 2 * fitted.predict(scaled(table, x_test))
    return float(np.abs(made.predict(x_test) - expected).max() / expected.std())


def main() -> dict[str, Any]:
    """Print the table."""
    warnings.simplefilter("ignore")  # names of classes are taken as public
    results = {name: measured(table) for name, table in tables().items()}
    heads = ["table", *next(iter(results.values()))]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, found in results.items():
        cells = [f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in found.values()]
        print(f"| {' | '.join([name, *cells])} |", flush=True)
    return results


if __name__ == "__main__":
    main()
