"""Exact arithmetic that estimates are held against."""

import math
from fractions import Fraction
from functools import cache

NEAR = 1e-9
"""Bits. lgamma(4001) is about 3e4; a few such terms, each right to some 1e-16 of itself, leave about 1e-11."""


def log2(value: Fraction | int) -> float:
    """The logarithm of a ratio of whole numbers, which Python takes without rounding them first."""
    value = Fraction(value)
    return math.log2(value.numerator) - math.log2(value.denominator)


@cache
def sets_needed(n: int, k: int, w: int) -> Fraction:
    """Expected number of sets: the errors fall one by one outside the k positions."""
    chance = Fraction(1)
    for placed in range(w):
        chance *= Fraction(n - k - placed, n - placed)
    return 1 / chance
