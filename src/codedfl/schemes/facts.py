"""Sizes and bounds that devices publish about their data before a run, and what all parties know from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import DataError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes.private import release_of
from codedfl.schemes.public import Public
from codedfl.task import Shard
from codedfl.task.preparing import Prepared


@final
@dataclass(frozen=True)
class Facts:
    """What one device publishes about its data."""

    samples: int
    features: int
    outputs: int
    dtype: "np.dtype[Any]"
    largest_feature: float
    """A bound on its features: the bound that holds for any data if there is one, else a power of two."""
    largest_target: float
    """The same for targets."""


def describe(scenario: Scenario, shard: Shard, start: Float[np.ndarray, "d c"] | None = None) -> Facts:
    """Return what a device publishes about its shard, whose targets are residuals of the first model ``start``."""
    features, outputs = shard.x.shape[1], shard.y.shape[1]
    known = _fourier_bound(features) if scenario.features.kind == "rbf" else 0.0
    if scenario.private:  # what devices publish must not depend on their data
        longest, target = scenario.privacy.clip_features, scenario.privacy.clip_targets
        if scenario.ranged and scenario.intercept:  # the constant is larger than random features
            known = longest
        return Facts(shard.samples, features, outputs, shard.x.dtype, min(known or longest, longest), target)
    largest = _bound("features", shard.x, known)
    # |x theta| is at most largest * ||theta||_1 for every output; a relative 2^-20 covers the rounding of x theta
    moved = 0.0 if start is None else largest * float(np.abs(start).sum(axis=0).max()) * (1 + 2**-20)
    bounds = largest, _bound("targets", shard.y, 1.0 + moved)
    return Facts(shard.samples, features, outputs, shard.x.dtype, *bounds)


def agree(
    scenario: Scenario, facts: Sequence[Facts], prepared: Prepared | None = None, names: Sequence[str] = ()
) -> Public:
    """Combine what all devices publish; the largest bound is used for all of them.

    Where columns were ``prepared``, their sums say more than bounds on single entries. ``names`` are those of the
    devices in error messages.
    """
    kinds = [(each.features, each.outputs, each.dtype) for each in facts]
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise DataError(
                f"device {number} has {_words(*kind)}, device 0 has {_words(*kinds[0])}; give all "
                "devices the same columns, classes and precision"
            )
    claims = tuple((each.largest_feature, each.largest_target) for each in facts)
    samples = tuple(each.samples for each in facts)
    return Public(
        samples,
        *kinds[0],
        largest_feature=max(each.largest_feature for each in facts),
        largest_target=max(each.largest_target for each in facts),
        delays=known_delays(scenario),
        first_offline=scenario.training.first_epoch_offline,
        accuracy=scenario.accuracy,
        claims=claims,
        bound_share=scenario.bound_share,
        names=tuple(names),
        release=release_of(scenario, samples, *kinds[0][:2]),
        loss=scenario.task.loss,
        feature_energy=None if prepared is None else prepared.feature_energy,
        target_energy=None if prepared is None else prepared.target_energy,
    )


def known_delays(scenario: Scenario) -> DelayModel:
    """Return the delays that a scenario declares for the fleet and its links."""
    return DelayModel.create(scenario.fleet, scenario.links)


def _words(features: int, outputs: int, dtype: "np.dtype[Any]") -> str:
    return f"{features} features and {outputs} outputs in {dtype.name}"


def _bound(what: str, array: Float[np.ndarray, "n columns"], known: float) -> float:
    """Return the ``known`` bound if it holds, else the least power of two that bounds the array."""
    largest = float(np.max(np.abs(array), initial=0.0))
    if not largest <= 2.0**1023:
        raise DataError(
            f"the {what} contain a number of size {largest:g}; replace missing and infinite values, or scale the column"
        )
    return known if largest <= known else _power_of_two(largest)


def _power_of_two(largest: float) -> float:
    """Return the least power of two that is not smaller."""
    fraction, exponent = math.frexp(largest)  # a logarithm would round down just above a power of two
    return math.ldexp(1.0, exponent - (fraction == 0.5))


def _fourier_bound(features: int) -> float:
    """Return the bound on random Fourier features of any data, sqrt(2/d), up to rounding."""
    return math.sqrt(2 / features) * (1 + 2**-20)


def refuse_claims(
    scenario: Scenario, facts: Sequence[Facts], names: Sequence[str], kind: str, prepared: Prepared | None = None
) -> None:
    """Refuse bounds of devices above those that hold for any data: they only make number formats coarse for all.

    Random Fourier features and targets of a classification have known bounds. Of prepared columns, the sums of squares
    over all devices are known, and no entry is larger than their root.
    """
    limits = [math.inf, 1.0 if kind == "classification" else math.inf]
    if scenario.features.kind == "rbf":
        limits[0] = _fourier_bound(facts[0].features) if not scenario.ranged else scenario.privacy.clip_features
        if prepared is not None and (shift := prepared.preparation.feature_shift) is not None:
            limits[0] = _power_of_two(limits[0] + float(np.abs(shift).max()))
    energies = (None, None) if prepared is None else (prepared.feature_energy, prepared.target_energy)
    for place, energy in enumerate(energies):
        if energy is not None:  # devices publish powers of two, or 1 of targets that are smaller
            limits[place] = min(limits[place], max(1.0, _power_of_two(math.sqrt(energy))))
    for name, each in zip(names, facts, strict=True):
        claims = ("features", each.largest_feature, limits[0]), ("targets", each.largest_target, limits[1])
        for what, claim, limit in claims:
            if not claim <= limit:
                raise DataError(
                    f"{name} claims {what} up to {claim:g}, where none can be above {limit:g}; check that site's "
                    "program and data, or run without it"
                )
