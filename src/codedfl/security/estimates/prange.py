"""Plain information-set decoding.

Prange, "The use of information sets in decoding cyclic codes", IRE Transactions on Information Theory 8 (1962).
"""

from codedfl.security.estimates.counting import elimination_bits, log2_binomial
from codedfl.security.estimates.estimate import Estimate, obstacle
from codedfl.security.estimates.parameters import DecodingProblem


def prange_work(n: int, k: int, w: int, *, elimination: str = "k^3") -> float:
    """Return log2 of elimination * C(n, w) / C(n - k, w).

    A random set of k positions misses all w errors with probability C(n - k, w) / C(n, w); each try costs one
    elimination. The field does not enter.
    """
    return elimination_bits(n, k, elimination) + log2_binomial(n, w) - log2_binomial(n - k, w)


def prange(problem: DecodingProblem, *, elimination: str = "k^3") -> Estimate:
    """Estimate Prange's algorithm (1962). Law: the work grows with w and does not depend on q."""
    if reason := obstacle(problem):
        return Estimate("Prange", None, reason=reason)
    return Estimate("Prange", prange_work(problem.n, problem.k, problem.w, elimination=elimination))
