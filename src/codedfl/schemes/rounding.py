"""The promise of an exact scheme: bounds on the errors of its sums, stated before training and held in simulations.

The bounds follow from number formats and public facts. With F and T the bounds on features and targets, sums of
absolute products are at most ``Public.gram_bound`` and ``Public.moments_bound``.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import ScenarioError
from codedfl.schemes.public import Public

if TYPE_CHECKING:
    from codedfl.schemes.contract import Scheme

SURE = 10.0
"""The lambda of Higham and Mary: a chain of roundings exceeds its bound with probability 2 exp(-lambda^2 / 2), and one
of 10^12 chains with probability 4e-10."""
RAISE = "or raise task.accuracy"
OTHER = f"choose another scheme {RAISE}"
FLOAT64 = f'set task.precision = "float64" {RAISE}'


@final
@dataclass(frozen=True)
class Rounding:
    """Bounds on the errors of the sum of Gram matrices (``gram``) and of right-hand sides (``moments``).

    An entry of output k of the gradient at Theta is off by at most

        (gram * ||Theta_k||_1 + joint * max_l ||Theta_l||_1 + moments) / m.

    >>> public = Public((60, 40), 4, 2, np.dtype("float32"))
    >>> Rounding(gram=1e-3, moments=1e-2).relative(public)
    0.00012
    """

    gram: float
    moments: float
    joint: float = 0.0
    """What all outputs share, because they are rounded to one step."""
    uniform: tuple[float, float] = (0.0, 0.0)
    """What part of ``gram`` and of ``moments`` is the same for small and large entries, as steps of fixed-point
    numbers are; all of ``joint`` is."""
    cause: str = field(default="the number format", compare=False)
    """What most of the error is due to."""
    advice: str = field(default=OTHER, compare=False)

    def relative(self, public: Public) -> float:
        """Return the error of a gradient relative to its natural size.

        It is E_A ||Theta_k||_2 for A Theta_k, and E_B for B; and ||Theta_k||_1 is at most sqrt(d) ||Theta_k||_2.
        """
        gram = math.sqrt(public.features) * (self.gram + self.joint)
        return _ratio(self.moments, public.moments_bound) + _ratio(gram, public.gram_bound)

    def at_typical(self, public: Public) -> float:
        """Return the uniform error relative to the size that gradients have without the largest bounds of devices.

        Steps follow from the largest bound that any device publishes, and are as coarse for the data of all others.
        """
        typical = public.typical
        if (typical.gram_bound, typical.moments_bound) == (public.gram_bound, public.moments_bound):
            return 0.0
        gram = math.sqrt(public.features) * (self.uniform[0] + self.joint)
        return _ratio(self.uniform[1], typical.moments_bound) + _ratio(gram, typical.gram_bound)

    def suffices(self, public: Public) -> bool:
        """Whether gradients are as accurate as the public facts demand."""
        return self.relative(public) <= public.accuracy and self.at_typical(public) <= public.bound_share

    def entries(self, norms: Float[np.ndarray, "b c"], samples: int) -> Float[np.ndarray, "b c"]:
        """Return the bounds on the entries of gradients, by output, at points of these ||Theta_k||_1."""
        return np.asarray((self.gram * norms + self.joint * norms.max(axis=1, keepdims=True) + self.moments) / samples)

    def beside(self, other: "Rounding") -> "Rounding":
        """Return the bounds on errors of both together; cause and advice stay those of ``other``."""
        uniform = other.uniform[0] + self.uniform[0], other.uniform[1] + self.uniform[1]
        moments, joint = other.moments + self.moments, other.joint + self.joint
        return replace(other, gram=other.gram + self.gram, moments=moments, joint=joint, uniform=uniform)

    def plus(self, public: Public, roundings: int, dtype: Any = None) -> "Rounding":
        """Return the bounds with so many further roundings on the way to every entry."""
        share = relative_error(roundings, public.dtype if dtype is None else dtype)
        more, most = share * public.gram_bound, share * public.moments_bound
        found = replace(self, gram=self.gram + more, moments=self.moments + most)
        if 2 * replace(found, gram=more, moments=most, joint=0.0).relative(public) < found.relative(public):
            return found
        advice = FLOAT64 if public.dtype == np.float32 else OTHER
        return replace(
            found, cause=f"{public.dtype.name} arithmetic on up to {max(public.samples)} rows", advice=advice
        )


def _ratio(error: float, size: float) -> float:
    return error / size if size > 0 else math.inf if error > 0 else 0.0


NOTHING = Rounding(0.0, 0.0)
"""No error at all."""


def relative_error(roundings: int, dtype: Any) -> float:
    """Bound the relative error of so many roundings in a chain, in whatever order products are added.

    The lesser of the certain bound k u / (1 - k u) (Higham, "Accuracy and stability of numerical algorithms", 3.1) and
    the one that holds with high probability if errors are independent on average, exp(lambda sqrt(k) u + k u^2 / (1 -
    u)) - 1 (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). Matrix products add in
    blocks of a few hundred, so their chains are shorter than lambda sqrt(k) where that matters, whatever the data.
    """
    unit = float(np.finfo(dtype).eps) / 2
    likely = math.expm1(min(SURE * math.sqrt(roundings) * unit + roundings * unit**2 / (1 - unit), 700.0))
    return min(likely, roundings * unit / (1 - roundings * unit)) if roundings * unit < 0.5 else likely


def reference_rounding(public: Public, epoch: int) -> Rounding:
    """Bound the error of the plaintext gradient that an epoch is held against, and of what servers add in float64.

    The reference adds Gram matrices of devices in their precision, small ones together (at most 5 d rows), and rounds
    the point to it. Servers add to the last product in every epoch.
    """
    rows = max(public.samples) + 5 * public.features + 2
    further = public.features + 2 * public.devices + 4 * epoch + 8
    return NOTHING.plus(public, rows).plus(public, further, np.float64)


def check_rounding(scheme: "Scheme[Any]") -> None:
    """Refuse an exact scheme whose gradients may be off by more than the accuracy that is asked for."""
    public, rounding = scheme.public, scheme.rounding if scheme.exact else None
    if rounding is None:
        return
    error = rounding.relative(public)
    if not error <= public.accuracy:
        raise ScenarioError(
            f"gradients of scheme = '{scheme.name}' could be off by {error:.2g} of their size, more than the "
            f"{public.accuracy:g} of task.accuracy, because of {rounding.cause}; {rounding.advice}"
        )
    refuse_outlier(scheme.name, public, rounding)


def refuse_outlier(scheme: str, public: Public, rounding: Rounding) -> None:
    """Refuse a bound of one device that makes number formats too coarse for the data of all others."""
    error = rounding.at_typical(public)
    if error <= public.bound_share:
        return
    typical = public.typical
    largest, usual = (public.largest_feature, public.largest_target), (typical.largest_feature, typical.largest_target)
    place = int(largest[1] * usual[0] > largest[0] * usual[1])  # the larger of both ratios
    device = max(range(public.devices), key=lambda index: public.claims[index][place])
    what = ("features", "targets")[place]
    raise ScenarioError(
        f"{public.name(device)} has {what} up to {largest[place]:g}, where {usual[place]:g} is the median of all "
        f"devices; with steps for such numbers, gradients of scheme = '{scheme}' could be off by "
        f"{error:.2g} of the size that is typical, more than the {public.bound_share:g} of task.bound_share; correct "
        'the outlier, set features.scale = "standard", choose another scheme, or raise task.bound_share'
    )
