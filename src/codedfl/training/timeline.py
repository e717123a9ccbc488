"""Who did what when: every message and computation of a run, laid out in its virtual time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.network import Clock, DelayModel, Draws, RoundCosts, Step
from codedfl.training import History

_COLUMNS = ("epoch", "device", "activity", "peer", "begin", "end", "bits")
ROUND = ("receive model", "compute", "send reply")
"""Activities of a round; all others are of transfers."""
Row = tuple[int, int, str, int, float, float, int]


def timeline(
    history: History, delays: DelayModel, *, seed: int, draw: int, parallel: bool, start: float = 0.0
) -> dict[str, list[Any]]:
    """Return columns epoch, device, activity, peer (-1: the server), begin, end (in seconds), bits.

    A run keeps no timeline: it follows from the costs and the addresses of the random delays. What a device does for an
    epoch that ends without it is cut off there.
    """
    rows: list[Row] = []
    draws, began = Draws(delays, seed=seed, first=draw), start
    last = history.columns["time"][-1] if len(history) else 0.0
    for epoch, numbers in enumerate(history.questions(), start=1):
        for stages in history.overlapping_after(epoch - 1):
            times = draws.stages(stages)
            begins, ends = times.begin[0].tolist(), times.end[0].tolist()
            sent = zip((costs for stage in stages for costs in stage.transfers), begins, ends, strict=True)
            steps = [
                Step(each.sender, "send", each.recipient, begin, end, each.parcel_bits) for each, begin, end in sent
            ]
            rows += _stage(epoch, began, steps)
            began += float(times.seconds[0])
        ended = history.columns["time"][epoch - 1]
        clock = Clock(draws, began)
        for question, number in enumerate(numbers):
            costs, began = history.rounds[number], float(clock.now[0])
            clock.ask(epoch, question, costs)
            clock.charge(costs.server_macs)
            over = ended if question == len(numbers) - 1 else float(clock.now[0])
            parts = delays.reply_parts(costs, draws.chance(epoch, question))
            rows += _round(epoch, costs, began, last if costs.standing else over, np.concatenate(parts))
        began = ended
        if handed := history.handovers_after(epoch):
            times = draws.handovers(epoch, handed, parallel=parallel)
            rows += _stage(epoch, ended, times.steps(handed))
            began += float(times.seconds[0])
    return {name: [row[place] for row in rows] for place, name in enumerate(_COLUMNS)}


def _stage(epoch: int, began: float, steps: Sequence[Step]) -> Iterator[Row]:
    for step in steps:
        peer = -1 if step.peer is None else step.peer
        yield epoch, step.device, step.activity, peer, began + step.begin, began + step.end, step.bits


def _round(
    epoch: int, costs: RoundCosts, began: float, ended: float, parts: Float[np.ndarray, "3 asked"]
) -> Iterator[Row]:
    ends = began + np.cumsum(parts, axis=0)
    begins = ends - parts
    bits = (costs.down_bits, np.zeros_like(costs.macs), costs.up_bits)
    for part, activity in enumerate(ROUND):
        for place in np.flatnonzero((parts[part] > 0) & (begins[part] < ended)):
            begin, end = float(begins[part, place]), min(float(ends[part, place]), ended)
            yield epoch, int(costs.asked[place]), activity, -1, begin, end, int(bits[part][place])
