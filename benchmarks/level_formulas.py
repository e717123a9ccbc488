"""Which cost formula gives the paper's 92 and 128 bits, and how far off the others are.

The paper names the ingredients of its level (section V-E: plain information-set decoding, decoding one out of many,
q = 2^32) and prints two numbers (Table I), but no formula. So each is tried.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from codedfl.security.estimates.counting import ELIMINATIONS
from codedfl.security.estimates.parameters import DISTANCES, DecodingProblem
from codedfl.security.estimates.prange import prange_work

__all__ = ["CLAIMED", "PAPER_92", "PAPER_128", "Fit", "fits"]

PAPER_92 = DecodingProblem(n=4000, k=2000, t=64, beta=4, q_bits=32)
"""Table I, second row (t = 64, d(C_E) = 60): claimed 92 bits."""
PAPER_128 = DecodingProblem(n=4000, k=2000, t=128, beta=4, q_bits=32)
"""Table I, first row (t = 128, d(C_E) = 124): claimed 128 bits."""
CLAIMED = ((PAPER_92, 92), (PAPER_128, 128))
"""Table I."""


@dataclass(frozen=True)
class Fit:
    """A formula for the level, and what it gives for the two rows of Table I (t = 64, then t = 128).

    elimination: cost of one elimination, a key of ``ELIMINATIONS``.
    one_out_of_many: whether sqrt(beta) is saved.
    distance: weight t - beta ("table") or t - beta + 1 ("mds").
    capped: whether guessing beta symbols, q^beta, limits the level.
    """

    elimination: str
    one_out_of_many: bool
    distance: str
    capped: bool
    bits: tuple[float, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Whole bits, rounded down."""
        return tuple(math.floor(value) for value in self.bits)

    @property
    def off(self) -> tuple[int, ...]:
        """Levels less those claimed."""
        return tuple(level - claimed for level, (_, claimed) in zip(self.levels, CLAIMED, strict=True))

    @property
    def distance_to_claims(self) -> int:
        """Sum of the absolute differences in whole bits; 0 is a fit."""
        return sum(abs(difference) for difference in self.off)

    def to_table(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "levels": self.levels, "off": self.off}


def fits() -> tuple[Fit, ...]:
    """Return every combination of cost term, saving, weight and cap, the nearest to 92 and 128 first."""
    tried = product(ELIMINATIONS, (True, False), DISTANCES, (True, False))
    return tuple(sorted((_fit(*choice) for choice in tried), key=lambda fit: fit.distance_to_claims))


def _fit(elimination: str, one_out_of_many: bool, distance: str, capped: bool) -> Fit:
    bits = tuple(_bits(replace(row, distance=distance), elimination, one_out_of_many, capped) for row, _ in CLAIMED)
    return Fit(elimination, one_out_of_many, distance, capped, bits)


def _bits(problem: DecodingProblem, elimination: str, one_out_of_many: bool, capped: bool) -> float:
    work = prange_work(problem.n, problem.k, problem.w, elimination=elimination)
    saved = math.log2(problem.beta) / 2 if one_out_of_many else 0.0
    return min(work - saved, float(problem.beta * problem.q_bits)) if capped else work - saved


def main() -> list[dict[str, Any]]:
    """Print every formula, the nearest first."""
    tables = [fit.to_table() for fit in fits()]
    for table in tables:
        print(table)
    return tables
