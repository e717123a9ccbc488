"""A host that misbehaves from a given epoch on, for tests of whole deployments.

Only a site's own ``site.toml`` can enable it; no job and no server can:

    host = "codedfl.testing.misbehaving:make_host"

    [misbehaviour]
    kind = "nan"
    epoch = 3

Kinds, each from that epoch on, and in replies to rounds only:

    garbage   bytes that are not a message
    lie       the lowest bit of every number of the reply is flipped, in epochs that the setting ``every`` divides
    nan       every number of the reply is NaN (whole numbers become floating-point ones)
    old       the last reply before that epoch, repeated
    slow      the correct reply, ``seconds`` late
    held      the correct reply as soon as the file ``go`` beside ``site.toml`` names the epoch, or a later one
    twice     the correct reply, and before it the same bytes as an unsolicited message

A carrier accepts one reply per request, and FLARE drops a second one. So ``twice`` sends an unsolicited message to the
server, as parcels are sent to devices; the server accepts no parcels, and the site logs the refusal. Duplicate
replies of a faulty carrier are tested in one process, with the channel.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.site import configuration as site
from codedfl.errors import EngineError
from codedfl.schemes.messages import Message
from codedfl.settings import Settings, setting

KINDS = ("garbage", "lie", "nan", "old", "slow", "held", "twice")

GO = "go"
"""Beside the ``site.toml`` of a held site: the last epoch that it may answer."""

_LOOK = 0.05
_SERVER = "server"

_log = logging.getLogger(__name__)


class Misbehaviour(Settings, table="misbehaviour"):
    """The kind of misbehaviour, its first epoch, and how much later than it could it answers parcels."""

    kind: str = setting(choices=KINDS)
    epoch: int = setting(default=1, low=1)
    seconds: float = setting(default=1.0, low=0)
    every: int = setting(default=1, low=1)
    parcel_seconds: float = setting(default=0.0, low=0)


@final
class MisbehavingHost(Host):
    """Changes the replies of another host."""

    def __init__(self, inner: Host, wanted: Misbehaviour, peers: Peers, folder: Path) -> None:
        self._inner = inner
        self._wanted = wanted
        self._peers = peers
        self._go = folder / GO
        self._closed = threading.Event()
        self._old: bytes | None = None
        kinds: dict[str, Callable[[int, bytes], bytes]] = {
            "garbage": lambda epoch, answer: b"\x93garbage" * 9,
            "lie": lambda epoch, answer: answer if epoch % wanted.every else _lie(answer),
            "nan": lambda epoch, answer: _not_a_number(answer),
            "old": lambda epoch, answer: self._old or answer,
            "slow": lambda epoch, answer: self._late(answer),
            "held": self._held,
            "twice": lambda epoch, answer: self._twice(answer),
        }
        self._change = kinds[wanted.kind]

    def handle(self, payload: bytes) -> bytes:
        """Answer a request of the server, wrongly from the given epoch on."""
        answer, epoch = self._inner.handle(payload), _epoch(payload)
        if epoch is None:
            return answer
        if epoch < self._wanted.epoch:
            self._old = answer
            return answer
        return self._change(epoch, answer)

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Answer another site correctly, if late."""
        if self._wanted.parcel_seconds:
            self._closed.wait(self._wanted.parcel_seconds)
        return self._inner.handle_peer(sender, payload)

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()
        self._inner.close()

    def _late(self, answer: bytes) -> bytes:
        self._closed.wait(self._wanted.seconds)
        return answer

    def _held(self, epoch: int, answer: bytes) -> bytes:
        while epoch > _named(self._go) and not self._closed.wait(_LOOK):
            pass
        return answer

    def _twice(self, answer: bytes) -> bytes:
        try:
            self._peers.send(_SERVER, answer)
            _log.error("the server took a second answer")
        except EngineError as error:
            _log.warning("a second answer was refused: %s", error)
        return answer


def make_host(table: Mapping[str, Any], peers: Peers) -> Host:
    """Create the host of a site that misbehaves as its table says; for tests only."""
    own = dict(table)
    wanted = Misbehaviour.from_table(own.pop("misbehaviour", {}))
    return MisbehavingHost(site.make_host(own, peers), wanted, peers, Path(table["folder"]))


def _epoch(payload: bytes) -> int | None:
    """Return the epoch of a round's request; None for other requests."""
    try:
        frame = decode(payload)
    except EngineError:
        return None
    return int(frame.fields["epoch"]) if frame.kind == "reply" else None


def _named(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def flipped(arrays: Message) -> dict[str, Any]:
    """Return residues that are off by one: of residues in three words of 16 bits, the lowest word."""
    return {
        name: words ^ np.array([1, 0, 0], words.dtype) if words.dtype == np.uint16 else words ^ words.dtype.type(1)
        for name, words in arrays.items()
    }


def _lie(answer: bytes) -> bytes:
    frame = decode(answer)
    return encode(Frame(frame.kind, frame.fields, flipped(frame.arrays)))


def _not_a_number(answer: bytes) -> bytes:
    frame = decode(answer)
    formats = {name: array.dtype if array.dtype.kind == "f" else np.float64 for name, array in frame.arrays.items()}
    arrays = {name: np.full(array.shape, np.nan, formats[name]) for name, array in frame.arrays.items()}
    return encode(Frame(frame.kind, frame.fields, arrays))
