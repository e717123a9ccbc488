"""A support that two devices share is no secret between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.security.attacks.shared_support import SharedSupport
from codedfl.security.contract import Finding
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import SharedSupportView
from security.ciphertexts import encrypted, gram_matrix, parameters, small_keys

SMALL = small_keys(parameters(n=60, k=24, t=4, beta=2))
NOWHERE = np.empty(0, dtype=np.int64)


def attack(G: np.ndarray, words: np.ndarray, positions: np.ndarray) -> Finding:
    return SharedSupport().run(SharedSupportView(G, words, positions), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_later_holder_is_read(dtype: str) -> None:
    case = encrypted(small_keys(parameters(), dtype), gram_matrix(70, 100, np.random.default_rng(0)))
    found = score(attack(case.view.G, case.view.words, case.positions), Truth(gram=case.A))
    limit = case.limits()[0]
    assert limit < 1e-2, "a limit that says nothing"
    assert found.relative_error is not None
    assert found.relative_error < limit
    assert found.verdict == "falls"


@given(seed=st.integers(0, 2**31))
def test_agrees_with_least_squares_on_what_is_left(seed: int) -> None:
    rng = np.random.default_rng(seed)
    G, positions = SMALL.public.G, np.sort(rng.choice(60, 4, replace=False))
    words = rng.standard_normal((24, 60))
    D = 1 / np.linalg.norm(G, axis=0)
    kept = np.delete(np.arange(60), positions)
    direct = np.linalg.lstsq((G * D)[:, kept].T, (words * D)[:, kept].T, rcond=None)[0].T
    found = attack(G, words, positions).gram
    singular = np.linalg.svd((G * D)[:, kept], compute_uv=False)
    limit = 60 * np.finfo(np.float64).eps * (singular[0] / singular[-1]) ** 2 * np.linalg.norm(words * D) / singular[-1]
    np.testing.assert_allclose(found, (direct + direct.T) / 2, atol=limit, rtol=0)


def test_another_support_does_not_help() -> None:
    case = encrypted(small_keys(parameters()), gram_matrix(70, 100, np.random.default_rng(0)))
    others = np.setdiff1d(np.arange(160), case.positions)[: case.positions.size]
    found = score(attack(case.view.G, case.view.words, others), Truth(gram=case.A))
    # few errors of the size of the data leave a rough idea of A, but no more
    assert found.verdict != "falls"


def test_no_positions_reads_the_words() -> None:
    A = gram_matrix(24, 40, np.random.default_rng(0))
    found = attack(SMALL.public.G, SMALL.public.encode(A).words, NOWHERE)
    assert score(found, Truth(gram=A)).verdict == "falls"
    assert "as they are" in found.remark


@pytest.mark.parametrize("positions", [NOWHERE, np.array([1, 3])])
def test_no_redundancy_reads_noise(positions: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    A = gram_matrix(12, 20, rng)
    words = 64.0 * A + 1e6 * rng.random((12, 12))
    assert score(attack(64.0 * np.eye(12), words, positions), Truth(gram=A)).verdict == "holds"


def test_more_positions_than_redundancy_gives_an_answer() -> None:
    case = encrypted(SMALL, gram_matrix(24, 40, np.random.default_rng(0)))
    found = attack(case.view.G, case.view.words, np.arange(50)).gram
    assert found is not None
    assert np.isfinite(found).all()
