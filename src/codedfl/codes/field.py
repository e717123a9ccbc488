"""Finite fields of prime-power order as tables; small, for the affine geometries of the supports."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import final

import numpy as np
from jaxtyping import Int

from codedfl.errors import CodeError

LARGEST = 256


@final
@dataclass(frozen=True, eq=False)
class FieldTables:
    """The field of q elements 0..q-1 (0 and 1 are its zero and one) with its sum and product tables."""

    plus: Int[np.ndarray, "q q"]
    times: Int[np.ndarray, "q q"]


def prime_power(q: int) -> tuple[int, int] | None:
    """Return the prime p and exponent e with p**e = q, or None."""
    if q < 2:
        return None
    p = next((p for p in range(2, int(q**0.5) + 1) if q % p == 0), q)
    exponent = 0
    while q % p == 0:
        q, exponent = q // p, exponent + 1
    return (p, exponent) if q == 1 else None


@cache
def field(q: int) -> FieldTables:
    """Return the field of q elements; element i stands for the polynomial with the digits of i in base p."""
    power = prime_power(q)
    if power is None or q > LARGEST:
        raise CodeError(f"There is no table field of {q} elements: choose a prime power up to {LARGEST}.")
    p, exponent = power
    digits = np.array([[i // p**j % p for j in range(exponent)] for i in range(q)])
    place = p ** np.arange(exponent)
    plus = (digits[:, None] + digits[None]) % p @ place
    for tail in product(range(p), repeat=exponent):
        times = _products(digits, place, p, tail)
        # a finite ring is a field when every element but zero permutes the others
        if all(np.unique(row).size == q for row in times[1:]):
            return FieldTables(plus, times)
    raise AssertionError("an irreducible polynomial exists for every prime power")


def _products(
    digits: Int[np.ndarray, "q e"], place: Int[np.ndarray, "e"], p: int, tail: tuple[int, ...]
) -> Int[np.ndarray, "q q"]:
    """Return the product table modulo the polynomial x**e = tail."""
    exponent = digits.shape[1]
    shifted = digits.copy()
    total = np.zeros((digits.shape[0], digits.shape[0], exponent), dtype=np.int64)
    for j in range(exponent):
        total += digits[:, None, j, None] * shifted[None]
        carry = shifted[:, -1:]
        moved = np.concatenate([np.zeros_like(carry), shifted[:, :-1]], axis=1)
        shifted = (moved + carry * np.array(tail)) % p
    return np.asarray(total % p @ place)
