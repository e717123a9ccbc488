"""Products of few rows with a large matrix: those of any other way up to rounding, whatever the shapes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from codedfl.codes import thin_products
from codedfl.codes.thin_products import symmetric_product, thin_product, transposed_product
from codedfl.testing.small import gamma


@pytest.fixture(scope="module", autouse=True)
def kernel_for_small_matrices() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thin_products, "LARGE", 0)
        yield


@given(
    st.integers(1, 17),
    st.integers(1, 40),
    st.integers(1, 1100),
    st.sampled_from(["float32", "float64"]),
    st.integers(0),
)
def test_the_product_is_exact_up_to_the_rounding_of_a_sum(rows: int, inner: int, columns: int, dtype: str, seed: int):
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal(shape).astype(dtype) for shape in ((inner, rows), (inner, columns)))
    found = thin_product(left.T, right)
    assert found.dtype == dtype
    assert found.shape == (rows, columns)
    exact = left.T.astype(np.longdouble) @ right.astype(np.longdouble)
    assert np.all(
        abs(found - exact) <= gamma(inner + 1, dtype) * (abs(left.T).astype(float) @ abs(right).astype(float))
    )


@given(arrays.arrays(np.float32, (3, 19), elements=st.integers(-99, 99)), st.integers(0))
def test_whole_numbers_are_exact(left: np.ndarray, seed: int) -> None:
    right = np.random.default_rng(seed).integers(-99, 100, (19, 1030)).astype(np.float32)
    right.flags.writeable = False
    assert np.array_equal(thin_product(left, right), left.astype(np.int64) @ right.astype(np.int64))


def test_other_operands_are_left_to_a_general_product(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((4, 9)).astype(np.float32), rng.standard_normal((9, 5)).astype(np.float32)
    for one, other in ((left.astype(float), right), (left, np.asfortranarray(right)), (np.tile(left, (5, 1)), right)):
        assert np.array_equal(thin_product(one, other), one @ other)
    monkeypatch.setattr(thin_products, "compiled", lambda: False)
    assert np.array_equal(thin_product(left, right), left @ right)


@pytest.mark.parametrize(("rows", "columns", "few"), [(530, 1008, 10), (257, 2064, 3), (1, 16 * 2**15, 16)])
def test_large_matrices_in_single_precision(rows: int, columns: int, few: int) -> None:
    """Within the bound on a sum of products in float32, in blocks of 256: gamma_257 |A|^T |x|, and one more."""
    rng = np.random.default_rng(rows)
    matrix, right = rng.standard_normal((rows, columns), np.float32), rng.standard_normal((rows, few), np.float32)
    exact = matrix.T.astype(np.float64) @ right
    u = np.finfo(np.float32).eps / 2
    bound = 257 * u / (1 - 257 * u) * (np.abs(matrix.T).astype(np.float64) @ np.abs(right)) + u * np.abs(exact)
    found = transposed_product(matrix, right)
    assert found.dtype == np.float32
    assert np.all(np.abs(found - exact) <= bound)


def test_a_symmetric_matrix_is_its_own_transpose() -> None:
    rng = np.random.default_rng(1)
    rows, right = rng.standard_normal((9, 736), np.float32), rng.standard_normal((736, 10), np.float32)
    gram = rows.T @ rows
    assert np.array_equal(symmetric_product(gram, right), transposed_product(gram, right))


@pytest.mark.parametrize("columns", [720, 736 + 8])
def test_small_matrices_and_odd_numbers_of_columns_have_the_bits_of_blas(columns: int) -> None:
    rng = np.random.default_rng(2)
    matrix, right = rng.standard_normal((720, columns), np.float32), rng.standard_normal((720, 4), np.float32)
    assert np.array_equal(transposed_product(matrix, right), matrix.T @ right)
