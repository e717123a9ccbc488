"""Security: what is claimed. Attacks and estimates beyond the paper's own formula are not here yet."""

from codedfl.security.claimed import claimed_level, prange_bits

__all__ = ["claimed_level", "prange_bits"]
