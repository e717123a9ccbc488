"""Compiled modular arithmetic on arrays of residues."""

__all__ = ["PRIME_31", "PRIME_48"]

PRIME_31 = 2**31 - 1
PRIME_48 = 2**48 - 59
