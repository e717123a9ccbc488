"""Secret sharing: any t shares give a 256-bit secret back, fewer say nothing (Shamir, "How to share a secret", 1979).

A secret is cut into limbs of 30 bits, each less than p = 2^31 - 1. For every limb a polynomial over GF(p) is drawn
whose constant term is the limb and whose t - 1 other coefficients are uniform, from the operating system. The share
with number x (1, 2, ...) holds the values at x.

Laws:

    join(any t shares of split(secret)) = secret
    for every t - 1 shares and every secret, exactly one choice of the coefficients gives these shares
"""

import secrets as system
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from jaxtyping import Int, UInt32, UInt64

from codedfl.cipher.seals.rings import FIELD_31
from codedfl.errors import CipherError

SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
_PRIME = FIELD_31.modulus
_BLOCK = 1024
"""Secrets that are joined at once, which bounds memory."""


@final
@dataclass(frozen=True)
class SecretSharing:
    """Sharing with a threshold t: any t shares give a secret back."""

    threshold: int

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise CipherError(f"A threshold of {self.threshold} shares hides nothing: give at least 1.")

    def split(self, secrets: Sequence[bytes], numbers: Sequence[int]) -> UInt32[np.ndarray, "n s limbs"]:
        """Return the shares of several secrets, one for each number."""
        _check_numbers(numbers)
        if len(numbers) < self.threshold:
            raise CipherError(
                f"{len(numbers)} shares cannot give back what takes {self.threshold}: make more shares or lower the "
                "threshold."
            )
        limbs = np.stack([_limbs(secret) for secret in secrets])
        drawn = uniform_residues((self.threshold - 1) * limbs.size)
        coefficients = np.concatenate([limbs.reshape(1, -1), drawn.reshape(self.threshold - 1, limbs.size)])
        return values_at(numbers, coefficients).reshape(len(numbers), *limbs.shape)

    def join(self, numbers: Sequence[int], shares: UInt32[np.ndarray, "n s limbs"]) -> list[bytes]:
        """Return the secrets of the shares with these numbers; the first t are used."""
        _check_numbers(numbers)
        shares = FIELD_31.from_wire(shares)
        if len(numbers) < self.threshold:
            raise CipherError(
                f"{len(numbers)} shares say nothing of a secret that takes {self.threshold}: wait for more shares."
            )
        if len(numbers) != len(shares):
            raise CipherError(f"{len(shares)} shares do not fit {len(numbers)} numbers: give one number for each.")
        weights = _weights(tuple(numbers[: self.threshold]))
        used = shares[: self.threshold].reshape(self.threshold, -1)
        return [_secret(limbs) for limbs in FIELD_31.product(weights, used).reshape(shares.shape[1:])]

    def join_each(
        self, numbers: Int[np.ndarray, "secrets t"], shares: UInt32[np.ndarray, "secrets t limbs"]
    ) -> list[bytes]:
        """Return many secrets, each from t shares with numbers of its own. Law: as :meth:`join` of each."""
        if numbers.shape[1] != self.threshold or numbers.shape != shares.shape[:2]:
            raise CipherError(f"Shares of shape {shares.shape} do not fit a threshold of {self.threshold}: give t.")
        if numbers.min(initial=1) < 1 or np.any(np.diff(np.sort(numbers, axis=1), axis=1) == 0):
            raise CipherError("Shares hold a number twice, or one below 1: give every share once.")
        found: list[bytes] = []
        for first in range(0, len(numbers), _BLOCK):
            part = slice(first, first + _BLOCK)
            weights = _weights_each(numbers[part].astype(np.uint64))
            terms = weights[:, :, None] * FIELD_31.from_wire(shares[part]).astype(np.uint64) % np.uint64(_PRIME)
            found += [_secret(limbs) for limbs in (terms.sum(axis=1) % np.uint64(_PRIME)).astype(np.uint32)]
        return found


def uniform_residues(count: int) -> UInt32[np.ndarray, "count"]:
    """Draw uniform residues from the operating system; the one 31-bit word that is no residue is drawn again."""
    words = np.frombuffer(system.token_bytes(4 * count), "<u4").astype(np.uint32) & np.uint32(_PRIME)
    outside = np.flatnonzero(words == _PRIME)
    if outside.size:
        words[outside] = uniform_residues(outside.size)
    return words


def values_at(numbers: Sequence[int], coefficients: UInt32[np.ndarray, "t m"]) -> UInt32[np.ndarray, "n m"]:
    """Return the values of m polynomials at the numbers; row j of ``coefficients`` belongs to x^j."""
    return FIELD_31.product(_powers(tuple(numbers), len(coefficients)), coefficients)


@lru_cache(maxsize=64)
def _powers(numbers: tuple[int, ...], count: int) -> UInt32[np.ndarray, "n t"]:
    rows = np.ones((len(numbers), count), np.uint64)
    x = np.array(numbers, np.uint64)
    for power in range(1, count):
        rows[:, power] = rows[:, power - 1] * x % np.uint64(_PRIME)
    return rows.astype(np.uint32)


@lru_cache(maxsize=64)
def _weights(numbers: tuple[int, ...]) -> UInt32[np.ndarray, "1 t"]:
    """Return Lagrange's weights for the value at zero: the product of x_j / (x_j - x_i) over all other j."""
    weights = []
    for own in numbers:
        above, below = 1, 1
        for other in numbers:
            if other != own:
                above, below = above * other % _PRIME, below * (other - own) % _PRIME
        weights.append(above * pow(below, -1, _PRIME) % _PRIME)
    return np.array([weights], np.uint32)


def _weights_each(x: UInt64[np.ndarray, "secrets t"]) -> UInt64[np.ndarray, "secrets t"]:
    """Return Lagrange's weights for the value at zero, for the numbers in each row."""
    prime, above, below = np.uint64(_PRIME), np.ones_like(x), np.ones_like(x)
    for other in range(x.shape[1]):
        column = x[:, other : other + 1]
        rest = np.arange(x.shape[1]) != other
        above[:, rest] = above[:, rest] * column % prime
        below[:, rest] = below[:, rest] * ((column + prime - x[:, rest]) % prime) % prime
    inverse, square, power = np.ones_like(x), below, _PRIME - 2  # Fermat
    while power:
        if power & 1:
            inverse = inverse * square % prime
        square, power = square * square % prime, power >> 1
    return np.asarray(above * inverse % prime)


def _limbs(secret: bytes) -> UInt32[np.ndarray, "limbs"]:
    if len(secret) != SECRET_BYTES:
        raise CipherError(f"A secret of {len(secret)} bytes cannot be shared: give {SECRET_BYTES} bytes.")
    number = int.from_bytes(secret, "little")
    return np.array([number >> LIMB_BITS * k & (1 << LIMB_BITS) - 1 for k in range(LIMBS)], np.uint32)


def _secret(limbs: UInt32[np.ndarray, "limbs"]) -> bytes:
    number = sum(int(limb) << LIMB_BITS * k for k, limb in enumerate(limbs))
    if int(limbs.max()) >> LIMB_BITS or number >> 8 * SECRET_BYTES:
        raise CipherError("The shares do not belong to one secret: give shares of the same sharing.")
    return number.to_bytes(SECRET_BYTES, "little")


def _check_numbers(numbers: Sequence[int]) -> None:
    if len(set(numbers)) != len(numbers):
        raise CipherError(f"Shares numbered {_shown(numbers)} hold a number twice: give every share once.")
    if not all(0 < number < _PRIME for number in numbers):
        raise CipherError(f"Shares numbered {_shown(numbers)} are not those of a sharing: count them from 1.")


def _shown(numbers: Sequence[int]) -> str:
    listed = [str(number) for number in numbers]
    return ", ".join(listed if len(listed) <= 8 else [*listed[:8], "..."])
