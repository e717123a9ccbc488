"""Symmetric matrices as their upper triangle, d (d + 1) / 2 entries row by row: what is sent of a Gram matrix."""

from math import isqrt

import numpy as np
from jaxtyping import Shaped

from codedfl.errors import CipherError


def packed_size(dimension: int) -> int:
    """Return the number of entries of the upper triangle, diagonal included."""
    return dimension * (dimension + 1) // 2


def pack_upper(matrix: Shaped[np.ndarray, "d d"]) -> Shaped[np.ndarray, "entries"]:
    """Return the upper triangle of a symmetric matrix. Law: unpack_upper(pack_upper(A)) = A."""
    from codedfl.cipher.seals import kernels  # numba is slow to import

    packed = np.empty(packed_size(len(matrix)), matrix.dtype)
    kernels.pack_upper(np.ascontiguousarray(matrix), packed)
    return packed


def unpack_upper(packed: Shaped[np.ndarray, "entries"]) -> Shaped[np.ndarray, "d d"]:
    """Return the symmetric matrix of an upper triangle."""
    from codedfl.cipher.seals import kernels  # numba is slow to import

    dimension = (isqrt(8 * packed.size + 1) - 1) // 2
    if packed_size(dimension) != packed.size:
        raise CipherError(f"{packed.size} entries are no upper triangle: give d (d + 1) / 2 entries.")
    matrix = np.empty((dimension, dimension), packed.dtype)
    kernels.unpack_upper(np.ascontiguousarray(packed), matrix)
    return matrix
