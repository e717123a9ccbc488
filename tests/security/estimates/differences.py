"""Our numbers turned into those of another program, one named difference at a time.

The other program is the package ``cryptographic_estimators`` (Esser, Verbel, Zweydinger and Bellini, "SoK:
CryptographicEstimators, a software library for cryptographic hardness estimation", ASIACCS 2024), version 2.1.1, its
estimator of syndrome decoding over F_q. It was written without regard to ours, so that it can serve as an oracle.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from codedfl.security.estimates.counting import elimination_bits, log2_binomial
from codedfl.security.estimates.lee_brickell import Counting, best_lee_brickell
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.security.estimates.prange import prange_work
from codedfl.security.estimates.stern import best_stern, stern_work

_RADIUS = 10
"""How far from its first guess the other program looks for Stern's l."""


@dataclass(frozen=True)
class Difference:
    """One thing that is counted differently, and the bits that this adds to ours."""

    what: str
    bits: float


@dataclass(frozen=True)
class Reconstruction:
    """Our bits for an algorithm, in field operations, and the differences that lead to the other program's."""

    name: str
    ours: float
    differences: tuple[Difference, ...]

    @property
    def theirs(self) -> float:
        """What the other program says, in bit operations."""
        return self.ours + math.fsum(difference.bits for difference in self.differences)


def reconstructions(problem: DecodingProblem) -> tuple[Reconstruction, ...]:
    """Return what the other program says of the problem, from our numbers."""
    return reconstruct(problem.n, problem.k, problem.w, problem.q)


def reconstruct(n: int, k: int, w: int, q: int) -> tuple[Reconstruction, ...]:
    """Return Prange, Lee-Brickell for a light codeword, and Stern, for any field of more than two elements.

    Each is at the p and l that are best for one word; where the first set would do, the other program may tell ties
    between them differently.
    """
    if not 2 <= k < n or not 1 <= w <= n - k or q < 3:
        raise ValueError(f"need 2 <= k < n, 1 <= w <= n - k and q >= 3; got n = {n}, k = {k}, w = {w}, q = {q}")
    return _prange(n, k, w, q), _lee_brickell(n, k, w, q), _stern(n, k, w, q)


def _common(tries: float, n: int, k: int, w: int, q: int) -> tuple[Difference, Difference]:
    """Return what all three differ in; ``tries`` is log2 of the expected number of information sets."""
    solutions = max(0.0, log2_binomial(n, w) + w * math.log2(q - 1) - (n - k) * math.log2(q))
    return (
        Difference("divided by the words of that weight expected in a random code", max(tries - solutions, 0) - tries),
        Difference("a field operation is log2 q bit operations", math.log2(math.log2(q))),
    )


def _prange(n: int, k: int, w: int, q: int) -> Reconstruction:
    ours = prange_work(n, k, w)
    elimination = elimination_bits(n, k, "k^2 n") - elimination_bits(n, k, "k^3")
    tries = prange_work(n, k, w, elimination="1")
    return Reconstruction(
        "Prange", ours, (Difference("an elimination is k^2 n, not k^3", elimination), *_common(tries, n, k, w, q))
    )


def _lee_brickell(n: int, k: int, w: int, q: int) -> Reconstruction:
    steps = (
        ("", Counting(codeword=True)),
        ("only words with exactly p errors in the set", Counting(True, True)),
        ("an elimination is k^2 n, not k^3", Counting(True, True, False, "k^2 n")),
        ("a try is n operations, not cut short", Counting(True, True, True, "k^2 n")),
    )
    work = [best_lee_brickell(n, k, w, q, counting) for _, counting in steps]
    differences = [
        Difference(what, after[0] - before[0])
        for (what, _), before, after in zip(steps[1:], work, work[1:], strict=False)
    ]
    p = work[-1][1]
    tries = log2_binomial(n, w) - log2_binomial(k, p) - log2_binomial(n - k, w - p)
    return Reconstruction("Lee-Brickell", work[0][0], (*differences, *_common(tries, n, k, w, q)))


def _stern(n: int, k: int, w: int, q: int) -> Reconstruction:
    elimination = "(n-k)^2 (n+k) / 2"
    ours, _, _ = best_stern(n, k, w, q)
    rounded, p, l = min(  # noqa: E741
        (_in_whole_numbers(n, k, w, q, *choice), *choice) for choice in _narrow_search(n, k, w, q)
    )
    same, other = stern_work(n, k, w, q, p, l), stern_work(n, k, w, q, p, l, elimination=elimination)
    tries = log2_binomial(n, w) - log2_binomial(n - k - l, w - 2 * p) - 2 * log2_binomial(k // 2, p)
    return Reconstruction(
        "Stern",
        ours,
        (
            Difference(f"its search for l leaves p = {p}, l = {l} as the best", same - ours),
            Difference(f"an elimination is {elimination}, not k^3", other - same),
            Difference("counts in whole numbers, and both halves of the set as if of k // 2", rounded - other),
            *_common(tries, n, k, w, q),
        ),
    )


def _narrow_search(n: int, k: int, w: int, q: int) -> Iterator[tuple[int, int]]:
    """Yield the p and l that the other program looks at.

    Its first guess for l is log2 C(k/2, p) - p log2 (q - 1). That is negative for every p > 0 once q is large, which
    leaves p = 0; log_q of the list size, as in Peters (2010), would be near the best l.
    """
    for p in range(min(k // 2, max(w // 2, 1))):
        guess = int(log2_binomial(k // 2, p) - p * math.log2(q - 1))
        for l in range(max(0, guess - _RADIUS), min(n - k, guess + _RADIUS)):  # noqa: E741
            if n - k - l >= w - 2 * p:
                yield p, l


def _in_whole_numbers(n: int, k: int, w: int, q: int, p: int, l: int) -> float:  # noqa: E741
    """Return log2 of Stern's work with the costs rounded down to whole operations, but at least one of each kind."""
    half = k // 2
    first, second = (math.comb(part, p) * (q - 1) ** p for part in (half, k - half))
    lists = max(l * (half - p + 1 + first + second), 1)
    check = max(int(2 * p * (w - 2 * p + 1) * q / (q - 1) * (1 + (q - 2) / (q - 1))), 1)
    operations = (n - k) ** 2 * (n + k) // 2 + lists + first * second // q**l * check
    hits = 2 * log2_binomial(half, p) + log2_binomial(n - k - l, w - 2 * p)
    return math.log2(operations) + log2_binomial(n, w) - hits
