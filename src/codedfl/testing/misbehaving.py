"""Sites that misbehave, for trials of whole deployments: a host that answers wrongly from a given epoch on.

Only a site's own file can ask for it; no job and no server can:

    host = "codedfl.testing.misbehaving:make_host"

    [misbehaviour]
    kind = "nan"
    epoch = 3

Kinds, each from that epoch on, and in answers to the questions of epochs only:

    garbage   bytes that are no message
    nan       every number of the answer is NaN (whole numbers become floating-point ones)
    old       the last answer before that epoch, again and again
    slow      the right answer, ``seconds`` late
    held      the right answer when the file ``go`` beside the site's own names the epoch, or a later one
    twice     the right answer, and before it the same bytes as a message of the site's own accord

A carrier takes one answer a question: what a host returns. (FLARE itself drops a second reply under the number of a
request.) So a second answer can only be a message that nobody asked for. ``twice`` sends it to the server as a parcel
is sent to a device; the server's end takes no parcels, so that it is refused, and the site logs that. Second answers
under the number of an open question, which a faulty carrier could bring, are put in between by the tests of the
correspondence, in one process.
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
from codedfl.settings import Settings, setting

__all__ = ["GO", "KINDS", "MisbehavingHost", "Misbehaviour", "make_host"]

KINDS = ("garbage", "nan", "old", "slow", "held", "twice")

GO = "go"
"""Beside a held site's own file: the last epoch that it may answer."""

_LOOK = 0.05
_SERVER = "server"

_log = logging.getLogger(__name__)


class Misbehaviour(Settings, table="misbehaviour"):
    """What a site does wrong, and from which epoch on."""

    kind: str = setting(choices=KINDS)
    epoch: int = setting(default=1, low=1)
    seconds: float = setting(default=1.0, low=0)


@final
class MisbehavingHost(Host):
    """Answers as another host does, until it is time to misbehave."""

    def __init__(self, inner: Host, wanted: Misbehaviour, peers: Peers, folder: Path) -> None:
        self._inner = inner
        self._wanted = wanted
        self._peers = peers
        self._go = folder / GO
        self._closed = threading.Event()
        self._old: bytes | None = None
        kinds: dict[str, Callable[[int, bytes], bytes]] = {
            "garbage": lambda epoch, answer: b"\x93garbage" * 9,
            "nan": lambda epoch, answer: _not_a_number(answer),
            "old": lambda epoch, answer: self._old or answer,
            "slow": lambda epoch, answer: self._late(answer),
            "held": self._held,
            "twice": lambda epoch, answer: self._twice(answer),
        }
        self._change = kinds[wanted.kind]

    def handle(self, payload: bytes) -> bytes:
        """Answer a question of the server, wrongly if it is time."""
        answer, epoch = self._inner.handle(payload), _epoch(payload)
        if epoch is None:
            return answer
        if epoch < self._wanted.epoch:
            self._old = answer
            return answer
        return self._change(epoch, answer)

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Answer another site, properly."""
        return self._inner.handle_peer(sender, payload)

    def close(self) -> None:
        """Let what waits return."""
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
    """Make the host of a site that misbehaves as its table says; for trials only."""
    own = dict(table)
    wanted = Misbehaviour.from_table(own.pop("misbehaviour", {}))
    return MisbehavingHost(site.make_host(own, peers), wanted, peers, Path(table["folder"]))


def _epoch(payload: bytes) -> int | None:
    """Return the epoch whose question this is; None if it is none of an epoch."""
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


def _not_a_number(answer: bytes) -> bytes:
    frame = decode(answer)
    formats = {name: array.dtype if array.dtype.kind == "f" else np.float64 for name, array in frame.arrays.items()}
    arrays = {name: np.full(array.shape, np.nan, formats[name]) for name, array in frame.arrays.items()}
    return encode(Frame(frame.kind, frame.fields, arrays))
