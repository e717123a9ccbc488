"""Preparation of columns: from raw columns to inputs and targets on which models are trained.

Text columns become columns of zeros and ones, one for each category. Then every input is shifted by a mean over all
devices and divided by a unit; so are targets. Devices compute nothing but sums for it (:class:`ColumnSums`), which are
added under the scheme of the run.

A model is trained on prepared columns. With the *standard* scale, the unit of a numeric column is its standard
deviation and the ridge term penalises the coefficients of standardised columns, as scikit-learn's ``StandardScaler``
before ``Ridge`` does. Without scaling, units only make numbers fit for computing, and ``penalty`` gives back what the
ridge term loses by them. Shifted columns and targets give the model an intercept that is not penalised.

Under differential privacy no sums are computed: shifts and units follow from declared ranges, values beyond them are
moved to their ends, and the intercept is the coefficient of a constant feature, penalised like the others.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import DataError

_OPTIONAL: Mapping[str, Any] = dict.fromkeys(("low", "high", "target_low", "target_high", "constant"))
"""What a table of a preparation leaves out where it is None."""


@final
@dataclass(frozen=True)
class Column:
    """A raw column: numeric, or a text with its categories, each of which becomes one input."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that it becomes."""
        return tuple(f"{self.name}={value}" for value in self.categories) or (self.name,)


@final
@dataclass(frozen=True, eq=False)
class Preparation:
    """What all devices do to their columns; p inputs, d features, c outputs."""

    shift: Float[np.ndarray, "p"]
    """Subtracted from inputs."""
    unit: Float[np.ndarray, "p"]
    """Divides shifted inputs."""
    fill: Float[np.ndarray, "p"] | None
    """Stands for missing values, before the shift; None: they are refused."""
    feature_shift: Float[np.ndarray, "d"] | None
    """Subtracted from the features of a kernel, so that the model has an intercept; None: nothing."""
    penalty: Float[np.ndarray, "d"] | None
    """Weight of each squared coefficient in the ridge term; None: 1."""
    target_shift: Float[np.ndarray, "c"]
    """Subtracted from targets."""
    target_unit: Float[np.ndarray, "c"]
    """Divides shifted targets."""
    low: Float[np.ndarray, "p"] | None = None
    """Smaller inputs are raised to it, before the shift; None: they stay."""
    high: Float[np.ndarray, "p"] | None = None
    """Larger inputs are lowered to it."""
    target_low: Float[np.ndarray, "c"] | None = None
    """The same for targets."""
    target_high: Float[np.ndarray, "c"] | None = None
    constant: Float[np.ndarray, "1"] | None = None
    """A further feature of every row, whose coefficient is the intercept; None: there is none."""

    @classmethod
    def identity(cls, inputs: int, outputs: int) -> "Preparation":
        """Return the preparation that changes nothing."""
        zeros, ones = np.zeros, np.ones
        return cls(zeros(inputs), ones(inputs), None, None, None, zeros(outputs), ones(outputs))

    def inputs(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return prepared inputs in float64."""
        filled = x.astype(np.float64)
        if self.fill is not None:
            filled = np.where(np.isnan(filled), self.fill, filled)
        if self.low is not None:
            filled = np.clip(filled, self.low, self.high)
        return np.asarray((filled - self.shift) / self.unit)

    def features(self, features: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n d"]:
        """Return the features of prepared inputs, shifted, with the constant last."""
        if self.constant is not None:
            constant = np.broadcast_to(self.constant.astype(features.dtype), (len(features), len(self.constant)))
            features = np.concatenate([features, constant], axis=1)
        if self.feature_shift is None:
            return features
        return np.asarray(features - self.feature_shift.astype(features.dtype))

    def targets(self, y: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        """Return prepared targets in float64."""
        wide = y.astype(np.float64)
        if self.target_low is not None:
            wide = np.clip(wide, self.target_low, self.target_high)
        return np.asarray((wide - self.target_shift) / self.target_unit)

    def outputs(self, predicted: Float[np.ndarray, "*n c"]) -> Float[np.ndarray, "*n c"]:
        """Return predictions in the units of the raw targets. Law: outputs(targets(y)) = y for y within the range."""
        return np.asarray(predicted * self.target_unit + self.target_shift)

    def to_table(self) -> dict[str, Any]:
        """Write the preparation as lists of numbers, which keep every bit."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found = {name: None if value is None else value.tolist() for name, value in values.items()}
        return {name: value for name, value in found.items() if value is not None or name not in _OPTIONAL}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Preparation":
        """Read what :meth:`to_table` wrote; refuse anything else."""
        try:
            known = {**_OPTIONAL, **table}
            read = {
                name: None if known[name] is None else np.array(known[name], np.float64)
                for name in cls.__dataclass_fields__
            }
            made = cls(**read)  # type: ignore[arg-type]
            sound = made.shift.ndim == 1 and made.shift.shape == made.unit.shape and made.target_unit.ndim == 1
            sound = sound and made.target_shift.shape == made.target_unit.shape
            sound = sound and all(np.isfinite(value).all() for value in read.values() if value is not None)
            sound = sound and bool((made.unit > 0).all() and (made.target_unit > 0).all())
            for low, high in ((made.low, made.high), (made.target_low, made.target_high)):
                sound = sound and (low is None) == (high is None) and (low is None or bool(np.all(low <= high)))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            sound = False
        if not sound:
            raise DataError("the preparation of columns is damaged: it must hold finite numbers for every column.")
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Preparation) and json.dumps(self.to_table()) == json.dumps(other.to_table())

    __hash__ = None  # type: ignore[assignment]
