"""Can a set of erased positions be restored at all, and drawing sets that can."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Int

from codedfl.codes.erasure.contract import ErasureDecoder, checked_positions, describe
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CodeError, MissingLibrary, UndecodableError

try:
    import scipy
except ModuleNotFoundError:
    scipy = MissingLibrary("scipy")


@final
@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Rank and condition of the erased columns of H; true when every erased symbol is determined.

    ``dependent`` are the erased positions that take part in a linear dependence, hence are not determined.
    """

    erased: Int[np.ndarray, "e"]
    rank: int
    condition: float
    dependent: Int[np.ndarray, "d"]

    def __bool__(self) -> bool:
        return self.rank == self.erased.size


def decodable(code: MdpcCode, erased: Int[np.ndarray, "e"]) -> Diagnosis:
    """Whether any decoder can restore these positions: the erased columns of H must be independent.

    Singular values below max(n-k, e) * eps * largest are zero: that is the backward error of the
    decomposition itself, so nothing smaller can be told from zero.
    """
    positions = checked_positions(code, erased)
    if positions.size == 0:
        return Diagnosis(positions, 0, 1.0, positions)
    dense = code.H[:, positions].toarray()
    R = scipy.linalg.qr(dense, mode="r")[0][: min(dense.shape)]
    _, values, rows = scipy.linalg.svd(R)
    tolerance = max(dense.shape) * np.finfo(np.float64).eps * values[0]
    rank = int(np.count_nonzero(values > tolerance))
    if rank == positions.size:
        return Diagnosis(positions, rank, float(values[0] / values[-1]), positions[:0])
    # a perturbation of size tolerance turns the null space by at most tolerance / gap (Wedin)
    blur = min(0.5, tolerance / values[rank - 1]) if rank else 0.0
    dependent = positions[np.abs(rows[rank:]).max(axis=0) > blur]
    return Diagnosis(positions, rank, float("inf"), dependent)


def require_decodable(diagnosis: Diagnosis, dtype: np.dtype[Any]) -> None:
    """Raise UndecodableError when the positions cannot be restored in this precision."""
    erased = diagnosis.erased
    if not diagnosis:
        raise UndecodableError(
            f"{diagnosis.dependent.size} of {erased.size} erased positions cannot be restored by any decoder, because "
            f"their columns of H are dependent (positions {describe(diagnosis.dependent)}): "
            "draw another set of positions or erase fewer."
        )
    if diagnosis.condition * np.finfo(dtype).eps >= 1:
        raise UndecodableError(
            f"The {erased.size} erased columns of H have condition {diagnosis.condition:.1e}, which leaves no correct "
            f"digit in {dtype} (positions {describe(erased)}): decode in float64 or draw another set."
        )


def draw_support(
    code: MdpcCode, size: int, rng: np.random.Generator, decoder: ErasureDecoder, *, attempts: int = 100
) -> Int[np.ndarray, "size"]:
    """A random set of positions that ``decoder`` can restore; sets that it cannot are drawn again.

    Given that it succeeds, the set is uniform among those the decoder can restore.
    """
    if not 0 <= size <= code.m:
        raise CodeError(f"A support of {size} positions cannot be restored: choose a size between 0 and {code.m}.")
    for _ in range(attempts):
        positions = np.sort(rng.choice(code.n, size, replace=False))
        try:
            decoder.prepare(code, positions)
        except UndecodableError:
            continue
        return positions
    raise UndecodableError(
        f"None of {attempts} random sets of {size} positions could be restored by {decoder.name}: "
        "choose a smaller set or the least-squares decoder."
    )
