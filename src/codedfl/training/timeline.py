"""Who did what when: every message and computation of a run, laid out in its virtual time."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Shaped

from codedfl.network import Clock, DelayModel, Draws, PipelineTimes, RoundCosts, Step, TransferCosts, TransferTable
from codedfl.network.clock import StageTimes
from codedfl.training import History

_COLUMNS = ("epoch", "device", "activity", "peer", "begin", "end", "bits", "macs")
ROUND = ("receive model", "compute", "send reply")
"""Activities of a round; all others are of transfers."""
_KINDS = (np.int64, np.int64, object, np.int64, np.float64, np.float64, np.int64, np.int64)
Row = tuple[int, int, str, int, float, float, int, int]
Block = list[Shaped[np.ndarray, "rows"]]
"""The columns of some rows."""


def timeline(
    history: History, delays: DelayModel, *, seed: int, draw: int, parallel: bool, start: float = 0.0
) -> dict[str, Shaped[np.ndarray, "rows"]]:
    """Return columns epoch, device, activity, peer (-1: the server), begin, end (in seconds), bits, macs.

    A run keeps no timeline: it follows from the costs and the addresses of the random delays. What a device does for an
    epoch that ends without it is cut off there.
    """
    blocks: list[Block] = [_block([])]
    draws, began = Draws(delays, seed=seed, first=draw), start
    ends = history.columns["time"]
    for epoch, numbers in enumerate(history.questions(), start=1):
        for stages in history.overlapping_after(epoch - 1):
            times = draws.stages(stages)
            tables = [TransferTable.of(stage.transfers) for stage in stages]
            blocks.append(
                _sent(epoch, began, times, TransferTable(np.concatenate([each.rows for each in tables], axis=1)))
            )
            began += float(times.seconds[0])
        ended, clock = ends[epoch - 1], Clock(draws, began)
        for question, number in enumerate(numbers):
            costs, began = history.rounds[number], float(clock.now[0])
            clock.ask(epoch, question, costs)
            clock.charge(costs.server_macs)
            over = ended if question == len(numbers) - 1 else float(clock.now[0])
            parts = delays.reply_parts(costs, draws.chance(epoch, question))
            blocks += _round(epoch, costs, began, ends[-1] if costs.standing else over, np.concatenate(parts))
        began = ended
        if handed := history.handovers_after(epoch):
            times = draws.handovers(epoch, handed, parallel=parallel)
            blocks.append(_block(list(_stage(epoch, ended, times.steps(handed), handed))))
            began += float(times.seconds[0])
    return {name: np.concatenate([block[place] for block in blocks]) for place, name in enumerate(_COLUMNS)}


def _block(rows: Sequence[Row]) -> Block:
    return [np.array([row[place] for row in rows], kind) for place, kind in enumerate(_KINDS)]


def _sent(epoch: int, began: float, times: StageTimes | PipelineTimes, sent: TransferTable) -> Block:
    """Return the sending of all parcels of stages."""
    same = [np.full(len(sent), value, kind) for value, kind in ((epoch, np.int64), ("send", object))]
    parties, bits = [sent.column(name) for name in ("sender", "recipient")], sent.column("parcel_bits")
    begin, end = began + times.begin[0], began + times.end[0]
    return [same[0], parties[0], same[1], parties[1], begin, end, bits, np.zeros_like(bits)]


def _stage(epoch: int, began: float, steps: Sequence[Step], sent: Sequence[TransferCosts]) -> Iterator[Row]:
    work: Counter[tuple[int, str]] = Counter()
    for costs in sent:
        work[costs.sender, "encrypt"] += costs.export_macs
        work[costs.recipient, "absorb"] += costs.absorb_macs
    for step in steps:
        peer, macs = -1 if step.peer is None else step.peer, work[step.device, step.activity]
        yield epoch, step.device, step.activity, peer, began + step.begin, began + step.end, step.bits, macs


def _round(
    epoch: int, costs: RoundCosts, began: float, ended: float, parts: Float[np.ndarray, "3 asked"]
) -> Iterator[Block]:
    ends = began + np.cumsum(parts, axis=0)
    begins = ends - parts
    none = np.zeros_like(costs.macs)
    bits, macs = (costs.down_bits, none, costs.up_bits), (none, costs.macs, none)
    for part, activity in enumerate(ROUND):
        places = np.flatnonzero((parts[part] > 0) & (begins[part] < ended))
        number, name = (np.full(len(places), value, kind) for value, kind in ((epoch, np.int64), (activity, object)))
        server, until = np.full(len(places), -1), np.minimum(ends[part, places], ended)
        amounts = bits[part][places], macs[part][places]
        yield [number, costs.asked[places], name, server, begins[part, places], until, *amounts]
