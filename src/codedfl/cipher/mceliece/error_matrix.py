"""The error matrix E of the paper (section V-B): every row a word of one small code, all on one support.

The nonzero columns of E (size ``rows x n``, support of size ``t``) form

    E' = [G'_E ; S_1 G'_E ; S_2 G'_E ; ...]          (``ceil(rows / beta)`` blocks, the last one cut to fit)

with G'_E a generator of a real [t, beta] code and S_j full-rank ``beta x beta`` matrices. The paper leaves open:

*G'_E*: columns uniform on the unit sphere of R^beta. Any beta of them are independent with probability one, so the code
is maximum distance separable: its distance is t - beta + 1 (the paper's table counts t - beta). A Vandermonde or
Chebyshev generator has the same distance, but it is one known code, and its neighbouring columns are nearly parallel.
Unit columns leave no position of the support almost free of error.

*S_j*: uniformly random orthogonal matrices. Their condition number is 1, so every block of rows is disturbed equally
and none is lost in rounding.

*Scale*: column z of E gets root mean square ``noise`` times that of column z of A G. A larger error shows the support
by column norms; a smaller one can be ignored by an attacker at little cost.

Law: rank E = min(beta, rows), the row span of E' is the row span of G'_E, and E is zero off the support.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64

from codedfl.cipher.randomness import Stream


@final
@dataclass(frozen=True, eq=False, repr=False)
class ErrorMatrix:
    """E' in factored form: ``blocks`` = [I ; S_1 ; S_2 ; ...] and ``generator`` = G'_E."""

    blocks: Float64[np.ndarray, "rows beta"]
    generator: Float64[np.ndarray, "beta t"]

    def dense(self) -> Float64[np.ndarray, "rows t"]:
        """Return E' = blocks @ generator."""
        return np.asarray(self.blocks @ self.generator)


def draw_error_matrix(rows: int, beta: int, column_scale: Float64[np.ndarray, "t"], seed: bytes) -> ErrorMatrix:
    """Draw E' for ``rows`` rows; entries of column z have mean square ``column_scale[z]**2``."""
    t = len(column_scale)
    directions = Stream(seed, "error-code").normals(beta * t).reshape(beta, t)
    directions /= np.linalg.norm(directions, axis=0)
    # a coordinate of a unit vector of R^beta has mean square 1/beta
    generator = directions * (column_scale * np.sqrt(beta))
    return ErrorMatrix(blocks=_stacked_blocks(rows, beta, seed), generator=generator)


def _stacked_blocks(rows: int, beta: int, seed: bytes) -> Float64[np.ndarray, "rows beta"]:
    """Return [I ; S_1 ; S_2 ; ...] cut to ``rows`` rows, S_j uniform on the orthogonal group."""
    count = -(-rows // beta) - 1
    gaussian = Stream(seed, "error-blocks").normals(count * beta * beta).reshape(count, beta, beta)
    orthogonal, triangular = np.linalg.qr(gaussian)
    # QR alone is not uniform: LAPACK fixes signs by its own rule, so take them from the diagonal of R
    orthogonal *= np.sign(np.diagonal(triangular, axis1=1, axis2=2))[:, None, :]
    stacked = np.concatenate([np.eye(beta), orthogonal.reshape(count * beta, beta)])
    return stacked[:rows]
