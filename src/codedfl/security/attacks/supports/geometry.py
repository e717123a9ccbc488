"""The geometry of a public G, prepared once for each key.

Rounding disturbs a column of A G in proportion to the length of that column of G, so the columns are first brought to
length one (at the paper's size this takes the condition number from 139 to 16): G D = L Q with L lower triangular and
the rows of Q orthonormal. Words are codewords plus errors, and P = I - Q^T Q removes the codewords:

    C D P = E D P,        A = (C - E) D Q^T L^-1.

P is known by its action alone; no basis of the null space is ever formed.
"""

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Float64, Int

ROWS = 256
"""Rows of words that are widened to float64 at a time."""
DOUBLE = float(np.finfo(np.float64).eps) / 2


@final
@dataclass(frozen=True, eq=False)
class KeyGeometry:
    """G D = L Q. Laws: Q Q^T = I; ``messages(coordinates(A G)) = A``; ``free_part`` of a codeword is zero."""

    weights: Float64[np.ndarray, "n"]
    """The diagonal of D: one over the length of each column of G."""
    frame: Float64[np.ndarray, "k n"]
    """Q."""
    factor: Float64[np.ndarray, "k k"]
    """L."""
    condition: float
    """An estimate of the condition number of L L^T in the 1-norm, an upper bound of that in the 2-norm."""

    @classmethod
    def prepare(cls, G: Float[np.ndarray, "k n"]) -> "KeyGeometry":
        """Decompose G by Cholesky of its Gram matrix; the cost is about 2 n k^2 multiplications."""
        from scipy.linalg import blas, lapack

        lengths = np.sqrt(np.einsum("ij,ij->j", G, G, dtype=np.float64))
        weights = 1 / np.where(lengths > 0, lengths, 1.0)
        frame = np.multiply(G, weights, order="C")
        products = blas.dsyrk(1.0, frame.T, trans=1, lower=1)
        norm = _one_norm(products)
        factor, trouble = lapack.dpotrf(products, lower=1, clean=1, overwrite_a=1)
        if trouble:
            raise ValueError(f"G of shape {G.shape} has rows that depend on each other: no message can be read from it")
        reciprocal, _ = lapack.dpocon(factor, norm, uplo="L")
        frame = blas.dtrsm(1.0, factor, frame.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
        return cls(weights, frame, factor, 1 / max(float(reciprocal), DOUBLE))

    @property
    def n(self) -> int:
        """Length of a word."""
        return int(self.frame.shape[1])

    @property
    def k(self) -> int:
        """Length of a message."""
        return int(self.frame.shape[0])

    @property
    def redundancy(self) -> int:
        """Dimension n - k of the space outside the code; without it errors cannot be recognised."""
        return self.n - self.k

    @cached_property
    def plain(self) -> bool:
        """Whether Q and L are the identity, as for residues: words are messages but for the scale of their columns."""
        identity = np.eye(self.k)
        return np.array_equal(self.frame, identity) and np.array_equal(self.factor, identity)

    @cached_property
    def freedom(self) -> Float64[np.ndarray, "n"]:
        """The diagonal of P: the squared length of each unit vector without its codeword part."""
        return np.asarray(np.maximum(1 - np.einsum("ij,ij->j", self.frame, self.frame), 0))

    def free_part(self, vectors: Float64[np.ndarray, "n s"]) -> Float64[np.ndarray, "n s"]:
        """Return P times vectors; applied twice, because Q from Cholesky is orthonormal only to its condition."""
        once = vectors - self.frame.T @ (self.frame @ vectors)
        return np.asarray(once - self.frame.T @ (self.frame @ once))

    def atom(self, position: int) -> Float64[np.ndarray, "n"]:
        """Return column ``position`` of P."""
        column = -(self.frame[:, position] @ self.frame)
        column[position] += 1
        return np.asarray(column)

    def coordinates(self, words: Float[np.ndarray, "d n"]) -> Float64[np.ndarray, "d k"]:
        """Return C D Q^T in float64."""
        if self.plain:
            return np.asarray(words * self.weights)
        result = np.empty((words.shape[0], self.k))
        for rows, block in self._weighted(words):
            np.matmul(block, self.frame.T, out=result[rows])
        return result

    def apply(self, words: Float[np.ndarray, "d n"], right: Float64[np.ndarray, "n s"]) -> Float64[np.ndarray, "d s"]:
        """Return C D times a few columns."""
        return np.concatenate([block @ right for _, block in self._weighted(words)])

    def combine(self, left: Float64[np.ndarray, "d s"], words: Float[np.ndarray, "d n"]) -> Float64[np.ndarray, "s n"]:
        """Return a few combinations of the rows of C D."""
        total = np.zeros((left.shape[1], self.n))
        for rows, block in self._weighted(words):
            total += left[rows].T @ block
        return total

    def messages(self, coordinates: Float64[np.ndarray, "d k"]) -> Float64[np.ndarray, "d k"]:
        """Return coordinates times L^-1, in their memory."""
        from scipy.linalg import blas

        if self.plain:
            return coordinates
        return np.asarray(blas.dtrsm(1.0, self.factor, coordinates.T, lower=1, trans_a=1, overwrite_b=1).T)

    def without(
        self, positions: Int[np.ndarray, "t"], words: Float[np.ndarray, "d n"], coordinates: Float64[np.ndarray, "d k"]
    ) -> Float64[np.ndarray, "d k"]:
        """Return the least-squares coordinates with ``positions`` erased: a correction of rank t."""
        inside = np.ascontiguousarray(self.frame[:, positions])
        square = np.eye(positions.size) - inside.T @ inside
        seen = words[:, positions] * self.weights[positions] - coordinates @ inside
        errors = np.linalg.lstsq(square, seen.T, rcond=None)[0].T
        return np.asarray(coordinates - errors @ inside.T)

    def rounding(self, words: Float[np.ndarray, "d n"]) -> float:
        """Return a bound on the 2-norm of C D P that rounding alone can cause.

        A rounded inner product of k terms is off by about sqrt(k) u times the lengths of its factors (Higham and Mary,
        "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019); such noise spread
        over all columns has that share of the Frobenius norm of the words. Q itself is off by u times its condition.
        """
        unit = float(np.finfo(words.dtype).eps) / 2
        squares = np.einsum("ij,ij->j", words, words, dtype=np.float64)
        size = float(np.sqrt(squares @ self.weights**2))
        return (math.sqrt(self.k) * unit + DOUBLE * self.condition) * size

    def _weighted(self, words: Float[np.ndarray, "d n"]) -> Iterator[tuple[slice, Float64[np.ndarray, "r n"]]]:
        for start in range(0, words.shape[0], ROWS):
            rows = slice(start, start + ROWS)
            yield rows, words[rows] * self.weights


def _one_norm(lower: Float64[np.ndarray, "k k"]) -> float:
    """Return the largest column sum of a symmetric matrix given by its lower triangle, the rest being zero."""
    sizes = np.abs(lower)
    return float(np.max(sizes.sum(axis=0) + sizes.sum(axis=1) - np.diag(sizes)))


_cache: dict[int, tuple["weakref.ref[np.ndarray]", KeyGeometry]] = {}


def geometry_of(G: Float[np.ndarray, "k n"]) -> KeyGeometry:
    """Return the geometry of G, cached as long as the array lives; arrays in views are not written to."""
    key = id(G)
    if key not in _cache or _cache[key][0]() is not G:
        geometry = KeyGeometry.prepare(G)
        _cache[key] = weakref.ref(G, lambda _: _cache.pop(key, None)), geometry
    return _cache[key][1]
