"""End-to-end encryption of parcels between devices, and of what the server grants a device.

Every device has a long-term X25519 key, which the others know by its fingerprint. A parcel's key is derived with
HKDF-SHA256 from two agreements with the recipient's key: of an ephemeral key, and of the sender's key. So only
the named sender can have made a parcel and only the named recipient can open it. AES-256-GCM encrypts it and
authenticates protocol, run, both parties, their nonces of this run, and a sequence number that must grow: altered,
misaddressed, repeated and old parcels are refused and logged.

Grants (supports, seeds of pads) are encrypted in the same way under the device's key, with an ephemeral key of the
server alone: only the device can read them. That they come from the server, the transport says.
"""

import hashlib
import json
import logging
import os
import secrets
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from codedfl.errors import KeyFileError, ParcelError
from codedfl.schemes.messages import Message

_PROTOCOL = b"codedfl parcel 1"
_GRANTS = b"codedfl grants 1"
_MAGIC = b"CFLP"
_KEY_BYTES = 32
_NONCE_BYTES = 16
_SEQUENCE = struct.Struct("<Q")
_HEAD = len(_MAGIC) + _KEY_BYTES + _SEQUENCE.size
_GCM_NONCE = bytes(12)  # constant, because a key encrypts one parcel only

_log = logging.getLogger(__name__)


def fingerprint(public: bytes) -> str:
    """Return the fingerprint of a public key."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


@final
class DeviceKey:
    """The long-term private key of a device."""

    __slots__ = ("_private", "public")

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        """Generate a key, unless one is given."""
        self._private = X25519PrivateKey.generate() if private is None else private
        self.public = self._private.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """The fingerprint that others pin."""
        return fingerprint(self.public)

    def agree(self, public: bytes) -> bytes:
        """Return the shared secret with another key."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public))

    def write(self, path: Path) -> None:
        """Write a new key file that only its owner can read; never overwrite one."""
        text = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise KeyFileError(f"cannot write the key '{path}' ({error.strerror}); choose another file") from None
        with os.fdopen(handle, "wb") as file:
            file.write(text)

    @classmethod
    def read(cls, path: Path) -> "DeviceKey":
        """Read a key file; refuse one that others can read."""
        try:
            with path.open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(1 << 16)
        except OSError as error:
            raise KeyFileError(f"cannot read the key '{path}' ({error.strerror}); check the path") from None
        if mode & 0o077:
            raise KeyFileError(f"the key '{path}' can be read by others (mode {mode & 0o777:o}); set its mode to 600")
        try:
            private = load_pem_private_key(text, None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, X25519PrivateKey):
            raise KeyFileError(f"'{path}' holds no X25519 key in PEM; create a new one and tell its fingerprint")
        return cls(private)

    def __repr__(self) -> str:
        return f"DeviceKey({self.fingerprint})"


@final
@dataclass(frozen=True)
class Member:
    """A site's public key, and its nonce of this run."""

    public: bytes
    nonce: bytes

    def __post_init__(self) -> None:
        if len(self.public) != _KEY_BYTES or len(self.nonce) != _NONCE_BYTES:
            raise ParcelError("a site announces an invalid key or nonce; check that versions agree")

    @classmethod
    def of(cls, key: DeviceKey) -> "Member":
        """Draw the nonce of a new run."""
        return cls(key.public, secrets.token_bytes(_NONCE_BYTES))


def run_name(run: str, announced: Message) -> str:
    """Return the name that parcels and grants are bound to: that of the run, and what the server announced.

    So sites to which the server announces different keys cannot read each other's parcels.
    """
    if not announced:
        return run
    digest = hashlib.sha256()
    for name, array in sorted(announced.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return f"{run} {digest.hexdigest()}"


def close_grants(site: str, member: Member, run: str, request: Mapping[str, Any], grants: bytes) -> bytes:
    """Encrypt the grants of a request under a site's key; they open with the same request in the same run only."""
    fresh = DeviceKey()
    data = _grant_data(site, member, run, request, fresh.public)
    try:
        shared = fresh.agree(member.public)
    except ValueError:
        raise ParcelError(f"the key of {site} is invalid; ask for another") from None
    return fresh.public + AESGCM(_derived(shared, data)).encrypt(_GCM_NONCE, grants, data)


def open_grants(site: str, key: DeviceKey, own: Member, run: str, request: Mapping[str, Any], closed: bytes) -> bytes:
    """Decrypt the grants of a request. Law: open_grants(..., close_grants(..., x)) = x, and all else is refused."""
    fresh = closed[:_KEY_BYTES]
    data = _grant_data(site, own, run, request, fresh)
    try:
        return AESGCM(_derived(key.agree(fresh), data)).decrypt(_GCM_NONCE, closed[_KEY_BYTES:], data)
    except (InvalidTag, ValueError):
        raise ParcelError(f"grants were altered, or not made for {site} and this request; check the server") from None


def _grant_data(site: str, member: Member, run: str, request: Mapping[str, Any], fresh: bytes) -> bytes:
    text = json.dumps(dict(request), sort_keys=True).encode()
    return _joined(_GRANTS, run.encode(), site.encode(), member.public, member.nonce, text, fresh)


@final
@dataclass
class _Link:
    """Another site, and the last sequence numbers in both directions."""

    member: Member
    sent: int = 0
    received: int = 0


@final
class Envelopes:
    """The encryption of one site's parcels in one run.

    ``members`` are all sites as the server announces them. ``pins`` are the expected fingerprints: other keys are
    refused, and a site without a pin exchanges nothing. With None the announced keys are accepted, which does not
    protect against the server.
    """

    def __init__(
        self,
        site: str,
        key: DeviceKey,
        own: Member,
        members: Mapping[str, Member],
        run: str,
        pins: Mapping[str, str] | None,
    ) -> None:
        if members.get(site) != own:
            raise ParcelError(f"the server announces another key of {site} than its own; check the server")
        self._site = site
        self._key = key
        self._own = own
        self._run = run
        self._lock = threading.Lock()
        self._links: dict[str, _Link] = {}
        for name, member in members.items():
            pinned = None if pins is None else pins.get(name)
            shown = fingerprint(member.public)
            if pinned is not None and pinned != shown:
                raise ParcelError(f"{name} has a key with the fingerprint {shown}, {site} has pinned {pinned}; check")
            if name != site and (pins is None or pinned is not None):
                self._links[name] = _Link(member)

    def close(self, recipient: str, contents: bytes) -> bytes:
        """Encrypt contents for one recipient."""
        link = self._link(recipient)
        with self._lock:
            link.sent += 1
            number = link.sent
        fresh = DeviceKey()
        data = self._associated_data(self._site, self._own, recipient, link.member, number, fresh.public)
        try:
            shared = fresh.agree(link.member.public) + self._key.agree(link.member.public)
        except ValueError:
            raise ParcelError(f"the key of {recipient} is invalid; ask for another") from None
        encrypted = AESGCM(_derived(shared, data)).encrypt(_GCM_NONCE, contents, data)
        return b"".join([_MAGIC, fresh.public, _SEQUENCE.pack(number), encrypted])

    def open(self, sender: str, envelope: bytes) -> bytes:
        """Decrypt a parcel of a sender, once; log a refusal."""
        try:
            return self._decrypted(sender, envelope)
        except ParcelError as error:
            _log.warning("%s refused a parcel: %s", self._site, error)
            raise

    def _decrypted(self, sender: str, envelope: bytes) -> bytes:
        link = self._link(sender)
        if len(envelope) < _HEAD or envelope[: len(_MAGIC)] != _MAGIC:
            raise ParcelError(f"a message of {sender} is not a parcel; send it again")
        fresh = envelope[len(_MAGIC) : len(_MAGIC) + _KEY_BYTES]
        (number,) = _SEQUENCE.unpack_from(envelope, len(_MAGIC) + _KEY_BYTES)
        data = self._associated_data(sender, link.member, self._site, self._own, number, fresh)
        try:
            shared = self._key.agree(fresh) + self._key.agree(link.member.public)
            contents = AESGCM(_derived(shared, data)).decrypt(_GCM_NONCE, envelope[_HEAD:], data)
        except (InvalidTag, ValueError):
            raise ParcelError(
                f"a parcel from {sender} was altered, or not encrypted by it for {self._site} in this run"
            ) from None
        with self._lock:
            if number <= link.received:
                raise ParcelError(f"parcel {number} from {sender} is a repetition; refused")
            link.received = number
        return contents

    def _link(self, name: str) -> _Link:
        if name not in self._links:
            raise ParcelError(f"{self._site} has pinned no key of {name}; add its fingerprint to [peers] of the site")
        return self._links[name]

    def _associated_data(
        self, sender: str, sending: Member, recipient: str, receiving: Member, number: int, fresh: bytes
    ) -> bytes:
        """Return the associated data of a parcel."""
        source = (sender.encode(), sending.public, sending.nonce)
        target = (recipient.encode(), receiving.public, receiving.nonce)
        return _joined(_PROTOCOL, self._run.encode(), *source, *target, _SEQUENCE.pack(number), fresh)


def _joined(*parts: bytes) -> bytes:
    return b"".join(_SEQUENCE.pack(len(part)) + part for part in parts)


def _derived(shared: bytes, data: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=data).derive(shared)
