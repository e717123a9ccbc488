"""Symmetric matrices as their upper triangle, d (d + 1) / 2 entries row by row: what is sent of a Gram matrix."""

from importlib import import_module
from math import isqrt
from types import ModuleType

import numpy as np
from jaxtyping import Shaped

from codedfl.codes.modular import compiled
from codedfl.errors import CipherError
from codedfl.storage import roomy


def kernels() -> ModuleType:
    """Return the passes over triangles: compiled where numba is installed, else in NumPy."""
    return import_module(f"codedfl.cipher.seals.{'kernels' if compiled() else 'portable'}")


def packed_size(dimension: int) -> int:
    """Return the number of entries of the upper triangle, diagonal included."""
    return dimension * (dimension + 1) // 2


def pack_upper(matrix: Shaped[np.ndarray, "d d"]) -> Shaped[np.ndarray, "entries"]:
    """Return the upper triangle of a symmetric matrix. Law: unpack_upper(pack_upper(A)) = A."""
    packed = np.empty(packed_size(len(matrix)), matrix.dtype)
    kernels().pack_upper(np.ascontiguousarray(matrix), packed)
    return packed


def unpack_upper(packed: Shaped[np.ndarray, "entries"]) -> Shaped[np.ndarray, "d d"]:
    """Return the symmetric matrix of an upper triangle."""
    dimension = (isqrt(8 * packed.size + 1) - 1) // 2
    if packed_size(dimension) != packed.size:
        raise CipherError(f"{packed.size} entries are no upper triangle: give d (d + 1) / 2 entries.")
    matrix = roomy((dimension, dimension), packed.dtype)
    kernels().unpack_upper(np.ascontiguousarray(packed), matrix)
    return matrix
