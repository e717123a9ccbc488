"""Cyclic gradient codes over a prime field: any N - alpha + 1 of N coded sums give the sum of all N parts.

Device i combines the alpha parts of its window i, i+1, ..., i+alpha-1 (modulo N) with coefficients b_ij. Let K =
N - alpha + 1, and let x_i be distinct elements of the field. Part j is held by alpha devices; the *column* of their
coefficients is the Reed-Solomon codeword (h_j(x_0), ..., h_j(x_N-1)) of the polynomial

    h_j(x) = product of (x - x_l) over the N - alpha devices l that do not hold part j,

which vanishes exactly there (Halbawi, Azizan, Salehi, Hassibi, "Improving distributed gradient descent using
Reed-Solomon codes", 2018). All h_j have degree K - 1 and leading coefficient 1, and the leading coefficient of a
polynomial of degree K - 1 follows from its values at any K points by Lagrange's formula: sum_i a_i h_j(x_i) = 1 for
every j, with

    a_i = 1 / product of (x_i - x_m) over the other devices m that replied.

So decoding needs no elimination, holds for every set of K devices and all distinct points, and is exact. Over the
reals the same numbers would amplify rounding.

The points are x_i = i, because parts are small integers. Coefficients are then residues of integers b_ij of rank K,
which annihilate integer vectors: binomial coefficients with alternating signs, where alpha >= K. Parts that differ by
such a vector have the same coded sums, so that all N sums together tell K linear combinations of the N parts
(``visible``). For points at random only long vectors could be annihilated, and small parts might be solved for.

Coded sums are themselves a Reed-Solomon code word: sum i is f(x_i) with f = sum_j part_j h_j of degree K - 1, whose
leading coefficient is the sum of all parts. The h_j span all polynomials of degree below K, so no smaller code contains
the words, and K + s sums have the redundancy of ``codedfl.codes.correction``: s wrong ones are detected, s / 2 found.

None of these combinations is a single part if alpha >= 2: K polynomials h_j with consecutive j are a basis, because h_j
vanishes at the next K - 1 points and not at x_j, and K such j can be chosen that leave any one out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import mul
from typing import final

from codedfl.codes.correction import ReedSolomon
from codedfl.errors import CodeError, UndecodableError


@final
@dataclass(frozen=True)
class GradientCode:
    """The code of N devices that hold alpha parts each, over the integers modulo a prime.

    Law: for any K = N - alpha + 1 rows F of ``matrix``, decoder(F) @ matrix[F] is the vector of ones.
    """

    N: int
    alpha: int
    prime: int

    def __post_init__(self) -> None:
        if not 1 <= self.alpha <= self.N < self.prime:
            raise CodeError(
                f"There is no gradient code of {self.N} devices with {self.alpha} parts each modulo {self.prime}: "
                "choose 1 <= alpha <= N below the prime."
            )

    @property
    def K(self) -> int:  # noqa: N802 - as in the paper
        """How many coded sums decode."""
        return self.N - self.alpha + 1

    def window(self, i: int) -> tuple[int, ...]:
        """Return the parts that device i holds."""
        return tuple((i + step) % self.N for step in range(self.alpha))

    @cached_property
    def matrix(self) -> tuple[tuple[int, ...], ...]:
        """The coefficients b_ij, zero outside the window of row i."""
        return tuple(tuple(self._integer(i, j) % self.prime for j in range(self.N)) for i in range(self.N))

    def _integer(self, i: int, j: int) -> int:
        """Return h_j(x_i) with x_l = l: device l does not hold part j where l = j+1, ..., j+N-alpha modulo N."""
        return math.prod(i - (j + step) % self.N for step in range(1, self.N - self.alpha + 1))

    @cached_property
    def reed_solomon(self) -> ReedSolomon:
        """The code of the coded sums; points are moved by 1, which changes no degree, because 0 has no inverse."""
        return ReedSolomon(self.K, self.prime, tuple(range(1, self.N + 1)), (1,) * self.N)

    def decoder(self, which: Sequence[int]) -> tuple[int, ...]:
        """Return the factors that turn the coded sums of devices ``which``, in order, into the sum of all parts."""
        if len(which) != self.K or len(set(which)) != self.K or not all(0 <= i < self.N for i in which):
            raise UndecodableError(
                f"Coded sums {list(which)} do not decode: give {self.K} different numbers from 0 to {self.N - 1}."
            )
        return _leading_coefficient(tuple(which), self.prime)

    def visible(self, j: int) -> tuple[float, ...]:
        """Return the share of every part in the best linear guess of part j from all coded sums."""
        return self._projection[j]

    @cached_property
    def _projection(self) -> tuple[tuple[float, ...], ...]:
        """The projection on the row space of the integers b_ij, of which any K rows are a basis."""
        rows = [[self._integer(i, part) for part in range(self.N)] for i in range(self.K)]
        products = [[Fraction(sum(map(mul, row, other))) for other in rows] for row in rows]
        weights = _solved(products, [[Fraction(entry) for entry in row] for row in rows])
        columns = [list(column) for column in zip(*rows, strict=True)]
        guesses = zip(*weights, strict=True)
        return tuple(tuple(float(sum(map(mul, guess, column))) for column in columns) for guess in guesses)


@lru_cache(maxsize=4096)
def _leading_coefficient(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return factors of the values at K points that give the leading coefficient of a polynomial of degree K - 1."""
    return tuple(pow(math.prod(x - y for y in points if y != x), -1, prime) for x in points)


def _solved(matrix: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    """Solve a regular system whose leading minors do not vanish, for all columns of ``right``, by elimination."""
    rows = [[*row, *values] for row, values in zip(matrix, right, strict=True)]
    for k, pivot in enumerate(rows):
        rows[k] = [entry / pivot[k] for entry in pivot]
        for other in range(len(rows)):
            if other != k and rows[other][k]:
                factor = rows[other][k]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[k], strict=True)]
    return [row[len(matrix) :] for row in rows]
