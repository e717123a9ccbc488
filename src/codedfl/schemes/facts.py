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
    # up to rounding, sqrt(2/d) bounds random Fourier features of any data
    known = math.sqrt(2 / features) * (1 + 2**-20) if scenario.features.kind == "rbf" else 0.0
    largest = _bound("features", shard.x, known)
    # |x theta| is at most largest * ||theta||_1 for every output; a relative 2^-20 covers the rounding of x theta
    moved = 0.0 if start is None else largest * float(np.abs(start).sum(axis=0).max()) * (1 + 2**-20)
    bounds = largest, _bound("targets", shard.y, 1.0 + moved)
    return Facts(shard.samples, features, outputs, shard.x.dtype, *bounds)


def agree(scenario: Scenario, facts: Sequence[Facts], prepared: Prepared | None = None) -> Public:
    """Combine what all devices publish; the largest bound is used for all of them.

    Where columns were ``prepared``, their sums say more than bounds on single entries.
    """
    kinds = [(each.features, each.outputs, each.dtype) for each in facts]
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise DataError(
                f"device {number} has {_words(*kind)}, device 0 has {_words(*kinds[0])}; give all "
                "devices the same columns, classes and precision"
            )
    return Public(
        tuple(each.samples for each in facts),
        *kinds[0],
        largest_feature=max(each.largest_feature for each in facts),
        largest_target=max(each.largest_target for each in facts),
        delays=known_delays(scenario),
        first_offline=scenario.training.first_epoch_offline,
        accuracy=scenario.accuracy,
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
    if largest <= known:
        return known
    fraction, exponent = math.frexp(largest)  # a logarithm would round down just above a power of two
    return math.ldexp(1.0, exponent - (fraction == 0.5))
