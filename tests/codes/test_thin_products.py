"""Which products are computed by a kernel; all others are left to BLAS, whose bits they have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from codedfl.codes import kernels, thin_products
from codedfl.codes.kernels import TILE
from codedfl.codes.thin_products import kernels as thin_kernels
from codedfl.codes.thin_products import symmetric_product, thin_product, transposed_product
from codedfl.codes.thin_products.kernels import BLOCK
from codedfl.codes.thin_products.kernels import TILE as TILE_32

INNER, COLUMNS = 37, 304
SIZE = INNER * COLUMNS


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(dtype)


@pytest.fixture
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[np.ndarray, np.ndarray], bool]:
    """Tell whether a product that was just computed came from a kernel; it is right in any case."""
    calls = []

    def counted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: calls.append(1) or kernel(*arguments)

    monkeypatch.setattr(kernels, "add_thin_product", counted(kernels.add_thin_product))
    monkeypatch.setattr(thin_kernels, "thin_product_32", counted(thin_kernels.thin_product_32))

    def judge(found: np.ndarray, expected: np.ndarray) -> bool:
        used = bool(calls)
        calls.clear()
        assert found.dtype == expected.dtype
        if used:
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        else:
            assert np.array_equal(found, expected)
        return used

    return judge


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "large", "kernel"), [(16, SIZE, True), (15, SIZE, True), (17, 0, False)])
def test_few_rows_and_a_large_matrix(
    monkeypatch: pytest.MonkeyPatch, by_kernel: Any, dtype: type, rows: int, large: int, kernel: bool
) -> None:
    monkeypatch.setattr(thin_products, "LARGE", large)
    left, right = drawn(rows, INNER, dtype=dtype), drawn(INNER, COLUMNS, dtype=dtype)
    assert by_kernel(thin_product(left, right), left @ right) == kernel
    monkeypatch.setattr(thin_products, "LARGE", SIZE + 1)
    assert not by_kernel(thin_product(left, right), left @ right)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_the_kernel_stays_within_its_arrays(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """As interpreted code, which checks every index: the kernel reads two rows at a time."""
    monkeypatch.setattr(thin_products, "LARGE", 0)
    left, right = np.arange(9.0 * rows).reshape(rows, 9), np.arange(27.0).reshape(9, 3)
    for form in (kernels.add_thin_product.py_func, kernels.add_thin_product):
        monkeypatch.setattr(kernels, "add_thin_product", form)
        np.testing.assert_array_equal(thin_product(left, right), left @ right)


@pytest.mark.parametrize("columns", [TILE - 1, TILE, TILE + 3, 2 * TILE + 1])
@pytest.mark.parametrize("inner", [1, 7, 8, 17])
def test_columns_at_the_edges_of_tiles(monkeypatch: pytest.MonkeyPatch, inner: int, columns: int) -> None:
    """Of whole numbers, whose sums are exact in any order."""
    monkeypatch.setattr(thin_products, "LARGE", 0)
    rng = np.random.default_rng(inner)
    left, right = rng.integers(-9, 9, (3, inner)).astype(float), rng.integers(-9, 9, (inner, columns)).astype(float)
    np.testing.assert_array_equal(thin_product(left, right), left @ right)


def test_matrices_of_another_type_or_order_are_left_to_blas(monkeypatch: pytest.MonkeyPatch, by_kernel: Any) -> None:
    monkeypatch.setattr(thin_products, "LARGE", 0)
    left, right = drawn(8, INNER), drawn(INNER, COLUMNS)
    assert by_kernel(thin_product(left, right), left @ right)
    assert not by_kernel(thin_product(left.astype(float), right), left.astype(float) @ right)
    assert not by_kernel(thin_product(left, np.asfortranarray(right)), left @ np.asfortranarray(right))
    monkeypatch.setattr(thin_products, "compiled", lambda: False)
    assert not by_kernel(thin_product(left, right), left @ right)


@pytest.mark.parametrize(
    ("few", "columns", "large", "kernel"),
    [(16, 304, SIZE, True), (1, 304, SIZE, True), (17, 304, 0, False), (3, 304, SIZE + 1, False), (3, 303, 0, False)],
)
def test_few_columns_and_a_large_matrix(
    monkeypatch: pytest.MonkeyPatch, by_kernel: Any, few: int, columns: int, large: int, kernel: bool
) -> None:
    """The number of columns of the matrix must be a multiple of 16: the kernel reads two vectors at a time."""
    monkeypatch.setattr(thin_products, "LARGE_32", large)
    matrix, right = drawn(INNER, columns), drawn(INNER, few)
    assert by_kernel(transposed_product(matrix, right), matrix.T @ right) == kernel


@pytest.mark.parametrize("rows", [1, 9, BLOCK, BLOCK + 1, 2 * BLOCK + 10])
@pytest.mark.parametrize("columns", [16, TILE_32, TILE_32 + 16])
@pytest.mark.parametrize("few", [1, 5, 6])
def test_blocks_of_rows_and_tiles_of_columns(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, few: int
) -> None:
    """Of whole numbers up to 9, whose sums are below 2^24 and so exact in single precision."""
    monkeypatch.setattr(thin_products, "LARGE_32", 0)
    rng = np.random.default_rng(rows)
    matrix, right = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((rows, columns), (rows, few)))
    np.testing.assert_array_equal(transposed_product(matrix, right), matrix.T @ right)


@pytest.mark.parametrize("few", [1, 5])
def test_blocks_are_added_up_in_double_precision(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Next to 2^24 a single one is lost in single precision, and 256 of them are not."""
    monkeypatch.setattr(thin_products, "LARGE_32", 0)
    matrix, right = np.ones((3 * BLOCK, 16), np.float32), np.ones((3 * BLOCK, few), np.float32)
    right[0], right[1:BLOCK] = 2**24, 0
    np.testing.assert_array_equal(transposed_product(matrix, right), np.full((16, few), 2**24 + 2 * BLOCK))


def test_other_large_matrices_are_left_to_blas(monkeypatch: pytest.MonkeyPatch, by_kernel: Any) -> None:
    monkeypatch.setattr(thin_products, "LARGE_32", 0)
    matrix, right = drawn(INNER, COLUMNS), drawn(INNER, 5)
    assert by_kernel(transposed_product(matrix, right), matrix.T @ right)
    for one, other in (
        (matrix.astype(float), right.astype(float)),
        (matrix, right.astype(float)),
        (matrix.astype(float), right),
        (np.asfortranarray(matrix), right),
    ):
        assert not by_kernel(transposed_product(one, other), one.T @ other)
    monkeypatch.setattr(thin_products, "compiled", lambda: False)
    assert not by_kernel(transposed_product(matrix, right), matrix.T @ right)


def test_symmetric_matrices(monkeypatch: pytest.MonkeyPatch, by_kernel: Any) -> None:
    """The kernel reads rows where BLAS reads columns, which are the same; small ones are multiplied as they are."""
    half, right = drawn(304, 304), drawn(304, 4)
    matrix = half + half.T
    assert not by_kernel(symmetric_product(half, right), half @ right)
    monkeypatch.setattr(thin_products, "LARGE_32", 304 * 304)
    assert by_kernel(symmetric_product(matrix, right), matrix @ right)
