"""Sums with noise: shrunk eigenvalues, the estimate of the loss, and the ridge weight that keeps systems definite."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import TrainingError
from codedfl.solvers import ClosedForm, Conditions, Noise, Solver, noise_ridge
from codedfl.solvers.shrinkage import Spectrum, estimated_loss, shrunk_solutions, shrunk_spectrum
from solvers.quadratics import ALL_SOLVERS, advance, awkward_rows, quadratic

EPSILON = float(np.finfo(float).eps)


def symmetric_noise(d: int, std: float, rng: np.random.Generator) -> np.ndarray:
    square = rng.standard_normal((d, d))
    return std / math.sqrt(2) * (square + square.T)


def rotation(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def noisy(d: int, noise: Noise, seed: int, outputs: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Sums of a decaying spectrum whose smaller half is below the noise, with noise."""
    rng, clean = np.random.default_rng([seed, 1]), quadratic(np.geomspace(1e-3, 1, d), outputs, seed=seed)
    gram = clean.A + symmetric_noise(d, noise.gram, rng)
    return gram, clean.A @ clean.B + noise.moments * rng.standard_normal(clean.B.shape)


def one_solution(gram: np.ndarray, moments: np.ndarray, ridge: float, noise: Noise, labels: bool = False) -> np.ndarray:
    return np.asarray(shrunk_solutions(gram, moments, [ridge], noise, labels=labels)[0])


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_noise_without_a_positive_size_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="gram"):
        Noise(value, 1.0)
    with pytest.raises(ValueError, match="moments"):
        Noise(1.0, value)


@pytest.mark.parametrize("d", [1, 5, 60])
@pytest.mark.parametrize("labels", [False, True])
def test_small_noise_leaves_the_plain_solution(d: int, labels: bool) -> None:
    """The error falls with the noise: a tenth of the noise, at most a fifth of the error; the rest is rounding."""
    clean = quadratic(np.geomspace(1e-2, 1, d), 3, ridge=1e-3)
    rng = np.random.default_rng(1)
    gram_noise, moments_noise = symmetric_noise(d, 1.0, rng), rng.standard_normal(clean.B.shape)
    errors = []
    for size in 10.0 ** -np.arange(5, 11):
        found = one_solution(
            clean.A + size * gram_noise, clean.B + size * moments_noise, 1e-3, Noise(size, size), labels
        )
        errors.append(np.linalg.norm(found - clean.solution) / np.linalg.norm(clean.solution))
    assert np.all(np.divide(errors[1:], errors[:-1]) < 0.2)
    assert errors[-1] < 1e-6


def test_tiny_noise_on_rows_of_a_regression_leaves_least_squares() -> None:
    """By another way: numpy's least squares on the rows, of five features and without a ridge term."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 5))
    y = x @ rng.standard_normal((5, 2)) + 0.3 * rng.standard_normal((40, 2))
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    noise = Noise(1e-10, 1e-10)
    gram = x.T @ x / 40 + symmetric_noise(5, noise.gram, rng)
    found = one_solution(gram, x.T @ y / 40 + noise.moments * rng.standard_normal((5, 2)), 0.0, noise)
    assert np.linalg.norm(found - expected) <= 1e-7 * np.linalg.norm(expected)


@settings(max_examples=20, deadline=None)
@given(d=st.integers(1, 12), seed=st.integers(0, 10**6), labels=st.booleans())
def test_the_solution_turns_with_the_features(d: int, seed: int, labels: bool) -> None:
    noise = Noise(0.03, 0.05)
    gram, moments = noisy(d, noise, seed)
    turn = rotation(d, np.random.default_rng([seed, 2]))
    first = one_solution(gram, moments, 1e-3, noise, labels)
    turned = one_solution(turn @ gram @ turn.T, turn @ moments, 1e-3, noise, labels)
    assert np.linalg.norm(turned - turn @ first) <= 1e-6 * np.linalg.norm(first), "1e-6: where a search ends"


@settings(max_examples=20, deadline=None)
@given(d=st.integers(1, 12), seed=st.integers(0, 10**6), exponent=st.integers(-20, 20))
def test_the_solution_scales_with_targets_and_with_features(d: int, seed: int, exponent: int) -> None:
    """B and its noise times a; A, its noise and the ridge weight times a divide the model by a."""
    noise, factor = Noise(0.03, 0.05), 2.0**exponent
    gram, moments = noisy(d, noise, seed)
    first = one_solution(gram, moments, 1e-3, noise)
    targets = one_solution(gram, factor * moments, 1e-3, Noise(0.03, factor * 0.05))
    features = one_solution(factor * gram, moments, factor * 1e-3, Noise(factor * 0.03, 0.05))
    for found, expected in [(targets, factor * first), (features, first / factor)]:
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


def test_eigenvalues_beyond_the_edge_follow_the_law_of_spikes() -> None:
    """Spikes l far above the edge appear at l + d s^2 / l, and v^T A v is l - d s^2 / l (Benaych-Georges and
    Nadakuditi 2011, section 3.1, as d grows). Both fluctuate as v^T E v, by sqrt(2) s; four times that is allowed."""
    d, noise, spikes = 400, 0.01, np.array([2.0, 1.0, 0.6])
    rng = np.random.default_rng(0)
    gram = np.diag(np.pad(spikes, (0, d - 3))) + symmetric_noise(d, noise, rng)
    spectrum = shrunk_spectrum(gram, noise)
    values, shrunk = spectrum.values[:-4:-1], spectrum.shrunk[:-4:-1]
    allowed = 4 * math.sqrt(2) * noise
    assert np.all(abs(values - (spikes + d * noise**2 / spikes)) < allowed)
    assert np.all(abs(shrunk - (spikes - d * noise**2 / spikes)) < allowed)
    debiased = (values + np.sqrt(values**2 - 4 * d * noise**2)) / 2
    assert np.all(abs(debiased - spikes) < allowed)
    assert spectrum.shrunk[:-3].max() < 0.25 * 2 * noise * math.sqrt(d), "what the noise adds alone is shrunk to zero"


def test_shrunk_eigenvalues_are_those_of_the_true_matrix_in_the_noisy_directions() -> None:
    """Mean distance to v_i^T A v_i, which the server cannot know: within the sqrt(2) s by which v^T E v fluctuates
    in one direction, and the eigenvalues as they are miss by more than five times that."""
    d, noise = 300, 0.02
    clean = quadratic(np.geomspace(1e-3, 1, d)[::-1], 1).A
    spectrum = shrunk_spectrum(clean + symmetric_noise(d, noise, np.random.default_rng(4)), noise)
    truth = np.einsum("ij,ij->j", spectrum.vectors, clean @ spectrum.vectors)
    assert np.all(np.diff(spectrum.shrunk) >= 0)
    assert spectrum.shrunk[0] >= 0
    assert spectrum.shrunk.sum() == pytest.approx(np.trace(clean), rel=0.03)
    assert abs(spectrum.shrunk - truth).mean() < math.sqrt(2) * noise
    assert abs(spectrum.values - truth).mean() > 5 * math.sqrt(2) * noise


@pytest.mark.parametrize("seed", range(3))
def test_the_model_is_better_than_without_shrinkage(seed: int) -> None:
    """Squared error on the data, against the smallest ridge weight that keeps the system definite."""
    d, noise = 200, Noise(0.01, 0.02)
    rng, base = np.random.default_rng([seed, 1]), quadratic(np.geomspace(1e-3, 1, d), 3, seed=seed)
    truth = base.B / math.sqrt(d)
    gram = base.A + symmetric_noise(d, noise.gram, rng)
    moments = base.A @ truth + noise.moments * rng.standard_normal(truth.shape)

    def excess(model: np.ndarray) -> float:
        return float(np.sum((model - truth) * (base.A @ (model - truth))))

    ours = excess(one_solution(gram, moments, 0.0, noise))
    assert ours < excess(np.linalg.solve(gram + noise_ridge(noise, d) * np.eye(d), moments))
    assert ours < 0.1 * excess(np.linalg.solve(gram, moments))
    assert ours < excess(np.zeros_like(truth))


@pytest.mark.parametrize(
    ("noise", "draws", "share"),
    [(Noise(0.05, 0.3), 6000, 0.1), (Noise(0.1, 0.01), 2000, 0.3)],
    ids=["in targets", "in Gram matrices"],
)
def test_the_estimate_of_the_loss_has_no_bias(noise: Noise, draws: int, share: float) -> None:
    """Mean over draws of noise within four standard errors, with eigenvalues as they are (all slopes are 1)."""
    d, weight = 4, 0.8
    clean, rng = quadratic([0.2, 0.5, 0.9, 1.5], 2), np.random.default_rng(7)
    differences, sizes = [], []
    for _ in range(draws):
        gram = clean.A + symmetric_noise(d, noise.gram, rng)
        moments = clean.B + noise.moments * rng.standard_normal((d, 2))
        model = np.linalg.solve(gram + weight * np.eye(d), moments)
        values, vectors = np.linalg.eigh(gram)
        spectrum = Spectrum(values, vectors, values, np.ones((d, d)) + np.eye(d))
        loss = np.sum(model * (clean.A @ model)) - 2 * np.sum(model * clean.B)
        differences.append(estimated_loss(spectrum, vectors.T @ moments, weight, noise) - loss)
        sizes.append(np.sum(model**2))
    error = np.std(differences) / math.sqrt(draws)
    assert abs(np.mean(differences)) < 4 * error
    # what the terms of the noise add, about
    naive = 2 * (2 * noise.moments**2 * d + noise.gram**2 * np.mean(sizes) * (d + 1)) / (1 + weight)
    assert 4 * error < share * naive, "so the test sees this share of a term"


def test_targets_that_are_noise_alone_give_a_small_model() -> None:
    """Mean squared prediction over draws, against that of the smallest ridge weight that keeps systems definite."""
    d, noise, clean = 50, Noise(0.01, 0.1), quadratic(np.geomspace(1e-2, 1, 50), 1).A
    ours, plain = [], []
    for seed in range(30):
        rng = np.random.default_rng([seed, 1])
        gram = clean + symmetric_noise(d, noise.gram, rng)
        moments = noise.moments * rng.standard_normal((d, 3))
        ridged = np.linalg.solve(gram + noise_ridge(noise, d) * np.eye(d), moments)
        for kept, model in [(ours, one_solution(gram, moments, 0.0, noise)), (plain, ridged)]:
            kept.append(np.sum(model * (clean @ model)))
    assert np.mean(ours) < 0.1 * np.mean(plain)


@settings(max_examples=50, deadline=None)
@given(d=st.integers(1, 8), seed=st.integers(0, 10**6), size=st.floats(1e-6, 1e6), zero=st.booleans())
def test_models_are_bounded_by_the_noise_whatever_the_data(d: int, seed: int, size: float, zero: bool) -> None:
    """The weight is at least a tenth of the edge, so no data make the model larger than |B| over that."""
    noise = Noise(size, size)
    gram, moments = noisy(d, noise, seed)
    gram = gram * (not zero)  # equal eigenvalues
    model = one_solution(gram, moments, 0.0, noise, labels=True)
    assert np.linalg.norm(model) <= np.linalg.norm(moments) / (0.1 * 2 * size * math.sqrt(d)) * (1 + 1e-9)


def conditions(shape: tuple[int, int], ridge: object, noise: Noise | None, ridges: tuple = ()) -> Conditions:
    return Conditions(shape, ridge, lambda epoch: 0.1, 1e-8, EPSILON, ridges, noise)


def test_the_closed_form_takes_noise_for_one_weight_a_path_and_weights_of_features() -> None:
    noise = Noise(0.01, 0.02)
    gram, moments = noisy(9, noise, 5)
    path = (1e-3, 0.1, np.full((9, 1), 1e-3))
    single, several = (ClosedForm(conditions((9, 2), 1e-3, noise, ridges)) for ridges in [(), path])
    for working in (single, several):
        working.solve(gram, moments)
        assert working.finished
        assert np.array_equal(working.model, one_solution(gram, moments, 1e-3, noise))
    assert several.models.shape == (3, 9, 2)
    assert np.array_equal(several.models[1], one_solution(gram, moments, 0.1, noise))
    assert np.linalg.norm(several.models[2] - single.model) <= 1e-12 * np.linalg.norm(single.model)


def test_a_feature_without_weight_is_shrunk_less() -> None:
    """Weights of features are added to the matrix, not to eigenvalues: by the normal equations of the estimate."""
    noise, weights = Noise(0.01, 0.02), np.array([0.0, *np.full(8, 0.5)])[:, None]
    gram, moments = noisy(9, noise, 5)
    model = shrunk_solutions(gram, moments, [weights], noise, labels=False)[0]
    spectrum = shrunk_spectrum(gram, noise.gram)
    rest = moments - weights * model - (spectrum.vectors * spectrum.shrunk) @ (spectrum.vectors.T @ model)
    added = np.sum(rest * model) / np.sum(model**2)  # the rest is the weight of the noise times the model
    assert added > 0
    assert np.linalg.norm(rest - added * model) <= 1e-12 * np.linalg.norm(moments)


ITERATIVE = [name for name, kind in ALL_SOLVERS.items() if not kind.needs_sums]


@pytest.mark.parametrize("name", ITERATIVE)
def test_other_solvers_refuse_a_weight_with_which_the_system_may_be_indefinite(name: str) -> None:
    noise = Noise(0.01, 0.02)
    needed = noise_ridge(noise, 9)
    kind: type[Solver] = ALL_SOLVERS[name]
    kind(conditions((9, 2), needed, noise))
    kind(conditions((9, 2), needed / 2, None))
    small, path = needed * (1 - 1e-9), (needed, needed / 2)
    one_free = np.array([0.0, *np.full(8, needed)])[:, None]
    for ridge, ridges in [(small, ()), (one_free, ()), (needed, path)]:
        with pytest.raises(TrainingError, match=r"ridge weight .* indefinite .* task\.ridge"):
            kind(conditions((9, 2), ridge, noise, ridges))


@settings(max_examples=50, deadline=None)
@given(d=st.integers(1, 30), rank=st.integers(0, 30), seed=st.integers(0, 10**9), size=st.floats(1e-4, 10))
def test_the_weight_makes_every_noisy_system_definite_and_solvable(d: int, rank: int, seed: int, size: float) -> None:
    """Conjugate gradients reach the solution by numpy, for Gram matrices of any rank, zero among them."""
    rng, noise = np.random.default_rng(seed), Noise(size, size)
    x = rng.standard_normal((min(rank, d), d))
    gram = x.T @ x / d + symmetric_noise(d, size, rng)
    ridge = noise_ridge(noise, d)
    system = gram + ridge * np.eye(d)
    smallest = np.linalg.eigvalsh(system)[0]
    assert smallest > 0
    quadratics = quadratic(np.ones(d), 2, ridge=ridge, seed=seed % 1000)
    quadratics.A[:] = gram
    working = ALL_SOLVERS["conjugate-gradients"](conditions((d, 2), ridge, noise))
    for _ in range(20 * d + 20):
        if not working.finished:
            advance(working, quadratics)
    expected = np.linalg.solve(system, quadratics.B)
    assert np.linalg.norm(working.model - expected) <= 1e-7 * np.linalg.norm(quadratics.B) / smallest


@pytest.mark.parametrize("d", [1, 5, 40])
def test_the_weight_is_the_edge_and_a_margin(d: int) -> None:
    """By hand: exp(-u^2 / 4) = 1e-12 for u = 10.513; the largest of 2000 draws is well inside."""
    noise, rng = Noise(3.0, 1.0), np.random.default_rng(6)
    assert noise_ridge(noise, d) == pytest.approx(3 * (2 * math.sqrt(d) + 10.513), rel=1e-4)
    largest = max(np.linalg.eigvalsh(symmetric_noise(d, 3.0, rng))[-1] for _ in range(2000))
    assert 0.9 * 3 * 2 * math.sqrt(d) < largest < noise_ridge(noise, d)


def test_rows_with_collinear_columns_give_a_finite_model() -> None:
    x, y = awkward_rows("collinear")
    noise, rng = Noise(1e-4, 1e-4), np.random.default_rng(8)
    gram = x.T @ x / 40 + symmetric_noise(8, noise.gram, rng)
    model = one_solution(gram, x.T @ y / 40 + noise.moments * rng.standard_normal((8, 2)), 0.0, noise)
    best = np.sum((x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2)
    assert np.sum((x @ model - y) ** 2) < 1.01 * best
