"""How many parts each device of ``coded-padded`` holds: the choice with the least predicted time."""

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import packed_size
from codedfl.network import DelayModel, RoundCosts
from codedfl.schemes.coded.worker_choice import DRAWS, SEED
from codedfl.schemes.contract import Public

UNKNOWN = 16
"""What is taken where nothing is known of the fleet."""


def choose_alpha(public: Public, bits: int, *, relayed: bool, expected_epochs: int) -> int:
    """Choose alpha by the mean of the (N - alpha + 1)-th reply, and the set-up shared out over the epochs."""
    if public.delays is None:
        return min(UNKNOWN, public.devices)
    epochs = np.sort(_replies(public, public.delays, bits), axis=1).mean(axis=0)
    set_up = _set_up_seconds(public, public.delays, bits, relayed=relayed)
    return 1 + int(np.argmin(epochs[::-1] + set_up / expected_epochs))


def _replies(public: Public, delays: DelayModel, bits: int) -> Float[np.ndarray, "draws n"]:
    d, c, n = public.features, public.outputs, public.devices
    each = np.ones(n, dtype=np.int64)
    costs = RoundCosts(np.arange(n), c * d * bits * each, c * d * d * each, c * d * bits * each, n, server_macs=0)
    return delays.reply_seconds(costs, delays.chance(SEED, 2, 0, DRAWS))


def _set_up_seconds(public: Public, delays: DelayModel, bits: int, *, relayed: bool) -> Float[np.ndarray, "n"]:
    """Return about how long sharing takes for alpha = 1, 2, ...: the busiest device sends and takes without a pause."""
    words = packed_size(public.features) + public.features * public.outputs
    tries = (1 + delays.overhead) / (1 - delays.loss)
    up, down = (delays.up_rate, delays.down_rate) if relayed else (delays.d2d_rate, delays.d2d_rate)
    sending, taking = words * bits * tries / up, words * bits * tries / down
    work = words / delays.mac_rate * (1 + delays.setup_ratio)
    others = np.arange(public.devices)[:, None]  # how many parcels each device sends, and takes
    last = taking if relayed else np.zeros(public.devices)  # goes down when all else is sent
    seconds = others * (np.maximum(sending, taking) + work) + np.where(others > 0, last + 2 * work, 0.0)
    return np.asarray(seconds.max(axis=1))
