"""Collision search inside an information set.

Stern, "A method for finding codewords of small weight", Coding Theory and Applications 1988; over F_q as in Peters,
"Information-set decoding for linear codes over F_q", PQCrypto 2010.
"""

import math

from codedfl.security.estimates.counting import addition_per_symbol, elimination_bits, log2_binomial, log2_sum
from codedfl.security.estimates.estimate import Estimate, obstacle
from codedfl.security.estimates.parameters import DecodingProblem


def stern_lists(k: int, q: int, p: int) -> tuple[float, float]:
    """Return log2 of the two list sizes C(floor(k/2), p) (q - 1)^p and C(ceil(k/2), p) (q - 1)^p."""
    multiples = p * math.log2(q - 1)
    return log2_binomial(k // 2, p) + multiples, log2_binomial(k - k // 2, p) + multiples


def stern_work(n: int, k: int, w: int, q: int, p: int, l: int, *, elimination: str = "k^3") -> float:  # noqa: E741
    """Return log2 of (elimination + lists + checks) / probability for p errors in each half and none in l positions.

    probability = C(floor(k/2), p) C(ceil(k/2), p) C(n - k - l, w - 2p) / C(n, w);
    lists = l (k/2 - p + 1 + both list sizes): each entry is one addition of l symbols away from an earlier one;
    checks = collisions * 2p (w - 2p + 1) q/(q - 1) * addition_per_symbol, with
    collisions = product of the list sizes / q^l. With p = 0 and l = 0 this is Prange.
    Peters takes (n - k)^2 (n + k) for the elimination, which is a key of ``ELIMINATIONS`` too.
    """
    first, second = stern_lists(k, q, p)
    hits = log2_binomial(k // 2, p) + log2_binomial(k - k // 2, p) + log2_binomial(n - k - l, w - 2 * p)
    terms = [elimination_bits(n, k, elimination)]
    if l:
        terms.append(log2_sum(first, second, math.log2(k / 2 - p + 1)) + math.log2(l))
    if p:
        terms.append(first + second - l * math.log2(q) + math.log2(_additions(w, q, p)))
    return log2_sum(*terms) + log2_binomial(n, w) - hits


def best_stern(n: int, k: int, w: int, q: int, *, elimination: str = "k^3") -> tuple[float, int, int]:
    """Return the least work, and the p and l that give it.

    The search over l ends where the checks cost less than one operation: from there on a larger l lengthens the
    lists and lowers the probability. A p is passed over if the first list alone is longer than the least work so far.
    """
    best = (stern_work(n, k, w, q, 0, 0, elimination=elimination), 0, 0)
    for p in range(1, min(w // 2, k // 2) + 1):
        if stern_lists(k, q, p)[0] > best[0]:
            continue
        for l in range(min(n - k - w + 2 * p, _enough(k, w, q, p)) + 1):  # noqa: E741
            best = min(best, (stern_work(n, k, w, q, p, l, elimination=elimination), p, l))
    return best


def stern(problem: DecodingProblem, *, elimination: str = "k^3") -> Estimate:
    """Estimate Stern's algorithm over F_q at its best p and l. Law: never more than Prange."""
    if reason := obstacle(problem):
        return Estimate("Stern", None, reason=reason)
    bits, p, l = best_stern(problem.n, problem.k, problem.w, problem.q, elimination=elimination)  # noqa: E741
    return Estimate("Stern", bits, {"p": p, "l": l})


def _additions(w: int, q: int, p: int) -> float:
    return 2 * p * (w - 2 * p + 1) * q / (q - 1) * addition_per_symbol(q)


def _enough(k: int, w: int, q: int, p: int) -> int:
    """Return an l from which on the checks cost at most one operation, so that a larger l only adds to the lists."""
    return math.ceil((sum(stern_lists(k, q, p)) + math.log2(_additions(w, q, p))) / math.log2(q))
