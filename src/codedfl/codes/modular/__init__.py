"""Modular arithmetic on arrays of residues: compiled where numba is installed, else in NumPy, to the same bits."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["COMPILED", "PRIME_31", "PRIME_48", "PRIME_61", "WORD_BITS", "arithmetic", "compiled", "kernel"]

PRIME_31 = 2**31 - 1
PRIME_48 = 2**48 - 59
PRIME_61 = 2**61 - 1
WORD_BITS = {PRIME_31: 32, PRIME_48: 64, PRIME_61: 64}
"""Bits of the words that residues modulo each prime are held in."""
COMPILED = "CODEDFL_COMPILED"
"""Environment variable: 0 computes in NumPy even where numba is installed, which takes less memory."""
_MODULES = {
    "field_48_kernels": ("product_48", "add_48", "subtract_48", "add_multiple_48", "reduce_48", "pack_48", "unpack_48"),
    "field_61_kernels": ("product_61", "add_61", "subtract_61", "add_multiple_61", "reduce_61"),
    "wrapping_64_kernels": ("product_64",),
}


@cache
def compiled() -> bool:
    """Tell whether kernels are compiled: numba is installed, and the environment does not forbid it."""
    if os.environ.get(COMPILED) == "0":
        return False
    try:
        import numba  # noqa: F401 - slow to import
    except ImportError:
        return False
    return True


@cache
def kernel(name: str) -> Callable[..., Any]:
    """Return a function by its name; imported on first use, because numba is slow to import."""
    import importlib

    module = next((module for module, names in _MODULES.items() if name in names), "kernels")
    found = importlib.import_module(f"codedfl.codes.modular.{module if compiled() else 'portable'}")
    return getattr(found, name)  # type: ignore[no-any-return]


@cache
def arithmetic(prime: int) -> dict[str, Callable[..., Any]]:
    """Return the functions of a prime field."""
    bits = {PRIME_31: 31, PRIME_48: 48, PRIME_61: 61}[prime]
    names = ("product", "add", "subtract", "add_multiple", "reduce")
    return {name: kernel(f"{name}_{bits}") for name in names}
