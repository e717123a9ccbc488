"""One-time pads of residues, expanded from a 256-bit seed by AES-256 in counter mode.

HKDF-SHA256 (Krawczyk, "Cryptographic extraction and key derivation: the HKDF scheme", CRYPTO 2010) derives a key of its
own for every (ring, device, export, block); under it, residue i of a pad is word i of the key stream (NIST SP 800-38A,
counter starting at zero), so that both sides can start anywhere. In a prime field a word keeps 31 or 48 bits, and the
few values that are no residues are drawn again from a second key at the counter of their position: residues are exactly
uniform if AES is a random function, and no draw moves another.

Security rests on AES and on each pad hiding one export: ``PadLedger`` refuses a pad it has seen. It remembers for as
long as it lives; a device that forgets it must take a fresh seed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt

from codedfl.cipher.randomness import SEED_BYTES, fresh_seed
from codedfl.cipher.seals import kernels
from codedfl.cipher.seals.rings import PrimeField, Ring
from codedfl.cipher.seals.triangles import packed_rows
from codedfl.errors import CipherError

__all__ = ["Domain", "Pad", "PadLedger", "Seed", "pad_product", "seal", "symmetric_pad_product"]

AES_BLOCK = 16
# key stream is made in pieces that stay in the second-level cache
PIECE_BYTES = 1 << 17
_ZEROS = memoryview(bytes(PIECE_BYTES))
_ROWS = 128


@final
class Seed:
    """A 256-bit secret that one device shares with the server. It is never shown, and compares by identity."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        """Draw from the operating system; only tests and secure channels give the bytes."""
        self._secret = fresh_seed(secret)
        if len(self._secret) != SEED_BYTES:
            raise CipherError(f"A seed of {len(self._secret)} bytes does not fit: give {SEED_BYTES} bytes or none.")

    def derive(self, purpose: bytes, length: int = SEED_BYTES) -> bytes:
        """HKDF-SHA256 of the secret for one purpose."""
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
        """Eight bytes for each number, so that no two domains read the same."""
        try:
            return b"".join(number.to_bytes(8, "big") for number in (self.device, self.export, self.block))
        except OverflowError:
            raise CipherError(f"{self} does not number a pad: give numbers from 0 to 2^64 - 1.") from None


@final
class Pad:
    """The residues of one pad, made on demand: ``fill`` writes any stretch of it. It holds keys and no residues."""

    def __init__(self, ring: Ring, seed: Seed, domain: Domain) -> None:
        self.ring, self.domain = ring, domain
        self._seed, self._label = seed, b"codedfl pad 1 " + ring.name.encode() + b"\x00" + domain.encoded()
        self._key = seed.derive(self._label + b"stream")

    @cached_property
    def _second_key(self) -> bytes:
        return self._seed.derive(self._label + b"redraw")

    @cached_property
    def tag(self) -> bytes:
        """What tells this pad from every other, and nothing of its residues."""
        return self._seed.derive(self._label + b"tag")

    def fill(self, out: UInt[np.ndarray, "count"], start: int = 0) -> None:
        """Residues start, start+1, ... of the pad into ``out``."""
        self.ring.check(out)
        stream, piece = self._stream_from(start), PIECE_BYTES // self.ring.dtype.itemsize
        for at in range(0, out.size, piece):
            self._fill_piece(stream, out[at : at + piece], start + at)

    def _stream_from(self, start: int) -> Any:
        counter, skip = divmod(start * self.ring.dtype.itemsize, AES_BLOCK)
        stream = _stream(self._key, counter)
        stream.update(bytes(skip))
        return stream

    def _fill_piece(self, stream: Any, out: UInt[np.ndarray, "count"], start: int) -> None:
        stream.update_into(_ZEROS[: out.nbytes], out.view(np.uint8).data)
        if not np.little_endian:
            out.byteswap(inplace=True)
        if isinstance(self.ring, PrimeField) and self.ring.cut(out):
            for index in np.flatnonzero(out >= self.ring.modulus):
                out[index] = self._redrawn(start + int(index))

    def _redrawn(self, position: int) -> int:
        """The first word of the field's bits below p from the second key, at counters of this position alone."""
        stream, mask = _stream(self._second_key, position << 64), (1 << self.ring.bits) - 1
        while True:
            word = int.from_bytes(stream.update(bytes(self.ring.dtype.itemsize)), "little") & mask
            if word < self.ring.modulus:
                return word

    def residues(self, count: int, start: int = 0) -> UInt[np.ndarray, "count"]:
        """``count`` residues from ``start`` on."""
        out = np.empty(count, self.ring.dtype)
        self.fill(out, start)
        return out

    def add_to(self, residues: UInt[np.ndarray, "count"], start: int = 0) -> None:
        """Add residues start, start+1, ... of the pad in place, in pieces that stay in the cache."""
        self._apply(self.ring.add, residues, start)

    def take_from(self, residues: UInt[np.ndarray, "count"], start: int = 0) -> None:
        """Take residues start, start+1, ... of the pad away in place."""
        self._apply(self.ring.subtract, residues, start)

    def _apply(self, change: Callable[..., Any], residues: UInt[np.ndarray, "count"], start: int) -> None:
        stream, piece = self._stream_from(start), PIECE_BYTES // self.ring.dtype.itemsize
        buffer = np.empty(min(piece, residues.size), self.ring.dtype)
        for at in range(0, residues.size, piece):
            part = residues[at : at + piece]
            self._fill_piece(stream, buffer[: part.size], start + at)
            change(part, buffer[: part.size], out=part)

    def __repr__(self) -> str:
        return f"Pad({self.ring}, {self.domain})"


def _stream(key: bytes, counter: int) -> Any:
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(AES_BLOCK, "big"))).encryptor()


@final
class PadLedger:
    """The pads that were used up. ``claim`` takes a pad once; a second time raises."""

    def __init__(self) -> None:
        self._used: set[bytes] = set()

    def claim(self, pad: Pad) -> None:
        """Note that the pad hides an export from now on."""
        if pad.tag in self._used:
            raise CipherError(
                f"The pad of {pad.domain} has hidden data before, and a second time would reveal both: "
                "number the export anew."
            )
        self._used.add(pad.tag)

    def __len__(self) -> int:
        return len(self._used)


def seal(residues: UInt[np.ndarray, "..."], pad: Pad, ledger: PadLedger) -> UInt[np.ndarray, "..."]:
    """Add a fresh pad in place and return the array, which is now as good as random to who has no seed."""
    pad.ring.check(residues)
    if not residues.flags.c_contiguous:
        raise CipherError("Residues must lie in one piece of memory to be sealed: give a contiguous array.")
    ledger.claim(pad)
    pad.add_to(residues.reshape(-1))
    return residues


def pad_product(
    theta: UInt[np.ndarray, "c d"], pads: Sequence[Pad], columns: int, *, rows: int = _ROWS
) -> UInt[np.ndarray, "c b"]:
    """theta @ (sum of the pads as d x columns matrices), holding ``rows`` rows of them at a time."""
    ring = _common_ring(theta, pads)
    total = np.zeros((len(theta), columns), ring.dtype)
    for first in range(0, theta.shape[1], rows):
        part = theta[:, first : first + rows]
        block = _summed(ring, pads, first * columns, part.shape[1] * columns)
        ring.add(total, ring.product(part, block.reshape(-1, columns)), out=total)
    return total


def symmetric_pad_product(
    theta: UInt[np.ndarray, "c d"], pads: Sequence[Pad], *, rows: int = _ROWS
) -> UInt[np.ndarray, "c d"]:
    """theta @ (sum of the pads as symmetric matrices of which the upper triangle was padded), a few rows at a time.

    Rows i of a block serve twice: as rows, for all columns from the block on, and as columns, for the rows below it.
    """
    ring = _common_ring(theta, pads)
    d = theta.shape[1]
    total = np.zeros(theta.shape, ring.dtype)
    for first, strip in _strips(ring, pads, d, rows):
        last = first + len(strip)
        right = total[:, first:]
        ring.add(right, ring.product(theta[:, first:last], strip), out=right)
        below = total[:, first:last]
        mirrored = strip[:, last - first :].T
        ring.add(below, ring.product(theta[:, last:], mirrored), out=below)
    return total


def _strips(ring: Ring, pads: Sequence[Pad], d: int, rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of the summed symmetric pads from the diagonal block on, with the number of the first."""
    for first in range(0, d, rows):
        last = min(first + rows, d)
        where = packed_rows(d, first, last)
        strip = np.empty((last - first, d - first), ring.dtype)
        kernels.unpack_rows(_summed(ring, pads, where.start, where.stop - where.start), strip)
        yield first, strip


def _summed(ring: Ring, pads: Sequence[Pad], start: int, count: int) -> np.ndarray:
    total = np.zeros(count, ring.dtype)
    for pad in pads:
        pad.add_to(total, start)
    return total


def _common_ring(theta: np.ndarray, pads: Sequence[Pad]) -> Ring:
    rings = {pad.ring for pad in pads}
    if len(rings) != 1:
        raise CipherError(f"Pads of {len(rings)} rings cannot be summed: give one or more pads of the same ring.")
    ring = rings.pop()
    ring.check(theta)
    return ring
