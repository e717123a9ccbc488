"""Costs of rounds and transfers: bits and multiplications, counted on the arrays that are sent and multiplied."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import attrgetter
from typing import final, overload

import numpy as np
from jaxtyping import Bool, Int


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """Costs of one round for each asked device.

    The server awaits ``quorum`` replies, after the ``deadline`` (in seconds) only ``least``. A ``standing`` round
    leaves earlier requests open.
    """

    asked: Int[np.ndarray, "n"]
    down_bits: Int[np.ndarray, "n"]
    macs: Int[np.ndarray, "n"]
    up_bits: Int[np.ndarray, "n"]
    quorum: int
    server_macs: int
    least: int = 0
    deadline: float = math.inf
    standing: bool = False

    @property
    def computing(self) -> "RoundCosts":
        """The costs of the devices' computing alone."""
        return replace(self, down_bits=0 * self.down_bits, up_bits=0 * self.up_bits)

    @property
    def uploads(self) -> "RoundCosts":
        """The costs of sending replies that were computed beforehand."""
        return replace(self, down_bits=0 * self.down_bits, macs=0 * self.macs)

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal for equal costs."""
        arrays = (self.asked, self.down_bits, self.macs, self.up_bits)
        scalars = (self.quorum, self.server_macs, self.least, self.deadline, self.standing)
        return (*(array.tobytes() for array in arrays), *scalars)


@dataclass(frozen=True)
class TransferCosts:
    """Costs of one transfer: the server's grant, the sender's work, the parcel, the recipient's work.

    Recipient -1 is the server. A ``relayed`` parcel goes up to the server and down to the recipient. What the sender
    and the recipient computed ``beforehand`` takes no time of the stage.

    >>> TransferCosts(0, 1, grant_bits=8, export_macs=0, parcel_bits=100, absorb_macs=0, relayed=True).bits()
    {'down': 108, 'up': 100, 'd2d': 0}
    """

    sender: int
    recipient: int
    grant_bits: int
    export_macs: int
    parcel_bits: int
    absorb_macs: int
    relayed: bool = False
    export_beforehand: int = 0
    absorb_beforehand: int = 0

    @property
    def sender_macs(self) -> int:
        """All multiplications of the sender."""
        return self.export_macs + self.export_beforehand

    @property
    def recipient_macs(self) -> int:
        """All multiplications of the recipient."""
        return self.absorb_macs + self.absorb_beforehand

    @property
    def uploaded(self) -> bool:
        """Whether the parcel goes to the server."""
        return self.recipient < 0

    def bits(self) -> dict[str, int]:
        """Return the bits by kind of link: down (including the grant), up, device to device."""
        relayed = self.parcel_bits if self.relayed else 0
        uploaded = self.parcel_bits if self.uploaded else 0
        direct = self.parcel_bits - relayed - uploaded
        return {"down": self.grant_bits + relayed, "up": relayed + uploaded, "d2d": direct}


_COLUMNS = tuple(each.name for each in fields(TransferCosts))
_IDLE = (-1, -1, 0, 0, 0, 0, 0)
_numbers = attrgetter(*_COLUMNS)


@final
class TransferTable(Sequence[TransferCosts]):
    """The costs of many transfers in one array, a row for each field; an item is a :class:`TransferCosts`.

    >>> table = TransferTable.of([TransferCosts(0, 1, 8, 0, 100, 0), TransferCosts(1, 2, 8, 0, 50, 0)])
    >>> len(table), table[1].parcel_bits, table.column("sender").tolist(), table == [table[0], table[1]]
    (2, 50, [0, 1], True)
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Int[np.ndarray, "fields m"]) -> None:
        self.rows = rows

    @classmethod
    def of(cls, costs: Iterable[TransferCosts]) -> "TransferTable":
        """Return costs as a table; a table is returned as it is."""
        if isinstance(costs, TransferTable):
            return costs
        numbers = chain.from_iterable(map(_numbers, costs))
        return cls(np.fromiter(numbers, np.int64).reshape(-1, len(_COLUMNS)).T)

    def column(self, name: str) -> Int[np.ndarray, "m"]:
        """Return a field of all transfers."""
        return np.asarray(self.rows[_COLUMNS.index(name)])

    @property
    def relayed(self) -> Bool[np.ndarray, "m"]:
        """Which parcels go over the server."""
        return np.asarray(self.column("relayed") != 0)

    @property
    def uploaded(self) -> Bool[np.ndarray, "m"]:
        """Which parcels go to the server."""
        return np.asarray(self.column("recipient") < 0)

    @property
    def sender_macs(self) -> Int[np.ndarray, "m"]:
        """All multiplications of the senders."""
        return np.asarray(self.column("export_macs") + self.column("export_beforehand"))

    @property
    def recipient_macs(self) -> Int[np.ndarray, "m"]:
        """All multiplications of the recipients."""
        return np.asarray(self.column("absorb_macs") + self.column("absorb_beforehand"))

    def bits(self) -> dict[str, Int[np.ndarray, "m"]]:
        """Return the bits by kind of link, as :meth:`TransferCosts.bits` of each transfer."""
        parcel = self.column("parcel_bits")
        relayed, uploaded = np.where(self.relayed, parcel, 0), np.where(self.uploaded, parcel, 0)
        down, up = self.column("grant_bits") + relayed, relayed + uploaded
        return {"down": down, "up": up, "d2d": parcel - up}

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    @overload
    def __getitem__(self, place: int) -> TransferCosts: ...

    @overload
    def __getitem__(self, place: slice) -> "TransferTable": ...

    def __getitem__(self, place: int | slice) -> "TransferCosts | TransferTable":
        if isinstance(place, slice):
            return TransferTable(self.rows[:, place])
        return _costs_of(self.rows[:, place].tolist())

    def __iter__(self) -> Iterator[TransferCosts]:
        return map(_costs_of, self.rows.T.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and np.array_equal(self.rows, TransferTable.of(other).rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TransferTable({list(self)})"


def _costs_of(numbers: list[int]) -> TransferCosts:
    sender, recipient, grant, export, parcel, absorb, relayed, *beforehand = numbers
    return TransferCosts(sender, recipient, grant, export, parcel, absorb, bool(relayed), *beforehand)


@dataclass(frozen=True, eq=False)
class StageCosts:
    """The transfers of a stage as columns: one row for each draw, or a single row that holds for all draws.

    Shorter rows are padded with transfers from the server to itself that cost nothing.
    """

    sender: Int[np.ndarray, "rows m"]
    recipient: Int[np.ndarray, "rows m"]
    grant_bits: Int[np.ndarray, "rows m"]
    export_macs: Int[np.ndarray, "rows m"]
    parcel_bits: Int[np.ndarray, "rows m"]
    absorb_macs: Int[np.ndarray, "rows m"]
    relayed: Int[np.ndarray, "rows m"]

    @classmethod
    def create(cls, *rows: Sequence[TransferCosts]) -> "StageCosts":
        """Make the columns from the transfers of each row."""
        if len(rows) == 1:
            return cls(*np.ascontiguousarray(TransferTable.of(rows[0]).rows[: len(_IDLE), None]))
        counts = np.fromiter(map(len, rows), np.int64)
        columns = np.empty((len(_IDLE), len(rows), counts.max()), np.int64)
        columns[:] = np.array(_IDLE)[:, None, None]
        # one table for all rows, since most have only a few transfers
        table = TransferTable.of(chain.from_iterable(rows)).rows[: len(_IDLE)]
        columns[:, np.arange(columns.shape[2]) < counts[:, None]] = table
        return cls(*columns)
