"""Least squares on the erased columns of H: one dense map, the smallest error."""

from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.erasure.contract import ErasureDecoder, ErasurePlan
from codedfl.codes.erasure.diagnosis import decodable, require_decodable
from codedfl.codes.mdpc import MdpcCode


@final
class LeastSquaresPlan(ErasurePlan):
    """Erased symbols are the known ones times ``solution`` = -(H_E^+ H)^T, with zero rows at the erased."""

    def __init__(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any], condition: float) -> None:
        super().__init__(code, erased, dtype)
        self.condition = condition
        import scipy.linalg

        solution = np.zeros((code.n, erased.size))
        if erased.size:
            Q, R = scipy.linalg.qr(code.H[:, erased].toarray(), mode="economic")
            solution = np.asarray(-scipy.linalg.solve_triangular(R, (code.H.T @ Q).T).T, order="C")
            solution[erased] = 0
        self.solution = solution.astype(dtype)

    @property
    def amplification(self) -> float:
        """Largest error of a restored symbol when every known symbol is off by at most 1."""
        return float(np.abs(self.solution).sum(axis=0).max(initial=0.0))

    @property
    def error_bound(self) -> float:
        """Bound on the error rounding leaves, relative to the largest symbol.

        A sum of n products has n + 1 roundings a term, one more for the cast of its coefficient; the coefficients
        themselves carry the error of a backward stable QR in float64, (n-k) * e * eps * condition.
        """
        unit = float(np.finfo(self.dtype).eps)
        solve = self.code.m * self.erased.size * float(np.finfo(np.float64).eps) * self.condition
        return ((self.code.n + 3) * unit + solve) * self.amplification

    def _restore(self, words: Float[np.ndarray, "r n"]) -> None:
        words[:, self.erased] = words @ self.solution


@final
class LeastSquares(ErasureDecoder):
    """Restores every set that can be restored; uses all checks, so errors average out."""

    name = "least-squares"

    def _plan(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any]) -> LeastSquaresPlan:
        diagnosis = decodable(code, erased)
        require_decodable(diagnosis, dtype)
        return LeastSquaresPlan(code, erased, dtype, diagnosis.condition)
