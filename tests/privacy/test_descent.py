"""Plans of gradient descent with noise: budgets over epochs, what is stated after fewer of them, and the noise."""

from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2

from codedfl.cipher.seals import Seed
from codedfl.errors import DataError, UsageError
from codedfl.privacy.descent import GradientRelease, noisy_gradient
from codedfl.privacy.sampling import discrete_gaussian

PAPER: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "clip_features": 1.0,
    "clip_residuals": 0.5,
    "epochs": 80,
    "features": 2000,
    "outputs": 10,
    "devices": 25,
    "largest_rows": 2400,
    "records": 60_000,
}


def plan(**changes: Any) -> GradientRelease:
    return GradientRelease.plan(**PAPER | changes)


def multiplier(release: GradientRelease) -> float:
    """Noise of the honest devices over the sensitivity, of one epoch, from the steps that are drawn."""
    return float(np.sqrt(release.honest) * release.steps * 2.0**-release.bits / release.sensitivity)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("changes", [{}, {"epochs": 1}, {"epochs": 500, "delta": 1e-8}, {"colluding": 20}], ids=str)
def test_epochs_add_up_as_in_dp_accounting(epsilon: float, changes: dict[str, Any]) -> None:
    release = plan(epsilon=epsilon, **changes)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier(release)), release.releases)
    assert release.epsilon == pytest.approx(accountant.get_epsilon(release.delta), rel=1e-3)
    assert 0.999 * epsilon < release.epsilon <= epsilon


def test_noise_is_that_of_the_clips() -> None:
    """sqrt(epochs) C R / mu, with mu(1, 1e-5) = 0.2681 (Balle and Wang's formula), but for the rounding to a grid."""
    assert plan().std == pytest.approx(np.sqrt(80) * 0.5 / 0.26805, rel=1e-3)
    assert plan(colluding=9).std == pytest.approx(np.sqrt(25 / 16) * plan().std, rel=1e-3)
    device, record = plan(unit="device", most_rows=30, delta=1e-3), plan(delta=1e-3, records=99)
    assert device.std == pytest.approx(30 * record.std, rel=1e-3)


def test_lost_devices_count_as_those_that_collude() -> None:
    """Of 25 devices 9 and 6 are not counted on; every other one adds a tenth of what is needed."""
    release = plan(colluding=9, losses=6)
    assert release.std == pytest.approx(np.sqrt(25 / 10) * plan().std, rel=1e-3)
    assert [release.counted(colluding) for colluding in (0, 9, 19)] == [19, 10, 0]
    assert release.honest == 10
    assert release.epsilon_against(19) == np.inf


def test_rounding_to_the_grid_is_part_of_the_sensitivity() -> None:
    """20,000 entries change by a step more: sqrt(20,000) steps; roundings of sums are below 2400 * 2400 * 2^-51."""
    release = plan()
    assert release.sensitivity == pytest.approx(0.5 + np.sqrt(20_000) * 2.0**-release.bits, rel=5e-9)


def test_the_grid_leaves_room_for_sums_of_all_devices() -> None:
    """2^20 devices of 2^20 rows, and as much for noise: 2^41 clips of 2^4, so 2^52 steps are 2^7 steps of one."""
    sizes = {"devices": 2**20, "largest_rows": 2**20, "records": 2**40, "delta": 1e-13, "epochs": 1}
    assert plan(clip_features=2.0, clip_residuals=8.0, features=30, **sizes).bits == 7


def test_who_colludes_takes_its_noise_away() -> None:
    release = plan(colluding=5)
    assert release.epsilon_against(5) == pytest.approx(release.epsilon)
    assert release.epsilon_against(15) == pytest.approx(plan(epsilon=release.epsilon_against(15)).epsilon, rel=1e-6)
    assert release.epsilon_against(4) < release.epsilon < release.epsilon_against(6)
    assert release.epsilon_against(25) == np.inf


def test_the_table_says_what_is_released() -> None:
    table = plan(known_seed=True).to_table()
    assert (table["releases"], table["clip_residuals"]) == (80, 0.5)
    assert table["gradient_noise_std"] == plan().std
    assert table["statement"].startswith("noise from a known seed: protects nothing")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epochs": 0}, "0 releases"),
        ({"clip_residuals": 0.0}, "privacy.clip_residuals is 0"),
        ({"clip_residuals": float("nan")}, "privacy.clip_residuals is nan"),
        ({"epsilon": 0.0}, "privacy.epsilon"),
        ({"delta": 1e-4}, "too large for 60000 records"),
        ({"colluding": 25}, "leave none"),
        ({"unit": "device"}, "most_rows"),
    ],
)
def test_impossible_plans_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        plan(**changes)


class TestNoise:
    def drawn(self, epoch: int = 1, digest: bytes = b"model", seed: int = 0, **changes: Any) -> np.ndarray:
        release = plan(features=200, **changes)
        return noisy_gradient(np.zeros((200, 10)), release, bytes([seed]) * 32, epoch, digest)

    def test_it_is_a_function_of_seed_epoch_and_model(self) -> None:
        first = self.drawn()
        np.testing.assert_array_equal(first, self.drawn())
        for other in (self.drawn(epoch=2), self.drawn(digest=b"other"), self.drawn(seed=1)):
            assert np.mean(first == other) < 0.01

    def test_it_is_drawn_from_a_seed_of_its_own(self) -> None:
        release = plan(features=3, outputs=2)
        key = Seed(bytes(32)).derive(b"codedfl noise of a gradient 1 7 00ff")
        expected = discrete_gaussian(release.steps, 6, key).reshape(3, 2) + 2**release.bits
        np.testing.assert_array_equal(noisy_gradient(np.ones((3, 2)), release, bytes(32), 7, b"\x00\xff"), expected)

    def test_its_variance_is_the_planned_one(self) -> None:
        steps = self.drawn() / plan(features=200).steps
        low, high = chi2.ppf([1e-4, 1 - 1e-4], steps.size)
        assert low < np.sum(steps**2) < high

    def test_it_is_added_to_the_rounded_gradient(self) -> None:
        release = plan(features=200)
        gradient = np.random.default_rng(0).uniform(-1, 1, (200, 10))
        found = noisy_gradient(gradient, release, bytes(32), 1, b"model") - self.drawn()
        assert np.abs(found - gradient * 2.0**release.bits).max() <= 0.5

    @pytest.mark.parametrize("entry", [1201.0, np.nan, np.inf])
    def test_what_clipped_gradients_cannot_reach_is_refused(self, entry: float) -> None:
        with pytest.raises(DataError, match="larger than 1200"):
            noisy_gradient(np.full((2000, 10), entry), plan(), bytes(32), 1, b"")
