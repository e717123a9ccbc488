"""Peeling in rounds: every check that misses one symbol restores it, round after round."""

from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from codedfl.codes.erasure.contract import ErasureDecoder, ErasurePlan, describe
from codedfl.codes.erasure.schedule import PeelingRound, growths, run, schedule
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import UndecodableError


@final
class PeelingPlan(ErasurePlan):
    """Rounds of sparse products. Fewest operations, but errors grow from round to round."""

    def __init__(
        self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any], rounds: list[PeelingRound]
    ) -> None:
        super().__init__(code, erased, dtype)
        self.rounds = [step.cast(dtype) for step in rounds]

    @property
    def amplification(self) -> float:
        """Bound on the error of a restored symbol when every known symbol is off by at most 1."""
        return float(growths(self.rounds, np.ones(self.code.n))[self.erased].max(initial=1.0) - 1)

    @property
    def error_bound(self) -> float:
        """Bound on the error rounding leaves, relative to the largest symbol (see ``growths``)."""
        terms = max((int(np.diff(step.rows.indptr).max()) for step in self.rounds), default=0)
        # two more roundings per term: the cast of its coefficient and the product
        return (terms + 3) * float(np.finfo(self.dtype).eps) * self.amplification

    def _restore(self, words: Float[np.ndarray, "r n"]) -> None:
        symbols = np.ascontiguousarray(words.T)
        run(self.rounds, symbols)
        words[:, self.erased] = symbols[self.erased].T


@final
class Peeling(ErasureDecoder):
    """The decoder of the paper; it can stall on sets that other decoders restore."""

    name = "peeling"

    def _plan(self, code: MdpcCode, erased: Int[np.ndarray, "e"], dtype: np.dtype[Any]) -> PeelingPlan:
        found = schedule(code.H, erased, inactivate=False)
        if found.stuck.size:
            raise UndecodableError(
                f"Peeling stalls with {found.stuck.size} of {erased.size} erased positions left, a stopping set "
                f"(positions {describe(found.stuck)}): use the inactivation or least-squares decoder, or draw another "
                "set."
            )
        return PeelingPlan(code, erased, dtype, found.rounds)
