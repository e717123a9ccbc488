"""Lower bounds on epsilon: against exact binomial limits, a sum by hand, and noise of known size."""

from math import comb, exp, log

import numpy as np
import pytest
import scipy

from codedfl.privacy.accounting import epsilon_of, mu_of
from codedfl.privacy.audit import Audit, Canaries, epsilon_bound, probability_of
from codedfl.privacy.noise import noisy
from codedfl.privacy.release import Release

FEATURES, OUTPUTS, DEVICES, COUNT = 60, 4, 3, 300


class TestBound:
    @pytest.mark.parametrize(("guesses", "right"), [(100, 90), (40, 40), (500, 300)])
    def test_without_delta_it_is_the_exact_binomial_limit(self, guesses: int, right: int) -> None:
        # Clopper and Pearson: the least accuracy that is not refuted, as the epsilon of randomised response
        limits = scipy.stats.binomtest(right, guesses, alternative="greater").proportion_ci(0.95, "exact")
        expected = log(limits.low / (1 - limits.low))
        assert epsilon_bound(1000, guesses, right, 0.0) == pytest.approx(expected, abs=1e-5)

    def test_delta_counts_by_the_theorem(self) -> None:
        q, delta, canaries = exp(0.5) / (1 + exp(0.5)), 1e-3, 20
        law = [comb(4, k) * q**k * (1 - q) ** (4 - k) for k in range(5)]
        alpha = max(law[2], (law[2] + law[1]) / 2, (law[2] + law[1] + law[0]) / 3)
        expected = law[3] + law[4] + 2 * canaries * delta * alpha
        assert probability_of(canaries, 4, 3, 0.5, delta) == pytest.approx(expected, rel=1e-12)

    def test_chance_refutes_nothing(self) -> None:
        assert epsilon_bound(1000, 100, 50, 1e-5) == 0.0
        assert epsilon_bound(1000, 100, 0, 1e-5) == 0.0

    @pytest.mark.parametrize(("guesses", "right"), [(0, 1), (5, 6), (11, 3), (5, -1)])
    def test_impossible_counts_are_refused(self, guesses: int, right: int) -> None:
        with pytest.raises(ValueError, match="cannot be"):
            epsilon_bound(10, guesses, right, 1e-5)

    def test_more_delta_allows_more(self) -> None:
        assert epsilon_bound(1000, 100, 90, 1e-4) < epsilon_bound(1000, 100, 90, 0.0)


def planned(epsilon: float) -> Release:
    return Release.plan(
        epsilon=epsilon,
        delta=1e-5,
        clip_features=1.0,
        clip_targets=1.0,
        features=FEATURES,
        outputs=OUTPUTS,
        devices=DEVICES,
        largest_rows=COUNT,
        records=DEVICES * COUNT,
    )


def audited(stated: float, added: float, number: int) -> Audit:
    """Audit noise for one epsilon, stated to be for another."""
    rng = np.random.default_rng(number)
    canaries, included = Canaries.draw(COUNT, FEATURES, OUTPUTS, rng), rng.random(COUNT) < 0.5
    gram, moments = np.zeros((FEATURES, FEATURES)), np.zeros((FEATURES, OUTPUTS))
    for device in range(DEVICES):
        own = included & (np.arange(COUNT) % DEVICES == device)
        x, y = canaries.x[own], canaries.y[own]
        seed = bytes([number, device] * 16)
        noised = noisy(x.T @ x, x.T @ y, planned(added), seed)
        gram, moments = gram + noised[0], moments + noised[1]
    return canaries.audit(gram, moments, included, planned(stated))


class TestAudit:
    @pytest.mark.parametrize("epsilon", [1.0, 4.0])
    def test_the_noise_of_a_release_is_never_refuted(self, epsilon: float) -> None:
        found = [audited(epsilon, epsilon, number) for number in range(5)]
        assert max(audit.bound for audit in found) < epsilon
        # noise in 300 directions is known to 1 / sqrt(600) = 4%, and five times to 2%
        assert np.mean([audit.estimate for audit in found]) == pytest.approx(epsilon, rel=0.08)

    def test_a_quarter_of_the_noise_is_found_out(self) -> None:
        true = epsilon_of(4 * mu_of(1.0, 1e-5), 1e-5)
        found = [audited(1.0, true, number) for number in range(5)]
        assert min(audit.bound for audit in found) > 0.5
        assert np.mean([audit.estimate for audit in found]) == pytest.approx(true, rel=0.08)

    def test_of_few_canaries_one_is_guessed_at_least(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All, a half, a quarter ... of five; from no guess at all there is no bound."""
        bounded = []

        def recorded(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
            bounded.append((canaries, guesses))
            return 0.0

        monkeypatch.setattr("codedfl.privacy.audit.epsilon_bound", recorded)
        drawn = Canaries.draw(5, FEATURES, OUTPUTS, np.random.default_rng(0))
        drawn.audit(drawn.x.T @ drawn.x, drawn.x.T @ drawn.y, np.ones(5, bool), planned(1.0))
        assert bounded == [(5, guesses) for guesses in (5, 2, 1, 1, 1, 1, 1)]
