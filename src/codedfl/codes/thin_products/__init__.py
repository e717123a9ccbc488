"""Products of a few rows with a large matrix, such as theta^T D: reading the matrix takes longer than multiplying."""

import numpy as np
from jaxtyping import Float

from codedfl.codes.modular import compiled

__all__ = ["LARGE", "LARGE_32", "symmetric_product", "thin_product", "transposed_product"]

LARGE = 1 << 22
"""Entries of a matrix from which on it is worth to load a compiled kernel."""
LARGE_32 = 1 << 19
"""The same of the kernel for single precision, which all products of a training share."""
_THIN = 16
"""Rows up to which the kernels are quicker than a general product."""
_COLUMNS = 16
"""Their number must be a multiple of this for that kernel."""


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


def symmetric_product(
    matrix: Float[np.ndarray, "inner inner"], columns: Float[np.ndarray, "inner few"]
) -> Float[np.ndarray, "inner few"]:
    """Return matrix @ columns of a symmetric matrix; if it is large, by a kernel with last bits of its own.

    So it serves simulations whose replies are held against none of a deployment.
    """
    found = _by_kernel(matrix, columns)
    return np.asarray(matrix @ columns) if found is None else found


def transposed_product(
    matrix: Float[np.ndarray, "rows inner"], columns: Float[np.ndarray, "rows few"]
) -> Float[np.ndarray, "inner few"]:
    """Return matrix^T @ columns, by the same kernel if the matrix is large."""
    found = _by_kernel(matrix, columns)
    return np.asarray(matrix.T @ columns) if found is None else found


def _by_kernel(
    matrix: Float[np.ndarray, "rows inner"], columns: Float[np.ndarray, "rows few"]
) -> Float[np.ndarray, "inner few"] | None:
    """Return matrix^T @ columns in single precision; None where the kernel does not serve or is not worth it."""
    single = matrix.dtype == columns.dtype == np.float32 and matrix.flags.c_contiguous
    if matrix.size < LARGE_32 or matrix.shape[1] % _COLUMNS or columns.shape[1] > _THIN or not (single and compiled()):
        return None
    from codedfl.codes.thin_products.kernels import thin_product_32  # numba is slow to import

    out = np.empty((columns.shape[1], matrix.shape[1]))
    thin_product_32(np.ascontiguousarray(columns.T), matrix, out)
    return np.asarray(out.T.astype(np.float32))
