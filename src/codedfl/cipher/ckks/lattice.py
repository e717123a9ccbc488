"""Homomorphic encryption sized for one use: integer rows, two a ciphertext, added up and multiplied by integers.

A ciphertext is a pair of polynomials of degree below N, as 2 N residues of one prime q of 60 bits. An encoder of CKKS
gives it N/2 complex *slots*: the values of the polynomial at half of the odd powers of a root of unity zeta. There
X^(N/2) has the value iota = +i, -i, +i, ..., so two rows u and v of up to N/2 integers go into a ciphertext, and

    (a - b X^(N/2)) * (u + iota v)  =  (a u + b v) + iota (a v - b u):

the first part is what a product of a model with a matrix adds up. There are no rotations, nothing is rescaled, and one
prime is enough. All that a device computes is arithmetic modulo q on the words of ciphertexts, which needs no key and
no library: ``multiply`` and ``add``. Keys, encryption and decryption are in ``codedfl.cipher.ckks.keys``.

**Security.** q has 60 bits and encryption uses a second prime of 49 bits: 109 in all, the most that the table of the
homomorphic encryption standard (2018) allows at N = 4096 for 128 bits against classical attacks; larger N allow more.

**Exactness.** Integers are scaled by ``SCALE`` before encryption, so that noise can be rounded away. A fresh ciphertext
has noise r0 + r1 s, and the encoder rounds to whole coefficients: each coefficient of r0, r1 and of that rounding lies
within 1/2, with variance 1/12 (the noise of the second prime is divided by 2^49 and vanishes beside it). Keys are drawn
such that |s(zeta_k)|^2 <= ``KEY_PEAK`` * 2N/3 at every slot, so that the part of any slot has a variance of at most

    sigma^2 = (N/2) (2 + KEY_PEAK * 2N/3) / 12.

A sum of V ciphertexts, each multiplied by integers m_j, has V |m|_2^2 sigma^2. Coefficients are independent and
bounded, so the chance to be off by ``TAIL`` standard deviations or more is at most 2 exp(-TAIL^2 / 2) = 2.6e-14 for a
number. ``Lattice.longest`` is the largest |m|_2 for which this is less than half of ``SCALE``: rounding then gives the
exact integers, whatever key and noise were drawn.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

from codedfl.errors import CipherError

STANDARD_BITS = {4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""The most bits of all primes together, by N: 128-bit classical security, ternary secrets."""
PRIME_BITS = 60
SECOND_PRIME_BITS = 49
KEY_PEAK = 12.0
TAIL = 8.0
LIMIT = 2**31
"""Integers that are decrypted must be below this in magnitude."""
# a slot has two parts, and a coefficient is at most the largest slot: sqrt(2) LIMIT SCALE + noise < q/2 = 2^59
SCALE = math.floor(0.999 * 2.0**59 / (math.sqrt(2.0) * LIMIT))
# decoding in double precision: 6 u log2(N) sqrt(N) 2^59.5 is below this for every N of the table
_DECODING_ERROR = 2.0**22
_HALF = 30
_MASK = (1 << _HALF) - 1
_COLUMNS = 512


@final
@dataclass(frozen=True)
class Lattice:
    """The size of ciphertexts: everything that costs and errors depend on.

    >>> Lattice.holding(2000)
    Lattice(degree=4096)
    >>> Lattice.holding(2000).ciphertext_bytes
    61440
    """

    degree: int

    @classmethod
    def holding(cls, entries: int) -> "Lattice":
        """Return the smallest lattice of the table whose N/2 slots hold a row of so many entries."""
        for degree in STANDARD_BITS:
            if 1 <= entries <= degree // 2:
                return cls(degree)
        raise CipherError(
            f"Rows of {entries} entries do not fit: a ciphertext has room for 1 to {max(STANDARD_BITS) // 2}; "
            "take fewer features."
        )

    @property
    def words(self) -> int:
        """Residues in a ciphertext."""
        return 2 * self.degree

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of a ciphertext on the wire: 60 bits a residue."""
        return self.words * PRIME_BITS // 8

    @property
    def key_words(self) -> int:
        """64-bit words of a public key: two polynomials modulo two primes."""
        return 2 * self.words

    def count(self, rows: int) -> int:
        """Return the number of ciphertexts that hold so many rows."""
        return -(-rows // 2)

    def product_macs(self, outputs: int, rows: int) -> int:
        """Return the modular multiplications of a product: one for each word, ciphertext and output."""
        return outputs * self.count(rows) * self.words

    def encryption_macs(self, count: int) -> int:
        """Return the modular multiplications of encrypting: 11 number-theoretic transforms, 4 polynomial products."""
        return count * (11 * self._transform_macs + 4 * self.degree)

    def decryption_macs(self, count: int) -> int:
        """Return the modular multiplications of decrypting: a product of polynomials and a transform."""
        return count * (self._transform_macs + self.degree)

    @property
    def _transform_macs(self) -> int:
        return self.degree // 2 * (self.degree.bit_length() - 1)

    @property
    def largest_noise(self) -> float:
        """The standard deviation of a part of the noisiest slot of a fresh ciphertext, in units of 1 / SCALE."""
        return math.sqrt(self.degree / 2 * (2 + KEY_PEAK * 2 * self.degree / 3) / 12)

    def longest(self, summands: int) -> float:
        """Return the largest Euclidean length of integers that sums of so many ciphertexts may be multiplied by."""
        return (SCALE / 2 - _DECODING_ERROR) / (TAIL * self.largest_noise * math.sqrt(summands))

    def add(
        self, left: UInt64[np.ndarray, "count words"], right: UInt64[np.ndarray, "count words"], q: int
    ) -> UInt64[np.ndarray, "count words"]:
        """Return the ciphertexts of the sums."""
        total = left + right
        return np.asarray(np.minimum(total, total - np.uint64(q)))  # what is below q wraps around to a huge number

    def multiply(
        self,
        left: Int64[np.ndarray, "outputs rows"],
        ciphertexts: UInt64[np.ndarray, "count words"],
        unit: UInt64[np.ndarray, "degree"],
        q: int,
    ) -> UInt64[np.ndarray, "outputs words"]:
        """Return the ciphertexts of left @ rows (in the first part of the slots); ``unit`` are the words of X^(N/2).

        Words are cut in halves of 30 bits, whose products with small integers float64 adds up exactly.
        """
        if np.abs(left).sum(axis=1, initial=0).max(initial=0) >= 1 << (53 - _HALF):
            raise CipherError(
                f"Multipliers that add up to 2^{53 - _HALF} or more are not supported: take smaller ones."
            )
        pairs = np.zeros((len(left), 2 * len(ciphertexts)))
        pairs[:, : left.shape[1]] = left
        both = np.concatenate([pairs[:, 0::2], pairs[:, 1::2]])
        sums = np.empty((len(both), self.words), np.uint64)
        for begin in range(0, self.words, _COLUMNS):
            columns = slice(begin, begin + _COLUMNS)
            part = ciphertexts[:, columns]
            low = (both @ (part & _MASK).astype(np.float64)).astype(np.int64)
            high = (both @ (part >> _HALF).astype(np.float64)).astype(np.int64)
            sums[:, columns] = np.mod(_shifted(high, q) + low, q).astype(np.uint64)
        first, second = sums[: len(left)], sums[len(left) :]
        turned = _modular_product(second.reshape(-1, self.degree), unit, q).reshape(second.shape)
        return self.add(first, q - turned, q)

    def to_bytes(self, ciphertexts: UInt64[np.ndarray, "count words"]) -> UInt8[np.ndarray, "count bytes"]:
        """Pack residues of 60 bits: seven bytes of each, and the last halves of bytes in pairs."""
        split = np.ascontiguousarray(ciphertexts, "<u8").view(np.uint8).reshape(len(ciphertexts), self.words, 8)
        rest = split[:, 0::2, 7] | split[:, 1::2, 7] << 4
        return np.concatenate([split[:, :, :7].reshape(len(ciphertexts), 7 * self.words), rest], axis=1)

    def from_bytes(self, packed: UInt8[np.ndarray, "count bytes"]) -> UInt64[np.ndarray, "count words"]:
        """Undo ``to_bytes``."""
        if packed.ndim != 2 or packed.shape[1] != self.ciphertext_bytes:
            raise CipherError(
                f"Ciphertexts of shape {packed.shape} are not {self.ciphertext_bytes} bytes each: check who sent them."
            )
        split = np.zeros((len(packed), self.words, 8), np.uint8)
        split[:, :, :7] = packed[:, : 7 * self.words].reshape(len(packed), self.words, 7)
        rest = packed[:, 7 * self.words :]
        split[:, 0::2, 7], split[:, 1::2, 7] = rest & 15, rest >> 4
        return split.reshape(len(packed), 8 * self.words).view("<u8").astype(np.uint64)


def _shifted(numbers: Any, q: int) -> Any:
    """Return numbers * 2^30 modulo q, not fully reduced; q is close to 2^60, so that the rest folds into few bits."""
    return (numbers >> _HALF) * ((1 << 2 * _HALF) - q) + ((numbers & _MASK) << _HALF)


def _modular_product(
    left: UInt64[np.ndarray, "rows n"], right: UInt64[np.ndarray, "n"], q: int
) -> UInt64[np.ndarray, "rows n"]:
    """Return left * right modulo q, by halves of 30 bits."""
    one, other = left.astype(np.int64), right.astype(np.int64)
    one_high, one_low, other_high, other_low = one >> _HALF, one & _MASK, other >> _HALF, other & _MASK
    total = one_high * other_high % q
    total = (_shifted(total, q) + one_high * other_low + one_low * other_high) % q
    return np.asarray((_shifted(total, q) + one_low * other_low) % q).astype(np.uint64)
