"""What is kept across sessions: coded blocks at workers, encrypted at rest, and the key and the pads at the server.

A worker's file opens with a key that lies at the server only. The server derives it for each site from one secret of
the set-up, and sends it under the site's key of the session, as it sends grants. It never gets the file. A repeated
set-up draws another secret, so files of the one before do not open any more.
"""

import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.errors import CodedflError, EngineError
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, layout
from codedfl.storage import DAMAGED, write_arrays, write_whole

KEY_BYTES, NONCE_BYTES = 32, 12
KEPT = "kept-parcels.bin"
"""In the record of a run at a site: its coded block, encrypted."""
SECRET = "session.npz"  # noqa: S105 - a file name
"""In an unfinished run directory: the secret that the keys of sites are derived from, and the server's own part."""
STALE_DAYS = 30
"""Days after which a site removes what it keeps for a run that never ended."""
_PURPOSE, _MAGIC = b"codedfl kept parcels", b"codedfl-kept-1\n"

_log = logging.getLogger(__name__)


KEEP, HOLDS, RECALL = "keep", "holds", "recall"
"""What a server asks a site for: to store what its device holds, whether it has, and to take it again."""


def carry_out(verb: str, device: Device, parcels: "KeptParcels", grant: Message) -> bool:
    """Do what a server asks for, under the key that it has sent; tell whether it is done."""
    if verb not in (KEEP, HOLDS, RECALL) or layout(grant) != {"key": (np.dtype(np.uint8), (KEY_BYTES,))}:
        raise EngineError("the server's request to keep parcels cannot be read; check that versions agree")
    key = grant["key"].tobytes()
    if verb == KEEP:
        held = device.keep()
        return held is not None and parcels.store(key, held)
    found = parcels.load(key)
    if found is not None and verb == RECALL:
        device.recall(found)
    return found is not None


@final
class KeptParcels:
    """The file of one site for one run; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, site: str, run: str) -> None:
        self._path = None if folder is None else folder / KEPT
        self._bound = b"\n".join([_MAGIC, site.encode(), run.encode()])

    def store(self, key: bytes, contents: Message) -> bool:
        """Encrypt and write what a device holds; tell whether it is written."""
        if self._path is None:
            return False
        nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            closed = AESGCM(key).encrypt(nonce, encode(Frame("kept", {}, contents)), self._bound)
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path, lambda file: file.write(_MAGIC + nonce + closed), private=True)
        except (OSError, OverflowError, CodedflError) as error:
            _log.warning("parcels are not kept for a resumed run (%s)", error)
            return False
        return True

    def load(self, key: bytes) -> Message | None:
        """Return what was stored under the same key; None if there is nothing, or it does not open."""
        try:
            closed = b"" if self._path is None else self._path.read_bytes()
            head = len(_MAGIC) + NONCE_BYTES
            if not closed.startswith(_MAGIC):
                return None
            return decode(AESGCM(key).decrypt(closed[len(_MAGIC) : head], closed[head:], self._bound)).arrays
        except FileNotFoundError:
            return None
        except (OSError, InvalidTag, ValueError, CodedflError) as error:
            _log.warning("kept parcels cannot be used (%s)", type(error).__name__)
            return None

    def remove(self) -> None:
        """Remove the file."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def remove_stale(records: Path, now: float | None = None) -> None:
    """Remove files of runs that were interrupted long ago from the records of a site."""
    oldest = (time.time() if now is None else now) - STALE_DAYS * 86400
    for path in records.glob(f"*/{KEPT}"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
                _log.info("removed the parcels kept for the run %s, which did not end", path.parent.name)


@final
class SessionSecret:
    """The server's part, in a file of the run directory that its owner alone can read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SECRET
        self._secret = b""

    def draw(self, own: Message) -> None:
        """Draw another secret, and store it with what the server needs."""
        self._secret = secrets.token_bytes(KEY_BYTES)
        arrays = {"secret": np.frombuffer(self._secret, np.uint8), **{f"own_{name}": own[name] for name in own}}
        write_arrays(self._path, arrays, private=True)

    @property
    def drawn(self) -> bool:
        """Whether there is a secret."""
        return bool(self._secret)

    def read(self) -> Message:
        """Read the secret of an interrupted run; return what the server needs, empty without a usable file."""
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                own = {name.removeprefix("own_"): arrays[name] for name in arrays if name.startswith("own_")}
                found = arrays["secret"].tobytes()
        except (FileNotFoundError, *DAMAGED):
            return {}
        if len(found) != KEY_BYTES:
            return {}
        self._secret = found
        return own

    def key_of(self, site: str) -> Mapping[str, np.ndarray]:
        """Return the key of a site, as it is sent."""
        info = _PURPOSE + b"\n" + site.encode()
        key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self._secret)
        return {"key": np.frombuffer(key, np.uint8)}

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
