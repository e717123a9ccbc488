"""Inactivation decoding: peel, declare a symbol inactive whenever peeling stalls, solve for those few at the end."""

from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.erasure.contract import ErasureDecoder, ErasurePlan
from codedfl.codes.erasure.diagnosis import decodable, require_decodable
from codedfl.codes.erasure.schedule import PeelingRound, Schedule, growths, run, run_adjoint, schedule
from codedfl.codes.mdpc import MdpcCode

UNIT = float(np.finfo(np.float64).eps)


@final
class InactivationPlan(ErasurePlan):
    """A small product gives the inactive symbols, rounds of sparse products the others."""

    def __init__(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any], found: Schedule) -> None:
        super().__init__(code, erased, dtype)
        self.inactive = found.inactive
        solution, self._condition = _small_solve(code, erased, found)
        self.rounds: list[PeelingRound] = [step.cast(dtype) for step in found.rounds]
        self.solution = solution.astype(dtype)

    def _growths(self, extra: float) -> Float[np.ndarray, "n"]:
        start = np.ones(self.code.n)
        start[self.inactive] = 1 + np.abs(self.solution).sum(axis=0) * (1 + extra)
        return growths(self.rounds, start)

    @property
    def amplification(self) -> float:
        """Bound on the error of a restored symbol when every known symbol is off by at most 1."""
        return float(self._growths(0.0)[self.erased].max(initial=1.0) - 1)

    @property
    def error_bound(self) -> float:
        """Bound on the error rounding leaves, relative to the largest symbol.

        As for peeling, but an inactive symbol sums n terms, and its coefficients carry the error of their float64
        solve: the condition of the small system times the growth of the rounds that made it.
        """
        unit = float(np.finfo(self.dtype).eps)
        if not self.inactive.size:
            return (self.code.n + 3) * unit * self.amplification
        inner = float(growths(self.rounds, np.ones(self.code.n)).max()) * self._condition * UNIT / unit
        return (self.code.n + 3) * unit * float(self._growths(inner)[self.erased].max())

    def _restore(self, words: Float[np.ndarray, "r n"]) -> None:
        if self.inactive.size:
            words[:, self.inactive] = words @ self.solution
        symbols = np.ascontiguousarray(words.T)
        run(self.rounds, symbols)
        words[:, self.erased] = symbols[self.erased].T


def _small_solve(
    code: MdpcCode, erased: Int[np.ndarray, "e"], found: Schedule
) -> tuple[Float[np.ndarray, "n q"], float]:
    """Return the map from known symbols to the inactive ones, and the condition of the small system with its making.

    Peeling with the inactive symbols at 0 leaves the unused checks unsatisfied by r; a unit in each inactive symbol
    changes those checks by the columns of A. So they are -A^+ r, and r is linear in the known symbols.
    """
    q = found.inactive.size
    if q == 0:
        return np.zeros((code.n, 0)), 1.0
    used = np.concatenate([step.checks for step in found.rounds])
    unused = code.H[np.setdiff1d(np.arange(code.m), used)]
    units = np.zeros((code.n, q))
    units[found.inactive, np.arange(q)] = 1
    run(found.rounds, units)
    A = unused @ units
    import scipy.linalg

    Q, R = scipy.linalg.qr(A, mode="economic")
    # what A is off by grows with the terms of its sums, which may cancel, and not with A itself
    terms = float(np.linalg.norm(abs(unused) @ np.abs(units)))
    solution = -(unused.T @ scipy.linalg.solve_triangular(R, Q.T).T)
    run_adjoint(found.rounds, solution)
    solution[erased] = 0
    return solution, terms / float(scipy.linalg.svdvals(R)[-1])


@final
class Inactivation(ErasureDecoder):
    """Restores every set that can be restored, with dense work only for the inactive symbols."""

    name = "inactivation"

    def _plan(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any]) -> InactivationPlan:
        found = schedule(code.H, erased, inactivate=True)
        if found.inactive.size:
            require_decodable(decodable(code, erased), dtype)
        return InactivationPlan(code, erased, dtype, found)
