"""Products of a few rows with a large matrix, such as theta^T D: reading the matrix takes longer than multiplying."""

import numpy as np
from jaxtyping import Float

from codedfl.codes.modular import compiled

LARGE = 1 << 22
"""Entries of a matrix from which on it is worth to load a compiled kernel."""
_THIN = 16
"""Rows up to which the kernel is quicker than a general product."""


def thin_product(
    left: Float[np.ndarray, "rows inner"], right: Float[np.ndarray, "inner columns"]
) -> Float[np.ndarray, "rows columns"]:
    """Return left @ right, by a kernel that reads ``right`` once if it is large and ``left`` has few rows.

    Both ways round an entry as a sum of ``inner`` products in some order, so that they differ in last bits.
    """
    alike = left.dtype == right.dtype and right.flags.c_contiguous
    if right.size < LARGE or len(left) > _THIN or not (alike and compiled()):
        return np.asarray(left @ right)
    from codedfl.codes.kernels import add_thin_product  # numba is slow to import

    even = len(left) + len(left) % 2
    rows, out = np.zeros((even, len(right)), right.dtype), np.zeros((even, right.shape[1]), right.dtype)
    rows[: len(left)] = left
    add_thin_product(rows, right, out)
    return out[: len(left)]
