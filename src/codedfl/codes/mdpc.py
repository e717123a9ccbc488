"""Moderate-density parity-check codes over the reals, with a dense generator that hides its structure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from codedfl.codes.graph import TannerGraph, configuration_model, progressive_edge_growth
from codedfl.errors import CodeError, MissingLibrary

try:
    import scipy
except ModuleNotFoundError:  # small sites read options of all schemes, and draw no code
    scipy = MissingLibrary("scipy")

Weights = Callable[[np.random.Generator, int], np.ndarray]

WEIGHTS: dict[str, Weights] = {
    "signed-uniform": lambda rng, size: rng.uniform(0.5, 1.5, size) * rng.choice([-1.0, 1.0], size),
    "ones": lambda rng, size: np.ones(size),
    "signs": lambda rng, size: rng.choice([-1.0, 1.0], size),
}
"""Distributions of the edge weights: a random sign times uniform(0.5, 1.5), all 1, or the sign alone."""

CONSTRUCTIONS = {"peg": progressive_edge_growth, "configuration": configuration_model}
"""Named constructions of the Tanner graph."""


@final
@dataclass(frozen=True)
class CodeReport:
    """What a code looks like: its graph, and how well its matrices are conditioned (2-norm)."""

    n: int
    k: int
    girth: int | None
    four_cycles: int
    check_degrees: dict[int, int]
    variable_degrees: dict[int, int]
    condition_square: float
    condition_parity: float
    condition_generator: float
    residual: float


@final
@dataclass(frozen=True, eq=False)
class MdpcCode:
    """The code {c : H c = 0} of length n and dimension k, with messages x encoded as c = x G.

    ``H`` (n-k x n) is sparse and secret, ``G`` (k x n) dense. The columns of G at ``information`` form an
    orthogonal matrix S, so x = c[information] S^T. Laws: G H^T = 0 and encode(x) + encode(y) = encode(x + y).
    """

    H: "scipy.sparse.csr_matrix"
    G: Float[np.ndarray, "k n"]
    information: Int[np.ndarray, "k"]
    _casts: dict[tuple[str, np.dtype[Any]], np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.G.shape[1] != self.H.shape[1] or self.G.shape[0] != self.n - self.H.shape[0]:
            raise CodeError(
                f"G of shape {self.G.shape} does not generate the null space of H of shape {self.H.shape}: "
                "take both from the same code."
            )
        if self.information.size != self.k:
            raise CodeError(
                f"{self.information.size} information positions do not fit dimension {self.k}: give {self.k}."
            )
        H = self.H.copy()
        views = {"G": self.G.view(), "information": self.information.view()}
        for array in (*views.values(), H.data):
            array.flags.writeable = False
        for name, value in {"H": H, **views}.items():
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """Length of a codeword."""
        return int(self.H.shape[1])

    @property
    def k(self) -> int:
        """Length of a message."""
        return int(self.G.shape[0])

    @property
    def m(self) -> int:
        """Number of parity checks, n - k."""
        return int(self.H.shape[0])

    @classmethod
    def build(
        cls,
        n: int,
        k: int,
        degree: int,
        *,
        seed: int,
        weights: str | Weights = "signed-uniform",
        construction: str = "peg",
    ) -> "MdpcCode":
        """Draw a code; the same arguments give the same code, and no code is drawn from global state."""
        # the graph consumes the seed itself; weights and scrambler come from a stream of their own
        rng = np.random.default_rng([seed, 1])
        H = draw_parity_check(n, k, degree, seed=seed, weights=weights, construction=construction, rng=rng)
        return cls.from_parity_check(H, rng=rng)

    @classmethod
    def from_parity_check(cls, H: "scipy.sparse.csr_matrix", *, rng: np.random.Generator) -> "MdpcCode":
        """The code of a given parity-check matrix with rows that are linearly independent; rng draws S."""
        H = scipy.sparse.csr_matrix(H, dtype=np.float64, copy=True)
        H.sum_duplicates()
        H.eliminate_zeros()
        if not np.isfinite(H.data).all():
            bad = np.count_nonzero(~np.isfinite(H.data))
            raise CodeError(f"H holds {bad} infinite or missing entries: give real numbers.")
        information, P = _systematic(H)
        k, n = P.shape[0], H.shape[1]
        S = _random_orthogonal(k, rng)
        G = np.empty((k, n))
        G[:, information] = S
        G[:, np.setdiff1d(np.arange(n), information)] = S @ P
        return cls(H, G, information)

    @cached_property
    def parity(self) -> Int[np.ndarray, "m"]:
        """Positions outside ``information``; these columns of H form an invertible square."""
        return np.setdiff1d(np.arange(self.n), self.information)

    @cached_property
    def graph(self) -> TannerGraph:
        """The Tanner graph of H."""
        return TannerGraph.of(self.H)

    def _cast(self, name: str, dtype: DTypeLike, make: Callable[[], np.ndarray]) -> np.ndarray:
        key = (name, np.dtype(dtype))
        if key not in self._casts:
            array = np.ascontiguousarray(make(), dtype=dtype)
            array.flags.writeable = False
            self._casts[key] = array
        return self._casts[key]

    def generator(self, dtype: DTypeLike = np.float64) -> Float[np.ndarray, "k n"]:
        """G in a given precision, cast once and kept."""
        return self._cast("G", dtype, lambda: self.G)

    def unscrambler(self, dtype: DTypeLike = np.float64) -> Float[np.ndarray, "k k"]:
        """S^T in a given precision: a codeword's information symbols times this give its message."""
        return self._cast("S", dtype, lambda: self.G[:, self.information].T)

    def encode(self, messages: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "r n"]:
        """Codewords of messages, one a row."""
        if messages.shape[1] != self.k:
            raise CodeError(f"Messages have {messages.shape[1]} columns: this code needs {self.k}.")
        return np.asarray(messages @ self.generator(messages.dtype))

    def syndrome(self, words: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r m"]:
        """Words times H^T; zero up to rounding exactly for codewords."""
        if words.shape[1] != self.n:
            raise CodeError(f"Words have {words.shape[1]} columns: this code needs {self.n}.")
        return np.ascontiguousarray((self.H.astype(words.dtype) @ words.T).T)

    def report(self) -> CodeReport:
        """Degrees, cycles and condition numbers; takes dense decompositions of H."""
        degrees = np.unique(self.graph.check_degrees, return_counts=True)
        dense = self.H.toarray()
        # S is orthogonal, so the singular values of G are sqrt(1 + s^2) over the singular values s of P = S^T G_J
        P = np.zeros(self.k)
        values = scipy.linalg.svdvals(self.G[:, self.parity])
        P[: values.size] = values
        scale = np.linalg.norm(self.G) * np.linalg.norm(self.H.data)
        return CodeReport(
            n=self.n,
            k=self.k,
            girth=self.graph.girth(),
            four_cycles=self.graph.four_cycles(),
            check_degrees=dict(zip(*(part.tolist() for part in degrees), strict=True)),
            variable_degrees={self.graph.degree: self.n},
            condition_square=_condition(dense[:, self.parity]),
            condition_parity=_condition(dense),
            condition_generator=float(np.sqrt((1 + P.max() ** 2) / (1 + P.min() ** 2))),
            residual=float(np.linalg.norm(self.H @ self.G.T) / scale),
        )


def draw_parity_check(
    n: int,
    k: int,
    degree: int,
    *,
    seed: int,
    weights: str | Weights = "signed-uniform",
    construction: str = "peg",
    rng: np.random.Generator | None = None,
) -> "scipy.sparse.csr_matrix":
    """Draw the parity-check matrix that :meth:`MdpcCode.build` draws, without its costly generator."""
    if not 0 < k < n:
        raise CodeError(f"A code of length {n} cannot have dimension {k}: choose k between 1 and {n - 1}.")
    if construction not in CONSTRUCTIONS:
        raise CodeError(f"Construction {construction!r} is unknown: use one of {', '.join(CONSTRUCTIONS)}.")
    if not callable(weights) and weights not in WEIGHTS:
        raise CodeError(f"Edge weights {weights!r} are unknown: use {', '.join(WEIGHTS)} or a function.")
    graph = CONSTRUCTIONS[construction](n, n - k, degree, seed=seed)
    law = weights if callable(weights) else WEIGHTS[weights]
    return _weighted(graph, law, np.random.default_rng([seed, 1]) if rng is None else rng)


def _weighted(graph: TannerGraph, law: Weights, rng: np.random.Generator) -> "scipy.sparse.csr_matrix":
    values = np.asarray(law(rng, graph.edges), dtype=np.float64)
    if values.shape != (graph.edges,) or not np.isfinite(values).all() or not values.all():
        raise CodeError(
            f"The weight law must give {graph.edges} finite numbers other than 0: it gave shape {values.shape}, "
            f"{np.count_nonzero(~np.isfinite(values))} not finite, {np.count_nonzero(values == 0)} zero."
        )
    columns = np.repeat(np.arange(graph.n), graph.degree)
    return scipy.sparse.csr_matrix((values, (graph.checks.ravel(), columns)), shape=(graph.m, graph.n))


def _systematic(H: "scipy.sparse.csr_matrix") -> tuple[Int[np.ndarray, "k"], Float[np.ndarray, "k m"]]:
    """Return information positions and P with [I|P] H^T = 0.

    Pivoted QR keeps the square part well conditioned, which bounds the entries of G: at the paper's size a hundred
    times better than the first invertible columns.
    """
    m, n = H.shape
    if not 0 < m < n:
        raise CodeError(f"A parity-check matrix of shape {H.shape} leaves no message: give fewer rows than columns.")
    R, pivots = scipy.linalg.qr(H.toarray(), mode="r", pivoting=True)
    diagonal = np.abs(np.diag(R))
    # the usual backward error of QR: what is below it cannot be told from zero
    rank = int(np.count_nonzero(diagonal > diagonal[0] * n * np.finfo(np.float64).eps))
    if rank < m:
        raise CodeError(
            f"The {m} rows of H have rank {rank} over the reals, so it is no code of dimension {n - m}: "
            "use weights='signed-uniform' or another seed."
        )
    pivots = pivots.astype(np.int64)
    parity, information = np.sort(pivots[:m]), np.sort(pivots[m:])
    square = H[:, parity].toarray()
    # the bits of scipy.linalg.solve, which would hold the interpreter's lock: a server must answer meanwhile
    solution = scipy.linalg.lu_solve(scipy.linalg.lu_factor(square), H[:, information].toarray())
    P: np.ndarray = -np.ascontiguousarray(solution).T
    return information, P


def _random_orthogonal(size: int, rng: np.random.Generator) -> Float[np.ndarray, "size size"]:
    """Orthogonal matrix of the uniform (Haar) law: QR of a Gaussian with the signs of R divided out."""
    Q, R = scipy.linalg.qr(rng.standard_normal((size, size)), overwrite_a=True)
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def _condition(matrix: Float[np.ndarray, "rows columns"]) -> float:
    values = scipy.linalg.svdvals(matrix)
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
