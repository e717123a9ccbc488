"""Time of stages that overlap, in every draw.

A device prepares its parcels of a stage when it has absorbed all that the stages bring it which this one comes after,
and absorbs the parcels of a stage when the last of them has arrived; it computes one thing at a time, in the order in
which it could begin. It sends one
parcel at a time and receives one at a time. Whenever a sender or a recipient becomes free, or parcels become ready, the
first ready parcels in the given order whose sender and recipient are both free begin: nobody waits for a busy device
while another one is free. Grants are sent at the beginning. On a shared channel, ready parcels go one at a time, the
first in the given order next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.threads import on_all_cores
from codedfl.network.costs import StageCosts, TransferCosts
from codedfl.network.delays import DelayModel

_LEAST_THREADED_PARCELS = 10_000
"""In all draws; fewer take less time than a second thread needs to begin."""


@dataclass(frozen=True)
class OverlappingStage:
    """A stage: its number, the costs of its transfers, and the numbers of the stages that it comes ``after``."""

    number: int
    transfers: Sequence[TransferCosts]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PipelineTimes:
    """Times of overlapping stages, in seconds after the first began: begin and end of each parcel, stage by stage."""

    begin: Float[np.ndarray, "draws m"]
    end: Float[np.ndarray, "draws m"]
    seconds: Float[np.ndarray, "draws"]
    """How long all stages last together."""


def overlap(
    delays: DelayModel, stages: Sequence[OverlappingStage], *, seed: int, first: int, draws: int
) -> PipelineTimes:
    """Return the times of stages that overlap. All parcels go directly from device to device."""
    from codedfl.network.kernels import play

    n = delays.devices
    tables = [StageCosts.create(each.transfers) for each in stages]
    export, absorb = np.zeros((2, draws, len(stages), n))
    ways, grants = [], np.zeros(n)
    for place, (stage, costs) in enumerate(zip(stages, tables, strict=True)):
        (sender,), (recipient,) = costs.sender, costs.recipient
        if np.any(costs.relayed) or np.any(recipient < 0):
            raise ValueError(f"stage {stage.number} sends parcels over the server; it cannot overlap with others")
        chance = delays.stage_chance(seed, stage.number, first, draws, sender)
        rate = np.minimum(delays.d2d_rate[sender], delays.d2d_rate[recipient])
        ways.append(chance.parcel_tries * costs.parcel_bits * (1 + delays.overhead) / rate)
        export[:, place] = delays.work_seconds(_sums(sender, costs.export_macs[0], n), chance.export_setup)
        absorb[:, place] = delays.work_seconds(_sums(recipient, costs.absorb_macs[0], n), chance.absorb_setup)
        grants += _sums(sender, costs.grant_bits[0], n) / (1 - delays.loss)
    granted = np.broadcast_to(delays.send_seconds(grants, delays.down_rate), (draws, n))
    parcels = np.stack(
        [
            np.repeat(np.arange(len(stages)), [each.sender.shape[1] for each in tables]),
            np.concatenate([each.sender[0] for each in tables]),
            np.concatenate([each.recipient[0] for each in tables]),
        ]
    )
    known = [each.number for each in stages]
    awaits = np.array([[number in each.after for number in known] for each in stages])
    way = np.concatenate(ways, axis=1)
    times = PipelineTimes(np.zeros_like(way), np.zeros_like(way), np.zeros(draws))
    granted, orders = granted.copy(), (*_by(parcels[1], n), *_by(parcels[2], n))  # one that numba may write to

    def some(first: int, end: int) -> None:
        own = slice(first, end)
        seconds, written = (way[own], granted[own], export[own], absorb[own]), (times.begin, times.end, times.seconds)
        play(parcels, *seconds, awaits, *orders, delays.shared_channel, *(each[own] for each in written))

    if way.size > _LEAST_THREADED_PARCELS:
        on_all_cores(some, draws)
    else:
        some(0, draws)
    return times


def sending_order(delays: DelayModel, stages: Sequence[OverlappingStage], *, seed: int, draw: int) -> list[int]:
    """Return in which order the parcels of stages that overlap begin; parcels are numbered stage by stage.

    A parcel comes after all that its sender waits for, also where these take no time: they are of earlier stages.
    """
    begin = overlap(delays, stages, seed=seed, first=draw, draws=1).begin[0]
    return [int(each) for each in np.argsort(begin, kind="stable")]


def _sums(party: Int[np.ndarray, "m"], amounts: Int[np.ndarray, "m"], devices: int) -> Float[np.ndarray, "n"]:
    return np.bincount(party, amounts, minlength=devices)


def _by(party: Int[np.ndarray, "m"], devices: int) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "starts"]]:
    """Return the parcels of each device in their order, and where those of each device begin."""
    return np.argsort(party, kind="stable"), np.searchsorted(np.sort(party), np.arange(devices + 1))
