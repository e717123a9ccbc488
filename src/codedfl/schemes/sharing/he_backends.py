"""Backends of ``he``: rows of residues encrypted by CKKS, or in clear in messages of the same sizes.

Both compute the same integers, so a run gives the same models and the same times with either.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Shaped, UInt8, UInt32, UInt64

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import Lattice
from codedfl.cipher.seals import Z_32

RING = Z_32
"""Integers are below 2^31 in magnitude and are stored as residues of this ring."""
Held = Shaped[np.ndarray, "..."]
Rows = UInt32[np.ndarray, "rows d"]


@final
class CkksBackend:
    """The device's side: rows encrypted by CKKS, two per ciphertext, as words."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self._key: ckks.CkksPublicKey | None = None

    @property
    def key(self) -> ckks.CkksPublicKey:
        """The server's public key."""
        if self._key is None:
            raise RuntimeError("no public key has arrived from the server")
        return self._key

    def take_key(self, words: UInt64[np.ndarray, "words"]) -> None:
        """Store the server's public key."""
        self._key = ckks.CkksPublicKey(self.lattice, words)

    def hide(self, rows: Rows) -> Held:
        """Encrypt rows."""
        return self.key.encrypt(RING.centred(rows))

    def add(self, left: Held, right: Held) -> Held:
        """Add modulo the prime of the ciphertexts."""
        return self.key.add(left, right)

    def multiply(self, left: UInt32[np.ndarray, "c d"], held: Held) -> Held:
        """Return the product of a model and encrypted rows, one ciphertext per class."""
        return self.key.multiply(RING.centred(np.asarray(left)), held)

    def to_bytes(self, held: Held) -> UInt8[np.ndarray, "count bytes"]:
        """Pack words of 60 bits."""
        return self.lattice.to_bytes(held)

    def from_bytes(self, packed: UInt8[np.ndarray, "count bytes"]) -> Held:
        """Undo ``to_bytes``."""
        return self.lattice.from_bytes(packed)


@final
class CkksOpener:
    """The server's side: holds the secret key, which is new in every run."""

    def __init__(self, lattice: Lattice, features: int) -> None:
        self._lattice = lattice
        self._features = features
        self._secret = ckks.CkksSecretKey(lattice)

    @property
    def public_words(self) -> UInt64[np.ndarray, "words"]:
        """The public key, to be sent to devices."""
        return self._secret.public_words

    def open_sum(self, parts: Sequence[UInt8[np.ndarray, "count bytes"]]) -> UInt32[np.ndarray, "count 2 d"]:
        """Add up ciphertexts, and decrypt only the sum."""
        total = self._lattice.from_bytes(parts[0])
        for part in parts[1:]:
            total = self._lattice.add(total, self._lattice.from_bytes(part), self._secret.q)
        return RING.residues(self._secret.decrypt(total)[:, :, : self._features])


@final
class ClearBackend:
    """Models the costs only: rows in clear, in messages as long as ciphertexts. NOTHING IS ENCRYPTED."""

    def __init__(self, lattice: Lattice, features: int) -> None:
        self.lattice = lattice
        self._features = features

    def take_key(self, words: UInt64[np.ndarray, "words"]) -> None:
        """Ignore the key: nothing is encrypted."""

    def hide(self, rows: Rows) -> Held:
        """Return rows in pairs, in clear."""
        pairs = np.zeros((self.lattice.count(len(rows)), 2, self._features), RING.dtype)
        pairs.reshape(-1, self._features)[: len(rows)] = rows
        return pairs

    def add(self, left: Held, right: Held) -> Held:
        """Add residues."""
        return RING.add(left, right)

    def multiply(self, left: UInt32[np.ndarray, "c d"], held: Held) -> Held:
        """Multiply residues; the second row of every pair stays empty."""
        pairs = np.zeros((len(left), 2, self._features), RING.dtype)
        pairs[:, 0] = RING.product(np.asarray(left), held.reshape(-1, self._features)[: left.shape[1]])
        return pairs

    def to_bytes(self, held: Held) -> UInt8[np.ndarray, "count bytes"]:
        """Pad with zeros to the length of ciphertexts, which are longer than clear rows."""
        packed = np.zeros((len(held), self.lattice.ciphertext_bytes), np.uint8)
        packed[:, : 8 * self._features] = np.ascontiguousarray(held, "<u4").reshape(len(held), -1).view(np.uint8)
        return packed

    def from_bytes(self, packed: UInt8[np.ndarray, "count bytes"]) -> Held:
        """Undo ``to_bytes``."""
        rows: Any = np.ascontiguousarray(packed[:, : 8 * self._features]).view("<u4").astype(RING.dtype, copy=False)
        return np.asarray(rows.reshape(len(packed), 2, self._features))


@final
class ClearOpener:
    """Reads rows in clear; its key is all zeros, as long as a real one."""

    def __init__(self, lattice: Lattice, features: int) -> None:
        self._backend = ClearBackend(lattice, features)

    @property
    def public_words(self) -> UInt64[np.ndarray, "words"]:
        """As many zeros as a key has words; they need no memory."""
        return np.broadcast_to(np.uint64(0), (self._backend.lattice.key_words,))

    def open_sum(self, parts: Sequence[UInt8[np.ndarray, "count bytes"]]) -> UInt32[np.ndarray, "count 2 d"]:
        """Return the sum of residues."""
        total = self._backend.from_bytes(parts[0])
        for part in parts[1:]:
            total = self._backend.add(total, self._backend.from_bytes(part))
        return total
