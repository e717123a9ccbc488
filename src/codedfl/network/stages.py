"""Stages: many devices send to many others before training begins, and all wait for the last.

A device sends one parcel at a time and takes one at a time (it may do both at once). Parcels leave in the order given;
each begins when its sender and its recipient are both free, and is sent again until it arrives. The server takes any
number at once; what it relays goes down when it has come up and the recipient is free. A sender first prepares
everything it has to send; a recipient works through what it received when the last parcel is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from codedfl.network.delays import DelayModel, Step, TransferCosts

__all__ = ["StageChance", "grant_seconds", "relay_tries", "stage_chance", "stage_seconds", "stage_steps"]

_FIRST_STREAM = 16
"""Streams of random numbers below this belong to epochs and hand-overs."""
_RELAYED = 1 << 30
"""Streams from this on belong to the way down of what is relayed, one a stage."""


@dataclass(frozen=True, eq=False)
class StageChance:
    """Random part of a stage: setup of each device's work, and tries of each parcel."""

    export_setup: Float[np.ndarray, "draws n"]
    parcel_tries: Float[np.ndarray, "draws m"]
    absorb_setup: Float[np.ndarray, "draws n"]


def stage_chance(
    delays: DelayModel, stage: int, senders: Int[np.ndarray, "m"], *, seed: int, first: int, draws: int
) -> StageChance:
    """Draw the random part of a stage with parcels of these senders, for ``draws`` draws from number ``first`` on.

    Every parcel has numbers of its own: who sends the others does not matter.
    """
    export, absorb = (_setup(delays, seed, stage, stream, first, draws) for stream in range(2))
    return StageChance(export, _tries(delays, senders, seed, _stream(stage, 2), first, draws), absorb)


def relay_tries(
    delays: DelayModel, stage: int, recipients: Int[np.ndarray, "m"], *, seed: int, first: int, draws: int
) -> Float[np.ndarray, "draws m"]:
    """Draw how often the server sends each parcel of a stage down, if it relays it."""
    return _tries(delays, recipients, seed, _RELAYED + stage, first, draws)


def grant_seconds(delays: DelayModel, bits: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return how long each sender of a stage waits for its grants; they are so short that tries do not matter."""
    return np.asarray(bits * (1 + delays.overhead) / delays.down_rate / (1 - delays.loss))


def stage_seconds(
    delays: DelayModel, stage: int, transfers: Sequence[TransferCosts], *, seed: int, first: int, draws: int
) -> Float[np.ndarray, "draws"]:
    """Return how long a stage lasts in each draw, counted from number ``first``."""
    return _lay_out(delays, stage, transfers, seed=seed, first=first, draws=draws)[-1]


def stage_steps(
    delays: DelayModel, stage: int, transfers: Sequence[TransferCosts], *, seed: int, draw: int
) -> list[Step]:
    """Return who sends what to whom when in one draw, in seconds after the stage began."""
    begins, ends, _ = _lay_out(delays, stage, transfers, seed=seed, first=draw, draws=1)
    return [
        Step(costs.sender, "send", costs.recipient, float(begin[0]), float(end[0]), costs.parcel_bits)
        for costs, begin, end in zip(transfers, begins, ends, strict=True)
    ]


Draws = Float[np.ndarray, "draws"]


def _lay_out(
    delays: DelayModel, stage: int, transfers: Sequence[TransferCosts], *, seed: int, first: int, draws: int
) -> tuple[list[Draws], list[Draws], Draws]:
    """Return when each parcel begins and ends, and when the stage is over."""
    n = delays.devices
    senders = np.array([costs.sender for costs in transfers], dtype=np.int64)
    recipients = np.array([max(costs.recipient, 0) for costs in transfers], dtype=np.int64)
    chance = stage_chance(delays, stage, senders, seed=seed, first=first, draws=draws)
    tries = again = chance.parcel_tries
    if any(costs.relayed for costs in transfers):
        again = relay_tries(delays, stage, recipients, seed=seed, first=first, draws=draws)
    prepared, received, granted = np.zeros(n), np.zeros(n), np.zeros(n)
    for costs in transfers:
        prepared[costs.sender] += costs.export_macs
        granted[costs.sender] += costs.grant_bits
        if not costs.uploaded:
            received[costs.recipient] += costs.absorb_macs
    sending = _work(delays, prepared, chance.export_setup) + grant_seconds(delays, granted)
    taking = np.zeros((draws, n))
    begins: list[Draws] = []
    ends: list[Draws] = []
    for number, costs in enumerate(transfers):
        begin, end = _send(delays, costs, tries[:, number], again[:, number], sending, taking)
        begins.append(begin)
        ends.append(end)
    finished = np.maximum(taking + _work(delays, received, chance.absorb_setup), sending)
    return begins, ends, np.asarray(finished.max(axis=1, initial=0.0))


def _send(
    delays: DelayModel,
    costs: TransferCosts,
    tries: Draws,
    again: Draws,
    sending: Float[np.ndarray, "draws n"],
    taking: Float[np.ndarray, "draws n"],
) -> tuple[Draws, Draws]:
    """Send one parcel as soon as can be, and note until when its sender and its recipient are busy."""
    sender, recipient = costs.sender, costs.recipient
    bits = costs.parcel_bits * (1 + delays.overhead)
    if not (costs.uploaded or costs.relayed):
        begin = np.maximum(sending[:, sender], taking[:, recipient])
        end = begin + tries * bits / min(delays.d2d_rate[sender], delays.d2d_rate[recipient])
        sending[:, sender] = taking[:, recipient] = end
        return begin, end
    begin = sending[:, sender].copy()
    end = begin + tries * bits / delays.up_rate[sender]
    sending[:, sender] = end
    if costs.relayed:
        end = np.maximum(end, taking[:, recipient]) + again * bits / delays.down_rate[recipient]
        taking[:, recipient] = end
    return begin, end


def _setup(
    delays: DelayModel, seed: int, stage: int, stream: int, first: int, draws: int
) -> Float[np.ndarray, "draws n"]:
    return np.asarray(-np.log1p(-delays.uniform(seed, 0, _stream(stage, stream), first, draws)))


def _tries(
    delays: DelayModel, ends: Int[np.ndarray, "m"], seed: int, stream: int, first: int, draws: int
) -> Float[np.ndarray, "draws m"]:
    """Return how often each parcel is sent, by the loss on the links of these devices."""
    return delays.tries(delays.uniform(seed, 0, stream, first, draws, columns=len(ends)), ends)


def _stream(stage: int, number: int) -> int:
    return _FIRST_STREAM + 3 * stage + number


def _work(
    delays: DelayModel, macs: Float[np.ndarray, "n"], setup: Float[np.ndarray, "draws n"]
) -> Float[np.ndarray, "draws n"]:
    work = macs / delays.mac_rate
    mean_setup = np.where(macs > 0, delays.setup_ratio * work + delays.setup_seconds, 0.0)
    return np.asarray(work + setup * mean_setup)
