"""Compiled modular arithmetic on arrays of residues."""

from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["PRIME_31", "PRIME_48", "PRIME_61", "WORD_BITS", "arithmetic"]

PRIME_31 = 2**31 - 1
PRIME_48 = 2**48 - 59
PRIME_61 = 2**61 - 1
WORD_BITS = {PRIME_31: 32, PRIME_48: 64, PRIME_61: 64}
"""Bits of the words that residues modulo each prime are held in."""


@cache
def arithmetic(prime: int) -> dict[str, Callable[..., Any]]:
    """Return the compiled functions of a prime field; imported on first use, because numba is slow to import."""
    from codedfl.codes.modular import field_48_kernels, field_61_kernels, kernels

    module, bits = {
        PRIME_31: (kernels, 31),
        PRIME_48: (field_48_kernels, 48),
        PRIME_61: (field_61_kernels, 61),
    }[prime]
    names = ("product", "add", "subtract", "add_multiple", "reduce")
    return {name: getattr(module, f"{name}_{bits}") for name in names}
