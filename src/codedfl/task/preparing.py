"""Preparation of columns over all devices: which sums devices compute, and what follows from them.

A device computes a vector of sums over its rows (:func:`sums_of`). Somebody adds the vectors of all devices, under a
scheme or in clear (:class:`Summer`). From the totals, :func:`prepare` computes the :class:`codedfl.data.Preparation`
that every device applies. What becomes public: the totals, and for every column a power of two that bounds it, which
makes sums of different columns fit one number format.

Variances are computed from sums about an origin. Where the mean is far from the origin in standard deviations, digits
would cancel, so the sums are repeated about the mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from codedfl.data import Column, FeatureMap, Preparation
from codedfl.errors import DataError
from codedfl.scenario import Scenario
from codedfl.task.folds import DeviceRows, RowChoice
from codedfl.task.metrics import Counts

COLUMNS, FEATURES, ERRORS, COUNTS = "columns", "features", "errors", "counts"
"""Kinds of sums: of columns, their squares, and targets; of the features of a kernel; of squared errors of models; of
what the metrics of a model on held-out rows follow from (:class:`codedfl.task.metrics.Counts`)."""

_FAR = 1e4
"""The square of the mean over the variance from which on sums are repeated about the mean: 4 digits have cancelled."""
_MOST_PASSES = 3
_COARSE = 1e-3
"""Spacing of float64 at the mean of a column, in its standard deviations, from which on the column is refused."""
_LARGEST = 1e140
"""Squares of numbers up to this can be summed over any number of rows in float64."""
_MARGIN = 1 + 2.0**-20
"""Covers the rounding of sums and of prepared columns in bounds that follow from sums."""


@final
@dataclass(frozen=True, eq=False)
class SumRequest:
    """Which sums devices compute over their rows."""

    kind: str
    arrays: Mapping[str, Float[np.ndarray, "..."]] = field(default_factory=dict)
    """For columns: ``origin`` and ``target_origin``, from which values are counted; for errors: ``models``; for
    counts: one of them and, in a regression, ``center`` (see :meth:`codedfl.task.metrics.Counts.regressed`)."""
    preparation: Preparation | None = None
    """For all but columns: how columns are prepared."""
    rows: RowChoice | None = None
    """Which rows count; None: all."""


def bounds_of(request: SumRequest, rows: DeviceRows, features: FeatureMap, device: int) -> Float[np.ndarray, "k"]:
    """Return what a device publishes first: powers of two that bound entries of columns and targets, or errors."""
    if request.kind == FEATURES:
        return np.zeros(0)
    rows = rows if request.rows is None else request.rows.of(rows, device)
    if request.kind == ERRORS:
        return _powers_of_two(_errors(request, rows, features).max(axis=0, initial=0.0))
    if request.kind == COUNTS:
        if "center" not in request.arrays:
            return np.zeros(0)
        (predicted,) = _outputs(request, rows, features)
        sizes = np.concatenate([rows.y - request.arrays["center"], rows.y - predicted], axis=1)
        return _powers_of_two(np.abs(sizes).max(axis=0, initial=0.0))
    deviations = np.abs(np.nan_to_num(rows.x - request.arrays["origin"], nan=0.0))
    targets = np.abs(rows.y - request.arrays["target_origin"])
    largest = np.concatenate([deviations.max(axis=0, initial=0.0), targets.max(axis=0, initial=0.0)])
    return _powers_of_two(largest)


def _powers_of_two(largest: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Return the least powers of two that are not smaller; 0 for 0."""
    sound = (largest <= _LARGEST) & ((largest == 0) | (largest >= 1 / _LARGEST))
    if not sound.all():
        place = int(np.argmin(sound))
        raise DataError(
            f"input or target {place} (counted from 0) holds a number of size {largest[place]:g}, whose squares cannot "
            "be summed; scale the column"
        )
    fraction, exponent = np.frexp(largest)
    return np.where(largest > 0, np.ldexp(1.0, exponent - (fraction == 0.5)), 0.0)


def _outputs(request: SumRequest, rows: DeviceRows, features: FeatureMap) -> Float[np.ndarray, "l n c"]:
    """Return the outputs of each model at each row, in units of the targets."""
    preparation, models = request.preparation, request.arrays["models"]
    assert preparation is not None  # noqa: S101 - requests are validated when they are read
    mapped = preparation.features(features.transform(preparation.inputs(rows.x)))
    return preparation.outputs(np.einsum("nd,ldc->lnc", mapped, models))


def _errors(request: SumRequest, rows: DeviceRows, features: FeatureMap) -> Float[np.ndarray, "n l"]:
    """Return the squared error of each model at each row, in units of the targets, the mean over outputs."""
    return np.asarray(((_outputs(request, rows, features) - rows.y) ** 2).mean(axis=2).T)


def _counts(request: SumRequest, rows: DeviceRows, features: FeatureMap) -> Counts:
    """Return the counts of the model's outputs."""
    (predicted,), center = _outputs(request, rows, features), request.arrays.get("center")
    if center is None:
        return Counts.classified(predicted, np.argmax(rows.y, axis=1))
    return Counts.regressed(predicted, rows.y, center)


def sums_of(request: SumRequest, rows: DeviceRows, features: FeatureMap, device: int) -> Float[np.ndarray, "k"]:
    """Return a device's sums over its rows; the last one of columns and of errors is the number of rows."""
    rows = rows if request.rows is None else request.rows.of(rows, device)
    if request.kind == FEATURES:
        assert request.preparation is not None  # noqa: S101 - requests are validated when they are read
        mapped = features.transform(request.preparation.inputs(rows.x))
        return np.asarray(mapped.sum(axis=0, dtype=np.float64))
    if request.kind == ERRORS:
        return np.append(_errors(request, rows, features).sum(axis=0), float(len(rows.x)))
    if request.kind == COUNTS:
        return _counts(request, rows, features).table.ravel()
    present = ~np.isnan(rows.x)
    x = np.where(present, rows.x - request.arrays["origin"], 0.0)
    y = rows.y - request.arrays["target_origin"]
    parts = (x.sum(axis=0), (x**2).sum(axis=0), present.sum(axis=0), y.sum(axis=0), (y**2).sum(axis=0), [len(x)])
    return np.concatenate(parts, dtype=np.float64)


def scales_of(
    request: SumRequest, bounds: Float[np.ndarray, "b"], shape: tuple[int, int], samples: int, features: FeatureMap
) -> Float[np.ndarray, "k"]:
    """Return bounds on the total sums over all devices, from the largest published bounds."""
    inputs, outputs = shape
    if request.kind == FEATURES:
        return np.full(features.dimension, samples * features.largest)
    known = np.where(bounds > 0, bounds, 1.0)
    if request.kind == ERRORS:
        return np.asarray(samples * np.append(known, 1.0))
    if request.kind == COUNTS:
        most = 2.0 * max(samples, 1)  # held-out rows are at most twice as many as those of the training
        if "center" not in request.arrays:
            return np.full(outputs**2, most)
        y, errors = np.split(known, 2)
        return np.asarray(most * np.concatenate([np.ones(outputs), y, y**2, errors, errors**2]))
    x, y = known[:inputs], known[inputs:]
    return np.asarray(samples * np.concatenate([x, x**2, np.ones(inputs), y, y**2, [1.0]]))


class Summer(ABC):
    """Adds up the sums of all devices."""

    features: FeatureMap
    """The feature map of the run."""
    samples: int
    """Number of rows m over all devices."""
    shape: tuple[int, int]
    """Number of inputs p and of outputs c."""

    columns: Sequence[Column] = ()
    """The columns, where their names are known."""
    names: Sequence[str] = ()
    """The names of the devices, if they have any."""
    error: float = 0.0
    """A bound on the error of the last sums, in units of their scales."""

    @final
    def name(self, place: int) -> str:
        """Return an input in words."""
        names = [name for column in self.columns for name in column.inputs]
        return f"the column {names[place]!r}" if names else f"input {place} (counted from 0)"

    @abstractmethod
    def claims(self, request: SumRequest) -> Float[np.ndarray, "n b"]:
        """Return the bounds that each device publishes (:func:`bounds_of`)."""

    @abstractmethod
    def add(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return the total of all devices' sums, each divided by its scale, which makes it at most 1."""

    @final
    def total(self, request: SumRequest) -> Float[np.ndarray, "k"]:
        """Return the total of all devices' sums."""
        claims = self.claims(request)
        scales = scales_of(request, claims.max(axis=0), self.shape, self.samples, self.features)
        total = np.asarray(self.add(request, scales) * scales)
        self._refuse_inflated(request, claims, total + self.error * scales)
        return total

    def _refuse_inflated(
        self, request: SumRequest, claims: Float[np.ndarray, "n b"], most: Float[np.ndarray, "k"]
    ) -> None:
        """Refuse a claim that the sums disprove: larger bounds than the data need make all sums coarse.

        A bound is less than twice the largest entry, whose square (or which itself, of errors) is part of a sum.
        """
        inputs, outputs = self.shape
        x, y = slice(inputs, 2 * inputs), slice(3 * inputs + outputs, 3 * inputs + 2 * outputs)
        if request.kind == ERRORS:
            largest = most[:-1]
        elif request.kind == COLUMNS:
            largest = np.sqrt(np.maximum(np.concatenate([most[x], most[y]]), 0.0))
        elif claims.shape[1]:
            _, _, y_squares, _, squares = np.split(most, 5)
            largest = np.sqrt(np.maximum(np.concatenate([y_squares, squares]), 0.0))
        else:
            return
        wrong = claims > 2 * _MARGIN * largest
        if wrong.any():
            device, place = (int(index) for index in np.argwhere(wrong)[0])
            name = self.names[device] if self.names else f"device {device}"
            what = self.name(place) if request.kind == COLUMNS and place < inputs else "targets or errors"
            raise DataError(
                f"{name} claims that {what} reach {claims[device, place]:g}, but the sums over all devices "
                f"say at most {largest[place]:g}; check that device's program, or run without it"
            )


class LocalSummer(Summer):
    """Base of summers in a process that has the rows of all devices."""

    def __init__(self, devices: Sequence[DeviceRows], features: FeatureMap, columns: Sequence[Column] = ()) -> None:
        self.devices = devices
        self.features = features
        self.columns = columns
        self.samples = sum(len(rows.x) for rows in devices)
        self.shape = devices[0].x.shape[1], devices[0].y.shape[1]

    @final
    def claims(self, request: SumRequest) -> Float[np.ndarray, "n b"]:
        """Return the bounds of each device."""
        found = [bounds_of(request, rows, self.features, device) for device, rows in enumerate(self.devices)]
        return np.asarray(found)

    @final
    def scaled(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> list[Float[np.ndarray, "k"]]:
        """Return the sums of each device, divided by their scales."""
        return [sums_of(request, rows, self.features, device) / scales for device, rows in enumerate(self.devices)]


@final
class PlainSummer(LocalSummer):
    """Adds in clear."""

    def add(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Add in float64."""
        return np.asarray(sum(self.scaled(request, scales)))


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and variance of columns, from sums about an origin."""

    count: Float[np.ndarray, "k"]
    offset: Float[np.ndarray, "k"]
    """The mean less the origin."""
    variance: Float[np.ndarray, "k"]

    @classmethod
    def of(cls, count: Any, first: Float[np.ndarray, "k"], second: Float[np.ndarray, "k"]) -> "Moments":
        """Compute them from the sums of x - origin and of its square."""
        count = np.broadcast_to(np.maximum(count, 1), first.shape).astype(np.float64)
        offset = first / count
        return cls(count, offset, np.maximum(second / count - offset**2, 0.0))

    def cleaned(self, origin: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return the variances, zero for columns that are constant up to rounding."""
        return _cleaned(self.variance, origin + self.offset)

    def cancelled(self, origin: Float[np.ndarray, "k"]) -> bool:
        """Whether digits of a variance have cancelled, of a column that is not constant up to rounding."""
        square = self.offset**2
        rounding = (4 * np.finfo(np.float64).eps * (origin + self.offset)) ** 2
        return bool(np.any((square > _FAR * self.variance) & (square > rounding)))


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """A preparation, and what is public about prepared data because sums are."""

    preparation: Preparation
    feature_energy: float | None
    """A bound on the sum of squares of any feature over all rows; None: unknown."""
    target_energy: float | None
    """The same for targets."""


def prepare(scenario: Scenario, summer: Summer, dummies: Bool[np.ndarray, "p"], *, regression: bool) -> Prepared:
    """Compute the preparation of a scenario; ``dummies`` are the inputs that stand for categories."""
    p, c = summer.shape
    origin, target_origin, m = np.zeros(p), np.zeros(c), summer.samples
    for _ in range(_MOST_PASSES):
        total = summer.total(SumRequest(COLUMNS, {"origin": origin, "target_origin": target_origin}))
        first, second, present, y_first, y_second, _ = np.split(total, np.cumsum([p, p, p, c, c]))
        present = np.rint(present)
        if not present.all():
            raise DataError(f"{summer.name(int(np.argmin(present)))} has no value at any device; remove the column")
        columns, targets = Moments.of(present, first, second), Moments.of(m, y_first, y_second)
        if not (columns.cancelled(origin) or targets.cancelled(target_origin)):
            break
        origin, target_origin = origin + columns.offset, target_origin + targets.offset
    mean, target_mean = origin + columns.offset, target_origin + targets.offset
    variance = _cleaned(columns.variance, mean) * present / m  # missing values will stand at the mean
    coarse = (np.abs(mean) * np.finfo(np.float64).eps > _COARSE * np.sqrt(variance)) & (variance > 0)
    if coarse.any():
        place = int(np.argmax(coarse))
        raise DataError(
            f"{summer.name(place)} has the mean {mean[place]:g} and the standard deviation {variance[place] ** 0.5:g}, "
            "too small beside it for float64; subtract a constant from the column"
        )
    preparation = _preparation(scenario, mean, variance, dummies, target_mean, targets.variance, regression=regression)
    if scenario.features.kind == "rbf":
        if scenario.intercept:
            total = summer.total(SumRequest(FEATURES, preparation=preparation))
            preparation = _with_features(preparation, total / m)
        y_unit = preparation.target_unit
        return Prepared(preparation, None, _energy(m, targets.variance, target_mean, preparation.target_shift, y_unit))
    energy = _energy(m, variance, mean, preparation.shift, preparation.unit)
    y_variance = _cleaned(targets.variance, target_mean)
    y_energy = _energy(m, y_variance, target_mean, preparation.target_shift, preparation.target_unit)
    return Prepared(preparation, energy, y_energy)


def _preparation(
    scenario: Scenario,
    mean: Float[np.ndarray, "p"],
    variance: Float[np.ndarray, "p"],
    dummies: Bool[np.ndarray, "p"],
    target_mean: Float[np.ndarray, "c"],
    target_variance: Float[np.ndarray, "c"],
    *,
    regression: bool,
) -> Preparation:
    """Choose shifts and units (see ``codedfl.data.preparation``)."""
    fill = mean if scenario.features.missing == "mean" else None
    linear, scaled, intercept = scenario.features.kind == "none", scenario.scaled, scenario.intercept
    constant = np.maximum(1.0, np.abs(mean))  # what rounding leaves of a constant column is then negligible
    deviation = np.where(variance > 0, np.sqrt(variance), constant)
    centred = np.where(dummies, linear and intercept, scaled or (linear and intercept))
    shift = np.where(centred, mean, 0.0)
    unit = np.where(dummies | (not scaled), 1.0, deviation)
    penalty = None
    if linear and not scaled:
        # with this unit every diagonal entry of the Hessian is 1: the columns are as if standardised
        size = np.where(centred, variance, variance + mean**2) + scenario.ridge
        unit = np.where(size > 0, np.sqrt(size), 1.0)
        penalty = 1 / unit**2
    target_shift = target_mean if intercept else np.zeros_like(target_mean)
    energy = target_variance + (target_mean - target_shift) ** 2
    target_unit = np.where(regression & (energy > 0), np.sqrt(energy), 1.0)
    return Preparation(shift, unit, fill, None, penalty, target_shift, target_unit)


def prepare_fold(scenario: Scenario, summer: Summer, prepared: Prepared, rows: RowChoice) -> tuple[Preparation, float]:
    """Return the preparation with means over some rows only, and the number of those rows.

    Units stay those of all rows: scaling comes before the division into folds, as in a pipeline that ends in a
    cross-validated estimator, and the intercept is that of the rows.
    """
    whole, (p, c) = prepared.preparation, summer.shape
    origin = {"origin": whole.shift, "target_origin": whole.target_shift}
    total = summer.total(SumRequest(COLUMNS, origin, rows=rows))
    first, _, _, y_first, _, rows_in_all = np.split(total, np.cumsum([p, p, p, c, c]))
    count = float(np.rint(rows_in_all[0]))
    if count < 1:
        raise DataError("a fold leaves no row to train on; lower task.folds")
    changes: dict[str, Any] = {}
    if scenario.intercept:
        changes["target_shift"] = whole.target_shift + y_first / count
        if scenario.features.kind == "none":
            changes["shift"] = whole.shift + first / count  # what stands for missing values is the shift itself
        else:
            features = summer.total(SumRequest(FEATURES, preparation=whole, rows=rows))
            changes["feature_shift"] = features / count
    return Preparation(**{**vars(whole), **changes}), count


def _with_features(preparation: Preparation, mean: Float[np.ndarray, "d"]) -> Preparation:
    return Preparation(**{**vars(preparation), "feature_shift": mean})


def _cleaned(variance: Float[np.ndarray, "k"], mean: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Return variances with zero for columns that are constant: they differ from the mean by its rounding only."""
    return np.where(np.sqrt(variance) <= 2 * np.finfo(np.float64).eps * np.abs(mean), 0.0, variance)


def _energy(
    samples: int,
    variance: Float[np.ndarray, "k"],
    mean: Float[np.ndarray, "k"],
    shift: Float[np.ndarray, "k"],
    unit: Float[np.ndarray, "k"] | float,
) -> float:
    """Bound the sum of squares of prepared columns; 1 at least, as bounds of number formats must be positive."""
    squares = (variance + (mean - shift) ** 2) / np.asarray(unit) ** 2
    return float(samples * max(float(squares.max()), 1.0 / samples) * _MARGIN)
