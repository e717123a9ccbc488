"""Tanner graphs of a constant variable degree: progressive edge growth and the configuration model."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Int

from codedfl.errors import CodeError

if TYPE_CHECKING:
    import scipy.sparse

SWAPS_PER_EDGE = 20
"""Proposed exchanges per edge of the random graph; its 4-cycle count settles after about two."""


@final
@dataclass(frozen=True, eq=False)
class TannerGraph:
    """A bipartite graph of ``n`` variables and ``m`` checks; row v of ``checks`` lists v's checks, sorted."""

    n: int
    m: int
    checks: Int[np.ndarray, "variables degree"]

    def __post_init__(self) -> None:
        checks = np.ascontiguousarray(self.checks, dtype=np.int32)
        if checks.shape[0] != self.n or checks.shape[1] == 0:
            raise CodeError(
                f"The neighbour table has shape {checks.shape} for {self.n} variables: give one non-empty row each."
            )
        if checks.min(initial=0) < 0 or checks.max(initial=0) >= self.m:
            raise CodeError(f"The neighbour table names checks outside 0..{self.m - 1}: renumber the checks.")
        if np.any(np.diff(checks, axis=1) <= 0):
            raise CodeError("A variable's checks are unsorted or repeated: sort each row and drop double edges.")
        checks.flags.writeable = False
        object.__setattr__(self, "checks", checks)

    @classmethod
    def of(cls, H: "scipy.sparse.spmatrix") -> "TannerGraph":
        """The graph of a parity-check matrix whose columns have equally many nonzeros."""
        columns = H.tocsc()
        columns.sort_indices()
        degrees = np.diff(columns.indptr)
        if degrees.min() != degrees.max():
            raise CodeError(
                f"Column weights of H run from {degrees.min()} to {degrees.max()}: graphs need one variable degree."
            )
        return cls(H.shape[1], H.shape[0], columns.indices.reshape(H.shape[1], -1))

    @property
    def degree(self) -> int:
        """Number of checks of every variable."""
        return int(self.checks.shape[1])

    @property
    def edges(self) -> int:
        """Number of edges."""
        return int(self.checks.size)

    @cached_property
    def check_degrees(self) -> Int[np.ndarray, "m"]:
        """Number of variables of every check."""
        return np.bincount(self.checks.ravel(), minlength=self.m)

    def four_cycles(self) -> int:
        """Number of cycles of length four: pairs of checks that share s variables close s(s-1)/2 of them."""
        incidence = np.zeros((self.m, self.n), dtype=np.float32)
        incidence[self.checks.ravel(), np.repeat(np.arange(self.n), self.degree)] = 1
        # counts up to n < 2**24 are exact in float32
        shared = (incidence @ incidence.T).astype(np.int64)
        np.fill_diagonal(shared, 0)
        return int((shared * (shared - 1)).sum() // 4)

    def girth(self) -> int | None:
        """Length of the shortest cycle, or None when there is no cycle."""
        by_check = np.argsort(self.checks.ravel(), kind="stable") // self.degree
        ends = np.concatenate([self.checks.ravel() + self.n, by_check]).astype(np.int64)
        degrees = np.concatenate([np.full(self.n, self.degree), self.check_degrees])
        starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
        from codedfl.codes import kernels  # numba is slow to import

        return int(kernels.shortest_cycle(starts, ends, self.n)) or None


def _check_sizes(n: int, m: int, degree: int) -> None:
    if n < 1 or m < 1:
        raise CodeError(f"A graph needs variables and checks, got n={n} and m={m}: give both at least 1.")
    if not 1 <= degree <= m:
        raise CodeError(f"Variable degree {degree} does not fit {m} checks: choose a degree between 1 and {m}.")


def progressive_edge_growth(n: int, m: int, degree: int, *, seed: int) -> TannerGraph:
    """Grow edges one by one, each to a check as far as can be from its variable (Hu et al. 2005).

    Among the farthest checks one of lowest degree is taken, ties at random. Check degrees differ by at most one, and
    are equal when m divides n * degree; the last few variables then have few checks to choose from.
    """
    from codedfl.codes import kernels  # numba is slow to import

    _check_sizes(n, m, degree)
    rng = np.random.default_rng(seed)
    capacity = np.full(m, n * degree // m, dtype=np.int64)
    capacity[rng.permutation(m)[: n * degree % m]] += 1  # which checks get the larger degree is random
    edges = kernels.grow_edges(n, degree, capacity, rng.random((n, degree)))
    return TannerGraph(n, m, np.sort(edges, axis=1))


def configuration_model(n: int, m: int, degree: int, *, seed: int) -> TannerGraph:
    """Draw a graph of these degrees without double edges, uniformly: the configuration model without its multigraphs.

    A cyclic graph is shuffled by random edge exchanges, whose stationary distribution this is.
    """
    from codedfl.codes import kernels  # numba is slow to import

    _check_sizes(n, m, degree)
    rng = np.random.default_rng(seed)
    places = (np.arange(n * degree) % m).reshape(n, degree)
    edges = rng.permutation(m)[places].astype(np.int32)
    for _ in range(SWAPS_PER_EDGE):
        first, second = rng.integers(edges.size, size=(2, edges.size))
        kernels.swap_edges(edges, first, second)
    return TannerGraph(n, m, np.sort(edges, axis=1))
