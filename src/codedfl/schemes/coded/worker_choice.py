"""Choice of how many devices hold coded data and how many replies to await, by the least predicted time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import packed_size
from codedfl.network import Chance, DelayModel, RoundCosts
from codedfl.schemes.public import Public

SEED = 0x706C616E
"""Seed of predictions, independent of the seed of a run."""
DRAWS = 200
"""Draws of an epoch per prediction, which give its mean to a few percent."""
MOST_WORKERS = 128
"""Workers to choose from, the fastest ones: more would shorten an epoch little, and take longer to spread data to."""
UNKNOWN = 16
"""The alpha of ``coded-padded`` if the delays of the fleet are unknown."""


@final
@dataclass(frozen=True)
class Workers:
    """Devices, fastest first; the first W (``count``) are workers, and K replies (``threshold``) finish an epoch."""

    order: tuple[int, ...]
    count: int
    threshold: int

    @property
    def chosen(self) -> tuple[int, ...]:
        """The workers."""
        return self.order[: self.count]


def choose_workers(
    public: Public, bits: int, *, workers: int | None, threshold: int | None, spares: int, expected_epochs: int
) -> Workers:
    """Choose W and K if not given; if delays are unknown, all devices are workers and K leaves out the spares.

    A residue takes so many ``bits`` of a message.
    """
    devices = public.devices
    if public.delays is None:
        count = workers or devices
        return Workers(tuple(range(devices)), count, threshold or max(1, count - spares))
    order = _fastest_first(public, bits, public.delays)
    most = min(devices, max(MOST_WORKERS, workers or 0, threshold or 0, spares + 1))
    counts = [workers] if workers else list(range(spares + 1 if threshold is None else threshold, most + 1))
    chance = public.delays.chance(SEED, 2, 0, DRAWS)
    best = None
    for K in [threshold] if threshold else range(1, most + 1 - spares):
        replies = public.delays.reply_seconds(_costs(public, bits, K, order[:most]), chance)
        for W in counts:
            if W - (0 if threshold else spares) < K:
                continue
            epoch = float(np.partition(replies[:, :W], K - 1, axis=1)[:, K - 1].mean())
            seconds = epoch + _spreading_seconds(public, bits, public.delays, W, K) / expected_epochs
            if best is None or seconds < best[0]:
                best = seconds, W, K
    if best is None:
        raise ValueError(f"no W and K fit {devices} devices and {spares} spares; use fewer spares")
    return Workers(order, best[1], best[2])


def choose_alpha(public: Public, bits: int, *, relayed: bool, expected_epochs: int) -> int:
    """Choose alpha by the mean time of the (N - alpha + 1)-th reply plus the set-up time per expected epoch."""
    if public.delays is None:
        return min(UNKNOWN, public.devices)
    replies = public.delays.reply_seconds(_costs(public, bits, 1), public.delays.chance(SEED, 2, 0, DRAWS))
    epochs = np.sort(replies, axis=1).mean(axis=0)
    set_up = _sharing_seconds(public, public.delays, bits, relayed=relayed)
    return 1 + int(np.argmin(epochs[::-1] + set_up / expected_epochs))


def _fastest_first(public: Public, bits: int, delays: DelayModel) -> tuple[int, ...]:
    """Return devices by mean reply time, ties by number."""
    tries = 1 / (1 - delays.loss)[None]
    mean = delays.reply_seconds(_costs(public, bits, 1), Chance(tries, np.ones_like(tries), tries))[0]
    return tuple(int(device) for device in np.argsort(mean, kind="stable"))


def _costs(public: Public, word_bits: int, threshold: int, asked: Sequence[int] | None = None) -> RoundCosts:
    """Return the costs of an epoch in which asked devices multiply a block of 1/threshold of the columns."""
    d, c, devices = public.features, public.outputs, np.arange(public.devices) if asked is None else np.array(asked)
    width, each = -(-d // threshold), np.ones(len(devices), dtype=np.int64)
    bits, macs = c * word_bits * each, c * d * width * each
    return RoundCosts(devices, d * bits, macs, width * bits, quorum=len(devices), server_macs=0)


def _spreading_seconds(public: Public, bits: int, delays: DelayModel, workers: int, threshold: int) -> float:
    """Return the approximate time until workers have their coded blocks; the rest of the set-up is constant."""
    d = public.features
    width = -(-d // threshold)
    words = max(d * width, workers * width * -(-d // public.devices))
    if delays.shared_channel:  # all parts one after the other; no worker sends itself its own
        words = workers * width * (d - d // public.devices)
    rate = float(np.median(delays.d2d_rate * (1 - delays.d2d_loss)))
    return words * bits * (1 + delays.overhead) / rate


def _sharing_seconds(public: Public, delays: DelayModel, bits: int, *, relayed: bool) -> Float[np.ndarray, "n"]:
    """Return the approximate time of sharing for alpha = 1, 2, ..., if the busiest device never waits."""
    words = packed_size(public.features) + public.features * public.outputs
    tries = (1 + delays.overhead) / (1 - (delays.loss if relayed else delays.d2d_loss))
    up, down = (delays.up_rate, delays.down_rate) if relayed else (delays.d2d_rate, delays.d2d_rate)
    sending, taking = words * bits * tries / up, words * bits * tries / down
    work = words / delays.mac_rate * (1 + delays.setup_ratio)
    last = taking if relayed else np.zeros(public.devices)  # the last parcel goes down after all others
    each = np.maximum(sending, taking)
    if delays.shared_channel and not relayed:  # everyone's parcels one after the other
        each = np.full(public.devices, sending.sum())
    # by how many parcels each device sends and receives; for all numbers at once it would be a large matrix
    others = ((each + work) * number + (last + 2 * work if number else 0.0) for number in range(public.devices))
    return np.array([float(seconds.max()) for seconds in others])
