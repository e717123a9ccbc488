"""Who did what when: every message and computation of a run, laid out in its virtual time."""

from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.network import DelayModel, RoundCosts, stage_seconds, stage_steps
from codedfl.training import History

__all__ = ["timeline"]

_ROUND = ("receive model", "compute", "send reply")


def timeline(history: History, delays: DelayModel, *, seed: int, draw: int, parallel: bool) -> dict[str, list[Any]]:
    """Return columns epoch, device, activity, peer (-1: the server), begin, end (in seconds), bits.

    Nothing of this is kept during a run: the costs and the addresses of the random delays give it back. What a device
    does for an epoch that ends without it is cut off there.
    """
    rows: dict[str, list[Any]] = {name: [] for name in ("epoch", "device", "activity", "peer", "begin", "end", "bits")}
    began = 0.0
    last = history.columns["time"][-1] if len(history) else 0.0
    for epoch, numbers in enumerate(history.questions(), start=1):
        for stage, sent in history.stages_after(epoch - 1):
            for step in stage_steps(delays, stage, sent, seed=seed, draw=draw):
                _add(
                    rows, epoch, step.device, step.activity, step.peer, began + step.begin, began + step.end, step.bits
                )
            began += float(stage_seconds(delays, stage, sent, seed=seed, first=draw, draws=1)[0])
        ended = history.columns["time"][epoch - 1]
        for question, number in enumerate(numbers):
            costs, chance = history.rounds[number], delays.chance(seed, epoch, draw, 1, question)
            parts = [part[0] for part in delays.reply_parts(costs, chance)]
            over = ended if question == len(numbers) - 1 else began + float(delays.epoch_seconds(costs, chance)[0])
            _add_round(rows, epoch, costs, began, last if costs.standing else over, np.array(parts))
            began = over
        transfers = [entry for when, _, entry in history.transfers if when == epoch]
        steps = (
            delays.transfer_steps(transfers, delays.transfer_chance(seed, epoch, draw, 1), 0, parallel=parallel)
            if transfers
            else []
        )
        for step in steps:
            peer = -1 if step.peer is None else step.peer
            _add(rows, epoch, step.device, step.activity, peer, ended + step.begin, ended + step.end, step.bits)
        began = ended + max((step.end for step in steps), default=0.0)
    return rows


def _add_round(
    rows: dict[str, list[Any]],
    epoch: int,
    costs: RoundCosts,
    began: float,
    ended: float,
    parts: Float[np.ndarray, "3 asked"],
) -> None:
    ends = began + np.cumsum(parts, axis=0)
    begins = ends - parts
    bits = (costs.down_bits, np.zeros_like(costs.macs), costs.up_bits)
    for part, activity in enumerate(_ROUND):
        for place in np.flatnonzero((parts[part] > 0) & (begins[part] < ended)):
            end = min(float(ends[part, place]), ended)
            device = int(costs.asked[place])
            _add(rows, epoch, device, activity, -1, float(begins[part, place]), end, int(bits[part][place]))


def _add(rows: dict[str, list[Any]], *values: Any) -> None:
    for column, value in zip(rows.values(), values, strict=True):
        column.append(value)
