"""Curves of the sharing policy: active devices K(e) and supports left L(e), over epochs e.

Both are counted when an epoch begins, so K(1) = N and L(1) = M.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from codedfl.network import DelayModel, Draws
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.training.records import State
from codedfl.training.sharing_blocks import SharedEpochs
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
    return [_joined(blocks) for blocks in zip(*sharing_blocks(variants, drawn, epochs), strict=True)]


def times_and_curves(
    variants: Sequence[Variant],
    channels: Sequence[DelayModel],
    *,
    epochs: int,
    seed: int,
    draws: int,
    curves: Sequence[int] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Float[np.ndarray, "channels variants draws epochs"], list[SharingCurves]]:
    """Return when epochs end where delays differ in the channel between devices only, and curves of some variants.

    Every policy is replayed once, since replies do not use that channel. Times are in single precision.
    """
    drawn, *others = (Draws(delays, seed=seed, count=draws) for delays in channels)
    ends = np.empty((len(channels), len(variants), draws, epochs), np.float32)
    kept: list[list[SharedEpochs]] = [[] for _ in curves]
    done = 0
    for block in sharing_blocks(variants, drawn, epochs, others):
        later = done + len(block[0].ends)
        for place, played in enumerate(block):
            for channel, times in enumerate((played.ends, *played.elsewhere)):
                ends[channel, place, :, done:later] = times.T
        for number, blocks in zip(curves, kept, strict=True):
            blocks.append(block[number])
        done = later
        progress(done, epochs)
    return ends, [_joined(blocks) for blocks in kept]


def _joined(blocks: Sequence[SharedEpochs]) -> SharingCurves:
    both = (np.concatenate([getattr(each, name) for each in blocks]).T for name in ("active", "supports"))
    return SharingCurves(*map(np.ascontiguousarray, both))


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
