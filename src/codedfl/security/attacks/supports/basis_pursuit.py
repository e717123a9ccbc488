"""One row of the plaintext and the support from one row of a parcel, by the relaxation of section V-D: the l1 norm.

Chen, Donoho and Saunders, "Atomic decomposition by basis pursuit", SIAM J. Sci. Comput. 20 (1998): of all errors with
the syndrome of a word c, take those of least l1 norm, min |e|_1 subject to N e = N c with N a basis of the null space
of G. For random N the sparsest e is found with high probability as long as t is below a threshold that depends on
(n - k) / n alone, 0.385 (n - k) at a half (Donoho and Tanner, "Counting faces of randomly projected polytopes when the
projection radically lowers dimension", J. AMS 22, 2009); here about 770 of 2000, where the paper has 64 or 128.

Solved by alternating directions (Boyd et al., "Distributed optimization and statistical learning via the alternating
direction method of multipliers", 2011, section 6.2): the projection onto N e = N c is two products with Q, since
P = I - Q^T Q projects onto the rows of N D.

Expected at the paper's size (t = 64 and 128, float32): the support exactly, the row to below 1e-6, in seconds.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int

from codedfl.security.attacks.supports.geometry import KeyGeometry
from codedfl.security.attacks.supports.single_row import read_row
from codedfl.security.contract import Attack, Finding
from codedfl.security.views.kinds import RowView

STEP = 0.1
"""Threshold against the root mean square of an error; a choice of speed, not of the solution."""
GAP = 1e-4
"""Relative duality gap at which the solution counts as optimal."""
STEPS = 2000
"""Largest number of steps; a few hundred are needed where the relaxation is tight."""
CHECK = 10
"""Steps between two computations of the gap."""


@final
class BasisPursuit(Attack[RowView]):
    """Find the errors of one word as the explanation of its syndrome of least l1 norm."""

    name = "basis-pursuit"
    view_type = RowView
    aim = "one row of the Gram matrix from one word, by the l1 relaxation"

    def run(self, view: RowView, rng: np.random.Generator) -> Finding:
        """Attack one word; nothing here is random."""
        return read_row(view, _by_least_norm)


@final
@dataclass(frozen=True, eq=False)
class LeastNorm:
    """A solution of min |e|_1 with the given syndrome, and its certificate: no solution is shorter than (1 - gap)."""

    scaled: Float64[np.ndarray, "n"]
    """e D."""
    norm: float
    """|e|_1."""
    gap: float
    """(|e|_1 - b) / |e|_1 with b the value of a feasible point of the dual problem, which no |e|_1 can be below."""
    steps: int


def least_norm(geometry: KeyGeometry, syndrome: Float64[np.ndarray, "n"], expected: int) -> LeastNorm:
    """Minimise |e|_1 subject to e D P = syndrome, a row of the range of P.

    The dual problem: maximise the inner product of the syndrome with a row y = y P whose entries, in units of the
    column lengths of G, are at most 1.
    """
    lengths = 1 / geometry.weights
    size = float(np.linalg.norm(syndrome)) * np.sqrt(geometry.n / (geometry.redundancy * max(expected, 1)))
    threshold = STEP * size / float(np.sqrt(np.mean(lengths**2)))
    sparse, multiplier = np.zeros(geometry.n), np.zeros(geometry.n)
    best = LeastNorm(sparse, float("inf"), float("inf"), 0)
    for step in range(1, STEPS + 1):
        dense = sparse - multiplier
        dense = dense - _project(geometry, dense) + syndrome
        moved = dense + multiplier
        sparse = np.sign(moved) * np.maximum(np.abs(moved) - threshold * lengths, 0)
        multiplier = moved - sparse
        if step % CHECK == 0 or step == STEPS:
            dual = _project(geometry, multiplier)
            bound = float(dual @ syndrome) / float(np.max(np.abs(dual) / lengths))
            norm = float(lengths @ np.abs(dense))
            best = LeastNorm(dense, norm, (norm - bound) / norm, step)
            if best.gap <= GAP:
                break
    return best


def _by_least_norm(
    geometry: KeyGeometry, syndrome: Float64[np.ndarray, "n"], expected: int, rounding: float
) -> tuple[Int[np.ndarray, "t"], str]:
    found = least_norm(geometry, syndrome, expected)
    largest = np.argsort(np.abs(found.scaled))[geometry.n - expected :]
    return np.sort(largest), f"{found.steps} steps, within {max(found.gap, 0):.0e} of the least norm"


def _project(geometry: KeyGeometry, vector: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Return P times a vector, once: steps correct what rounding leaves."""
    return np.asarray(vector - (geometry.frame @ vector) @ geometry.frame)
