"""Symmetric matrices as their upper triangle, d (d + 1) / 2 entries row after row: what travels of a Gram matrix."""

from math import isqrt
from typing import Any

import numpy as np
from jaxtyping import Shaped

from codedfl.cipher.seals import kernels
from codedfl.errors import CipherError

__all__ = ["dimension_of", "pack_upper", "packed_rows", "packed_size", "unpack_upper"]


def packed_size(dimension: int) -> int:
    """The number of entries of the upper triangle, diagonal included."""
    return dimension * (dimension + 1) // 2


def packed_rows(dimension: int, first: int, last: int) -> slice:
    """Where rows first..last-1 of the upper triangle lie in the packed form."""
    return slice(packed_size(dimension) - packed_size(dimension - first), _start(dimension, last))


def _start(dimension: int, row: int) -> int:
    return packed_size(dimension) - packed_size(dimension - row)


def dimension_of(packed: Shaped[np.ndarray, "entries"]) -> int:
    """The dimension d of the matrix whose upper triangle has d (d + 1) / 2 entries."""
    dimension = (isqrt(8 * packed.size + 1) - 1) // 2
    if packed_size(dimension) != packed.size:
        raise CipherError(f"{packed.size} entries are no upper triangle: give d (d + 1) / 2 entries.")
    return dimension


def pack_upper(
    matrix: Shaped[np.ndarray, "d d"], out: Shaped[np.ndarray, "entries"] | None = None
) -> Shaped[np.ndarray, "entries"]:
    """The upper triangle of a symmetric matrix. Law: unpack_upper(pack_upper(A)) = A."""
    packed = _memory(out, (packed_size(len(matrix)),), matrix.dtype)
    kernels.pack_upper(np.ascontiguousarray(matrix), packed)
    return packed


def unpack_upper(
    packed: Shaped[np.ndarray, "entries"], out: Shaped[np.ndarray, "d d"] | None = None
) -> Shaped[np.ndarray, "d d"]:
    """The symmetric matrix of an upper triangle."""
    dimension = dimension_of(packed)
    matrix = _memory(out, (dimension, dimension), packed.dtype)
    kernels.unpack_upper(np.ascontiguousarray(packed), matrix)
    return matrix


def _memory(out: np.ndarray | None, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> np.ndarray:
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise CipherError(f"The output is {out.dtype} of shape {out.shape} and must be {dtype} of shape {shape}.")
    return out
