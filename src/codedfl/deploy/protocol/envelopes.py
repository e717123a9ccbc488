"""Envelopes: what devices send each other is sealed from one to the other, whoever carries it.

Every device has a lasting X25519 key, which the others know by its fingerprint. A parcel's key comes from two
agreements, of a fresh key of the sender with the recipient's and of the sender's lasting key with the recipient's
(HKDF-SHA256 over both), so only the named sender can have made it and only the named recipient can open it. AES-256-GCM
encrypts and authenticates it together with protocol, run, both parties, what each of them drew for this run, and a
sequence number that must grow: altered, misaddressed, repeated and old parcels are refused and logged.
"""

import hashlib
import logging
import os
import secrets
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from codedfl.errors import KeyFileError, ParcelError

__all__ = ["DeviceKey", "Envelopes", "Member", "fingerprint"]

_PROTOCOL = b"codedfl parcel 1"
_MAGIC = b"CFLP"
_KEY_BYTES = 32
_NONCE_BYTES = 16
_SEQUENCE = struct.Struct("<Q")
_HEAD = len(_MAGIC) + _KEY_BYTES + _SEQUENCE.size
_UNUSED = bytes(12)  # a key encrypts one parcel only, so its nonce need not differ from any other

_log = logging.getLogger(__name__)


def fingerprint(public: bytes) -> str:
    """Return what a public key is known by."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


@final
class DeviceKey:
    """The lasting private key of a device; it is never shown."""

    __slots__ = ("_private", "public")

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        """Draw from the operating system, unless a key is given."""
        self._private = X25519PrivateKey.generate() if private is None else private
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def fingerprint(self) -> str:
        """What others pin."""
        return fingerprint(self.public)

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with the holder of another key."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public))

    def write(self, path: Path) -> None:
        """Write a new key file that nobody but its owner can read; an existing one is never overwritten."""
        text = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise KeyFileError(f"cannot write the key '{path}' ({error.strerror}); choose another file") from None
        with os.fdopen(handle, "wb") as file:
            file.write(text)

    @classmethod
    def read(cls, path: Path) -> "DeviceKey":
        """Read a key file; one that others can read is refused."""
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
            raise KeyFileError(
                f"'{path}' holds no X25519 key in PEM; make one anew and tell the others its fingerprint"
            )
        return cls(private)

    def __repr__(self) -> str:
        return f"DeviceKey({self.fingerprint})"


@final
@dataclass(frozen=True)
class Member:
    """What a site shows of itself: its public key, and a number drawn for this run."""

    public: bytes
    nonce: bytes

    def __post_init__(self) -> None:
        if len(self.public) != _KEY_BYTES or len(self.nonce) != _NONCE_BYTES:
            raise ParcelError("a site shows no proper key and number of its own; check that versions agree")

    @classmethod
    def of(cls, key: DeviceKey) -> "Member":
        """Draw a number for a new run."""
        return cls(key.public, secrets.token_bytes(_NONCE_BYTES))


@final
@dataclass
class _Link:
    """What is known of another site, and the newest sequence numbers in both directions."""

    member: Member
    sent: int = 0
    taken: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class Envelopes:
    """One site's envelopes in one run.

    ``members`` are all sites as the server announced them. ``pins`` are the fingerprints this site expects: a key that
    differs is refused, and with a site that has no pin nothing is exchanged. Without ``pins`` (None) the server's word
    is taken, which protects against everybody else but not against the server.
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
            raise ParcelError(f"the server announces another key of {site} than its own; check whom it talks to")
        self._site = site
        self._key = key
        self._own = own
        self._run = run
        self._links: dict[str, _Link] = {}
        for name, member in members.items():
            pinned = None if pins is None else pins.get(name)
            shown = fingerprint(member.public)
            if pinned is not None and pinned != shown:
                raise ParcelError(
                    f"{name} shows a key with the fingerprint {shown}, and {site} has pinned {pinned}; find out which "
                    "is right before anything is sent"
                )
            if name != site and (pins is None or pinned is not None):
                self._links[name] = _Link(member)

    def close(self, recipient: str, contents: bytes) -> bytes:
        """Seal contents for one recipient."""
        link = self._link(recipient)
        with link.lock:
            link.sent += 1
            number = link.sent
        fresh = DeviceKey()
        bound = self._bound(self._site, self._own, recipient, link.member, number, fresh.public)
        try:
            shared = fresh.agree(link.member.public) + self._key.agree(link.member.public)
        except ValueError:
            raise ParcelError(f"the key of {recipient} is no proper one; ask for another") from None
        sealed = AESGCM(_derived(shared, bound)).encrypt(_UNUSED, contents, bound)
        return b"".join([_MAGIC, fresh.public, _SEQUENCE.pack(number), sealed])

    def open(self, sender: str, envelope: bytes) -> bytes:
        """Return what a sender sealed for this site, once."""
        try:
            return self._opened(sender, envelope)
        except ParcelError as error:
            _log.warning("%s refused a parcel: %s", self._site, error)
            raise

    def _opened(self, sender: str, envelope: bytes) -> bytes:
        link = self._link(sender)
        if len(envelope) < _HEAD or envelope[: len(_MAGIC)] != _MAGIC:
            raise ParcelError(f"what {sender} is said to have sent is no parcel; send it again")
        fresh = envelope[len(_MAGIC) : len(_MAGIC) + _KEY_BYTES]
        (number,) = _SEQUENCE.unpack_from(envelope, len(_MAGIC) + _KEY_BYTES)
        bound = self._bound(sender, link.member, self._site, self._own, number, fresh)
        try:
            shared = self._key.agree(fresh) + self._key.agree(link.member.public)
            contents = AESGCM(_derived(shared, bound)).decrypt(_UNUSED, envelope[_HEAD:], bound)
        except (InvalidTag, ValueError):
            raise ParcelError(
                f"a parcel from {sender} was altered, or not sealed by it for {self._site} in this run; it was refused"
            ) from None
        with link.lock:
            if number <= link.taken:
                raise ParcelError(f"parcel {number} from {sender} has come before; it was refused")
            link.taken = number
        return contents

    def _link(self, name: str) -> _Link:
        if name not in self._links:
            raise ParcelError(f"{self._site} has pinned no key of {name}; add its fingerprint to [peers] of the site")
        return self._links[name]

    def _bound(
        self, sender: str, sending: Member, recipient: str, receiving: Member, number: int, fresh: bytes
    ) -> bytes:
        """Return everything that a parcel is bound to, each part with its length."""
        parts = (
            _PROTOCOL,
            self._run.encode(),
            sender.encode(),
            sending.public,
            sending.nonce,
            recipient.encode(),
            receiving.public,
            receiving.nonce,
            _SEQUENCE.pack(number),
            fresh,
        )
        return b"".join(_SEQUENCE.pack(len(part)) + part for part in parts)


def _derived(shared: bytes, bound: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=bound).derive(shared)
