"""Key agreement inside one process, for simulations: the ideal one that X25519 stands for, at a hundredth of its time.

In virtual time both ends of every agreement are in one process, and a sum over 10,000 devices takes 320,000 X25519. The
secret of two keys is here a keyed hash of both public keys; the key of the hash is drawn by the process and is in no
message. So the secret of a pair is uniform and independent of everything sent, as an ideal key agreement promises, and
all sizes are those of X25519. It protects nothing between real machines: only ``codedfl.runs`` asks for it, and public
facts of signed sessions refuse it (``codedfl.schemes.public``).
"""

import hashlib
import secrets as system
from typing import final

from codedfl.cipher.masks.pairwise import KEY_BYTES, PairwiseKey
from codedfl.errors import CipherError


@final
class SimulatedAgreement:
    """Makes the keys of one simulated fleet; call it as :class:`codedfl.cipher.masks.pairwise.AgreementKey`.

    >>> keys = SimulatedAgreement()
    >>> a, b = keys(), keys()
    >>> a.agree(b.public, "mask") == b.agree(a.public, "mask"), keys(a.secret).public == a.public
    (True, True)
    """

    __slots__ = ("_hash_key",)

    def __init__(self) -> None:
        self._hash_key = system.token_bytes(KEY_BYTES)

    def __call__(self, secret: bytes | None = None) -> "SimulatedKey":
        """Make a key from the operating system's bytes, or from the given ones."""
        return SimulatedKey(self._hash_key, system.token_bytes(KEY_BYTES) if secret is None else secret)

    def __repr__(self) -> str:
        return "SimulatedAgreement()"


@final
class SimulatedKey(PairwiseKey):
    """A private key of a simulated agreement."""

    __slots__ = ("_hash_key", "_secret")

    def __init__(self, hash_key: bytes, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise CipherError(f"A private key of {len(secret)} bytes does not fit: give {KEY_BYTES} bytes or none.")
        self._hash_key = hash_key
        self._secret = secret
        self.public = hashlib.blake2b(secret, key=hash_key, digest_size=KEY_BYTES, person=b"public").digest()

    @property
    def secret(self) -> bytes:
        """The bytes that it was made from."""
        return self._secret

    def agree(self, public: bytes, purpose: str) -> bytes:
        """Return the keyed hash of both public keys and the purpose."""
        if len(public) != KEY_BYTES:
            raise CipherError("A public key that was sent is none of a simulation: ask the device for another.")
        own = self.public
        pair = own + public if own < public else public + own
        hashed = hashlib.blake2b(pair, key=self._hash_key, digest_size=KEY_BYTES, person=b"agreed")
        hashed.update(purpose.encode())
        return hashed.digest()

    def __repr__(self) -> str:
        return "SimulatedKey(secret)"
