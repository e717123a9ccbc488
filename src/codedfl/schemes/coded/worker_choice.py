"""Which devices become workers, and how many replies are awaited: the choice with the least predicted time."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.network import Chance, DelayModel, RoundCosts
from codedfl.schemes.contract import Public

WORD_BITS = 32
"""Bits of a residue on the wire."""
SEED = 0x706C616E
"""Predictions have random numbers of their own, whatever seed a run has."""
DRAWS = 200
"""Draws of an epoch behind a prediction: its mean is known to a few percent."""


@final
@dataclass(frozen=True)
class Workers:
    """Devices from the fastest on, W of which work, and K of whose replies finish an epoch."""

    order: tuple[int, ...]
    count: int
    threshold: int

    @property
    def chosen(self) -> tuple[int, ...]:
        """The workers."""
        return self.order[: self.count]


def choose_workers(
    public: Public, *, workers: int | None, threshold: int | None, spares: int, expected_epochs: int
) -> Workers:
    """Choose W and K where they are not given; without a fleet to predict from, everyone works but the spares wait."""
    devices = public.devices
    if public.delays is None:
        count = workers or devices
        return Workers(tuple(range(devices)), count, threshold or max(1, count - spares))
    order = _fastest_first(public, public.delays)
    counts = [workers] if workers else list(range(spares + 1 if threshold is None else threshold, devices + 1))
    best = None
    for K in [threshold] if threshold else range(1, devices + 1 - spares):
        replies = _replies(public, public.delays, K)[:, list(order)]
        for W in counts:
            if W - (0 if threshold else spares) < K:
                continue
            epoch = float(np.partition(replies[:, :W], K - 1, axis=1)[:, K - 1].mean())
            seconds = epoch + _spreading_seconds(public, public.delays, W, K) / expected_epochs
            if best is None or seconds < best[0]:
                best = seconds, W, K
    if best is None:
        raise ValueError(f"no choice of W and K for {devices} devices, {spares} spares")
    return Workers(order, best[1], best[2])


def _fastest_first(public: Public, delays: DelayModel) -> tuple[int, ...]:
    """Order devices by the mean time of a reply; equal ones by their number."""
    tries = 1 / (1 - delays.loss)[None]
    mean = delays.reply_seconds(_costs(public, 1), Chance(tries, np.ones_like(tries), tries))[0]
    return tuple(int(device) for device in np.argsort(mean, kind="stable"))


def _replies(public: Public, delays: DelayModel, threshold: int) -> Float[np.ndarray, "draws n"]:
    return delays.reply_seconds(_costs(public, threshold), delays.chance(SEED, 2, 0, DRAWS))


def _costs(public: Public, threshold: int) -> RoundCosts:
    """Return what an epoch costs if everybody worked."""
    d, c, n = public.features, public.outputs, public.devices
    width = -(-d // threshold)
    each = np.ones(n, dtype=np.int64)
    bits, macs = c * WORD_BITS * each, c * d * width * each
    return RoundCosts(np.arange(n), d * bits, macs, width * bits, quorum=n, server_macs=0)


def _spreading_seconds(public: Public, delays: DelayModel, workers: int, threshold: int) -> float:
    """Return about how long coded blocks take to reach the workers: the rest of the set-up is the same for all."""
    d = public.features
    width = -(-d // threshold)
    words = max(d * width, workers * width * -(-d // public.devices))
    rate = float(np.median(delays.d2d_rate * (1 - delays.loss)))
    return words * WORD_BITS * (1 + delays.overhead) / rate
