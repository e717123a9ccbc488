"""Curves of the sharing policy: active devices K(e) and supports left L(e), over epochs e.

Both are counted when an epoch begins, so K(1) = N and L(1) = M.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from codedfl.network import DelayModel, Draws
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.training.records import State
from codedfl.training.timing import Band, Variant, band, sharing_blocks


@dataclass(frozen=True, eq=False)
class SharingCurves:
    """How many devices are active and how many supports are left (infinite without limit), by draw and epoch."""

    active: Int[np.ndarray, "draws epochs"]
    supports: Float[np.ndarray, "draws epochs"]

    @property
    def alone(self) -> float:
        """The share of draws whose last epoch has a single active device."""
        return float(np.mean(self.active[:, -1] == 1))


def sharing_curves(
    variant: Variant, delays: DelayModel, *, epochs: int, seed: int, draws: int, first: int = 0
) -> SharingCurves:
    """Replay the policy in the timing draws from number ``first`` on; a run is one of them."""
    (found,) = curves_side_by_side([variant], delays, epochs=epochs, seed=seed, draws=draws, first=first)
    return found


def curves_side_by_side(
    variants: Sequence[Variant], delays: DelayModel, *, epochs: int, seed: int, draws: int, first: int = 0
) -> list[SharingCurves]:
    """Replay several policies, which meet the same random delays."""
    drawn = Draws(delays, seed=seed, first=first, count=draws)
    found = []
    for blocks in zip(*sharing_blocks(variants, drawn, epochs), strict=True):
        both = (np.concatenate([getattr(each, name) for each in blocks]).T for name in ("active", "supports"))
        found.append(SharingCurves(*map(np.ascontiguousarray, both)))
    return found


def curves_of(state: State, policy: SharingPolicy) -> SharingCurves:
    """Return the curves of a run, as a single draw, from its hand-overs; ``policy`` is the policy at its beginning."""
    moved = np.asarray(state.server["moved"]).tolist()
    active, supports = [], []
    for epoch in range(1, state.epoch + 1):
        active.append(len(policy.active))
        supports.append(policy.supports_left)
        policy.resume((*who, None if support < 0 else support) for when, *who, support in moved if when == epoch)
    return SharingCurves(np.array([active], np.int64), np.array([supports], np.float64))


def bands(values: Int[np.ndarray, "draws epochs"] | Float[np.ndarray, "draws epochs"]) -> Sequence[Band]:
    """Return mean and band over the draws of each epoch."""
    return [band(column.astype(np.float64)) for column in values.T]
