"""A device's parcels to other devices: closed, sent, kept until the server says that all have arrived, and taken in."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.envelopes import Envelopes
from codedfl.deploy.protocol.wire import LARGEST_FRAME, Frame, decode, encode
from codedfl.deploy.site.emulation import Occasion
from codedfl.errors import EngineError, ParcelError
from codedfl.schemes.messages import Message, message_bits

__all__ = ["Inbox", "Parcel", "Travel", "deliver", "refusal", "taken"]

_ATTEMPTS = 2
_MOST_PARCELS = 256
_MOST_BYTES = LARGEST_FRAME
_NO_PARCEL = "what a device sent is no parcel of a stage; check that versions agree"
_PARCEL, _TAKEN, _REFUSED = "parcel", "taken", "refused"


@final
@dataclass(frozen=True)
class Travel:
    """How a parcel travels where links are emulated: so often at the sender's rate, and in turn unless it goes alone.

    What is ``relayed`` comes to the recipient by the server's link.
    """

    occasion: Occasion
    turn: int | None
    relayed: bool
    tries: float
    rate: float

    def to_table(self) -> dict[str, Any]:
        """Write it as plain values."""
        return vars(self) | {"occasion": self.occasion.to_table()}

    @classmethod
    def from_table(cls, table: Any) -> "Travel":
        """Read what another device wrote."""
        names = ("turn", "relayed", "tries", "rate")
        if not isinstance(table, dict) or table.keys() != {"occasion", *names}:
            raise EngineError(_NO_PARCEL)
        turn, relayed, tries, rate = (table[name] for name in names)
        sound = type(relayed) is bool and (turn is None or (type(turn) is int and turn >= 0))
        if not sound or not all(type(value) is float and 0 < value < math.inf for value in (tries, rate)):
            raise EngineError(_NO_PARCEL)
        return cls(Occasion.from_table(table["occasion"]), turn, relayed, tries, rate)


@final
@dataclass(frozen=True)
class Parcel:
    """A numbered parcel of a stage; it takes time to ``travel`` only where that is emulated."""

    stage: int
    number: int
    contents: Message = field(repr=False)
    travel: Travel | None = None

    def to_bytes(self) -> bytes:
        """Write the parcel, not yet closed."""
        travel = None if self.travel is None else self.travel.to_table()
        return encode(Frame(_PARCEL, {"stage": self.stage, "number": self.number, "travel": travel}, self.contents))

    @classmethod
    def from_bytes(cls, text: bytes) -> "Parcel":
        """Read an opened parcel; one with numbers that are not finite is refused while its sender still has them."""
        frame = decode(text)
        if frame.kind != _PARCEL:
            raise EngineError(_NO_PARCEL)
        for name, array in frame.arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise EngineError(f"array '{name}' of a parcel holds numbers that are not finite; check the data")
        stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
        travel = frame.fields.get("travel")
        return cls(stage, number, frame.arrays, None if travel is None else Travel.from_table(travel))


def deliver(peers: Peers, envelopes: Envelopes, recipient: str, parcel: Parcel) -> str | None:
    """Close a parcel, send it, and see that it is taken; return why it was not."""
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = decode(peers.send(recipient, envelopes.close(recipient, parcel.to_bytes())))
            if answer.kind == _TAKEN:
                return None
            reason = fields.words(answer.fields.get("reason", "it gave no reason"))
        except EngineError as error:
            reason = str(error)
    return reason


def taken() -> bytes:
    """Say that a parcel was taken."""
    return encode(Frame(_TAKEN))


def refusal(reason: str) -> bytes:
    """Say why a parcel was not taken."""
    return encode(Frame(_REFUSED, {"reason": reason}))


@final
class Inbox:
    """Parcels that have come and are not taken in yet; it may be used from several threads at once.

    Stages come one after the other: what belongs to one that is over is dropped, which is no fault of its sender. Of
    each sender so much is kept as a stage may hold, and no more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int, int], Message] = {}
        self._over = 0

    def put(self, sender: str, parcel: Parcel) -> None:
        """Keep a parcel; a second try to deliver the same one changes nothing."""
        key = sender, parcel.stage, parcel.number
        with self._lock:
            if parcel.stage <= self._over or key in self._held:
                return
            others = [contents for (name, _, _), contents in self._held.items() if name == sender]
            held = sum(message_bits(contents) for contents in (*others, parcel.contents)) // 8
            if len(others) >= _MOST_PARCELS or held > _MOST_BYTES:
                raise ParcelError(
                    f"{sender} has sent {len(others)} parcels ({held} bytes with this one) that nobody has asked to "
                    "take in; send no more"
                )
            self._held[key] = parcel.contents

    def take(self, stage: int, wanted: Sequence[tuple[int, str]]) -> list[Message]:
        """Return the parcels of these numbers and senders, in this order, and end the stage; none if one is missing."""
        with self._lock:
            for number, sender in wanted:
                if (sender, stage, number) not in self._held:
                    raise EngineError(f"parcel {number} of stage {stage} has not come from {sender}; send it again")
            found = [self._held[sender, stage, number] for number, sender in wanted]
            self._end(stage)
            return found

    def drop(self, stage: int) -> None:
        """Forget what has come in a stage that will not be finished, and keep nothing of it any more."""
        with self._lock:
            self._end(stage)

    def _end(self, stage: int) -> None:
        self._over = max(self._over, stage)
        for key in [key for key in self._held if key[1] <= self._over]:
            del self._held[key]
