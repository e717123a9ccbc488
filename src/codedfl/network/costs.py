"""Costs of rounds and transfers: bits and multiplications, counted on the arrays that are sent and multiplied."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from jaxtyping import Int


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


_FIELDS = attrgetter("sender", "recipient", "grant_bits", "export_macs", "parcel_bits", "absorb_macs", "relayed")
_IDLE = (-1, -1, 0, 0, 0, 0, 0)


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
        m = max(map(len, rows))
        table = [[*map(_FIELDS, row), *[_IDLE] * (m - len(row))] for row in rows]
        return cls(*np.array(table, dtype=np.int64).reshape(len(rows), m, len(_IDLE)).transpose(2, 0, 1))
