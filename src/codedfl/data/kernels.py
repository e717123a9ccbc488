"""Compiled cosine of the random Fourier features; NumPy's costs a quarter of the matrix product."""

import numba
import numpy as np
from numpy.typing import NDArray

# sin(2 pi u) = u P(u^2) for |u| <= 1/4, largest error 3.4e-9 (a minimax fit), far below float32 rounding
C0, C1, C2 = np.float32(6.28318516), np.float32(-41.34165503), np.float32(81.60100407)
C3, C4 = np.float32(-76.54978227), np.float32(39.53670589)
HALF, QUARTER = np.float32(0.5), np.float32(0.25)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def cosine_of_turns(block: NDArray[np.float32], offset: NDArray[np.float32], scale: np.float32) -> None:
    """Replace each entry t of ``block`` by scale * cos(2 pi (t + offset)), in place and in one pass.

    Angles in turns make the range reduction one floor; cos(2 pi v) = sin(2 pi (1/4 - |v|)) halves it.
    """
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            turns = block[i, j] + offset[j]
            u = QUARTER - abs(turns - np.floor(turns + HALF))
            square = u * u
            block[i, j] = ((((C4 * square + C3) * square + C2) * square + C1) * square + C0) * u * scale
