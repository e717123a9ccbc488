"""A path of weights from one Krylov space: golden solutions, the laws of its models, rounding, through the loop."""

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import TrainingError
from codedfl.scenario import Scenario
from codedfl.solvers import ClosedForm, Conditions, ConjugateGradients, Ridge, RidgePath, Solver
from codedfl.task import Problem
from codedfl.training import State, create_solver
from solvers.quadratics import Quadratic, advance, quadratic, solver
from tiny import gamma, is_one_sentence, problem, scenario, trained

WEIGHTS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)


def path(given_quadratic: Quadratic, weights: Sequence[Ridge] = WEIGHTS, tolerance: float = 0.0) -> RidgePath:
    eps = float(np.finfo(float).eps)
    return RidgePath(Conditions(given_quadratic.B.shape, weights[0], lambda epoch: 1.0, tolerance, eps, tuple(weights)))


def solved(working: Solver, given_quadratic: Quadratic, limit: int = 100) -> int:
    """Epochs until finished."""
    for epoch in range(1, limit):
        advance(working, given_quadratic)
        if working.finished:
            return epoch
    raise AssertionError("not finished")


def solutions(given_quadratic: Quadratic, weights: Sequence[Ridge] = WEIGHTS) -> list[np.ndarray]:
    eye = np.eye(len(given_quadratic.A))
    return [np.linalg.solve(given_quadratic.A + weight * eye, given_quadratic.B) for weight in weights]


@settings(max_examples=40)
@given(d=st.integers(1, 24), outputs=st.integers(1, 6), exponent=st.floats(0, 6), seed=st.integers(0, 10**6))
def test_all_models_are_those_of_a_direct_solver(d: int, outputs: int, exponent: float, seed: int) -> None:
    """||Theta - Theta*|| <= ||slope|| / (smallest eigenvalue + lambda); slopes are at most 1e-9 ||B||."""
    eigenvalues = np.geomspace(10**-exponent, 1, d) if d > 1 else np.ones(1)
    given_quadratic = quadratic(eigenvalues, outputs, seed=seed)
    working = path(given_quadratic, tolerance=1e-9)
    assert solved(working, given_quadratic) <= 1 + math.ceil(d / outputs)
    size = np.linalg.norm(given_quadratic.B)
    for weight, model, expected in zip(WEIGHTS, working.models, solutions(given_quadratic), strict=True):
        smallest = eigenvalues[0] + weight
        assert np.linalg.norm(model - expected) <= (1e-9 + gamma(8 * d * d, float)) * size / smallest
    bound = gamma(8 * d * d, float) * size / (eigenvalues[0] + WEIGHTS[0]) ** 2
    assert np.linalg.norm(working.model - working.models[0]) <= bound


@pytest.mark.parametrize("distinct", [1, 2, 3, 5])
@pytest.mark.parametrize("outputs", [1, 3])
def test_it_ends_after_as_many_queries_as_there_are_distinct_curvatures(distinct: int, outputs: int) -> None:
    given_quadratic = quadratic(np.repeat(np.linspace(1, 3, distinct), 6), outputs)
    working = path(given_quadratic, tolerance=1e-12)
    assert solved(working, given_quadratic) == 1 + distinct
    assert np.all(working.residuals <= 1e-12)


def test_a_path_takes_the_epochs_of_its_smallest_weight() -> None:
    """And no more than conjugate gradients take for it, which measure the end by one more query."""
    given_quadratic, weights = quadratic(np.geomspace(1e-4, 1, 300), 3), WEIGHTS[2:]
    alone = Quadratic(given_quadratic.A, given_quadratic.B, weights[0])
    single, recurrence = (solver(kind.name, alone, tolerance=1e-4) for kind in (RidgePath, ConjugateGradients))
    epochs = solved(path(given_quadratic, weights, tolerance=1e-4), given_quadratic)
    assert epochs == solved(single, given_quadratic)
    assert epochs < solved(recurrence, given_quadratic)
    assert 20 < epochs < 50, "fewer than the 100 that directions need to span everything"


def test_a_path_without_directions_asks_at_its_model_and_tells_its_slope() -> None:
    """The slope is the gradient of the data term and of the ridge term; at the solution they cancel."""
    given_quadratic = quadratic(np.full(9, 2.0), 2)
    working = path(given_quadratic, tolerance=1e-12)
    solved(working, given_quadratic)
    model = working.query()
    assert np.array_equal(model, working.model)
    data_term = given_quadratic.gradient(model)
    rounding = gamma(400, float) * np.linalg.norm(given_quadratic.B)
    assert working.improve(data_term) == pytest.approx(np.linalg.norm(data_term + WEIGHTS[0] * model), abs=rounding)
    assert working.improve(data_term) <= rounding < np.linalg.norm(data_term)
    slope = np.linalg.norm(1 + data_term + WEIGHTS[0] * model)
    assert working.improve(1 + data_term) == pytest.approx(slope, rel=1e-12), "whatever it believes"


@pytest.mark.parametrize("unit", [2.0**-10, 1.0, 2.0**12])
@pytest.mark.parametrize("outputs", [1, 3])
def test_queries_are_new_orthonormal_directions_times_a_power_of_two(outputs: int, unit: float) -> None:
    """Of the first gradient's size at first, later by the largest curvature found so far, so that products are.

    Eigenvalues are the unit times 1 to 8; the largest curvature of some directions is that of a block P^T A P.
    """
    given_quadratic = quadratic(unit * np.linspace(1, 8, 12), outputs)
    working, size = path(given_quadratic), np.linalg.norm(given_quadratic.B)
    advance(working, given_quadratic)
    seen, curvature = np.zeros((12, 0)), 1.0
    for _ in range(12 // outputs):
        query = working.query()
        scale = float(np.linalg.norm(query[:, 0]))
        assert scale == pytest.approx(2.0 ** round(math.log2(scale)), rel=1e-12)
        assert 1 < scale * curvature / size <= 2
        assert query.T @ query / scale**2 == pytest.approx(np.eye(outputs), abs=1e-12)
        assert np.abs(seen.T @ query).max(initial=0.0) <= 1e-12 * scale
        block = query.T @ given_quadratic.A @ query / scale**2
        curvature = max(curvature if seen.shape[1] else 0.0, float(np.linalg.eigvalsh(block)[-1]))
        seen = np.hstack([seen, query / scale])
        advance(working, given_quadratic)


def test_a_path_may_hold_weights_of_features_beside_numbers() -> None:
    given_quadratic = quadratic(np.geomspace(1e-2, 1, 12), 3)
    weights = (0.01, np.geomspace(0.1, 10, 12)[:, None], 1.0)
    working = path(given_quadratic, weights, tolerance=1e-11)
    solved(working, given_quadratic)
    for model, expected in zip(working.models, solutions(given_quadratic, weights), strict=True):
        assert np.linalg.norm(model - expected) <= 1e-9 * np.linalg.norm(expected)


def test_residuals_are_those_of_the_models() -> None:
    given_quadratic = quadratic(np.geomspace(1e-3, 1, 30), 3)
    working = path(given_quadratic)
    assert np.array_equal(working.residuals, np.zeros(5)) and not working.models.any(), "before the first epoch"
    advance(working, given_quadratic)
    assert np.array_equal(working.residuals, np.ones(5))
    for _ in range(6):
        advance(working, given_quadratic)
        assert working.models.shape == (5, 30, 3)
        for weight, model, residual in zip(WEIGHTS, working.models, working.residuals, strict=True):
            slope = given_quadratic.gradient(model) + weight * model
            assert abs(residual * np.linalg.norm(given_quadratic.B) - np.linalg.norm(slope)) <= gamma(
                900, float
            ) * np.linalg.norm(given_quadratic.B)


def test_no_model_becomes_worse_and_none_leaves_its_solution() -> None:
    """The loss of each falls from query to query; long after the end rounding has carried none away."""
    given_quadratic = quadratic(np.geomspace(1e-6, 1, 40), 3)
    working = path(given_quadratic)
    losses = []
    for _ in range(60):
        advance(working, given_quadratic)
        losses.append(
            [
                np.vdot(model, (given_quadratic.A @ model + weight * model) / 2 - given_quadratic.B)
                for weight, model in zip(WEIGHTS, working.models, strict=True)
            ]
        )
    rounding = gamma(1600, float) * np.abs(losses[-1])
    assert np.all(np.diff(losses, axis=0) <= rounding)
    for weight, model, expected in zip(WEIGHTS, working.models, solutions(given_quadratic), strict=True):
        assert np.linalg.norm(model - expected) <= gamma(1600, float) / weight * np.linalg.norm(expected)


DEPENDENT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "alike": lambda B: np.repeat(B[:, :1], 4, axis=1),
    "one zero": lambda B: B * [1, 0, 1, 1],
    "sum to zero": lambda B: B - B.mean(axis=1, keepdims=True),
    "nearly alike": lambda B: np.repeat(B[:, :1], 4, axis=1) + 1e-7 * B,
    "other units": lambda B: B * [1e-6, 1, 1e6, 1],
}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_dependent_outputs_are_no_breakdown(kind: str) -> None:
    base = quadratic(np.geomspace(0.01, 1, 9), 4)
    given_quadratic = Quadratic(base.A, DEPENDENT[kind](base.B), 0.0)
    working = path(given_quadratic, tolerance=1e-13)
    assert solved(working, given_quadratic) <= 1 + 9
    size = np.linalg.norm(given_quadratic.B)
    for weight, model, expected in zip(WEIGHTS, working.models, solutions(given_quadratic), strict=True):
        assert np.linalg.norm(model - expected) <= 1.01e-13 * size / (0.01 + weight)


@pytest.mark.parametrize("outputs", [1, 3, 4])
@pytest.mark.parametrize("steps", [2, 8])
def test_what_was_sent_is_kept_not_what_was_asked_for(outputs: int, steps: int) -> None:
    """Queries are sent in steps of a half or an eighth of their size, and gradients are exact there.

    A minimum over the columns that were sent has a slope orthogonal to all of them, and all models are exact once they
    span everything. Products of d terms round; the directions are new to at least a hundredth.
    """
    given_quadratic = quadratic(np.linspace(0.5, 1, 12), outputs)
    working = path(given_quadratic)
    advance(working, given_quadratic)
    all_sent = []
    for _ in range(12 // outputs):
        query = working.query()
        step = np.abs(query).max() / steps
        sent = step * np.round(query / step)
        assert np.linalg.norm(sent - query) > 0.03 * np.linalg.norm(query)
        working.asked_at(sent)
        working.update(given_quadratic.gradient(sent))
        all_sent.append(sent)
        for weight, model in zip(WEIGHTS, working.models, strict=True):
            slope = given_quadratic.gradient(model) + weight * model
            for columns in all_sent:
                sizes = np.linalg.norm(columns) * np.linalg.norm(given_quadratic.B)
                assert np.linalg.norm(columns.T @ slope) <= 100 * gamma(40 * 12, float) * sizes
    for model, expected in zip(working.models, solutions(given_quadratic), strict=True):
        assert np.linalg.norm(model - expected) <= 100 * gamma(40 * 12, float) * np.linalg.norm(expected)


def test_a_scheme_that_rounds_what_it_sends_is_asked_for_the_rest() -> None:
    """Entries of 16 steps on average, as sealed schemes send them: what was not sent is part of later queries.

    Directions that follow from the newest products alone would never bring it: B itself is sent to a few percent.
    """
    given_quadratic = quadratic(np.geomspace(1e-3, 1, 90), 3)
    exact, rounded = (path(given_quadratic, WEIGHTS[2:], tolerance=1e-6) for _ in range(2))
    epochs = 0
    while not rounded.finished:
        query = rounded.query()
        step = np.maximum(np.abs(query).mean(axis=0), 1e-300) / 16
        rounded.asked_at(step * np.round(query / step))
        rounded.update(given_quadratic.gradient(step * np.round(query / step)))
        epochs += 1
    assert np.all(rounded.residuals <= 1e-6)
    assert epochs <= 1.5 * solved(exact, given_quadratic)


def test_a_direction_that_was_sent_before_ends_the_search() -> None:
    """A scheme that can send nothing new: no direction is left, so that the training ends with what it has."""
    given_quadratic = quadratic(np.linspace(0.5, 1, 6), 1)
    working = path(given_quadratic, tolerance=1e-12)
    advance(working, given_quadratic)
    sent = working.query()
    for _ in range(3):
        working.asked_at(sent)
        working.update(given_quadratic.gradient(sent))
        if working.finished:
            break
    assert working.finished
    assert np.all(working.residuals > 1e-12)


def test_a_solver_that_is_finished_asks_at_its_model() -> None:
    given_quadratic = quadratic(np.linspace(0.5, 1, 30), 3)
    working = path(given_quadratic, tolerance=1e-3)
    assert solved(working, given_quadratic) < 1 + 10, "before directions span everything"
    assert np.array_equal(working.query(), working.model)


PENALTIES = {"all positive": np.geomspace(1e-4, 1e4, 20)[:, None], "some zero": np.arange(20.0)[:, None] % 4}


@pytest.mark.parametrize("kind", PENALTIES)
def test_weights_of_features_are_diagonal_matrices(kind: str) -> None:
    """The Krylov spaces of weights differ then, but one space of at most d directions still gives all models."""
    given_quadratic = quadratic(np.geomspace(1e-3, 1, 20), 3)
    weights = [weight * PENALTIES[kind] for weight in WEIGHTS]
    working = path(given_quadratic, weights, tolerance=1e-11)
    assert solved(working, given_quadratic) <= 1 + 7 + 1
    size = np.linalg.norm(given_quadratic.B)
    for weight, model, expected in zip(weights, working.models, solutions(given_quadratic, weights), strict=True):
        smallest = np.linalg.eigvalsh(given_quadratic.A + np.diag(weight[:, 0]))[0]
        assert np.linalg.norm(model - expected) <= 1.01e-11 * size / smallest
    assert np.all(working.residuals <= 1e-11)


def test_the_smallest_weight_may_be_zero() -> None:
    """Half of the curvatures are zero: the model of weight zero is that of smallest norm."""
    base = quadratic(np.concatenate([np.zeros(10), np.geomspace(0.01, 1, 10)]), 3)
    given_quadratic = Quadratic(base.A, base.A @ base.B, 0.0)
    working = path(given_quadratic, (0.0, 0.1), tolerance=1e-12)
    solved(working, given_quadratic)
    expected = np.linalg.pinv(given_quadratic.A, rcond=1e-10, hermitian=True) @ given_quadratic.B
    assert np.linalg.norm(working.models[0] - expected) <= 1e-10 * np.linalg.norm(expected)
    expected = np.linalg.solve(given_quadratic.A + 0.1 * np.eye(20), given_quadratic.B)
    assert np.linalg.norm(working.models[1] - expected) <= 1e-10 * np.linalg.norm(expected)


def test_a_gradient_that_is_not_finite_gets_one_sentence() -> None:
    working = path(quadratic(np.ones(4), 2))
    with pytest.raises(TrainingError) as error:
        working.update(np.full((4, 2), np.nan))
    assert is_one_sentence(str(error.value))


# --- through the training loop ---

SIZES = [40, 30, 35, 45]


def wanted(scheme: str, **changes: Any) -> Scenario:
    base = {"scheme": scheme, "fleet.devices": [{"count": 4, "mac_rate": 1e4}], "task.ridge": list(WEIGHTS)}
    solver_name = "closed-form" if scheme == "one-shot" else "conjugate-gradients"
    trainings = {"training.solver": solver_name, "training.tolerance": 1e-6, "training.epochs": 40}
    return scenario(base | trainings | changes)


def tiny_problem() -> Problem:
    return problem(SIZES, features=24, outputs=3, ridge=WEIGHTS[0])


@pytest.mark.parametrize("scheme", ["conventional", "sealed-coded", "secagg", "one-shot"])
def test_a_training_gives_every_model_of_the_path(scheme: str) -> None:
    """As close to each closed form as fixed point allows: 1e-3, and nothing where all is computed in float64."""
    given_problem, chosen = tiny_problem(), wanted(scheme)
    state = trained(given_problem, chosen)
    found = create_solver(given_problem, chosen, state)
    assert isinstance(found, ClosedForm if scheme == "one-shot" else RidgePath)
    assert found.finished and state.epoch <= 1 + 24 // 3
    system, right = (
        given_problem.total_gram / given_problem.samples,
        given_problem.total_moments / given_problem.samples,
    )
    for weight, model in zip(WEIGHTS, found.models, strict=True):
        expected = np.linalg.solve(system + weight * np.eye(24), right)
        share = 1e-5 if scheme == "conventional" else 1e-3
        assert np.linalg.norm(model - expected) <= share * np.linalg.norm(expected), weight
    assert np.array_equal(state.model, found.model)


class InterruptionError(Exception):
    """Stands for a kill."""


def test_stopped_after_an_epoch_it_ends_with_the_same_bits() -> None:
    given_problem, chosen = tiny_problem(), wanted("conventional")
    whole = trained(given_problem, chosen)
    file = io.BytesIO()

    def interrupt(state: State) -> None:
        if state.epoch == 4:
            np.savez(file, allow_pickle=False, **state.to_arrays())
            raise InterruptionError

    with pytest.raises(InterruptionError):
        trained(given_problem, chosen, after_epoch=interrupt)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        again = trained(given_problem, chosen, State.from_arrays(arrays))
    assert again.epoch == whole.epoch
    first, second = (create_solver(given_problem, chosen, state).models for state in (whole, again))
    assert first.tobytes() == second.tobytes()


def test_a_named_data_set_and_one_weight_keep_the_recurrence() -> None:
    given_problem = tiny_problem()
    chosen = wanted("conventional", **{"task.ridge": 1e-4})
    assert isinstance(create_solver(given_problem, chosen, State.fresh(given_problem)), ConjugateGradients)
    own = chosen.with_settings({"data.source": "rows.csv"})
    assert isinstance(create_solver(given_problem, own, State.fresh(given_problem)), RidgePath)
