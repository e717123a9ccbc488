"""One-time pads of residues, expanded from a 256-bit seed by AES-256 in counter mode.

HKDF-SHA256 (Krawczyk, "Cryptographic extraction and key derivation: the HKDF scheme", CRYPTO 2010) derives a key of its
own for every (ring, device, export, block); under it, residue i of a pad is word i of the key stream (NIST SP 800-38A,
counter starting at zero). In a prime field a word keeps as many bits as p has, and the few values that are no residues
are drawn again from a second key at the counter of their position: residues are uniform if AES is a random function.

Security rests on AES and on each pad hiding one export: ``PadLedger`` refuses a pad it has seen. It is kept in memory
only; a device that restarts must take a fresh seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt

from codedfl.cipher.randomness import SEED_BYTES, fresh_seed
from codedfl.cipher.seals.rings import PrimeField, Ring
from codedfl.errors import CipherError

AES_BLOCK = 16
# key stream is made in pieces that stay in the second-level cache
PIECE_BYTES = 1 << 17
_ZEROS = memoryview(bytes(PIECE_BYTES))


@final
class Seed:
    """A 256-bit secret that one device shares with the server; its repr hides it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        """Draw from the operating system, unless the bytes are given by a test or a secure channel."""
        self._secret = fresh_seed(secret)
        if len(self._secret) != SEED_BYTES:
            raise CipherError(f"A seed of {len(self._secret)} bytes does not fit: give {SEED_BYTES} bytes or none.")

    def derive(self, purpose: bytes, length: int = SEED_BYTES) -> bytes:
        """Return HKDF-SHA256 of the secret for one purpose."""
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(self._secret)

    def __repr__(self) -> str:
        return "Seed(secret)"


@final
@dataclass(frozen=True, order=True)
class Domain:
    """What one pad is for: the device, the number of its export, and the block within the export."""

    device: int
    export: int
    block: int = 0

    def encoded(self) -> bytes:
        """Return eight bytes for each number, so that no two domains encode alike."""
        try:
            return b"".join(number.to_bytes(8, "big") for number in (self.device, self.export, self.block))
        except OverflowError:
            raise CipherError(f"{self} does not number a pad: give numbers from 0 to 2^64 - 1.") from None


@final
class Pad:
    """The residues of one pad, made on demand: it holds keys and no residues."""

    def __init__(self, ring: Ring, seed: Seed, domain: Domain) -> None:
        self.ring, self.domain = ring, domain
        self._seed, self._label = seed, b"codedfl pad 1 " + ring.name.encode() + b"\x00" + domain.encoded()
        self._key = seed.derive(self._label + b"stream")

    @cached_property
    def tag(self) -> bytes:
        """An identifier of this pad that says nothing of its residues."""
        return self._seed.derive(self._label + b"tag")

    def fill(self, out: UInt[np.ndarray, "count"]) -> None:
        """Write the first residues of the pad into ``out``."""
        self.ring.check(out)
        stream, piece = key_stream(self._key, 0), PIECE_BYTES // self.ring.dtype.itemsize
        for at in range(0, out.size, piece):
            self._fill_piece(stream, out[at : at + piece], at)

    def _fill_piece(self, stream: Any, out: UInt[np.ndarray, "count"], start: int) -> None:
        stream.update_into(_ZEROS[: out.nbytes], out.view(np.uint8).data)
        if not np.little_endian:
            out.byteswap(inplace=True)
        if isinstance(self.ring, PrimeField) and self.ring.keep_low_bits(out):
            for index in np.flatnonzero(out >= self.ring.modulus):
                out[index] = self._redrawn(start + int(index))

    def _redrawn(self, position: int) -> int:
        """Return the first residue from the second key, at counters that belong to this position alone."""
        second_key, mask = self._seed.derive(self._label + b"redraw"), (1 << self.ring.bits) - 1
        stream = key_stream(second_key, position << 64)
        while True:
            word = int.from_bytes(stream.update(bytes(self.ring.dtype.itemsize)), "little") & mask
            if word < self.ring.modulus:
                return word

    def residues(self, count: int) -> UInt[np.ndarray, "count"]:
        """Return the first ``count`` residues."""
        out = np.empty(count, self.ring.dtype)
        self.fill(out)
        return out

    def add_to(self, residues: UInt[np.ndarray, "count"]) -> None:
        """Add the pad in place, in pieces that stay in the cache."""
        self._apply(self.ring.add, residues)

    def take_from(self, residues: UInt[np.ndarray, "count"]) -> None:
        """Subtract the pad in place."""
        self._apply(self.ring.subtract, residues)

    def _apply(self, change: Callable[..., Any], residues: UInt[np.ndarray, "count"]) -> None:
        stream, piece = key_stream(self._key, 0), PIECE_BYTES // self.ring.dtype.itemsize
        buffer = np.empty(min(piece, residues.size), self.ring.dtype)
        for at in range(0, residues.size, piece):
            part = residues[at : at + piece]
            self._fill_piece(stream, buffer[: part.size], at)
            change(part, buffer[: part.size], out=part)

    def __repr__(self) -> str:
        return f"Pad({self.ring}, {self.domain})"


def key_stream(key: bytes, counter: int) -> Any:
    """Return AES-256 in counter mode from a counter on: its ``update`` of zeros is the key stream."""
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(AES_BLOCK, "big"))).encryptor()


@final
class PadLedger:
    """The used pads: claiming one a second time raises."""

    def __init__(self) -> None:
        self._used: set[bytes] = set()

    def claim(self, pad: Pad) -> None:
        """Record that the pad hides an export."""
        if pad.tag in self._used:
            raise CipherError(
                f"The pad of {pad.domain} has hidden data before, and a second time would reveal both: "
                "number the export anew."
            )
        self._used.add(pad.tag)

    def __len__(self) -> int:
        return len(self._used)


def seal(residues: UInt[np.ndarray, "..."], pad: Pad, ledger: PadLedger) -> UInt[np.ndarray, "..."]:
    """Add a fresh pad in place and return the array, which looks uniform without the seed."""
    pad.ring.check(residues)
    if not residues.flags.c_contiguous:
        raise CipherError("Residues must lie in one piece of memory to be sealed: give a contiguous array.")
    ledger.claim(pad)
    pad.add_to(residues.reshape(-1))
    return residues
