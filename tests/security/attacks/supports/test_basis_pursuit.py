"""The l1 relaxation: its minimum against an independent linear programme, and what it finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space
from scipy.optimize import linprog

from codedfl.security.attacks.supports.basis_pursuit import GAP, BasisPursuit, least_norm
from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.contract import Finding
from codedfl.security.scoring import score
from codedfl.security.views.kinds import RowView
from security.ciphertexts import encrypted, gram_matrix, parameters, small_keys


def attack(view: RowView) -> Finding:
    return BasisPursuit().run(view, np.random.default_rng(0))


def linear_programme(G: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Return the e of least l1 norm with N e = N c, by HiGHS: e = p - q with p, q >= 0 of least sum."""
    N = null_space(G.astype(np.float64)).T
    cost = np.ones(2 * word.size)
    solved = linprog(cost, A_eq=np.hstack([N, -N]), b_eq=N @ word, bounds=(0, None), method="highs")
    assert solved.status == 0
    return np.asarray(solved.x[: word.size] - solved.x[word.size :])


@settings(max_examples=10)
@given(st.integers(0, 2**31), st.sampled_from([1, 3, 6, 15, 45]))
def test_the_minimum_is_that_of_a_linear_programme(seed: int, t: int) -> None:
    """Also where there are too many errors for the sparsest explanation to have the least norm (t > 6 or so)."""
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((40, 100)) * rng.uniform(0.2, 5, 100)
    word = rng.standard_normal(40) @ G
    word[rng.permutation(100)[:t]] += np.std(word) * rng.standard_normal(t)
    geometry = geometry_of(G)
    found = least_norm(geometry, geometry.free_part((word * geometry.weights)[:, None])[:, 0], t)
    least = float(np.abs(linear_programme(G, word)).sum())
    assert found.gap <= (GAP if t <= 6 else 100 * GAP), "where the relaxation is not tight, steps are slow"
    # the certificate: norm (1 - gap) <= least, and the solution is feasible, so least <= norm; 1e-7 is HiGHS's own
    assert found.norm * (1 - found.gap) <= least * (1 + 1e-7)
    assert least <= found.norm * (1 + 1e-7)
    assert np.sum(np.abs(found.scaled) / geometry.weights) == pytest.approx(found.norm, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", [0, 33])
def test_a_row_falls_as_to_the_linear_programme(dtype: str, index: int) -> None:
    case = encrypted(small_keys(parameters(), dtype), gram_matrix(70, 100, np.random.default_rng(2)))
    view, truth = case.row(index)
    errors = linear_programme(view.G, view.word.astype(np.float64))
    assert np.array_equal(np.sort(np.argsort(np.abs(errors))[-view.t :]), truth.support), "the relaxation is tight here"
    result = score(attack(view), truth)
    assert result.support_recovered
    assert result.relative_error <= 1e-4
    assert result.verdict == "falls"


def test_too_many_errors_are_not_found() -> None:
    """The threshold at (n - k) / n = 1/2 is 0.385 (n - k) = 23; 29 errors are above it."""
    keys = small_keys(parameters(n=120, k=60, t=29, beta=4))
    case = encrypted(keys, gram_matrix(60, 100, np.random.default_rng(6)))
    view, truth = case.row(0)
    result = score(attack(view), truth)
    assert not result.support_recovered
    assert result.relative_error > 1e-2


def test_a_word_without_errors_is_read() -> None:
    G = np.random.default_rng(1).standard_normal((30, 60))
    a = np.random.default_rng(2).standard_normal(30)
    found = attack(RowView(G, a @ G, 4))
    assert found.support.size == 0
    np.testing.assert_allclose(found.gram[0], a, rtol=1e-10)


def test_without_redundancy_the_word_is_read_as_it_is() -> None:
    word = np.arange(30.0)
    found = attack(RowView(4 * np.eye(30), word, 0))
    assert np.array_equal(found.gram[0], word / 4)
    assert found.support is None
