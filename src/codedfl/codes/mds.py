"""Maximum-distance-separable codes over a prime field: any K of W coded blocks give all K back.

The generator is a Cauchy matrix, 1 / (x_w - y_k) with x_w = K + w and y_k = k all distinct: every square submatrix of
it is a Cauchy matrix and so has an inverse, which is known in closed form and needs no elimination. The code is not
systematic: every coded block mixes all K blocks. It hides nothing; pads do that.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import UInt

from codedfl.codes.correction import ReedSolomon
from codedfl.codes.modular import PRIME_31, WORD_BITS, arithmetic
from codedfl.errors import CodeError, UndecodableError

LARGEST = 1 << 16
_SMALL = 4096
"""Words of a block up to which blocks are combined in one product."""


@final
@dataclass(frozen=True)
class MdsCode:
    """The (W, K) code: ``generator`` is W x K, and coded block w is sum_k generator[w, k] * block k.

    Law: for any K distinct numbers w, decoder(w) @ generator[w] is the identity.
    """

    W: int
    K: int
    prime: int = PRIME_31
    generator: UInt[np.ndarray, "W K"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.K <= self.W or self.W + self.K > LARGEST:
            raise CodeError(
                f"There is no ({self.W}, {self.K}) code here: choose 1 <= K <= W with W + K at most {LARGEST}."
            )
        inverses = np.array([pow(each, -1, self.prime) for each in range(1, self.W + self.K)], self._dtype)
        generator = inverses[self.K - 1 + np.arange(self.W)[:, None] - np.arange(self.K)]
        generator.flags.writeable = False
        object.__setattr__(self, "generator", generator)

    @property
    def _dtype(self) -> "np.dtype[Any]":
        return np.dtype(f"uint{WORD_BITS[self.prime]}")

    @cached_property
    def reed_solomon(self) -> ReedSolomon:
        """The same code by points: sum_k m_k / (x_w - y_k) is P(x_w) / prod_k (x_w - y_k) with deg P < K."""
        points = tuple(self.K + w for w in range(self.W))
        divisors = (math.perm(x, self.K) for x in points)  # x (x - 1) ... (x - K + 1)
        return ReedSolomon(self.K, self.prime, points, tuple(pow(each, -1, self.prime) for each in divisors))

    def encode_block(self, w: int, blocks: Sequence[UInt[np.ndarray, "..."]]) -> UInt[np.ndarray, "..."]:
        """Return coded block w of K blocks of one shape."""
        if not 0 <= w < self.W:
            raise CodeError(f"There is no coded block {w}: number them from 0 to {self.W - 1}.")
        return self._combined(self.generator[w], blocks)

    def decoder(self, which: Sequence[int]) -> UInt[np.ndarray, "K K"]:
        """Return the matrix that turns the coded blocks ``which``, in this order, into the K blocks."""
        if len(which) != self.K or len(set(which)) != self.K or not all(0 <= w < self.W for w in which):
            raise UndecodableError(
                f"Coded blocks {list(which)} do not decode: give {self.K} different numbers from 0 to {self.W - 1}."
            )
        inverse = _cauchy_inverse([self.K + w for w in which], list(range(self.K)), self.prime)
        return np.array(inverse, self._dtype)

    def decode(self, which: Sequence[int], replies: Sequence[UInt[np.ndarray, "..."]]) -> list[UInt[np.ndarray, "..."]]:
        """Return the K blocks, or their images under a linear map, from the coded blocks ``which``."""
        return [self._combined(row, replies) for row in self.decoder(which)]

    def _combined(
        self, weights: UInt[np.ndarray, "K"], blocks: Sequence[UInt[np.ndarray, "..."]]
    ) -> UInt[np.ndarray, "..."]:
        shapes = {block.shape for block in blocks}
        if len(blocks) != self.K or len(shapes) != 1:
            raise CodeError(f"{len(blocks)} blocks of shapes {sorted(shapes)} do not fit: give {self.K} of one shape.")
        total, compute = np.zeros(shapes.pop(), self._dtype), arithmetic(self.prime)
        if total.size <= _SMALL:  # their copies fit into the cache, and one call is quicker than K
            compute["product"](weights[None], np.stack(blocks).reshape(self.K, -1), total.reshape(1, -1), 0, total.size)
            return total
        for weight, block in zip(weights, blocks, strict=True):
            compute["add_multiple"](total.reshape(-1), weight, np.ascontiguousarray(block).reshape(-1))
        return total


def _cauchy_inverse(x: Sequence[int], y: Sequence[int], prime: int) -> list[list[int]]:
    """Return the inverse of 1 / (x_i - y_j) (Schechter, "On the inversion of certain matrices", 1959).

    Entry (j, i) is a_i b_j / (x_i - y_j) with a_i = prod_k (x_i - y_k) / prod_{k != i} (x_i - x_k) and
    b_j = prod_k (x_k - y_j) / prod_{k != j} (y_k - y_j).
    """

    def product(factors: Iterable[int]) -> int:
        return math.prod(factors) % prime

    def inverse(number: int) -> int:
        return pow(number, -1, prime)

    a = [product(xi - yk for yk in y) * inverse(product(xi - xk for xk in x if xk != xi)) for xi in x]
    b = [product(xk - yj for xk in x) * inverse(product(yk - yj for yk in y if yk != yj)) for yj in y]
    return [[a[i] * b[j] * inverse(x[i] - y[j]) % prime for i in range(len(x))] for j in range(len(y))]
