"""Secret random numbers: a seed from the operating system, stretched by SHAKE-256.

NumPy's generators are predictable, so no secret comes from them: a 256-bit seed and a label (its purpose) name one
stream of bytes, and numbers are made from those bytes.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from codedfl.errors import CipherError

SEED_BYTES = 32
_DOUBLE_BITS = 53


def fresh_seed(given: bytes | None = None) -> bytes:
    """Return a 256-bit seed from the operating system, or the one that a test injects."""
    if given is None:
        return secrets.token_bytes(SEED_BYTES)
    if len(given) < SEED_BYTES // 2:
        raise CipherError(
            f"A seed of {len(given)} bytes is too short: give at least {SEED_BYTES // 2} bytes, "
            "or none to let the operating system choose."
        )
    return given


@final
@dataclass(frozen=True, repr=False)
class Stream:
    """The bytes SHAKE-256(label, seed): equal seeds and labels give equal numbers, other labels others.

    Each method starts at the beginning of its stream; use one label for one purpose.
    """

    seed: bytes
    label: str

    def _bytes(self, count: int) -> bytes:
        label = self.label.encode()
        return hashlib.shake_256(len(label).to_bytes(2, "little") + label + self.seed).digest(count)

    def integer(self, bits: int = 63) -> int:
        """Return one integer in [0, 2**bits)."""
        return int.from_bytes(self._bytes((bits + 7) // 8), "little") % (1 << bits)

    def permutation(self, length: int) -> Int64[np.ndarray, "length"]:
        """Return a random order of 0 .. length-1."""
        keys = np.frombuffer(self._bytes(8 * length), dtype="<u8")
        return np.argsort(keys, kind="stable").astype(np.int64)

    def normals(self, count: int) -> Float64[np.ndarray, "count"]:
        """Return independent standard normal numbers, by inversion of their distribution function."""
        import scipy.special  # only code-based needs it; not installed at small sites

        words = np.frombuffer(self._bytes(8 * count), dtype="<u8") >> np.uint64(64 - _DOUBLE_BITS)
        # half a step away from 0 and 1, where the inverse is infinite
        uniform = (words.astype(np.float64) + 0.5) * 2.0**-_DOUBLE_BITS
        uniform = np.minimum(uniform, np.nextafter(1, 0))  # the largest sum rounds up to 1
        return np.asarray(scipy.special.ndtri(uniform), dtype=np.float64)
