"""Masks that cancel in a sum (Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
CCS 2017): two devices agree on a seed; one adds its pad, the other subtracts it.

Two devices agree by X25519 (RFC 7748) on a secret; HKDF-SHA256 derives a seed for one purpose from it, bound to both
public keys. Shares of secrets are sent in envelopes: AES-256-GCM under a key agreed on in the same way, with a random
nonce in front.

A key serves one sum, because who learns a device's mask key can compute all its pairwise masks.
"""

import secrets as system
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt

from codedfl.cipher.seals.pads import Domain, Pad, Seed
from codedfl.cipher.seals.rings import Ring
from codedfl.errors import CipherError

KEY_BYTES = 32
NONCE_BYTES = 12
ENVELOPE_BYTES = NONCE_BYTES + 16
"""Bytes of an envelope beyond its contents: a nonce and a tag."""
_FIELD_PRODUCTS = 255 * 10 + 265
"""Of one X25519: a ladder of 255 steps (5 products, 4 squares, 1 product with a constant), and Fermat's inversion."""
AGREEMENT_OPERATIONS = _FIELD_PRODUCTS * (256 // 32) ** 2
"""Multiplications of 32-bit words that one X25519 is charged with as work."""


class PairwiseKey(ABC):
    """A private key, whose owner agrees on secrets with the owners of other keys; its repr hides it."""

    __slots__ = ("public",)
    public: bytes
    """The public half, to be sent."""

    @property
    @abstractmethod
    def secret(self) -> bytes:
        """The private key itself, to be cut into shares."""

    @abstractmethod
    def agree(self, public: bytes, purpose: str) -> bytes:
        """Return 256 bits that both key owners alone know. Law: a.agree(b.public, p) = b.agree(a.public, p)."""


KeyAgreement = Callable[..., PairwiseKey]
"""Makes a private key, from 32 bytes if they are given: X25519, or that of ``codedfl.cipher.masks.simulated``."""


@final
class AgreementKey(PairwiseKey):
    """A private key of X25519."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes | None = None) -> None:
        """Draw from the operating system, unless the bytes are given by a test or by joined shares."""
        given = system.token_bytes(KEY_BYTES) if secret is None else secret
        if len(given) != KEY_BYTES:
            raise CipherError(f"A private key of {len(given)} bytes does not fit: give {KEY_BYTES} bytes or none.")
        self._key = X25519PrivateKey.from_private_bytes(given)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def secret(self) -> bytes:
        """The private key itself, to be cut into shares."""
        return self._key.private_bytes_raw()

    def agree(self, public: bytes, purpose: str) -> bytes:
        """Return HKDF-SHA256 of the point that both keys give."""
        try:
            point = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise CipherError("A public key that was sent is none of X25519: ask the device for another.") from None
        info = b"codedfl agreement 1 " + purpose.encode() + b"\x00" + b"".join(sorted((self.public, public)))
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(point)

    def __repr__(self) -> str:
        return "AgreementKey(secret)"


def close_envelope(key: bytes, contents: bytes, address: bytes) -> bytes:
    """Encrypt contents under an agreed key; they open at the same address only."""
    nonce = system.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, contents, address)


def open_envelope(key: bytes, envelope: bytes, address: bytes) -> bytes:
    """Return the contents. Law: open_envelope(k, close_envelope(k, x, a), a) = x, and every other k or a is refused."""
    try:
        return AESGCM(key).decrypt(envelope[:NONCE_BYTES], envelope[NONCE_BYTES:], address)
    except (InvalidTag, ValueError):
        raise CipherError(
            "An envelope does not open: it was altered on its way, or is meant for another device, epoch or request."
        ) from None


def add_mask(
    ring: Ring, secret: bytes, domain: Domain, residues: UInt[np.ndarray, "count"], *, minus: bool = False
) -> None:
    """Add the pad of a secret in place, or subtract it. Law: the two cancel."""
    pad = Pad(ring, Seed(secret), domain)
    (pad.take_from if minus else pad.add_to)(residues)
