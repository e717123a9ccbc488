"""Cosine of the random Fourier features in NumPy, for machines without a compiler."""

import numpy as np
from numpy.typing import NDArray

# those of the compiled kernel: sin(2 pi u) = u P(u^2) for |u| <= 1/4
_COEFFICIENTS = (39.53670589, -76.54978227, 81.60100407, -41.34165503, 6.28318516)
_ROWS = 64


def cosine_of_turns(block: NDArray[np.float32], offset: NDArray[np.float32], scale: np.float32) -> None:
    """Replace each entry t of ``block`` by scale * cos(2 pi (t + offset)), in place.

    The compiled kernel rounds a product and the sum on top of it once (fused multiply-add) where the processor can.
    Float64 holds such a product exactly, so that nearly all results have the same bits.
    """
    first, *others = (np.float32(each) for each in _COEFFICIENTS)
    for top in range(0, len(block), _ROWS):
        turns = block[top : top + _ROWS]
        turns += offset
        u = np.float32(0.25) - np.abs(turns - np.floor(turns + np.float32(0.5)))
        square, total = (u * u).astype(np.float64), np.full(u.shape, first)
        for each in others:
            total = (total * square + np.float64(each)).astype(np.float32)
        total *= u
        np.multiply(total, scale, out=turns)
