"""Information sets that may hold a few errors.

Lee and Brickell, "An observation on the security of McEliece's public-key cryptosystem", EUROCRYPT 1988; over F_q and
with the weight check cut short as in Peters, "Information-set decoding for linear codes over F_q", PQCrypto 2010.
"""

import math
from dataclasses import dataclass

from codedfl.security.estimates.counting import addition_per_symbol, elimination_bits, log2_binomial, log2_sum
from codedfl.security.estimates.estimate import Estimate, obstacle
from codedfl.security.estimates.parameters import DecodingProblem


@dataclass(frozen=True)
class Counting:
    """How the work is counted; the defaults are ours.

    codeword: a light codeword is looked for, not the error in a received word.
    exactly: only words with exactly p errors in the set are tried, not those with fewer.
    whole_words: a try costs n operations, not the additions up to the symbol that rules it out.
    """

    codeword: bool = False
    exactly: bool = False
    whole_words: bool = False
    elimination: str = "k^3"


def lee_brickell_work(n: int, k: int, w: int, q: int, p: int, counting: Counting | None = None) -> float:
    """Return log2 of (elimination + sum of tries_j * additions_j) / sum of probability_j, over j errors in the set.

    probability_j = C(k, j) C(n - k, w - j) / C(n, w) is the chance of exactly j errors in the information set;
    tries_j = C(k, j) (q - 1)^j combinations of j rows, j = 0..p. For a codeword instead of an error the multiples of
    a combination are the same word, so tries_j = C(k, j) (q - 1)^(j - 1), and j = 0 is the zero word: j = 1..p.
    additions_j: j rows are added symbol by symbol until more than w - j are nonzero, that is over
    (w - j + 1) q / (q - 1) symbols on average, ``addition_per_symbol`` each.
    """
    how = counting or Counting()
    first = p if how.exactly else int(how.codeword)
    hits = log2_sum(*(log2_binomial(k, j) + log2_binomial(n - k, w - j) for j in range(first, p + 1)))
    tries = [
        log2_binomial(k, j)
        + (j - how.codeword) * math.log2(q - 1)
        + math.log2(n if how.whole_words else _additions(w, q, j))
        for j in range(max(first, 1), p + 1)
    ]
    return log2_sum(elimination_bits(n, k, how.elimination), *tries) + log2_binomial(n, w) - hits


def _additions(w: int, q: int, j: int) -> float:
    return j * (w - j + 1) * q / (q - 1) * addition_per_symbol(q)


def lee_brickell(problem: DecodingProblem, *, elimination: str = "k^3") -> Estimate:
    """Estimate Lee and Brickell's algorithm for an error in a received word, at its best p.

    Law: never more than Prange, which is p = 0. Over a large field it is Prange, for trying one symbol costs q.
    """
    return _estimate("Lee-Brickell", problem, Counting(elimination=elimination))


def lee_brickell_codeword(problem: DecodingProblem, *, elimination: str = "k^3") -> Estimate:
    """Estimate Lee and Brickell's algorithm for a light codeword, at its best p; this is what section V-A describes.

    With p = 1 the tries are the k rows of the systematic generator matrix, which the elimination yields anyway: one
    elimination serves k sets, whatever the field.
    """
    return _estimate("Lee-Brickell, light codeword", problem, Counting(codeword=True, elimination=elimination))


def best_lee_brickell(n: int, k: int, w: int, q: int, counting: Counting) -> tuple[float, int]:
    """Return the least work and the p that gives it; a p is passed over if its tries exceed the least work so far."""
    least = int(counting.codeword)
    best = (lee_brickell_work(n, k, w, q, least, counting), least)
    for p in range(least + 1, min(w, k) + 1):
        if log2_binomial(k, p) + (p - least) * math.log2(q - 1) <= best[0]:
            best = min(best, (lee_brickell_work(n, k, w, q, p, counting), p))
    return best


def _estimate(name: str, problem: DecodingProblem, counting: Counting) -> Estimate:
    if reason := obstacle(problem):
        return Estimate(name, None, reason=reason)
    bits, p = best_lee_brickell(problem.n, problem.k, problem.w, problem.q, counting)
    return Estimate(name, bits, {"p": p})
