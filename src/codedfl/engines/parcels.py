"""A device's parcels to other devices: closed, sent, kept until the server says that all have arrived, and taken in."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast, final

from codedfl.engines.carrier import Peers
from codedfl.engines.envelopes import Envelopes
from codedfl.engines.wire import Frame, decode, encode
from codedfl.errors import EngineError
from codedfl.schemes.messages import Message

__all__ = ["Inbox", "Parcel", "deliver", "refusal", "taken"]

_ATTEMPTS = 2
_PARCEL, _TAKEN, _REFUSED = "parcel", "taken", "refused"


@final
@dataclass(frozen=True)
class Parcel:
    """A numbered parcel of a stage. What is ``relayed`` goes by the server's links, and what is ``free`` by none."""

    stage: int
    number: int
    contents: Message = field(repr=False)
    relayed: bool = False
    free: bool = False

    def to_bytes(self) -> bytes:
        """Write the parcel, not yet closed."""
        fields = {"stage": self.stage, "number": self.number, "relayed": self.relayed, "free": self.free}
        return encode(Frame(_PARCEL, fields, self.contents))

    @classmethod
    def from_bytes(cls, text: bytes) -> "Parcel":
        """Read an opened parcel."""
        frame = decode(text)
        values = tuple(frame.fields.get(name) for name in ("stage", "number", "relayed", "free"))
        if frame.kind != _PARCEL or [type(value) for value in values] != [int, int, bool, bool]:
            raise EngineError("what a device sent is no parcel of a stage; check that versions agree")
        stage, number, relayed, free = cast(tuple[int, int, bool, bool], values)
        return cls(stage, number, frame.arrays, relayed, free)


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
