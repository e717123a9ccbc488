"""Parcels between devices: sealed, sent, and held by the recipient until the server asks to absorb them."""

import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.envelopes import Envelopes
from codedfl.deploy.protocol.receipts import Receipts
from codedfl.deploy.protocol.wire import LARGEST_FRAME, Frame, decode, encode
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.errors import EngineError, ParcelError
from codedfl.schemes.messages import Layout, Message, layout
from codedfl.schemes.public import Public

_ATTEMPTS = 2
_MOST_PARCELS, _ABANDONED = 256, 3
"""Parcels of one sender that are held: of a scheme that does not declare their layouts; and of one that does, beside
those of stages that overlap, because some may belong to an abandoned stage."""
_UNDECLARED = 32
"""Bytes of an undeclared parcel, for each entry of a matrix of all columns and all columns and rows."""
_OVERHEAD = 1 << 16
"""Bytes of an envelope beside its arrays."""
_NO_PARCEL = "a message of another device is not a parcel; check that versions agree"
_PARCEL, _FREE, _TAKEN, _REFUSED = "parcel", "free", "taken", "refused"


@final
@dataclass(frozen=True)
class Transit:
    """Emulated transmission of a parcel: ``tries`` times at the sender's ``rate``, in order of ``turn`` unless None.

    A ``relayed`` parcel reaches the recipient over the server's link.
    """

    event: TransferEvent
    turn: int | None
    relayed: bool
    tries: float
    rate: float

    def to_table(self) -> dict[str, Any]:
        """Return plain values for a frame."""
        own = {name: value for name, value in vars(self).items() if name != "event"}
        return {"occasion": self.event.to_table(), **own}

    @classmethod
    def from_table(cls, table: Any) -> "Transit":
        """Validate what another device sent."""
        names = ("occasion", "turn", "relayed", "tries", "rate")
        if not isinstance(table, dict) or table.keys() != set(names):
            raise EngineError(_NO_PARCEL)
        event, turn, relayed, tries, rate = (table[name] for name in names)
        valid = type(relayed) is bool and (turn is None or (type(turn) is int and turn >= 0))
        if not valid or not all(type(value) is float and 0 < value < math.inf for value in (tries, rate)):
            raise EngineError(_NO_PARCEL)
        return cls(TransferEvent.from_table(event), turn, relayed, tries, rate)


@final
@dataclass(frozen=True)
class Parcel:
    """A numbered parcel of a stage; ``transit`` is None without emulated links.

    ``owners`` are the devices whose data it contains, if the scheme tells its recipient.
    """

    stage: int
    number: int
    contents: Message = field(repr=False)
    transit: Transit | None = None
    owners: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode the parcel, before encryption."""
        transit = None if self.transit is None else self.transit.to_table()
        numbers = {"stage": self.stage, "number": self.number, "owners": list(self.owners)}
        return encode(Frame(_PARCEL, {**numbers, "travel": transit}, self.contents))

    @classmethod
    def from_frame(cls, frame: Frame) -> "Parcel":
        """Validate a decrypted parcel; refuse numbers that are not finite."""
        if frame.kind != _PARCEL:
            raise EngineError(_NO_PARCEL)
        for name, array in frame.arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise EngineError(
                    f"array '{fields.one_line(name)}' of a parcel holds numbers that are not finite; check the data"
                )
        stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
        transit = frame.fields.get("travel")
        owners = tuple(fields.counts(frame.fields, "owners"))
        return cls(stage, number, frame.arrays, None if transit is None else Transit.from_table(transit), owners)


@final
@dataclass(frozen=True)
class ChannelFree:
    """Tells a site that the emulated channel, which all share, is free for its parcel."""

    stage: int
    number: int

    def to_bytes(self) -> bytes:
        """Encode the message, before encryption."""
        return encode(Frame(_FREE, dict(vars(self))))


def read_peer_message(text: bytes) -> Parcel | ChannelFree:
    """Decode a decrypted message of another site."""
    frame = decode(text)
    if frame.kind == _FREE:
        return ChannelFree(fields.count(frame.fields, "stage"), fields.count(frame.fields, "number"))
    return Parcel.from_frame(frame)


def deliver(
    peers: Peers, envelopes: Envelopes, receipts: Receipts, recipient: str, parcel: Parcel | ChannelFree
) -> str:
    """Encrypt and send a parcel; return the recipient's receipt, or raise the reason why it did not accept it."""
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = decode(peers.send(recipient, envelopes.close(recipient, parcel.to_bytes())))
            shown = answer.fields.get("receipt")
            if answer.kind == _TAKEN and receipts.check(receipts.site, recipient, parcel.stage, parcel.number, shown):
                return str(shown)
            unsigned = "its receipt is not signed by it; find out who relays parcels"
            reason = unsigned if answer.kind == _TAKEN else answer.fields.get("reason", "it gave no reason")
        except EngineError as error:
            reason = str(error)
    raise ParcelError(fields.one_line(reason))


def accepted(receipt: str) -> bytes:
    """Return the answer to a parcel that is stored."""
    return encode(Frame(_TAKEN, {"receipt": receipt}))


def refused(reason: str) -> bytes:
    """Return the answer to a parcel that is refused."""
    return encode(Frame(_REFUSED, {"reason": reason}))


@final
@dataclass(frozen=True)
class CarriedParcels:
    """The parcels of stages that overlap, counted as one ``stage``: rows of number and sender, and receipts of others.

    The receipts are by number; they outlast the stages, so that a site can show them when it is done.
    """

    stage: int = 0
    wanted: Sequence[Sequence[Any]] = ()
    receipts: dict[int, str] = field(default_factory=dict)


@final
class Inbox:
    """Received parcels that are not absorbed yet; thread-safe.

    Parcels of finished stages are ignored. What one sender may store is limited.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accepted: Sequence[Layout] | None = None
        self._most_parcels, self._most_bytes = _MOST_PARCELS, LARGEST_FRAME
        self._held: dict[tuple[str, int, int], tuple[Parcel, float]] = {}
        """Parcels, and when they arrived, by sender, stage and number."""
        self._taken: set[tuple[str, int, int]] = set()
        """Parcels of unfinished stages that were taken."""
        self._finished = 0
        self._arriving: Counter[str] = Counter()
        """Parcels on emulated links, by sender."""

    def expect(self, accepted: Sequence[Layout] | None, public: Public, at_once: int = 1) -> None:
        """Accept parcels of these layouts only, so many of a sender ``at_once``.

        None: of any layout, bounded by the sizes of the data.
        """
        sizes = [sum(dtype.itemsize * math.prod(shape) for dtype, shape in each.values()) for each in accepted or ()]
        width = public.features + public.outputs
        with self._lock:
            self._accepted = accepted
            self._most_parcels = _MOST_PARCELS if accepted is None else _ABANDONED + at_once
            self._most_bytes = (
                _UNDECLARED * width * (width + max(public.samples)) if accepted is None else max(sizes, default=0)
            )

    def check_size(self, sender: str, size: int) -> None:
        """Refuse an envelope that is larger than any parcel, before it is decrypted."""
        if size > self._most_bytes + _OVERHEAD:
            raise ParcelError(
                f"a parcel of {sender} has {size} bytes, more than the {self._most_bytes} of any in this run"
            )

    @contextmanager
    def arriving(self, sender: str, parcel: Parcel) -> Iterator[bool]:
        """Yield whether a parcel is to be stored, before an emulated link takes time and memory for it.

        Refuse what would not be stored, and more of a sender on their way than it may store.
        """
        with self._lock:
            new = self._admits(sender, parcel)
            if new and self._arriving[sender] >= self._most_parcels:
                raise ParcelError(f"{self._most_parcels} parcels of {sender} are on their way; send no more")
            self._arriving[sender] += new
        try:
            yield new
        finally:
            with self._lock:
                self._arriving[sender] -= new

    def put(self, sender: str, parcel: Parcel, arrived: float = 0.0) -> None:
        """Store a parcel that has ``arrived``; ignore repetitions."""
        with self._lock:
            if self._admits(sender, parcel):
                self._held[sender, parcel.stage, parcel.number] = parcel, arrived

    def _admits(self, sender: str, parcel: Parcel) -> bool:
        """Return whether a parcel is new; refuse one of another layout, or more than a sender may store."""
        if self._accepted is not None and layout(parcel.contents) not in self._accepted:
            raise ParcelError(
                f"a parcel of {sender} has other arrays than this scheme sends; check that versions agree"
            )
        key = sender, parcel.stage, parcel.number
        if parcel.stage <= self._finished or key in self._held or key in self._taken:
            return False
        others = [each for (name, _, _), (each, _) in self._held.items() if name == sender]
        held = sum(array.nbytes for each in (*others, parcel) for array in each.contents.values())
        if len(others) >= self._most_parcels or held > self._most_parcels * self._most_bytes:
            raise ParcelError(f"{len(others)} parcels of {sender} ({held} bytes) are not absorbed; send no more")
        return True

    def take(self, stage: int, wanted: Sequence[Sequence[Any]]) -> list[Parcel]:
        """Return the parcels of these pairs of number and sender, once; raise if one is missing."""
        for number, sender in wanted:
            if (sender, stage, number) not in self._held:
                raise EngineError(f"parcel {number} of stage {stage} has not arrived from {sender}; send it again")
        found = self.take_complete(stage, wanted)
        if found is None:
            raise EngineError(f"stage {stage} has been given up meanwhile; begin again")
        return found[0]

    def take_complete(self, stage: int, wanted: Sequence[Sequence[Any]]) -> tuple[list[Parcel], float] | None:
        """Return the parcels, once, and when the last of them arrived; None if one is missing."""
        keys = [(sender, stage, number) for number, sender in wanted]
        with self._lock:
            if not self._held.keys() >= set(keys):
                return None
            found = [self._held[key] for key in keys]
            self._taken |= set(keys)
            self._held = {key: held for key, held in self._held.items() if key not in self._taken}
        return [parcel for parcel, _ in found], max((arrived for _, arrived in found), default=0.0)

    def missing(self, stage: int, wanted: Sequence[Sequence[Any]]) -> list[int]:
        """Return the numbers of those parcels that have not arrived; none of a stage that is over."""
        with self._lock:
            if stage <= self._finished:
                return []
            keys = {number: (sender, stage, number) for number, sender in wanted}
            return [number for number, key in keys.items() if key not in self._held and key not in self._taken]

    def drop(self, stage: int) -> None:
        """Drop the parcels of a stage that is over or abandoned, and ignore later ones."""
        with self._lock:
            self._finished = max(self._finished, stage)
            self._held = {key: held for key, held in self._held.items() if key[1] > self._finished}
            self._taken = {key for key in self._taken if key[1] > self._finished}
