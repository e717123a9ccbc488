"""Who is in a Gram matrix: leverage and decomposition on the features of scikit-learn's digits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from codedfl.data import FeatureMap
from codedfl.security.attacks.membership import RECOVERED_ERROR, Decomposition, Leverage, noise_floor
from codedfl.security.contract import Attack
from codedfl.security.scoring import Truth, area_under_curve, score
from codedfl.security.views.kinds import MembershipView

ATTACKS = [Leverage(), Decomposition()]


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """Features of all digits in random order, 150 of each."""
    images = np.random.default_rng(0).permutation(load_digits().data / 16)
    return FeatureMap.create("rbf", inputs=64, dimension=150, gamma=0.1, dtype="float64").transform(images)


def split(features: np.ndarray, members: int, strangers: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A of the members, the candidates, and who of them is a member."""
    inside = features[:members]
    A = np.zeros((features.shape[1], features.shape[1]))
    for point in inside:
        A += np.outer(point, point)
    return A, features[: members + strangers], np.arange(members + strangers) < members


def noise(A: np.ndarray, size: float, seed: int = 0) -> np.ndarray:
    """Symmetric noise of that relative size in the Frobenius norm."""
    drawn = np.random.default_rng(seed).standard_normal(A.shape)
    drawn += drawn.T
    return drawn * (size * np.linalg.norm(A) / np.linalg.norm(drawn))


def area(attack: Attack[MembershipView], A: np.ndarray, candidates: np.ndarray, members: np.ndarray) -> float:
    found = score(attack.run(MembershipView(A, candidates), np.random.default_rng(0)), Truth(members=members))
    assert found.auc is not None
    return found.auc


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("members", [60, 180])
def test_members_are_told(attack: Attack[MembershipView], members: int, digits: np.ndarray) -> None:
    """Fewer points than features, and the paper's ratio of 1.2 points to a feature."""
    assert area(attack, *split(digits, members)) > 0.9


def test_decomposition_leaves_no_doubt(digits: np.ndarray) -> None:
    A, candidates, members = split(digits, 180)
    weights = Decomposition().run(MembershipView(A, candidates), np.random.default_rng(0)).membership
    assert weights is not None
    # 580 unknown weights, 150 * 151 / 2 equations that hold with 1 and 0
    assert np.abs(weights - members).max() < 0.1


def test_members_that_are_no_candidates_do_not_save_the_others(digits: np.ndarray) -> None:
    A, candidates, members = split(digits, 180)
    assert area(Decomposition(), A, candidates[90:], members[90:]) > 0.9


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("error", [2e-6, 1e-5])
def test_a_recovered_matrix_serves_as_well(attack: Attack[MembershipView], error: float, digits: np.ndarray) -> None:
    A, candidates, members = split(digits, 180)
    true, recovered = (area(attack, matrix, candidates, members) for matrix in (A, A + noise(A, error)))
    assert recovered == pytest.approx(true, abs=1e-3)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_matrix_of_others_tells_nothing(attack: Attack[MembershipView], digits: np.ndarray) -> None:
    _, candidates, members = split(digits, 180)
    A, _, _ = split(digits[::-1], 180)
    found = score(attack.run(MembershipView(A, candidates), np.random.default_rng(0)), Truth(members=members))
    assert found.verdict == "holds"


@given(seed=st.integers(0, 2**31), members=st.integers(1, 30))
def test_no_member_has_a_leverage_above_one(seed: int, members: int) -> None:
    x = np.random.default_rng(seed).standard_normal((members, 12))
    scores = Leverage(error=0).run(MembershipView(x.T @ x, x), np.random.default_rng(0)).membership
    assert scores is not None
    # the floor at d u |A| against the rounding of A's own eigenvalues, of the same size
    assert scores.min() >= -1 - 12 * 12 * np.finfo(np.float64).eps * np.linalg.cond(x.T) ** 2


@given(seed=st.integers(0, 2**31))
def test_leverage_is_the_diagonal_of_the_hat_matrix(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((40, 12))
    Q = np.linalg.qr(x)[0]
    scores = Leverage(error=0).run(MembershipView(x.T @ x, x), np.random.default_rng(0)).membership
    limit = 40 * 12 * np.finfo(np.float64).eps * np.linalg.cond(x) ** 2
    np.testing.assert_allclose(scores, -np.sum(Q**2, axis=1), atol=limit)


def test_the_floor_is_the_spectral_norm_of_the_noise() -> None:
    x = np.random.default_rng(0).standard_normal((600, 400))
    A = x.T @ x
    # the largest eigenvalue of a Wigner matrix strays from its limit by d^(-2/3), here 2%
    assert noise_floor(A, RECOVERED_ERROR) == pytest.approx(np.linalg.norm(noise(A, RECOVERED_ERROR), 2), rel=0.06)


def test_groups_need_no_order(digits: np.ndarray) -> None:
    A, candidates, members = split(digits, 180)
    assert area(Decomposition(group_size=300), A, candidates, members) > 0.95


def test_odd_candidates_do_not_stop_it(digits: np.ndarray) -> None:
    """Twice the same, nothing but zeros, a matrix of zeros."""
    A, candidates, _ = split(digits, 20, 5)
    odd = np.concatenate([candidates, candidates, np.zeros((1, 150))])
    for matrix in (A, np.zeros_like(A)):
        for attack in ATTACKS:
            scores = attack.run(MembershipView(matrix, odd), np.random.default_rng(0)).membership
            assert scores is not None
            assert np.isfinite(scores).all()


def test_area_by_counting_pairs(digits: np.ndarray) -> None:
    A, candidates, members = split(digits, 30, 20)
    scores = Leverage().run(MembershipView(A, candidates), np.random.default_rng(0)).membership
    assert scores is not None
    wins = np.mean(scores[members][:, None] > scores[~members][None, :])
    assert area_under_curve(scores, members) == pytest.approx(wins)
