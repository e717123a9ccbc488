"""A device's parcels to other devices: closed, sent, kept until the server says that all have arrived, and taken in."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from codedfl.engines.carrier import Peers
from codedfl.engines.emulation import Occasion
from codedfl.engines.envelopes import Envelopes
from codedfl.engines.wire import Frame, decode, encode
from codedfl.errors import EngineError
from codedfl.schemes.messages import Message

__all__ = ["Inbox", "Parcel", "Travel", "deliver", "refusal", "taken"]

_ATTEMPTS = 2
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
        """Read an opened parcel."""
        frame = decode(text)
        stage, number, travel = (frame.fields.get(name) for name in ("stage", "number", "travel"))
        if frame.kind != _PARCEL or type(stage) is not int or type(number) is not int:
            raise EngineError(_NO_PARCEL)
        return cls(stage, number, frame.arrays, None if travel is None else Travel.from_table(travel))


def deliver(peers: Peers, envelopes: Envelopes, recipient: str, parcel: Parcel) -> str | None:
    """Close a parcel, send it, and see that it is taken; return why it was not."""
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = decode(peers.send(recipient, envelopes.close(recipient, parcel.to_bytes())))
            if answer.kind == _TAKEN:
                return None
            reason = str(answer.fields.get("reason", "it gave no reason"))
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
    """Parcels that have come and are not taken in yet; it may be used from several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], tuple[str, Message]] = {}

    def put(self, sender: str, parcel: Parcel) -> None:
        """Keep a parcel; a second try to deliver the same one changes nothing."""
        with self._lock:
            self._held.setdefault((parcel.stage, parcel.number), (sender, parcel.contents))

    def take(self, stage: int, wanted: Sequence[tuple[int, str]]) -> list[Message]:
        """Return the parcels of these numbers and senders, in this order; none if one of them is missing."""
        with self._lock:
            for number, sender in wanted:
                if self._held.get((stage, number), ("nobody", {}))[0] != sender:
                    raise EngineError(f"parcel {number} of stage {stage} has not come from {sender}; send it again")
            return [self._held.pop((stage, number))[1] for number, _ in wanted]

    def drop(self, stage: int) -> None:
        """Forget what has come in a stage that will not be finished."""
        with self._lock:
            for key in [key for key in self._held if key[0] == stage]:
                del self._held[key]
