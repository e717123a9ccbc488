"""Sums with noise in detail: eigenvalues and slopes, the standard error of the loss, and where the weight is sought."""

import itertools
import math

import numpy as np
import pytest

from codedfl.solvers import Noise
from codedfl.solvers.contract import edge
from codedfl.solvers.shrinkage import Spectrum, estimated_loss, noise_weight, shrunk_spectrum, standard_error

PLAIN = Noise(0.03, 0.05)


def plain_spectrum(values: np.ndarray, shrunk: np.ndarray | None = None) -> Spectrum:
    """A spectrum in the directions of the features, by default without noise: all slopes are 1."""
    d = len(values)
    return Spectrum(values, np.eye(d), values if shrunk is None else shrunk, np.ones((d, d)) + np.eye(d))


@pytest.mark.parametrize("noise", [0.01, 1e6])
def test_eigenvalues_that_lie_apart_are_moved_by_the_formula(noise: float) -> None:
    """At distances of ten standard deviations and more, one by one; nothing is reordered or negative."""
    values = noise * (100 + 10 * np.arange(30))
    moved = [one - 2 * noise**2 * sum(1 / (one - other) for other in values if other != one) for one in values.tolist()]
    spectrum = shrunk_spectrum(np.diag(values), noise)
    assert spectrum.values == pytest.approx(values, rel=1e-14)
    assert spectrum.shrunk == pytest.approx(moved, abs=1e-8 * noise)


def test_slopes_are_quotients_and_twice_one_on_the_diagonal() -> None:
    """Beyond the noise: differences of shrunk eigenvalues by those of eigenvalues. What is shrunk to zero is flat."""
    values = np.array([-1.0, 2.0, 3.0, 5.0])
    spectrum = shrunk_spectrum(np.diag(values), 0.01)
    assert spectrum.shrunk[0] == 0
    for i, j in itertools.permutations(range(4), 2):
        quotient = (spectrum.shrunk[i] - spectrum.shrunk[j]) / (values[i] - values[j])
        assert spectrum.slopes[i, j] == pytest.approx(quotient, rel=1e-9)
    assert np.diag(spectrum.slopes).tolist() == [0.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0, 1000.0])
def test_eigenvalues_nearer_than_the_noise_become_equal(share: float) -> None:
    """Whatever the repulsion between two, in units of 1e-3 s / sqrt(d), their order stays and so does their sum."""
    noise = 0.01
    gap = share * 1e-3 * noise / math.sqrt(2)
    spectrum = shrunk_spectrum(np.diag([1.0, 1.0 + gap]), noise)
    assert spectrum.shrunk == pytest.approx([1 + gap / 2, 1 + gap / 2], rel=1e-12)
    assert spectrum.slopes == pytest.approx(2 * np.eye(2), abs=1e-12)


def test_the_standard_error_is_that_of_a_linear_form() -> None:
    """Squared coefficients of the independent normal variables that E and F are made of, one by one."""
    d, noise, rng = 3, Noise(0.3, 0.7), np.random.default_rng(2)
    shrunk, rotated = np.array([0.5, 1.0, 2.0]), rng.standard_normal((d, 2))
    model = rotated / (shrunk + 0.25)[:, None]
    variance = float(np.sum((2 * noise.moments * model) ** 2))
    for i, j in itertools.combinations_with_replacement(range(d), 2):
        unit = np.zeros((d, d))
        unit[i, j] = unit[j, i] = noise.gram * (math.sqrt(2) if i == j else 1)
        variance += float(np.sum(model * (unit @ model))) ** 2
    found = standard_error(plain_spectrum(shrunk), rotated, 0.25, noise)
    assert found == pytest.approx(math.sqrt(variance), rel=1e-12)


def bound(spectrum: Spectrum, rotated: np.ndarray, weight: float, noise: Noise) -> float:
    return estimated_loss(spectrum, rotated, weight, noise) + 2 * standard_error(spectrum, rotated, weight, noise)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_the_weight_has_the_least_bound_or_a_share_of_it_for_labels(seed: int, ridge: float) -> None:
    """No point of a grid that is ten times as fine has a smaller bound; the minimum lies inside."""
    rng, d = np.random.default_rng(seed), 12
    spectrum = plain_spectrum(np.geomspace(0.05, 1, d))
    rotated = spectrum.values[:, None] * 0.3 * rng.standard_normal((d, 2)) + PLAIN.moments * rng.standard_normal((d, 2))
    least = 0.1 * edge(PLAIN.gram, d)
    found = noise_weight(spectrum, rotated, ridge, PLAIN, labels=False)
    assert 3 * least < found < 10
    reached = bound(spectrum, rotated, ridge + found, PLAIN)
    for weight in np.geomspace(least, 100 * (least + 1), 400).tolist():
        assert reached <= bound(spectrum, rotated, ridge + weight, PLAIN)
    assert noise_weight(spectrum, rotated, ridge, PLAIN, labels=True) == pytest.approx(0.4 * found, rel=1e-12)


def test_beside_a_large_ridge_term_the_weight_is_the_least() -> None:
    """A tenth of the edge, 0.2 s sqrt(d): the bound grows from there on, and a search ends within 1e-5 of the end."""
    noise = Noise(1e-4, 1e-6)
    spectrum = plain_spectrum(np.array([1.0, 1.2, 1.5, 2.0]))
    rotated = np.full((4, 1), 0.1)
    least = 0.2 * 1e-4 * 2
    assert noise_weight(spectrum, rotated, 0.5, noise, labels=False) == pytest.approx(least, rel=1e-3)
    assert noise_weight(spectrum, rotated, 0.5, noise, labels=True) == pytest.approx(least, rel=1e-12)


def test_targets_that_are_noise_alone_have_the_largest_weight() -> None:
    """The bound falls up to the end of the search, a hundred times the largest eigenvalue and the least weight."""
    noise = Noise(0.01, 1.0)
    spectrum = plain_spectrum(np.array([0.5, 1.0, 1.5, 2.0]))
    found = noise_weight(spectrum, np.full((4, 1), 0.1), 0.0, noise, labels=False)
    assert found == pytest.approx(100 * (0.2 * 0.01 * 2 + 2.0), rel=1e-3)
