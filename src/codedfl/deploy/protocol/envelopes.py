"""Keys of sites, and end-to-end encryption of parcels between devices and of what the server grants a device.

Every device has a long-term Ed25519 key, which the others know by its fingerprint. It signs and never encrypts. For
each session a site draws an X25519 key and signs it together with the names of session and site. The key of a
direction between two sites is derived with HKDF-SHA256 from the agreement of their session keys. So only the named
sender can have made a parcel, only the named recipient can open it, and once the session keys are gone nobody can,
whoever has the long-term keys. AES-256-GCM encrypts a parcel with its sequence number as nonce. The number must grow:
altered, misaddressed, repeated and old parcels are refused and logged.

Grants (supports, seeds of pads) are encrypted to the device's session key with an ephemeral key of the server: only the
device can read them. That they come from the server, the transport says.
"""

import hashlib
import json
import logging
import os
import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from codedfl.errors import EngineError, KeyFileError, ParcelError, ScenarioError
from codedfl.schemes.messages import Message

_PROTOCOL = b"codedfl parcel 2"
_GRANTS = b"codedfl grants 2"
_SESSION = "codedfl session 2"
_MAGIC = b"CFLP"
NONCE_BYTES = 16
"""Length of a site's nonce of a session."""

_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_SEQUENCE = struct.Struct("<Q")
_HEAD = len(_MAGIC) + _SEQUENCE.size
_GRANT_NONCE = bytes(12)  # constant, because a key of grants encrypts once

_log = logging.getLogger(__name__)


def check_fingerprint(what: str, shown: object) -> None:
    """Refuse what is not a fingerprint; ``what`` names it."""
    if not (isinstance(shown, str) and re.fullmatch("sha256:[0-9a-f]{64}", shown)):
        raise ScenarioError(f"{what} = {shown!r} must be a fingerprint (sha256: and 64 hex digits)")


def fingerprint(public: bytes) -> str:
    """Return the fingerprint of a public key."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


def statement(label: str, *parts: bytes) -> bytes:
    """Return what a device key signs: parts under a label of their own. Law: statements are equal only if all are."""
    return _joined(label.encode(), *parts)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a device key has signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@final
class DeviceKey:
    """The long-term private key of a device, which signs for it."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey | None = None) -> None:
        """Generate a key, unless one is given."""
        self._private = Ed25519PrivateKey.generate() if private is None else private
        self.public = self._private.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """The fingerprint that others pin."""
        return fingerprint(self.public)

    def sign(self, message: bytes) -> bytes:
        """Sign a :func:`statement`."""
        return self._private.sign(message)

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
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if isinstance(private, X25519PrivateKey):
            raise KeyFileError(
                f"'{path}' holds an X25519 key of an earlier version of codedfl; delete it, make a new one with "
                "`codedfl deploy key`, and tell the other owners its fingerprint"
            )
        if not isinstance(private, Ed25519PrivateKey):
            raise KeyFileError(f"'{path}' holds no Ed25519 key in PEM; make a new one and tell its fingerprint")
        return cls(private)

    def __repr__(self) -> str:
        return f"DeviceKey({self.fingerprint})"


@final
class SessionKey:
    """A private key of one session, which agrees on keys with others; it is never stored."""

    __slots__ = ("_private", "public")

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return the shared secret with another key; ValueError for a point of low order."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public))


@final
@dataclass(frozen=True)
class Member:
    """A site's public device key, its public key of one session, and the signature of the one over the other."""

    public: bytes
    session: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if [*map(len, vars(self).values())] != [_KEY_BYTES, _KEY_BYTES, _SIGNATURE_BYTES]:
            raise ParcelError("a site announces an invalid key or signature; check that versions agree")

    @classmethod
    def of(cls, key: DeviceKey, own: SessionKey, session: str, site: str) -> "Member":
        """Sign the key of a session."""
        return cls(key.public, own.public, key.sign(_session_statement(session, site, own.public)))

    @classmethod
    def from_hex(cls, *parts: str) -> "Member":
        """Read what :meth:`to_hex` returns."""
        return cls(*map(bytes.fromhex, parts))

    def to_hex(self) -> list[str]:
        """Return device key, session key and signature as text."""
        return [self.public.hex(), self.session.hex(), self.signature.hex()]

    def check(self, session: str, site: str) -> None:
        """Refuse a session key that the device key has not signed for this session and site, or that is weak."""
        if not verify(self.public, _session_statement(session, site, self.session), self.signature):
            raise ParcelError(f"the session key of {site} is not signed by its device key for this session; check it")
        try:
            SessionKey().agree(self.session)
        except ValueError:
            raise ParcelError(f"the session key of {site} is invalid; restart the site") from None


def read_members(description: Mapping[str, Any]) -> dict[str, Member]:
    """Read the public keys of each site, and the signature."""
    try:
        return {str(site): Member.from_hex(*shown) for site, shown in description["members"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise EngineError("the announced keys of the sites cannot be read; check that versions agree") from None


def _session_statement(session: str, site: str, public: bytes) -> bytes:
    return statement(_SESSION, session.encode(), site.encode(), public)


def run_name(run: str, announced: Message) -> str:
    """Return the name that parcels and grants are bound to: that of the run, and what the server announced.

    So sites to which the server announces different keys cannot read each other's parcels.
    """
    return f"{run} {_digest(announced)}" if announced else run


def _digest(arrays: Message) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def told_digest(fields: Mapping[str, Any], arrays: Message) -> str:
    """Return the digest of what the server told a site, without what differs between sites.

    Sites sign it and bind parcels to it. If the server told them different things, such as bounds that make the
    numbers of all others round to zero, their sums would show a single device.
    """
    shared = {name: value for name, value in fields.items() if name not in ("device", "index", "number")}
    text = json.dumps(shared, sort_keys=True) + _digest(arrays)
    return hashlib.sha256(text.encode()).hexdigest()


def close_grants(site: str, member: Member, run: str, request: Mapping[str, Any], grants: bytes) -> bytes:
    """Encrypt grants to a site's session key; they open with the same request in the same run only."""
    fresh = SessionKey()
    data = _grant_data(site, member, run, request, fresh.public)
    try:
        shared = fresh.agree(member.session)
    except ValueError:
        raise ParcelError(f"the session key of {site} is invalid; restart the site") from None
    return fresh.public + AESGCM(_derived(shared, data)).encrypt(_GRANT_NONCE, grants, data)


def open_grants(site: str, key: SessionKey, own: Member, run: str, request: Mapping[str, Any], closed: bytes) -> bytes:
    """Decrypt the grants of a request. Law: open_grants(..., close_grants(..., x)) = x, and all else is refused."""
    fresh = closed[:_KEY_BYTES]
    data = _grant_data(site, own, run, request, fresh)
    try:
        return AESGCM(_derived(key.agree(fresh), data)).decrypt(_GRANT_NONCE, closed[_KEY_BYTES:], data)
    except (InvalidTag, ValueError):
        raise ParcelError(f"grants were altered, or not made for {site} and this request; check the server") from None


def _grant_data(site: str, member: Member, run: str, request: Mapping[str, Any], fresh: bytes) -> bytes:
    text = json.dumps(dict(request), sort_keys=True).encode()
    return _joined(_GRANTS, run.encode(), site.encode(), member.public, member.session, text, fresh)


@final
@dataclass
class _Link:
    """The keys to another site and from it, and the last sequence numbers."""

    outward: AESGCM
    inward: AESGCM
    sent: int = 0
    received: int = 0


@final
class Envelopes:
    """The encryption of one site's parcels in one session.

    ``key`` is the site's key of this session. ``members`` are all sites as the server announces them. ``pins`` are the
    expected fingerprints: other keys are refused, and a site without a pin exchanges nothing. With None the announced
    keys are accepted, which does not protect against the server. Session keys must be signed in any case.
    """

    def __init__(
        self,
        site: str,
        key: SessionKey,
        own: Member,
        members: Mapping[str, Member],
        session: str,
        run: str,
        pins: Mapping[str, str] | None,
    ) -> None:
        if members.get(site) != own:
            raise ParcelError(f"the server announces another key of {site} than its own; check the server")
        self._site = site
        self._lock = threading.Lock()
        self._links: dict[str, _Link] = {}
        for name, member in members.items():
            pinned = None if pins is None else pins.get(name)
            shown = fingerprint(member.public)
            if pinned is not None and pinned != shown:
                raise ParcelError(f"{name} has a key with the fingerprint {shown}, {site} has pinned {pinned}; check")
            if name != site and (pins is None or pinned is not None):
                member.check(session, name)
                shared, ours, theirs = key.agree(member.session), (site, own), (name, member)
                self._links[name] = _Link(_directed(shared, run, ours, theirs), _directed(shared, run, theirs, ours))

    def close(self, recipient: str, contents: bytes) -> bytes:
        """Encrypt contents for one recipient."""
        link = self._link(recipient)
        with self._lock:
            link.sent += 1
            number = link.sent
        return b"".join([_MAGIC, _SEQUENCE.pack(number), link.outward.encrypt(_nonce(number), contents, _MAGIC)])

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
        (number,) = _SEQUENCE.unpack_from(envelope, len(_MAGIC))
        try:
            contents = link.inward.decrypt(_nonce(number), envelope[_HEAD:], _MAGIC)
        except InvalidTag:
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


def _directed(shared: bytes, run: str, *parties: tuple[str, Member]) -> AESGCM:
    """Return the key from the first party to the second."""
    named = [part for site, member in parties for part in (site.encode(), member.public, member.session)]
    return AESGCM(_derived(shared, _joined(_PROTOCOL, run.encode(), *named)))


def _nonce(number: int) -> bytes:
    """Return the nonce of a sequence number, which a sender uses once per key."""
    return bytes(12 - _SEQUENCE.size) + _SEQUENCE.pack(number)


def _joined(*parts: bytes) -> bytes:
    return b"".join(_SEQUENCE.pack(len(part)) + part for part in parts)


def _derived(shared: bytes, data: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=data).derive(shared)
