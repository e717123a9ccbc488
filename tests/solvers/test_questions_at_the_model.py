"""Conjugate gradients ask again where the gradient of the model is that of a point too far from it."""

import numpy as np
import pytest

from codedfl.solvers import ConjugateGradients
from solvers.quadratics import Quadratic, advance, quadratic, solver

CG = "conjugate-gradients"


def at_the_model(given_quadratic: Quadratic, **conditions: float) -> ConjugateGradients:
    """A solver that has searched and asks at its model next; all curvatures are alike, so one search solves."""
    working = solver(CG, given_quadratic, **conditions)
    assert isinstance(working, ConjugateGradients)
    advance(working, given_quadratic)
    advance(working, given_quadratic)
    if not np.array_equal(working.query(), working.model):
        advance(working, given_quadratic)
    assert np.array_equal(working.query(), working.model) and working.model.any()
    return working


WANTED = {"tolerance": ({"tolerance": 1e-5}, 1e-5), "precision": ({"tolerance": 1e-9, "epsilon": 1e-6}, 3e-6)}


@pytest.mark.parametrize("kind", WANTED)
@pytest.mark.parametrize("far", [True, False])
def test_a_gradient_too_far_from_the_model_is_asked_for_again(kind: str, far: bool) -> None:
    """A gradient may be off by a tenth of what it is tested for: with curvature 2, at a distance of a twentieth.

    What can be told is the tolerance, or the rounding of nine sums, sqrt(9) = 3 times epsilon, if that is more.
    """
    conditions, wanted = WANTED[kind]
    given_quadratic = quadratic(np.full(9, 2.0), 2)
    working = at_the_model(given_quadratic, **conditions)
    model, size = working.model, np.linalg.norm(given_quadratic.B)
    away = np.zeros((9, 2))
    away[3, 1] = (1.01 if far else 0.99) * wanted * size / 20
    working.asked_at(model + away)
    working.update(given_quadratic.gradient(model + away))
    assert np.array_equal(working.model, model)
    if far:
        assert not working.finished
        assert np.array_equal(working.query(), model), "the same question"
        working.update(given_quadratic.gradient(model))  # this time the model itself could be sent
    if kind == "tolerance":
        assert working.finished
    else:
        assert np.any(working.query() != model), "a search begins: float64 solves further than was asked for"


def test_after_eight_questions_a_gradient_nearby_is_taken() -> None:
    """Also by a solver that was restored between two questions; questions at another model count anew."""
    given_quadratic = quadratic(np.full(9, 2.0), 2)
    working = at_the_model(given_quadratic, tolerance=1e-6)
    for distance in (1e-3, 3e-3):  # the first error carries the model by 1e-3 the other way
        model = working.model
        sent = model + distance
        for question in range(9):
            assert np.array_equal(working.query(), model), question
            restored = at_the_model(given_quadratic, tolerance=1e-6)
            restored.restore(working.to_arrays())
            working = restored
            working.asked_at(sent)
            working.update(given_quadratic.gradient(sent))
        assert not np.array_equal(working.query(), model), "a search from the gradient nearby"
        assert not working.finished
        advance(working, given_quadratic)
        while not np.array_equal(working.query(), working.model):
            advance(working, given_quadratic)


@pytest.mark.parametrize("far", [True, False])
def test_a_curvature_that_no_search_has_found_counts_as_one(far: bool) -> None:
    """f is linear: where no search finds curvature, a gradient is taken up to tolerance ||B|| / 10 away."""
    linear = Quadratic(np.zeros((9, 9)), quadratic(np.ones(9), 2).B, 0.0)
    working = solver(CG, linear, tolerance=1e-3)
    advance(working, linear)
    advance(working, linear)
    assert not working.query().any(), "at the model, which is still zero"
    away = np.zeros((9, 2))
    away[3, 1] = (1.01 if far else 0.99) * 1e-3 * np.linalg.norm(linear.B) / 10
    working.asked_at(away)
    working.update(linear.gradient(away))
    assert working.query().any() == (not far), "the same question, or a search from the gradient nearby"
