"""Block conjugate gradients: golden solutions, the laws of its iterates, dependent outputs, rounding."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import TrainingError
from codedfl.solvers import ConjugateGradients
from solvers.quadratics import Quadratic, advance, models, quadratic, solver
from tiny import gamma, is_one_sentence

CG = "conjugate-gradients"


def solved(working: ConjugateGradients, given_quadratic: Quadratic, limit: int = 400) -> int:
    """Epochs until finished."""
    for epoch in range(1, limit):
        advance(working, given_quadratic)
        if working.finished:
            return epoch
    raise AssertionError("not finished")


@settings(max_examples=40)
@given(
    d=st.integers(1, 24),
    outputs=st.integers(1, 6),
    exponent=st.floats(0, 6),
    ridge=st.sampled_from([0.0, 1e-3]),
    seed=st.integers(0, 10**6),
)
def test_the_solution_is_that_of_a_direct_solver(
    d: int, outputs: int, exponent: float, ridge: float, seed: int
) -> None:
    """||Theta - Theta*|| <= ||slope|| / smallest eigenvalue, and it stops at a measured slope of 1e-9 ||B||.

    numpy.linalg.solve itself is within gamma * condition of the solution, and a slope is computed within gamma(d + 2)
    of ||A|| ||Theta|| + ||B||.
    """
    eigenvalues = np.geomspace(10**-exponent, 1, d) if d > 1 else np.ones(1)
    given_quadratic = quadratic(eigenvalues, outputs, ridge=ridge, seed=seed)
    working = solver(CG, given_quadratic, tolerance=1e-9)
    assert isinstance(working, ConjugateGradients)
    solved(working, given_quadratic)
    smallest, size = eigenvalues[0] + ridge, np.linalg.norm(given_quadratic.B)
    rounding = gamma(8 * d * d, float) * (np.linalg.norm(given_quadratic.solution) * (1 + ridge) + size)
    assert np.linalg.norm(working.model - given_quadratic.solution) <= (1e-9 * size + rounding) / smallest


@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 12, 15])
def test_it_ends_when_the_directions_span_everything(outputs: int) -> None:
    """d = 12: ceil(12 / c) searches give the solution, one fewer does not.

    Rounding: a search multiplies the loss of conjugacy so far by at most the condition, here 3; the last but one search
    still leaves more than that.
    """
    given_quadratic = quadratic(np.linspace(1, 3, 12), outputs)
    searches = math.ceil(12 / min(outputs, 12))
    bound = 3**searches * gamma(12 * 12, float)
    found = models(solver(CG, given_quadratic), given_quadratic, 1 + searches)
    size = np.linalg.norm(given_quadratic.B)
    left = [np.linalg.norm(given_quadratic.slope(model)) / size for model in found]
    assert left[-1] <= bound < left[-2]


@pytest.mark.parametrize("distinct", [1, 2, 3, 5])
@pytest.mark.parametrize("outputs", [1, 3])
def test_it_ends_after_as_many_searches_as_there_are_distinct_curvatures(distinct: int, outputs: int) -> None:
    given_quadratic = quadratic(np.repeat(np.linspace(1, 3, distinct), 6), outputs)
    found = models(solver(CG, given_quadratic), given_quadratic, 1 + distinct)
    slope = np.linalg.norm(given_quadratic.slope(found[-1]))
    assert slope <= 3**distinct * gamma(900, float) * np.linalg.norm(given_quadratic.B)


@pytest.mark.parametrize("seed", range(4))
def test_no_output_is_worse_off_than_alone(seed: int) -> None:
    """The common space holds each output's own Krylov space, so its energy error is at most that of CG on it alone.

    And at most Chebyshev's bound 4 q^(2k), q = (sqrt(kappa) - 1) / (sqrt(kappa) + 1), of the first. Compared while both
    are far above rounding.
    """
    given_quadratic = quadratic(np.geomspace(1e-3, 1, 60), 4, seed=seed)
    searches = 8
    block = np.array(
        [given_quadratic.excess(model) for model in models(solver(CG, given_quadratic), given_quadratic, 1 + searches)]
    )
    alone = np.empty((searches, 4))
    for output in range(4):
        single = Quadratic(given_quadratic.A, given_quadratic.B[:, [output]], 0.0)
        kept = alone[:, output]
        steps = iter(range(searches))

        def note(x: np.ndarray, single: Quadratic = single, kept: np.ndarray = kept, steps: Any = steps) -> None:
            kept[next(steps)] = single.excess(x[:, None])[0]

        scipy.sparse.linalg.cg(single.A, single.B[:, 0], rtol=0, maxiter=searches, callback=note)
    q = (np.sqrt(1e3) - 1) / (np.sqrt(1e3) + 1)
    assert np.all(block[1:] <= alone * (1 + 1e-9))
    for k in range(searches + 1):
        assert np.all(block[k] <= 4 * q ** (2 * k) * block[0])
    assert np.all(block[2:] < alone[1:]), "and it pays"


def test_the_loss_falls_from_search_to_search() -> None:
    given_quadratic = quadratic(np.geomspace(1e-6, 1, 40), 3)
    sums = [given_quadratic.excess(model).sum() for model in models(solver(CG, given_quadratic), given_quadratic, 12)]
    assert all(later < earlier for earlier, later in itertools.pairwise(sums))


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), outputs=st.integers(1, 4), rank=st.integers(1, 4), exponent=st.integers(-30, 30))
def test_queries_are_orthonormal_directions_times_a_power_of_two(
    seed: int, outputs: int, rank: int, exponent: int
) -> None:
    """As many as there are independent outputs, then zeros; no larger than a few times the solution."""
    full = quadratic(np.linspace(0.5, 1, 10), outputs, seed=seed)
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((outputs, min(rank, outputs))) @ rng.standard_normal((min(rank, outputs), outputs))
    given_quadratic = Quadratic(full.A, 2.0**exponent * full.B @ mixing, 0.0)
    working = solver(CG, given_quadratic)
    advance(working, given_quadratic)
    query = working.query()
    squares = query.T @ query
    used = min(rank, outputs)
    scale = np.sqrt(squares[0, 0])
    assert np.isclose(np.log2(scale), round(np.log2(scale)), rtol=0, atol=gamma(100, float))
    expected = np.diag([1.0] * used + [0.0] * (outputs - used))
    assert np.abs(squares / scale**2 - expected).max() <= gamma(100, float)
    assert np.linalg.norm(given_quadratic.B) <= scale <= 2 * np.linalg.norm(given_quadratic.B)
    advance(working, given_quadratic)
    assert np.abs(working.query()).max() <= 2 / 0.5 * np.linalg.norm(given_quadratic.B)


@settings(max_examples=25)
@given(exponents=st.lists(st.integers(-40, 40), min_size=3, max_size=3), seed=st.integers(0, 10**6))
def test_outputs_of_other_units_are_solved_alike(exponents: list[int], seed: int) -> None:
    """The space searched is that of all outputs, whatever the unit of each; rounding is that of the largest."""
    one = quadratic(np.geomspace(0.1, 1, 12), 3, seed=seed)
    units = 2.0 ** np.array(exponents)
    other = Quadratic(one.A, one.B * units, 0.0)
    for first, second in zip(models(solver(CG, one), one, 4), models(solver(CG, other), other, 4), strict=True):
        error = np.linalg.norm(first * units - second, axis=0) / np.linalg.norm(one.solution * units, axis=0)
        assert np.all(error <= 10**4 * gamma(144, float)), "condition 10, to the power of the searches and the start"


DEPENDENT = {
    "alike": lambda B: np.repeat(B[:, :1], 4, axis=1),
    "one zero": lambda B: B * [1, 0, 1, 1],
    "all but one zero": lambda B: B * [0, 0, 0, 1],
    "sum to zero": lambda B: B - B.mean(axis=1, keepdims=True),
    "nearly alike": lambda B: np.repeat(B[:, :1], 4, axis=1) + 1e-14 * B,
    "an eigenvector": lambda B: np.eye(9)[:, :4] + 0 * B,
}


@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize("rotated", [True, False])
def test_dependent_outputs_are_no_breakdown(kind: str, rotated: bool) -> None:
    base = quadratic(np.geomspace(0.01, 1, 9), 4)
    A = base.A if rotated else np.diag(np.geomspace(0.01, 1, 9))
    given_quadratic = Quadratic(A, DEPENDENT[kind](base.B), 0.0)
    working = solver(CG, given_quadratic, tolerance=1e-10)
    assert isinstance(working, ConjugateGradients)
    assert solved(working, given_quadratic) <= 1 + 9 + 2, "ceil(9 / 1) searches, and one more with its measurement"
    error = np.linalg.norm(working.model - given_quadratic.solution)
    assert error <= 1.01e-10 * np.linalg.norm(given_quadratic.B) / 0.01


def test_solved_it_stays_where_it_is() -> None:
    """Long after the end, rounding has not carried the model away."""
    given_quadratic = quadratic(np.geomspace(0.01, 1, 9), 2)
    last = models(solver(CG, given_quadratic), given_quadratic, 200)[-1]
    assert np.linalg.norm(last - given_quadratic.solution) <= 100 * gamma(200, float) * np.linalg.norm(
        given_quadratic.solution
    )


def in_single(given_quadratic: Quadratic, working: ConjugateGradients, epochs: int) -> None:
    """Gradients as devices give them that compute in float32."""
    A, B = given_quadratic.A.astype(np.float32), given_quadratic.B.astype(np.float32)
    for _ in range(epochs):
        working.update((A @ working.query().astype(np.float32) - B).astype(float))


def test_rounded_gradients_of_a_singular_problem_do_not_carry_the_model_away() -> None:
    """No ridge, half of the curvatures zero: the model stays near the smallest solution, 100 epochs on.

    Slopes are measured, and products computed, to gamma(d + 1) of |A| |Theta| + |B|. Components in the null space come
    from rounding alone, and a direction whose curvature is rounding is left out; a solver that is told of float64
    lacks that rule, and shows what it is for.
    """
    eigenvalues = np.concatenate([np.zeros(20), np.geomspace(0.01, 1, 20)])
    given_quadratic = quadratic(eigenvalues, 3)
    given_quadratic = Quadratic(given_quadratic.A, given_quadratic.A @ given_quadratic.B, 0.0)
    smallest = np.linalg.pinv(given_quadratic.A, rcond=1e-6, hermitian=True) @ given_quadratic.B
    working = solver(CG, given_quadratic, epsilon=np.finfo(np.float32).eps)
    assert isinstance(working, ConjugateGradients)
    in_single(given_quadratic, working, 100)
    sizes = abs(given_quadratic.A) @ abs(working.model) + abs(given_quadratic.B)
    rounding = 2 * gamma(41, np.float32) * np.linalg.norm(sizes)
    assert np.linalg.norm(given_quadratic.slope(working.model)) <= rounding
    assert np.linalg.norm(working.model) <= 2 * np.linalg.norm(smallest)
    deceived = solver(CG, given_quadratic, epsilon=np.finfo(np.float64).eps)
    assert isinstance(deceived, ConjugateGradients)
    in_single(given_quadratic, deceived, 100)
    assert np.linalg.norm(deceived.model) > 2 * np.linalg.norm(smallest)


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e6])
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_in_single_precision_the_units_of_targets_and_features_do_not_matter(unit: float, length: float) -> None:
    """A of length^2, B of length times unit: measured slopes of 1e-4, three digits above float32's own 1e-7."""
    base = quadratic(np.geomspace(0.01, 1, 30), 3)
    given_quadratic = Quadratic(length**2 * base.A, length * unit * base.B, 0.0)
    working = solver(CG, given_quadratic, tolerance=1e-4, epsilon=np.finfo(np.float32).eps)
    assert isinstance(working, ConjugateGradients)
    for _ in range(60):
        if not working.finished:
            in_single(given_quadratic, working, 1)
    assert working.finished
    assert np.linalg.norm(given_quadratic.slope(working.model)) <= 1.1e-4 * np.linalg.norm(given_quadratic.B)


def test_the_end_is_measured_not_believed() -> None:
    """Gradients with errors of 1e-3: updated residuals go to zero, true ones do not, and it does not stop."""
    given_quadratic = quadratic(np.geomspace(0.01, 1, 12), 2)
    rng = np.random.default_rng(0)
    working = solver(CG, given_quadratic, tolerance=1e-8)
    asked_at_model = 0
    for _ in range(60):
        asked_at_model += np.array_equal(working.query(), working.model)
        exact = given_quadratic.gradient(working.query())
        working.update(exact * (1 + 1e-3 * rng.standard_normal(exact.shape)))
    assert not working.finished
    assert asked_at_model > 1, "it looked again after the first epoch"
    assert np.linalg.norm(given_quadratic.slope(working.model)) > 1e-8 * np.linalg.norm(given_quadratic.B)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_gets_one_sentence(wrong: float) -> None:
    given_quadratic = quadratic(np.ones(4), 2)
    working = solver(CG, given_quadratic)
    advance(working, given_quadratic)
    with pytest.raises(TrainingError) as error:
        working.update(np.full((4, 2), wrong))
    assert "epoch 2" in str(error.value)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("outputs", [1, 3, 4])
def test_what_was_sent_is_searched_not_what_was_asked_for(outputs: int) -> None:
    """Queries are sent in steps of an eighth of their size, and gradients are exact there.

    A minimum over the columns that were sent has a slope orthogonal to them. Of four outputs one depends on the
    others, so that a column of the query stays unused. Products of d terms round; nothing else is lost.
    """
    base = quadratic(np.linspace(0.5, 1, 12), outputs, ridge=0.25)
    mixing = np.eye(outputs)
    if outputs == 4:
        mixing[:, 3] = [1, -1, 2, 0]
    given_quadratic = Quadratic(base.A, base.B @ mixing, base.ridge)
    working = solver(CG, given_quadratic)
    advance(working, given_quadratic)
    for _ in range(3):
        query = working.query()
        step = np.abs(query).max() / 8
        sent = step * np.round(query / step)
        assert np.linalg.norm(sent - query) > 0.05 * np.linalg.norm(query)
        working.asked_at(sent)
        working.update(given_quadratic.gradient(sent))
        slope = given_quadratic.slope(working.model)
        sizes = np.linalg.norm(sent) * np.linalg.norm(given_quadratic.B)
        assert np.linalg.norm(sent.T @ slope) <= gamma(40 * 12, float) * sizes


@pytest.mark.parametrize("curvature", [0.0, -1e-12])
def test_where_all_curvatures_vanish_the_model_stays(curvature: float) -> None:
    """f is linear without a ridge, or rounded below that: no minimum, so every search is given up.

    The gradient is measured again, and the next search goes no further than the first one.
    """
    slope = quadratic(np.ones(6), 2).B
    linear = Quadratic(curvature * np.eye(6), slope, 0.0)
    working = solver(CG, linear, tolerance=1e-3)
    for epoch in range(1, 9):
        asked = working.query()
        assert asked.any() == (epoch % 2 == 0), "at the model, which stays zero, and along directions in turn"
        assert np.abs(asked).max() <= 2 * np.linalg.norm(slope)
        working.update(linear.gradient(asked))
        assert not working.model.any()
        assert not working.finished


def test_where_nothing_is_to_be_solved_the_model_stays() -> None:
    nothing = Quadratic(np.zeros((6, 6)), np.zeros((6, 2)), 0.0)
    working = solver(CG, nothing, tolerance=1e-3)
    advance(working, nothing)
    assert working.finished and not working.model.any()


def test_a_search_whose_curvatures_all_are_rounding_is_given_up() -> None:
    """Curvatures of 1 and 1e-9 where numbers have six digits: the second search finds the latter alone."""
    given_quadratic = Quadratic(np.diag([1.0, 1e-9]), np.ones((2, 1)), 0.0)
    working = solver(CG, given_quadratic, epsilon=1e-6)
    advance(working, given_quadratic)
    advance(working, given_quadratic)
    model = working.model
    assert model.any() and not np.array_equal(working.query(), model)
    advance(working, given_quadratic)
    assert np.array_equal(working.model, model)
    assert np.array_equal(working.query(), model)


def test_of_two_models_the_better_is_kept() -> None:
    """Errors of 1e-3 that change from query to query: the end is the first measured slope that is not halved."""
    given_quadratic = quadratic(np.geomspace(0.01, 1, 12), 2)
    rng = np.random.default_rng(3)
    working = solver(CG, given_quadratic, tolerance=1e-8)
    measured = []
    for _ in range(300):
        query, model = working.query(), working.model
        gradient = given_quadratic.gradient(query) + 1e-3 * rng.standard_normal(query.shape)
        if np.array_equal(query, model) and model.any():
            measured.append((np.linalg.norm(gradient), model))
        working.update(gradient)
        if working.finished:
            break
    norms = [norm for norm, _ in measured]
    assert all(later <= earlier / 2 for earlier, later in itertools.pairwise(norms[:-1]))
    assert norms[-1] > norms[-2] / 2
    assert np.array_equal(working.model, min(measured, key=lambda pair: pair[0])[1])


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("tolerance", [0.0, 1e-300])
def test_a_search_that_rounding_spoils_is_measured_after_four_times_the_dimension(
    outputs: int, tolerance: float
) -> None:
    """Six dimensions, and so 24 directions; without a tolerance nothing is to be measured."""
    given_quadratic = quadratic(np.geomspace(0.1, 1, 6), outputs)
    working, size = solver(CG, given_quadratic, tolerance=tolerance), np.linalg.norm(given_quadratic.B)
    rng, directions = np.random.default_rng(0), []
    for _ in range(1 + 24 // outputs):
        directions.append(np.count_nonzero(working.query().any(axis=0)))
        gradient = given_quadratic.gradient(working.query())
        working.update(gradient + 0.1 * size * rng.standard_normal(gradient.shape))
    assert directions == [0] + [outputs] * (24 // outputs), "the errors keep it searching"
    assert np.array_equal(working.query(), working.model) == (tolerance > 0)


def test_outputs_that_share_nothing_are_solved_side_by_side() -> None:
    """Each output has three curvatures of its own, so that three searches solve both."""
    curvatures, moments = np.diag([1.0, 2, 3, 1, 2, 4]), np.zeros((6, 2))
    moments[:3, 0], moments[3:, 1] = (1, 2, 3), (2, 1, 1)
    working = solver(CG, Quadratic(curvatures, moments, 0.0), tolerance=1e-9)
    assert isinstance(working, ConjugateGradients)
    assert solved(working, Quadratic(curvatures, moments, 0.0)) == 1 + 3 + 1, "at zero, three searches, and at the end"
    assert working.model == pytest.approx(moments / np.diag(curvatures)[:, None])


@pytest.mark.parametrize(("norm", "last"), [(0.5, False), (0.5 + 2.0**-40, True)])
def test_a_search_that_halves_the_measured_gradient_is_not_the_last(norm: float, last: bool) -> None:
    """With curvatures of 1 a single search solves; what is measured at its end is given here: 1, then about a half."""
    given_quadratic = Quadratic(np.eye(4), np.full((4, 1), 8.0), 0.0)
    working, sizes = solver(CG, given_quadratic, tolerance=1e-6), [1.0, norm]
    advance(working, given_quadratic)
    while sizes:
        assert not working.finished
        query = working.query()
        at_model = np.array_equal(query, working.model)
        working.update(np.eye(4)[:, [2]] * sizes.pop(0) if at_model else given_quadratic.gradient(query))
    assert working.finished == last
