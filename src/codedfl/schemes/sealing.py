"""Common parts of the sealed schemes: number formats, and models that are sent as residues.

The ring holds the product of the data and the *rounded* model exactly. So the server keeps the last rounded model, the
*point*, and the exact product there. For a new model it sends, output by output, the difference to that point or the
model itself, whichever is smaller: smaller numbers have finer steps. The gradient is exact at the new point, which
differs from the model by at most the rounding of one message, and rounding errors do not accumulate over epochs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals import RINGS, EncodedModel, FixedPoint, PrimeField, Ring
from codedfl.errors import CodedflError, DataError, ScenarioError, TrainingError
from codedfl.privacy.release import Release
from codedfl.schemes.messages import Message
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import OTHER, Rounding
from codedfl.settings import setting
from codedfl.task import Shard

MODEL_STEPS = {31: 16, 32: 16, 48: 16, 61: 1 << 14, 64: 1 << 14}
"""Average magnitude of a model's entries in steps, by the bits of the ring; the data use the rest (docs/sealed.md)."""
AUTO = "auto"
ENERGY_SLACK = 1 + 2.0**-20
"""Covers the rounding of energies, which are sums of squares."""
SMALLEST = 1e-100
"""Magnitudes between this and its inverse can be squared and summed in float64 without overflow or underflow."""


@final
@dataclass(frozen=True)
class Formats:
    """The number formats of a run, computed from public facts: bounds on the data, and the number of data points."""

    gram: FixedPoint
    moments: FixedPoint

    @classmethod
    def choose(cls, ring: Ring, public: Public, *, data_bits: int | None = None, multiplied: bool = True) -> "Formats":
        """Choose the finest steps with which no sum over all devices can overflow the ring.

        ``data_bits`` limits the bits after the binary point for data with entries of 1 and more; the model then uses
        the rest of the ring. With ``multiplied``, the ring must also hold products of Gram matrices and models.
        """
        largest, total = max(public.samples), sum(public.samples)
        entry, target = public.largest_feature, public.largest_target
        energies = (math.sqrt(each) for each in (public.feature_energy, public.target_energy) if each is not None)
        if not all(SMALLEST <= bound <= 1 / SMALLEST for bound in (entry, target, *energies)):
            raise ScenarioError(
                f"features up to {entry:g} and targets up to {target:g} cannot be sealed; scale them so that the "
                f"largest of each lies between {SMALLEST:g} and {1 / SMALLEST:g}"
            )
        # devices add n_i products in their own precision, so rounding can push a sum above its exact bound
        above = 1 + largest * float(np.finfo(public.dtype).eps)
        entry *= above
        grams, sides = public.gram_bound * above * ENERGY_SLACK, public.moments_bound * above * ENERGY_SLACK
        # what noise adds to the entries of one device, and to those of the sum
        (share, shares), (side, sides_sum) = noise_reach(public)
        try:
            gram = FixedPoint.choose(
                ring,
                entry_bound=min(entry * public.largest_feature * largest, grams) + share,
                sum_bound=min(entry * public.largest_feature * total, grams) + shares,
                summands=public.devices,
                dimension=public.features if multiplied else 1,
                model_steps=MODEL_STEPS[ring.bits] if multiplied else 1,
            )
            moments = FixedPoint.choose(
                ring,
                entry_bound=min(entry * target * largest, sides) + side,
                sum_bound=min(entry * target * total, sides) + sides_sum,
                summands=public.devices,
                dimension=1,
                model_steps=1,
            )
        except CodedflError as error:
            raise ScenarioError(
                f"{public.features} features of {total} points on {public.devices} devices do not fit: {error}"
            ) from None
        return cls(_cut(gram, data_bits), _cut(moments, data_bits))

    @property
    def ring(self) -> Ring:
        """The ring of all residues."""
        return self.gram.ring

    @property
    def field(self) -> PrimeField:
        """The same, if it is a prime field, as codes need."""
        if not isinstance(self.ring, PrimeField):
            raise TypeError(f"{self.ring} is no prime field")
        return self.ring

    def rounding(self, public: Public) -> Rounding:
        """Return the bounds on errors: devices round their sums of n_i products, and these to half a step."""
        half = public.devices / 2
        cause = f"{public.devices} devices and {public.features} features, which leave too few steps in {self.ring}"
        error = half * self.gram.data_step, half * self.moments.data_step
        steps = Rounding(*error, uniform=error, cause=cause, advice=OTHER)
        return steps.plus(public, max(public.samples))


def ring_setting(rings: Sequence[Ring], what: str = "Ring") -> Any:
    """Return the option of the ring of the residues."""
    words = f"{what} of the residues; auto: the narrowest that meets task.accuracy, with float64 the widest."
    return setting(default=AUTO, choices=(AUTO, *(ring.name for ring in rings)), help=words)


def choose_formats(
    public: Public,
    wanted: str,
    rings: Sequence[Ring],
    *,
    data_bits: Mapping[Ring, int] | None = None,
    multiplied: bool = True,
) -> Formats:
    """Return the formats in the ring that is ``wanted``, or in one of ``rings``, which are of increasing width.

    With float64 the widest is taken, so that residues are as wide as the numbers. With float32 the first is taken in
    which gradients are as accurate as the public facts demand; the widest if none is.
    """
    if wanted != AUTO:
        rings = (RINGS[wanted],)
    elif public.dtype == np.float64:
        rings = rings[-1:]
    for ring in rings:
        try:
            found = Formats.choose(ring, public, data_bits=(data_bits or {}).get(ring), multiplied=multiplied)
        except ScenarioError:
            if ring is rings[-1]:
                raise
            continue
        if ring is rings[-1] or found.rounding(public).suffices(public):
            break
    if isinstance(public.release, Release):
        _check_steps(found, public.release)
    return found


def _check_steps(formats: Formats, release: Release) -> None:
    """Refuse formats so coarse that rounding shows what the noise of other devices is to hide."""
    found = formats.gram.data_step, formats.moments.data_step
    for step, coarsest, what in zip(found, release.coarsest_steps, ("Gram matrices", "right-hand sides"), strict=True):
        if step > coarsest:
            raise ScenarioError(
                f"{what} with noise would be rounded to steps of {step:.2g} in {formats.ring}, and the noise of one "
                f"device allows {coarsest:.2g}; choose a wider ring, a smaller privacy.epsilon, or fewer rows"
            )


def noise_reach(public: Public) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bound the noise of one device and of all, in entries of Gram matrices and of right-hand sides."""
    release, counts = public.release, (1, public.devices)
    if not isinstance(release, Release):
        return (0.0, 0.0), (0.0, 0.0)
    (gram, grams), (side, sides) = ([each(n) for n in counts] for each in (release.gram_reach, release.moments_reach))
    return (gram, grams), (side, sides)


def _cut(form: FixedPoint, data_bits: int | None) -> FixedPoint:
    if data_bits is None or form.entry_bound < 1:
        return form
    return replace(form, data_bits=min(data_bits, form.data_bits))


def check_bounds(public: Public, shard: Shard) -> None:
    """Refuse data that exceed the agreed bounds: sums could overflow the ring undetected."""
    for what, values, bound, energy in (
        ("feature", shard.x, public.largest_feature, public.feature_energy),
        ("target", shard.y, public.largest_target, public.target_energy),
    ):
        largest = float(np.max(np.abs(values), initial=0.0))
        if not largest <= bound:
            raise DataError(
                f"a {what} of size {largest:g} exceeds the bound of {bound:g} that the devices agreed on; scale the "
                "data or agree on a larger bound"
            )
        if energy is None:
            continue
        own = float(np.max(np.einsum("ij,ij->j", values, values, dtype=np.float64), initial=0.0))
        if not own <= energy * ENERGY_SLACK:
            raise DataError(
                f"the squares of a {what} add up to {own:g} on this device, more than the {energy:g} of all devices; "
                "check the sums of columns that the bound comes from"
            )


@final
class PointedProducts:
    """The point of the last request, and the exact product of all data with it."""

    def __init__(self, form: FixedPoint, public: Public, *, longest: float = math.inf) -> None:
        shape = (public.features, public.outputs)
        self._form = form
        self._longest = longest
        self._known_point = np.zeros(shape)
        self._product = self._base_product = np.zeros(shape)
        self._sent: EncodedModel | None = None
        self.point = np.zeros(shape)
        """The point of the current request, at which the replies give the product."""
        self.asked = np.zeros(shape[::-1], form.ring.dtype)
        """The residues of the current request."""

    def ask(self, model: Float[np.ndarray, "d c"]) -> UInt[np.ndarray, "c d"]:
        """Set the point that the ring can represent nearest to a model, and return the residues to send."""
        if not np.isfinite(model).all():
            raise TrainingError("training diverged: the model is no longer finite; lower training.learning_rate")
        step = model - self._known_point
        nearer = np.abs(step).sum(axis=0) <= np.abs(model).sum(axis=0)
        self._base_product = np.where(nearer, self._product, 0.0)
        self._sent = self._form.encode_model(np.where(nearer, step, model), longest=self._longest)
        self.point = np.where(nearer, self._known_point, 0.0) + self._sent.value
        self.asked = self._sent.residues
        return self.asked

    def take(self, residues: UInt[np.ndarray, "c d"]) -> Float[np.ndarray, "d c"]:
        """Return the product of all data with the point, given the product with the residues sent."""
        if self._sent is None:
            raise RuntimeError("no model has been sent")
        self._product = np.asarray(self._base_product + self._form.decode_product(residues, self._sent).T)
        self._known_point = self.point
        return self._product

    def state(self) -> dict[str, Float[np.ndarray, "d c"]]:
        """Return the state that a resumed run needs to give the same bits."""
        return {"point": self._known_point, "product": self._product}

    def restore(self, state: Message) -> None:
        """Restore a state returned by :meth:`state`."""
        self._known_point = state.get("point", self._known_point)
        self._product = state.get("product", self._product)


def summed(ring: Ring, parts: Sequence[UInt[np.ndarray, "..."]]) -> UInt[np.ndarray, "..."]:
    """Return the sum of residues in the ring."""
    total = parts[0].copy()
    for part in parts[1:]:
        ring.add(total, part, out=total)
    return total
