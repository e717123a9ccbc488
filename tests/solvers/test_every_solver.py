"""What every solver owes: the first query, the stopping rule, equivariance, and going on with the same bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import TrainingError
from codedfl.solvers import Solver
from solvers.quadratics import ALL_SOLVERS, Quadratic, advance, models, quadratic, solver, stored
from tiny import gamma

EPOCHS = 12
EIGENVALUES = np.geomspace(1e-3, 1, 9)

pytestmark = pytest.mark.parametrize("name", ALL_SOLVERS)


def bits(working: Solver) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {key: (array.dtype.str, array.shape, array.tobytes()) for key, array in working.to_arrays().items()}


def test_a_solver_is_known_by_its_name_and_declares_itself(name: str) -> None:
    kind = ALL_SOLVERS[name]
    assert kind.name == name
    assert kind.block >= 1
    assert kind.stable_share is None or 0 < kind.stable_share <= 1
    assert kind.needs_exact or not kind.needs_sums


def test_it_begins_with_the_zero_model_and_asks_there_first(name: str) -> None:
    working = solver(name, quadratic(EIGENVALUES, 3))
    for array in (working.model, working.query()):
        assert array.shape == (9, 3)
        assert array.dtype == np.float64
        assert not array.any()
    assert not working.finished


def test_asking_changes_nothing(name: str) -> None:
    given_quadratic = quadratic(EIGENVALUES, 3, ridge=0.01)
    working = solver(name, given_quadratic)
    for _ in range(4):
        before = bits(working)
        assert np.array_equal(working.query(), working.query())
        assert bits(working) == before
        advance(working, given_quadratic)


@pytest.mark.parametrize("stop", range(EPOCHS))
def test_a_restored_solver_goes_on_with_the_same_bits(name: str, stop: int) -> None:
    """From the arrays of every epoch, for two outputs that are alike and one that is zero beside two others."""
    given_quadratic = quadratic(EIGENVALUES, 5, ridge=0.01)
    given_quadratic.B[:, 3], given_quadratic.B[:, 4] = given_quadratic.B[:, 1], 0
    whole, first = solver(name, given_quadratic), solver(name, given_quadratic)
    models(whole, given_quadratic, EPOCHS)
    models(first, given_quadratic, stop)
    again = solver(name, given_quadratic)
    again.restore(stored(first.to_arrays()))
    assert bits(again) == bits(first)
    models(again, given_quadratic, EPOCHS - stop)
    assert bits(again) == bits(whole)
    assert again.finished == whole.finished


def test_arrays_of_another_shape_are_refused(name: str) -> None:
    other = solver(name, quadratic(EIGENVALUES, 2)).to_arrays()
    with pytest.raises(ValueError, match=r"\(9, 2\).*\(9, 3\)"):
        solver(name, quadratic(EIGENVALUES, 3)).restore(other)


@settings(max_examples=25)
@given(exponent=st.integers(-60, 60), seed=st.integers(0, 10**6))
def test_scaled_targets_scale_the_model(name: str, exponent: int, seed: int) -> None:
    """By a power of two: to the last bit, for nothing but the exponents changes."""
    one = quadratic(EIGENVALUES, 2, ridge=0.01, seed=seed)
    other = Quadratic(one.A, 2.0**exponent * one.B, one.ridge)
    pairs = zip(models(solver(name, one), one, EPOCHS), models(solver(name, other), other, EPOCHS), strict=True)
    assert all(np.array_equal(2.0**exponent * theta, scaled) for theta, scaled in pairs)


def test_targets_of_zero_keep_the_zero_model_and_are_finished_at_once(name: str) -> None:
    given_quadratic = Quadratic(quadratic(EIGENVALUES, 2).A, np.zeros((9, 2)), 0.01)
    working = solver(name, given_quadratic)
    assert not np.any(models(working, given_quadratic, 5))
    stopping = solver(name, given_quadratic, tolerance=1e-3)
    advance(stopping, given_quadratic)
    assert stopping.finished


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_it_is_finished_at_a_gradient_as_small_as_wanted(name: str, tolerance: float) -> None:
    """At the last query, whose gradient was measured; its slope is at most what was wanted, and no earlier one was.

    That gives a bound on the error there: the smallest eigenvalue times it is at most the slope.
    """
    given_quadratic = quadratic(EIGENVALUES, 3, ridge=0.01)
    wanted = tolerance * np.linalg.norm(given_quadratic.B)
    working = solver(name, given_quadratic, tolerance=tolerance)
    slopes = []
    while not working.finished:
        assert len(slopes) < 2000
        query = working.query()
        slopes.append(np.linalg.norm(given_quadratic.slope(query)))
        advance(working, given_quadratic)
    if name in ("closed-form", "ridge-path"):  # they know the slope at the model without asking there
        assert len(slopes) == 1 or name == "ridge-path"
        query = working.model
        assert np.linalg.norm(given_quadratic.slope(query)) <= wanted * (1 + 1e-12)
    else:
        assert slopes[-1] <= wanted * (1 + 1e-12), "1e-12: the slope is computed twice"
        assert np.linalg.norm(query) == 0 or len(slopes) > 1
    error = np.linalg.norm(query - given_quadratic.solution)
    assert error <= wanted * (1 + 1e-12) / (EIGENVALUES[0] + 0.01)


def test_equal_weights_of_features_are_one_weight(name: str) -> None:
    """To the last bit, for products are the same term by term; a path sums the weights over its directions."""
    one = quadratic(EIGENVALUES, 3, ridge=0.01)
    other = Quadratic(one.A, one.B, np.full((9, 1), 0.01))
    pairs = zip(models(solver(name, one), one, EPOCHS), models(solver(name, other), other, EPOCHS), strict=True)
    bound = gamma(9 * 9, float) if name == "ridge-path" else 0.0
    assert all(np.linalg.norm(theta - same) <= bound * 1e3 * np.linalg.norm(theta) for theta, same in pairs)


def test_weights_of_features_are_a_diagonal_matrix(name: str) -> None:
    """The solution by numpy, within 1e-9 ||B|| / smallest eigenvalue, which is at least the smallest weight."""
    weights = np.geomspace(0.01, 0.5, 9)
    given_quadratic = quadratic(EIGENVALUES, 3, ridge=weights[:, None])
    expected = np.linalg.solve(given_quadratic.A + np.diag(weights), given_quadratic.B)
    working = solver(name, given_quadratic, tolerance=1e-9)
    for _ in range(3000):
        if not working.finished:
            advance(working, given_quadratic)
    assert working.finished
    assert np.linalg.norm(working.model - expected) <= 1.01e-9 * np.linalg.norm(given_quadratic.B) / weights[0]


def test_without_a_tolerance_only_the_closed_form_is_ever_finished(name: str) -> None:
    given_quadratic = quadratic(np.ones(4), 2)
    working = solver(name, given_quadratic)
    models(working, given_quadratic, 20)
    assert working.finished == (name == "closed-form")
    assert np.allclose(working.model, given_quadratic.B, rtol=1e-14, atol=0), "with A = I the first step is all"


def test_a_model_once_given_is_not_changed(name: str) -> None:
    """Models wait to be scored, so a later epoch must not write into them."""
    given_quadratic = quadratic(EIGENVALUES, 3, ridge=0.01)
    working = solver(name, given_quadratic)
    kept = []
    for _ in range(5):
        advance(working, given_quadratic)
        kept.append((working.model, working.model.copy(), working.query(), working.query().copy()))
    for model, model_then, query, query_then in kept:
        assert np.array_equal(model, model_then)
        assert np.array_equal(query, query_then)


def test_of_a_single_weight_the_models_are_the_model(name: str) -> None:
    given_quadratic = quadratic(EIGENVALUES, 3, ridge=0.01)
    working = solver(name, given_quadratic)
    for _ in range(4):
        assert working.models.shape == (1, 9, 3)
        assert np.linalg.norm(working.models[0] - working.model) <= 1e-12 * np.linalg.norm(working.model)
        advance(working, given_quadratic)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_krylov_solvers_refuse_a_gradient_of_which_one_number_is_not_finite(name: str, wrong: float) -> None:
    given_quadratic = quadratic(EIGENVALUES, 3)
    working = solver(name, given_quadratic)
    if working.needs_sums or not working.needs_exact:
        pytest.skip("a diverged model is noticed where it is scored")
    advance(working, given_quadratic)
    gradient = given_quadratic.gradient(working.query())
    gradient[8, 2] = wrong
    with pytest.raises(TrainingError, match="the gradient of epoch 2 holds numbers that are not finite"):
        working.update(gradient)
