"""One row of a parcel gives one row of the plaintext and the support."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.single_row import SingleRow
from codedfl.security.contract import Finding
from codedfl.security.scoring import relative_error, score
from codedfl.security.views.kinds import ParcelView, RowView
from security.ciphertexts import Case, encrypted, gram_matrix, parameters, small_keys


def attack(view: RowView) -> Finding:
    return SingleRow().run(view, np.random.default_rng(0))


def limit(case: Case, index: int) -> float:
    """Least squares outside the support, for this row."""
    row, view = slice(index, index + 1), case.view
    return Case(ParcelView(view.G, view.words[row], view.t, view.beta), case.A[row], case.positions).limits()[0]


@settings(max_examples=20)
@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 8),
    st.integers(0, 69),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_every_row_falls(seed: bytes, dtype: str, t: int, index: int, scale: float) -> None:
    rng = np.random.default_rng(list(seed))
    keys = small_keys(parameters(t=t, beta=min(4, t)), dtype, seed)
    case = encrypted(keys, scale * gram_matrix(70, 100, rng), seed)
    view, truth = case.row(index)
    result = score(attack(view), truth)
    assert result.support_recovered
    assert result.relative_error <= limit(case, index)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_of_zeros_hides_no_support(dtype: str) -> None:
    case = encrypted(small_keys(parameters(), dtype), np.zeros((70, 70)))
    view, truth = case.row(3)
    found = attack(view)
    assert found.support.tolist() == truth.support.tolist()
    geometry = geometry_of(view.G)
    assert np.linalg.norm(found.gram) <= np.sqrt(geometry.condition) * geometry.rounding(view.word[None, :])


@pytest.mark.parametrize("t", [0, 8])
def test_a_word_without_errors_is_read(t: int) -> None:
    keys = small_keys(parameters(), "float32")
    A = gram_matrix(70, 100, np.random.default_rng(4)).astype(np.float32)
    view = ParcelView(keys.public.G, keys.public.encode(A).words, t, beta=0)
    case = Case(view, A, np.array([], dtype=np.int64))
    found = attack(case.row(0)[0])
    assert found.support.size == 0
    assert relative_error(found.gram, A[:1]) <= limit(case, 0)


def test_without_redundancy_the_word_is_read_as_it_is() -> None:
    word = np.random.default_rng(5).integers(0, 2**40, 30).astype(np.float64)
    found = attack(RowView(2.0**10 * np.eye(30), word, 0))
    assert "no redundancy" in found.remark
    assert found.support is None
    assert np.array_equal(found.gram[0], word / 2.0**10)


def test_too_many_errors_are_not_found() -> None:
    """Half as many errors as parity checks: more than any sparse recovery can tell apart."""
    keys = small_keys(parameters(n=120, k=60, t=29, beta=4))
    case = encrypted(keys, gram_matrix(60, 100, np.random.default_rng(6)))
    view, truth = case.row(0)
    result = score(attack(view), truth)
    assert not result.support_recovered
    assert result.relative_error > 1e-2
