"""The stages of the set-up of the sealed and coded scheme as arrays, and what their transfers cost.

A device sends at most: a key to each device that it shares masks with; a piece of each band to the adder of its group;
an adder a sum of each of its bands to the parent group; and, in group 0 only, blocks to other adders and a part of each
of its bands to every worker. With Z <= 63 adders, Q <= 4 chunks, k neighbours and W workers these are at most
k + Q Z + Q + Q Z/2 + Q W parcels, whatever the number of devices.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, overload

import numpy as np
from jaxtyping import Int

from codedfl.cipher.masks.pairwise import AGREEMENT_OPERATIONS, KEY_BYTES
from codedfl.network import TransferTable
from codedfl.schemes.coded.placing.block_layout import BLOCK, KEY, PART, PIECE, SUM, BlockLayout
from codedfl.schemes.messages import Message, payloads
from codedfl.schemes.rounds import Transfer


@final
@dataclass(frozen=True, eq=False)
class PlannedStage:
    """Transfers of one kind: who sends the parcel of which band (-1: none) to whom, and the stages it comes after."""

    kind: int
    sender: Int[np.ndarray, "m"]
    recipient: Int[np.ndarray, "m"]
    band: Int[np.ndarray, "m"]
    after: tuple[int, ...] | None = None

    @property
    def first_of_sender(self) -> Int[np.ndarray, "senders"]:
        """The first transfer of each sender."""
        return np.asarray(np.unique(self.sender, return_index=True)[1])


def planned_stages(layout: BlockLayout, workers: Sequence[int]) -> list[PlannedStage]:
    """Return the stages: mask keys, then for each chunk pieces, sums of groups, blocks, and parts of coded blocks."""
    stages = [_keys(layout)] if layout.masked else []
    keys = tuple(range(len(stages)))
    for first in range(0, layout.bands.count, layout.bands.adders):
        chunk = layout.bands.chunk(first)
        stages.append(_pieces(layout, chunk, after=keys if keys or first else None))
        pieces = len(stages) - 1
        inputs: tuple[int, ...] = (pieces,)
        for level in layout.groups.levels():
            stages.append(_sums(layout, chunk, level, after=inputs))
            inputs = (pieces, len(stages) - 1)
        owner = layout.owner
        blocks = [(owner(a), owner(b), a) for a in chunk for b in layout.bands.held_by(a)]
        stages.append(_stage(BLOCK, blocks, inputs))
        parts = [(owner(a), w, a) for a in chunk for w in _from(owner(a), workers, layout.groups.devices)]
        stages.append(_stage(PART, parts, (*inputs, len(stages) - 1)))
    return stages if layout.overlaps else [_by_turns(stage) for stage in stages]


def _by_turns(stage: PlannedStage) -> PlannedStage:
    """Let a stage begin when the one before has ended: the first parcel of every sender first, then the second ones."""
    starts = np.searchsorted(np.sort(stage.sender), stage.sender)
    order = np.argsort(stage.sender, kind="stable")
    turns = np.empty(len(order), np.int64)
    turns[order] = np.arange(len(order))
    by_turn = np.argsort(turns - starts, kind="stable")
    return PlannedStage(stage.kind, stage.sender[by_turn], stage.recipient[by_turn], stage.band[by_turn])


def _stage(kind: int, rows: Sequence[tuple[int, int, int]], after: tuple[int, ...]) -> PlannedStage:
    sender, recipient, band = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    return PlannedStage(kind, sender, recipient, band, after)


def _from(own: int, places: Sequence[int], count: int) -> list[int]:
    """Return places but the own one, the next ones first: senders that begin with different recipients wait less."""
    return sorted((place for place in places if place != own), key=lambda place: (place - own) % count)


def _keys(layout: BlockLayout) -> PlannedStage:
    n, near = layout.groups.devices, sorted(layout.sharing_masks(0))  # of others it is the same, further round the ring
    sender = np.repeat(np.arange(n), len(near))
    recipient = (sender + np.tile(near, n)) % n
    return PlannedStage(KEY, sender, recipient, np.full(len(sender), -1))


def _pieces(layout: BlockLayout, chunk: range, after: tuple[int, ...] | None) -> PlannedStage:
    n, groups = layout.groups.devices, layout.groups.count
    device, turn = (each.ravel() for each in np.indices((n, len(chunk))))
    place = (device // groups + turn) % len(chunk)
    recipient = place * groups + device % groups
    others = recipient != device
    return PlannedStage(PIECE, device[others], recipient[others], chunk.start + place[others], after)


def _sums(layout: BlockLayout, chunk: range, level: range, after: tuple[int, ...]) -> PlannedStage:
    groups = layout.groups
    senders = [(groups.device(place, group), place) for group in level for place in range(len(chunk))]
    rows = [(sender, groups.parent(sender), chunk[place]) for sender, place in senders]
    return _stage(SUM, [(a, b, band) for a, b, band in rows if b is not None], after)


@final
class PlannedTransfers(Sequence[Transfer]):
    """The transfers of a stage, made when they are asked for; ``seeds`` go with the first grant of each sender."""

    def __init__(self, stage: PlannedStage, seeds: Sequence[Message] = ()) -> None:
        self._stage = stage
        first = stage.first_of_sender.tolist() if seeds else ()
        self._seeds: Mapping[int, Message] = {place: seeds[int(stage.sender[place])] for place in first}

    def __len__(self) -> int:
        return len(self._stage.sender)

    @overload
    def __getitem__(self, place: int) -> Transfer: ...

    @overload
    def __getitem__(self, place: slice) -> list[Transfer]: ...

    def __getitem__(self, place: int | slice) -> Transfer | list[Transfer]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        stage, place = self._stage, range(len(self))[place]
        more = self._seeds.get(place)
        return planned_transfer(
            int(stage.sender[place]), int(stage.recipient[place]), stage.kind, int(stage.band[place]), more
        )

    def __iter__(self) -> Iterator[Transfer]:
        return (self[place] for place in range(len(self)))


def planned_transfer(sender: int, recipient: int, kind: int, band: int = -1, more: Message | None = None) -> Transfer:
    """Return a transfer of a kind of parcel; the grant names kind, target and band (-1: none)."""
    grant: dict[str, Any] = {"kind": np.array(kind, np.int8), "target": np.array(recipient, np.int32)}
    if band >= 0:
        grant["band"] = np.array(band, np.int32)
    return Transfer(sender, recipient, grant | dict(more or {}))


def counted_stage(
    stage: PlannedStage, layout: BlockLayout, seed: Message | None, *, first_offline: bool
) -> TransferTable:
    """Return what the transfers of a stage cost: that of real ones (the tests compare them).

    The stage of pieces with the ``seed`` of a device's pads is the first; all pieces are masked in it.
    """
    kind, band, m = stage.kind, stage.band, len(stage.sender)
    grant = payloads([planned_transfer(0, 0, kind, 0 if kind != KEY else -1).grant])[0]
    columns = np.zeros((9, m), np.int64)
    columns[0], columns[1], columns[2] = stage.sender, stage.recipient, grant
    export, parcel, absorb = columns[3], columns[4], columns[5]
    sizes = np.array(layout.sizes["piece"])
    if kind == KEY:
        made, agreed = (columns[7], columns[8]) if first_offline else (export, absorb)
        made[stage.first_of_sender] = AGREEMENT_OPERATIONS
        agreed[:] = AGREEMENT_OPERATIONS
        parcel[:] = 8 + 8 * KEY_BYTES
        return TransferTable(columns)
    if kind in (PIECE, SUM):
        words = absorb[:] = sizes[band]
        if kind == PIECE:
            export[:] = words
        if seed is not None:
            first = stage.first_of_sender
            columns[2, first] += payloads([seed])[0]
            export[first] += [
                int(sizes[list(layout.added_by(device))].sum()) for device in stage.sender[first].tolist()
            ]
            columns[7 if first_offline else 3, first] += layout.neighbours * sizes.sum()
    elif kind == BLOCK:
        heights = np.array([layout.bands.height(number) for number in range(layout.bands.count)])
        words = heights[band] * heights[band - band % layout.bands.adders + stage.recipient // layout.groups.count]
    else:
        words = np.array(layout.sizes["part"])[band]
        operations = np.array([layout.part_operations(number) for number in range(layout.bands.count)])
        export[:] = operations[band]
        for place in np.unique(stage.recipient, return_index=True)[1]:  # a worker's own part, with the first of others
            own = [
                each
                for each in layout.owned_by(int(stage.recipient[place]))
                if each in layout.bands.chunk(int(band[place]))
            ]
            absorb[place] = operations[own].sum()
    parcel[:] = 40 + layout.word_bits * words
    return TransferTable(columns)
