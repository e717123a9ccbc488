"""Compiled arithmetic modulo 2^32, 2^64, 2^31 - 1 and 2^48 - 59."""
