"""What the sealed schemes share: number formats, and models that are sent as residues.

The ring holds a product exactly, for the model as it was rounded. So the server keeps the rounded point that it has
asked about and the exact product there. Of a new model it sends, output by output, the difference to that point or the
model itself, whichever is smaller: the smaller, the finer its steps. The gradient that comes back is exact at a point
that is as close to the model as the steps are fine, and rounding does not add up from epoch to epoch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals import EncodedModel, FixedPoint, Ring
from codedfl.errors import CodedflError, DataError, ScenarioError, TrainingError
from codedfl.schemes.contract import Public
from codedfl.schemes.messages import Message
from codedfl.task import Shard

MODEL_STEPS = 16
"""Steps that an entry of a model has on average; the rest of the ring is for the data (docs/sealed.md)."""
SMALLEST = 1e-100
"""Magnitudes from here to its inverse can be squared and summed without leaving float64."""


@final
@dataclass(frozen=True)
class Formats:
    """The number formats of a run, from what everybody knows: bounds on the features, and how many points there are."""

    gram: FixedPoint
    moments: FixedPoint

    @classmethod
    def choose(cls, ring: Ring, public: Public, *, data_bits: int | None = None, multiplied: bool = True) -> "Formats":
        """Choose the finest steps with which no sum over all devices can leave the ring.

        Of data with entries of 1 and more, no more than ``data_bits`` bits behind the point are kept, if told; the
        rest of the ring is for the model then. Where Gram matrices are ``multiplied`` by models in the ring, there
        must be room for that, too.
        """
        largest, total = max(public.samples), sum(public.samples)
        entry, target = public.largest_feature, public.largest_target
        if not all(SMALLEST <= bound <= 1 / SMALLEST for bound in (entry, target)):
            raise ScenarioError(
                f"features up to {entry:g} and targets up to {target:g} cannot be sealed; scale them so that the "
                f"largest of each lies between {SMALLEST:g} and {1 / SMALLEST:g}"
            )
        # devices add up n_i products in their own precision, and may end above what exact numbers would give
        entry *= 1 + largest * float(np.finfo(public.dtype).eps)
        try:
            gram = FixedPoint.choose(
                ring,
                entry_bound=entry * public.largest_feature * largest,
                sum_bound=entry * public.largest_feature * total,
                summands=public.devices,
                dimension=public.features if multiplied else 1,
                model_steps=MODEL_STEPS if multiplied else 1,
            )
            moments = FixedPoint.choose(
                ring,
                entry_bound=entry * target * largest,
                sum_bound=entry * target * total,
                summands=public.devices,
                dimension=1,
                model_steps=1,
            )
        except CodedflError as error:
            raise ScenarioError(
                f"{public.features} features of {total} points on {public.devices} devices do not fit: {error}"
            ) from None
        return cls(_cut(gram, data_bits), _cut(moments, data_bits))


def _cut(form: FixedPoint, data_bits: int | None) -> FixedPoint:
    if data_bits is None or form.entry_bound < 1:
        return form
    return replace(form, data_bits=min(data_bits, form.data_bits))


def check_bounds(public: Public, shard: Shard) -> None:
    """Refuse data beyond the bounds that all devices agreed on: sums could leave the ring unnoticed."""
    for what, values, bound in (
        ("feature", shard.x, public.largest_feature),
        ("target", shard.y, public.largest_target),
    ):
        largest = float(np.max(np.abs(values), initial=0.0))
        if not largest <= bound:
            raise DataError(
                f"a {what} of size {largest:g} is beyond the bound of {bound:g} that the devices agreed on; scale the "
                "data or agree on a larger bound"
            )


@final
class PointedProducts:
    """The point that was asked about last, as rounded, and the exact product of all data with it."""

    def __init__(self, form: FixedPoint, public: Public, *, longest: float = math.inf) -> None:
        shape = (public.features, public.outputs)
        self._form = form
        self._longest = longest
        self._known_point = np.zeros(shape)
        self._product = self._base_product = np.zeros(shape)
        self._sent: EncodedModel | None = None
        self.point = np.zeros(shape)
        """Where the next product will be known, when the replies are there."""
        self.asked = np.zeros(shape[::-1], form.ring.dtype)
        """The residues that were sent last."""

    def ask(self, model: Float[np.ndarray, "d c"]) -> UInt[np.ndarray, "c d"]:
        """Choose the point nearest to a model that the ring can hold, and return the residues to send."""
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
        """Return the product of all data with the point, given that with what was sent."""
        if self._sent is None:
            raise RuntimeError("no model has been sent")
        self._product = np.asarray(self._base_product + self._form.decode_product(residues, self._sent).T)
        self._known_point = self.point
        return self._product

    def state(self) -> dict[str, Float[np.ndarray, "d c"]]:
        """Return what a resumed run needs to go on with the same bits."""
        return {"point": self._known_point, "product": self._product}

    def restore(self, state: Message) -> None:
        """Take back a state."""
        self._known_point = state.get("point", self._known_point)
        self._product = state.get("product", self._product)


def summed(ring: Ring, parts: Sequence[UInt[np.ndarray, "..."]]) -> UInt[np.ndarray, "..."]:
    """Add residues up in the ring."""
    total = parts[0].copy()
    for part in parts[1:]:
        ring.add(total, part, out=total)
    return total
