"""An audit step by step: canaries, the best linear guess as a regression, and what counts as right."""

from math import exp, sqrt
from typing import Any

import numpy as np
import pytest

from codedfl.privacy.accounting import epsilon_of
from codedfl.privacy.audit import Canaries, epsilon_bound, probability_of
from codedfl.privacy.release import Release

RELEASE = Release.plan(
    epsilon=2.0,
    delta=1e-5,
    clip_features=1.0,
    clip_targets=1.0,
    features=6,
    outputs=3,
    devices=5,
    largest_rows=9,
    records=45,
    colluding=2,
)
S, T = RELEASE.least_gram_std, RELEASE.least_moments_std


def whitened(gram: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """All numbers of a release in units of their noise: its variance is s^2 twice above the diagonal, and t^2."""
    return np.concatenate([gram.ravel() / (sqrt(2) * S), moments.ravel() / T])


def drawn(count: int, seed: int) -> tuple[Canaries, np.ndarray, np.ndarray, np.ndarray]:
    """Canaries, their coins, and sums with so much noise that some guesses are wrong."""
    rng = np.random.default_rng(seed)
    canaries, included = Canaries.draw(count, 6, 3, rng), rng.random(count) < 0.5
    x, y = canaries.x[included], canaries.y[included]
    noise = np.triu(rng.standard_normal((6, 6)))
    gram = x.T @ x + S * (noise + noise.T)  # sqrt(2) times as much on the diagonal, where both parts meet: 2
    return canaries, included, gram, x.T @ y + T * rng.standard_normal((6, 3))


def test_canaries_have_norm_one_and_one_target_of_each_kind() -> None:
    canaries = Canaries.draw(200, 5, 3, np.random.default_rng(0))
    assert (canaries.x.shape, canaries.y.shape) == ((200, 5), (200, 3))
    np.testing.assert_allclose(np.linalg.norm(canaries.x, axis=1), 1, rtol=1e-12)
    assert sorted(map(tuple, np.unique(canaries.y, axis=0).tolist())) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert np.all(abs(canaries.x.mean(axis=0)) < 5 / sqrt(5 * 200))


class TestAudit:
    @pytest.mark.parametrize(("count", "seed"), [(1, 0), (2, 1), (9, 2), (20, 3)])
    def test_it_is_the_regression_of_the_release_on_the_canaries(
        self, count: int, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Coins of mean 1/2 and variance 1/4 are four rows of weight, and the noise in their directions is a residue.

        Guesses are those farthest from 1/2; each number of them has a seventh of 5%.
        """
        bounded: list[tuple[Any, ...]] = []

        def recorded(*arguments: Any) -> float:
            bounded.append(arguments)
            return float(-abs(len(bounded) - 3))

        monkeypatch.setattr("codedfl.privacy.audit.epsilon_bound", recorded)
        canaries, included, gram, moments = drawn(count, seed)
        found = canaries.audit(gram, moments, included, RELEASE)

        rows = zip(canaries.x, canaries.y, strict=True)
        shown = np.array([whitened(np.outer(x, x), np.outer(x, y)) for x, y in rows]).T
        release = whitened(gram, moments)
        weighted, wanted = np.vstack([shown, 2 * np.eye(count)]), np.append(release, np.ones(count))
        coins = np.linalg.lstsq(weighted, wanted)[0]
        order = sorted(range(count), key=lambda canary: -abs(coins[canary] - 0.5))
        right = [bool(coins[canary] > 0.5) == included[canary] for canary in order]
        assert count < 9 or 0 < sum(right) < count, "some guesses have to be wrong"
        guesses = [max(1, count // share) for share in (1, 2, 4, 8, 16, 32, 64)]
        assert [arguments[:4] for arguments in bounded] == [(count, r, sum(right[:r]), 1e-5) for r in guesses]
        assert [arguments[4] for arguments in bounded] == pytest.approx([1 - 0.05 / 7] * 7, rel=1e-12)
        assert (found.bound, found.canaries, found.guesses) == (0, count, guesses[2])
        assert found.right == sum(right[: guesses[2]])

        rest = release - shown @ included
        noise = np.linalg.norm(shown @ np.linalg.lstsq(shown, rest)[0])
        assert found.estimate == pytest.approx(epsilon_of(RELEASE.mu * sqrt(count) / noise, 1e-5), rel=1e-6)


@pytest.mark.parametrize("included", [False, True])
def test_a_canary_of_which_a_half_is_there_is_guessed_to_be_left_out(included: bool) -> None:
    canary = Canaries(np.eye(6)[:1], np.eye(3)[:1])
    gram, moments = canary.x.T @ canary.x / 2, canary.x.T @ canary.y / 2
    assert canary.audit(gram, moments, np.array([included]), RELEASE).right == (not included)


class TestBound:
    def test_no_right_guess_is_certain(self) -> None:
        assert probability_of(20, 4, 0, 0.5, 1e-3) == 1.0

    def test_a_probability_is_at_most_one(self) -> None:
        assert probability_of(1000, 4, 1, 0.0, 0.1) == 1.0

    def test_one_right_guess(self) -> None:
        """P[V = 1] + 2 m delta P[V = 0], with one guess."""
        q = 1 / (1 + exp(-1.5))
        assert probability_of(7, 1, 1, 1.5, 1e-3) == pytest.approx(q + 14e-3 * (1 - q), rel=1e-12)

    def test_every_canary_may_be_guessed(self) -> None:
        """q^9 = 5% at the bound where all nine are right and delta is zero."""
        q = 0.05 ** (1 / 9)
        assert exp(epsilon_bound(9, 9, 9, 0.0)) == pytest.approx(q / (1 - q), rel=1e-5)

    def test_more_confidence_refutes_less(self) -> None:
        q = 0.01 ** (1 / 9)
        assert exp(epsilon_bound(9, 9, 9, 0.0, 0.99)) == pytest.approx(q / (1 - q), rel=1e-5)
