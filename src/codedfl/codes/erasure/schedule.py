"""The order in which peeling restores symbols: rounds of checks that each miss a single symbol."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    import scipy.sparse


@final
@dataclass(frozen=True, eq=False)
class PeelingRound:
    """One round: symbols[targets] = rows @ symbols; checks[i] gave row i."""

    targets: Int[np.ndarray, "t"]
    checks: Int[np.ndarray, "t"]
    rows: "scipy.sparse.csr_matrix"

    def cast(self, dtype: np.dtype[Any]) -> "PeelingRound":
        """Return the round in another precision."""
        return PeelingRound(self.targets, self.checks, self.rows.astype(dtype))


@final
@dataclass(frozen=True, eq=False)
class Schedule:
    """Rounds in order, the symbols declared inactive on the way, and those that no round restores."""

    rounds: list[PeelingRound]
    inactive: Int[np.ndarray, "q"]
    stuck: Int[np.ndarray, "s"]


def schedule(H: "scipy.sparse.csr_matrix", erased: Int[np.ndarray, "e"], *, inactivate: bool) -> Schedule:
    """Peel the erased columns of H; when that stalls, declare a symbol inactive, as if known, or stop."""
    n = H.shape[1]
    unknown = np.zeros(n, dtype=bool)
    unknown[erased] = True
    growth = np.where(unknown, 0.0, 1.0)
    magnitude = abs(H)
    small = H[:, erased].tocsr()
    pattern = small.copy()
    pattern.data = np.ones_like(pattern.data)
    rounds: list[PeelingRound] = []
    inactive: list[int] = []
    while unknown.any():
        missing = pattern @ unknown[erased].astype(np.float64)
        ready = np.flatnonzero(missing == 1)
        if ready.size:
            rounds.append(_round(H, small, magnitude, erased, unknown, growth, ready))
        elif inactivate:
            symbol = _busiest(pattern, erased, unknown, missing)
            inactive.append(symbol)
            unknown[symbol], growth[symbol] = False, 1.0
        else:
            break
    return Schedule(rounds, np.array(inactive, dtype=np.int64), np.flatnonzero(unknown))


def _round(
    H: "scipy.sparse.csr_matrix",
    small: "scipy.sparse.csr_matrix",
    magnitude: "scipy.sparse.csr_matrix",
    erased: Int[np.ndarray, "e"],
    unknown: Bool[np.ndarray, "n"],
    growth: Float[np.ndarray, "n"],
    ready: Int[np.ndarray, "c"],
) -> PeelingRound:
    """Return one round and mark its targets known; of several checks for a symbol, take the least amplifying."""
    import scipy.sparse

    entries = small[ready].tocoo()
    last = unknown[erased[entries.col]]
    targets = np.empty(ready.size, dtype=np.int64)
    weights = np.empty(ready.size)
    targets[entries.row[last]] = erased[entries.col[last]]
    weights[entries.row[last]] = entries.data[last]
    cost = (magnitude[ready] @ growth) / np.abs(weights)
    order = np.lexsort((cost, targets))
    best = order[np.unique(targets[order], return_index=True)[1]]
    rows = scipy.sparse.diags(-1 / weights[best]) @ H[ready[best]]
    rows = scipy.sparse.csr_matrix(rows)
    rows.data[rows.indices == np.repeat(targets[best], np.diff(rows.indptr))] = 0
    rows.eliminate_zeros()
    unknown[targets[best]] = False
    growth[targets[best]] = 1 + cost[best]
    return PeelingRound(targets[best], ready[best], rows)


def _busiest(
    pattern: "scipy.sparse.csr_matrix",
    erased: Int[np.ndarray, "e"],
    unknown: Bool[np.ndarray, "n"],
    missing: Float[np.ndarray, "m"],
) -> int:
    """Return the unknown symbol in most of the checks with fewest unknowns."""
    open_checks = missing > 0
    nearest = missing == missing[open_checks].min() if open_checks.any() else open_checks
    uses = pattern.T @ nearest.astype(np.float64)
    return int(erased[np.argmax(np.where(unknown[erased], uses + 1, 0))])


def run(rounds: list[PeelingRound], symbols: Float[np.ndarray, "n r"]) -> None:
    """Apply the rounds in place to symbols (one word a column) whose targets are zero."""
    for step in rounds:
        symbols[step.targets] = step.rows @ symbols


def run_adjoint(rounds: list[PeelingRound], covectors: Float[np.ndarray, "n r"]) -> None:
    """Apply the transpose of ``run`` in place: <u, run(x)> = <run_adjoint(u), x> for x that are zero at the targets."""
    for step in reversed(rounds):
        covectors += step.rows.T @ covectors[step.targets]


def growths(rounds: list[PeelingRound], growth: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return how rounding errors grow along the rounds, from ``growth``, which is 1 at known symbols.

    A restored symbol is sum_j rho_j c_j with rho_j = -w_j / w. With rounding unit u, q terms and |c_j| <= 1 its error
    is at most sum_j |rho_j| (e_j + q u), e_j the errors of its terms (u for a known symbol). With a = sum over known
    |rho_j| + sum over restored |rho_j| (1 + a_j), induction gives an error of at most (q + 1) u a. Entries are 1 + a.
    """
    result = growth.copy()
    for step in rounds:
        result[step.targets] = 1 + abs(step.rows) @ result
    return result
