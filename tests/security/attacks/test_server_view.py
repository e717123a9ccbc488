"""What replies tell the server: A on the span of the models, and a bound outside it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.security.attacks.server_view import ServerReplies, completed, reached_span
from codedfl.security.contract import Finding
from codedfl.security.scoring import Truth, relative_error, score
from codedfl.security.views.kinds import RepliesView

EPS = np.finfo(np.float64).eps


def semidefinite(d: int, rng: np.random.Generator, points: int | None = None) -> np.ndarray:
    x = rng.standard_normal((points or 2 * d, d)) * np.geomspace(1, 0.1, d)
    return x.T @ x


def replied(A: np.ndarray, models: np.ndarray) -> RepliesView:
    return RepliesView(models, np.stack([A.astype(models.dtype) @ model for model in models]))


def attack(view: RepliesView, prior: np.ndarray | None = None) -> Finding:
    return ServerReplies(prior).run(view, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_models_that_span_everything_tell_everything(dtype: str) -> None:
    rng = np.random.default_rng(0)
    A = semidefinite(20, rng)
    found = attack(replied(A, rng.standard_normal((10, 20, 3)).astype(dtype)))
    assert score(found, Truth(gram=A)).verdict == "falls"
    assert found.remark == "dimension 20 of 20 reached"


def test_no_model_but_zero_tells_nothing() -> None:
    A = semidefinite(8, np.random.default_rng(0))
    view = replied(A, np.zeros((3, 8, 2)))
    found = attack(view)
    np.testing.assert_array_equal(found.gram, np.zeros((8, 8)))
    assert found.remark == "dimension 0 of 8 reached"
    np.testing.assert_array_equal(attack(view, A).gram, A)


@given(seed=st.integers(0, 2**31), rank=st.integers(1, 15), points=st.integers(3, 40))
def test_laws_of_the_completion(seed: int, rank: int, points: int) -> None:
    """It is symmetric, exact on the span, and nearer to A than zeros outside the span."""
    rng = np.random.default_rng(seed)
    A, basis = semidefinite(16, rng, points), np.linalg.qr(rng.standard_normal((16, rank)))[0]
    found = completed(basis, A @ basis)
    size = np.linalg.norm(A)
    P = basis @ basis.T
    zeros = P @ A + A @ P - P @ A @ P
    np.testing.assert_allclose(found, found.T, atol=16 * EPS * size)
    np.testing.assert_allclose(found @ basis, A @ basis, atol=64 * EPS * size)
    # dropped directions of the core carry at most their own floor; rounding is divided by that floor
    assert np.linalg.norm(found - A) <= np.linalg.norm(zeros - A) + 1e-6 * size


@given(seed=st.integers(0, 2**31))
def test_a_matrix_of_low_rank_is_told_by_as_many_directions(seed: int) -> None:
    """The bound is the whole truth once the span holds as many dimensions as A."""
    rng = np.random.default_rng(seed)
    x = np.linalg.qr(rng.standard_normal((16, 4)))[0]
    A, basis = x @ x.T, np.linalg.qr(rng.standard_normal((16, 6)))[0]
    smallest = np.linalg.svd(x.T @ basis, compute_uv=False)[-1]
    if smallest**2 > 1e-3:
        assert relative_error(completed(basis, A @ basis), A) < 16 * EPS / smallest**4 + EPS / 1e-6


@given(seed=st.integers(0, 2**31), rank=st.integers(1, 15))
def test_the_right_prior_gives_the_truth(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    A, basis = semidefinite(16, rng), np.linalg.qr(rng.standard_normal((16, rank)))[0]
    assert relative_error(completed(basis, A @ basis, A), A) < 16 * EPS / 1e-6


def test_the_span_is_that_of_the_models() -> None:
    rng = np.random.default_rng(2)
    A, corner = semidefinite(20, rng), rng.standard_normal((20, 4))
    models = np.stack([corner @ rng.standard_normal((4, 3)) for _ in range(6)])
    basis, images = reached_span(replied(A, models))
    assert basis.shape == (20, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=100 * EPS)
    singular = np.linalg.svd(np.concatenate(list(models), axis=1), compute_uv=False)
    limit = 20 * EPS * np.linalg.norm(A, 2) * singular[0] / singular[3]
    np.testing.assert_allclose(images, A @ basis, atol=limit)
    np.testing.assert_allclose(basis @ (basis.T @ corner), corner, atol=20 * EPS * 100 * singular[0] / singular[3])


def test_directions_below_rounding_are_left_out() -> None:
    """Float32 replies of size 1 say nothing of a direction in which the models differ by 1e-8."""
    rng = np.random.default_rng(3)
    corner = np.linalg.qr(rng.standard_normal((20, 3)))[0]
    models = np.stack([corner[:, :2], corner[:, :2] + 1e-8 * corner[:, 2:]])
    view = RepliesView(models, np.stack([(model).astype(np.float32) for model in models]).astype(np.float32))
    basis, _ = reached_span(view)
    assert basis.shape[1] == 2


def test_knowledge_grows_with_the_epochs() -> None:
    """Gradient descent on a problem of 30 features, as the server sees one device of four."""
    rng = np.random.default_rng(4)
    parts = [semidefinite(30, rng) for _ in range(4)]
    total, target = sum(parts), rng.standard_normal((30, 2))
    rate = 1 / np.linalg.norm(total, 2)
    models = [np.zeros((30, 2))]
    for _ in range(39):
        models.append(models[-1] - rate * (total @ models[-1] - target))
    view = replied(parts[0], np.stack(models))
    found = [attack(RepliesView(view.models[:count], view.replies[:count])) for count in (1, 3, 10, 40)]
    errors = [relative_error(finding.gram, parts[0]) for finding in found if finding.gram is not None]
    assert errors[0] == 1.0, "the first model is zero"
    # what is left is a Schur complement, which shrinks as the span grows
    assert all(later < earlier for earlier, later in pairwise(errors))
    guess = parts[1]
    better = attack(RepliesView(view.models[:3], view.replies[:3]), guess).gram
    assert better is not None
    assert relative_error(better, parts[0]) < min(errors[1], relative_error(guess, parts[0]))
