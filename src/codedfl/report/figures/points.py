"""Numbers behind figures of accuracy: curves of runs over time, with bands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import UsageError
from codedfl.runs import Run
from codedfl.training.timing import Band, band

_DRAWS = 200
"""Timing draws of a run behind a curve, at most."""
POINTS = 400
"""Points of a curve, at most."""
FEW_EPOCHS = 12
"""Up to so many epochs, a curve is drawn epoch by epoch."""

Points = Float[np.ndarray, "points"]


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracy against time: the mean, and limits that hold 95% of feature seeds, repetitions and timing draws.

    A training of few epochs has a point for each epoch, and limits of its time, too.
    """

    label: str
    time: Points
    mean: Points
    low: Points
    high: Points
    epochs: tuple[int, int]
    """Fewest and most epochs of its runs."""
    time_limits: tuple[Points, Points] | None = None

    @property
    def by_epoch(self) -> bool:
        """Whether each point is an epoch."""
        return self.time_limits is not None

    @property
    def words(self) -> str:
        """The label, with the number of epochs where there are few."""
        first, last = self.epochs
        if not self.by_epoch:
            return self.label
        return f"{self.label} ({first if first == last else f'{first} to {last}'} epoch{'s' if last > 1 else ''})"


def accuracy_at(runs: Sequence[Run], grid: Points) -> Float[np.ndarray, "rows points"]:
    """Return the accuracy at each time of the grid, one row a run and timing draw; nan before the first epoch."""
    rows = []
    for run in (repeat for entry in runs for repeat in entry.repeats):
        done = np.stack([np.searchsorted(times, grid, side="right") for times in run.timings[:_DRAWS]])
        rows.append(np.concatenate([[np.nan], run.epochs["accuracy"]])[done])
    return np.concatenate(rows)


def span(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the time when the first epoch ends, and the mean time when the training does."""
    timings = [repeat.timings for entry in runs for repeat in entry.repeats]
    begin = min(float(times[:, 0].min()) for times in timings)
    all_begun = max(float(times[:_DRAWS, 0].max()) for times in timings)
    return begin, max(float(np.mean([times[:, -1].mean() for times in timings])), all_begun)


def has_scores(runs: Sequence[Run]) -> bool:
    """Return whether an accuracy of every run is known; without test data none is."""
    return all(bool(np.isfinite(run.epochs["accuracy"]).any()) for run in runs)


def curve_of(label: str, runs: Sequence[Run]) -> Curve:
    """Return the curve of the runs under a label; refuse runs without test data."""
    if not has_scores(runs):
        raise UsageError(
            f"'{label}' has no accuracy in any epoch, because its data have no test rows; set data.test_fraction above "
            "0 and run again, or draw another --kind"
        )
    lengths = [len(repeat.epochs["accuracy"]) for run in runs for repeat in run.repeats]
    epochs = min(lengths), max(lengths)
    return _by_epoch(label, runs, epochs) if epochs[1] <= FEW_EPOCHS else _by_time(label, runs, epochs)


def thinned(curve: Curve, most: int) -> Curve:
    """Return a curve of at most so many of its points, both ends among them."""
    if curve.by_epoch or len(curve.time) <= most:
        return curve
    kept = np.unique(np.linspace(0, len(curve.time) - 1, most).round().astype(int))
    return replace(curve, **{name: getattr(curve, name)[kept] for name in ("time", "mean", "low", "high")})


def _by_time(label: str, runs: Sequence[Run], epochs: tuple[int, int]) -> Curve:
    begin, end = span(runs)
    # past rounding, so that the end counts; a first epoch that is computed beforehand may end at 0
    first = begin if begin > 0 else min(float(run.timings[run.timings > 0].min(initial=1e-3)) for run in runs) / 2
    grid = np.geomspace(first, max(end, first) * (1 + 1e-9), POINTS)
    values = accuracy_at(runs, grid)
    # a set-up ends at different times: a curve begins when most of its draws have, and those are averaged
    begun = np.isfinite(values).mean(axis=0) > 0.5
    low, high = _limits(values[:, begun])
    return Curve(label, grid[begun], np.nanmean(values[:, begun], axis=0), low, high, epochs)


def _limits(values: Float[np.ndarray, "rows points"]) -> Float[np.ndarray, "2 points"]:
    """Return limits that hold 95% of the known values at each point; numpy looks at points with nan one by one."""
    found = np.empty((2, values.shape[1]))
    whole = np.isfinite(values).all(axis=0)
    for some, quantile in ((whole, np.quantile), (~whole, np.nanquantile)):
        if some.any():
            found[:, some] = quantile(values[:, some], [0.025, 0.975], axis=0)
    return found


def _by_epoch(label: str, runs: Sequence[Run], epochs: tuple[int, int]) -> Curve:
    """Return a point for each epoch: averages over the runs that trained it."""
    repeats = [repeat for run in runs for repeat in run.repeats]
    scores, times = [], []
    for epoch in range(epochs[1]):
        own = [run for run in repeats if len(run.epochs["accuracy"]) > epoch]
        scores.append(_quantiles(np.array([run.epochs["accuracy"][epoch] for run in own])))
        times.append(_quantiles(np.concatenate([run.timings[:_DRAWS, epoch] for run in own])))
    mean, low, high = np.array(scores, dtype=np.float64).T
    time, early, late = np.array(times, dtype=np.float64).T
    return Curve(label, time, mean, low, high, epochs, (early, late))


def _quantiles(values: Any) -> tuple[float, float, float]:
    """Return the mean and limits that hold 95%, as curves over time have them."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(np.mean(values)), float(low), float(high)


def time_and_band(row: Mapping[str, Any], target: str) -> tuple[float, float, float] | None:
    """Return the mean time of a row to a target and its 95% band, which a single training does not have."""
    seconds = (row["time_to_accuracy"] or {}).get(target)
    if seconds is None:
        return None
    limits = row["time_to_accuracy_band"].get(target)
    return (seconds, *limits) if limits and None not in limits else (seconds, seconds, seconds)


def mean_seconds(runs: Sequence[Run], target: float) -> Band | None:
    """Return the time to a target over runs and draws; None unless every run reaches it."""
    found = [run.seconds_to(target) for run in runs]
    reached = [seconds for seconds in found if seconds is not None]
    if len(reached) < len(found):
        return None
    seconds = np.concatenate(reached).astype(np.float64)
    return band(seconds) if len(seconds) > 1 else Band(float(seconds[0]), float(seconds[0]), float(seconds[0]))
