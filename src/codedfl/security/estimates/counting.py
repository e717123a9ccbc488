"""What the work factors are made of: logarithms of binomials and sums, and the cost of one elimination.

The unit everywhere is one operation in F_q, and every cost is its log2. An elimination counts a multiplication with its
addition as one, as k^3 does; tries and checks count them apart, as Peters (2010) does.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType


def log2_binomial(n: int, m: int) -> float:
    """Return log2 of C(n, m); minus infinity where there is nothing to choose.

    By the logarithm of the gamma function, right to about 1e-11 bits at n = 4000.
    """
    if not 0 <= m <= n:
        return -math.inf
    return (math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)) / math.log(2)


def log2_sum(*terms: float) -> float:
    """Return log2 of the sum of 2^term, without leaving the range of a float."""
    largest = max(terms)
    if math.isinf(largest):
        return largest
    return largest + math.log2(math.fsum(2.0 ** (term - largest) for term in terms))


ELIMINATIONS: Mapping[str, Callable[[int, int], float]] = MappingProxyType(
    {
        "1": lambda n, k: 0.0,
        "k^2.81": lambda n, k: math.log2(7) * math.log2(k),
        "k^3 / 3": lambda n, k: 3 * math.log2(k) - math.log2(3),
        "k^3": lambda n, k: 3 * math.log2(k),
        "(n-k)^3": lambda n, k: 3 * math.log2(n - k),
        "(n-k)^2 (n+k) / 2": lambda n, k: 2 * math.log2(n - k) + math.log2(n + k) - 1,
        "k^2 n": lambda n, k: 2 * math.log2(k) + math.log2(n),
        "(n-k)^2 n": lambda n, k: 2 * math.log2(n - k) + math.log2(n),
        "(n-k)^2 (n+k)": lambda n, k: 2 * math.log2(n - k) + math.log2(n + k),
        "n^3": lambda n, k: 3 * math.log2(n),
    }
)
"""Operations of one elimination, in log2, as authors count it; "1" counts information sets only.

k^2.81 is the exponent log2 7 of Strassen, "Gaussian elimination is not optimal", Numerische Mathematik 13 (1969).
"""


def elimination_bits(n: int, k: int, elimination: str) -> float:
    """Return log2 of the cost of one elimination in an [n, k] code; ``elimination`` is a key of ``ELIMINATIONS``."""
    if elimination not in ELIMINATIONS:
        raise ValueError(f"no elimination is counted as {elimination!r}; known are {', '.join(ELIMINATIONS)}")
    return ELIMINATIONS[elimination](n, k)


def addition_per_symbol(q: int) -> float:
    """Return the operations (Peters, 2010) to add a random nonzero multiple of one symbol to another.

    One addition, and one multiplication unless the factor happens to be 1: 1 + (q - 2)/(q - 1).
    """
    return 1 + (q - 2) / (q - 1)
