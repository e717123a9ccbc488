"""Gradient descent and Nesterov's method: the formulas, and how fast they must be."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from codedfl.solvers import SOLVERS, Conditions
from solvers.quadratics import Quadratic, advance, models, quadratic, solver
from tiny import gamma

ILL = np.geomspace(1e-4, 1, 30)


def test_gradient_descent_is_the_formula_to_the_last_bit() -> None:
    """Theta <- Theta - mu (gradient + lambda Theta), in this order of operations, with the rate of each epoch."""
    given = quadratic(ILL, 3, ridge=0.01)
    rates = [0.9, 0.9, 0.7, 0.5, 0.1]
    conditions = Conditions(given.B.shape, given.ridge, lambda epoch: rates[epoch - 1], 0.0, 2**-52)
    working = SOLVERS["gradient-descent"](conditions)
    model = np.zeros(given.B.shape)
    for rate in rates:
        assert np.array_equal(working.query(), model)
        advance(working, given)
        model = model - rate * (given.gradient(model) + given.ridge * model)
        assert np.array_equal(working.model, model)
        assert working.rate == rate


def fista(given: Quadratic, rate: float) -> Iterator[np.ndarray]:
    """Beck and Teboulle's method in their own variables: t <- (1 + sqrt(1 + 4 t^2)) / 2, speed (t - 1) / t'."""
    model = point = np.zeros(given.B.shape)
    t = 1.0
    while True:
        moved = point - rate * given.slope(point)
        further = (1 + np.sqrt(1 + 4 * t**2)) / 2
        point = moved + (t - 1) / further * (moved - model)
        model, t = moved, further
        yield model


def unrestarted(given: Quadratic, rate: float, limit: int = 1000) -> list[np.ndarray]:
    """Nesterov's models up to the first restart."""
    working = solver("nesterov", given, rate=rate)
    found: list[np.ndarray] = []
    while len(found) < limit:
        advance(working, given)
        if working.to_arrays()["theta"] == 1:
            return found
        found.append(working.model)
    return found


def test_without_a_ridge_it_is_fista_up_to_the_first_restart() -> None:
    """Another parametrisation of the same numbers (theta = 1/t).

    Each epoch rounds at most d + 10 times in a row on numbers of at most the largest point, and with mu = 1/L errors
    grow no faster than models of a momentum method do: at most (k + 1) of each, k^2 in all.
    """
    given = quadratic(ILL, 2)
    found = unrestarted(given, 1.0)
    expected = list(itertools.islice(fista(given, 1.0), len(found)))
    assert len(found) > 20
    size = max(np.abs(model).max() for model in expected) + np.abs(given.B).max()
    for k, (one, other) in enumerate(zip(found, expected, strict=True), start=1):
        assert np.abs(one - other).max() <= (k + 1) ** 2 * gamma(40, float) * size * np.sqrt(30)


@pytest.mark.parametrize("seed", range(5))
def test_the_excess_falls_as_the_square_of_the_epochs(seed: int) -> None:
    """f(Theta_k) - f* <= 2 L ||Theta*||^2 / (k + 1)^2; ``excess`` is twice the left side. L = 1 = mu."""
    given = quadratic(ILL, 2, seed=seed)
    found = unrestarted(given, 1.0)
    assert len(found) > 20
    for k, model in enumerate(found, start=1):
        assert given.excess(model).sum() <= 4 * np.linalg.norm(given.solution) ** 2 / (k + 1) ** 2


def epochs_to(name: str, given: Quadratic, share: float, rate: float) -> int:
    """Epochs until the excess is a share of what it was."""
    working = solver(name, given, rate=rate)
    first = given.excess(working.model).sum()
    for epoch in range(1, 200_000):
        advance(working, given)
        if given.excess(working.model).sum() <= share * first:
            return epoch
    raise AssertionError(f"{name} did not get there")


@pytest.mark.parametrize("ridge", [0.0, 1e-4])
def test_it_needs_far_fewer_epochs_than_gradient_descent_where_curvatures_differ(ridge: float) -> None:
    """kappa = 1e3: descent needs about kappa/2 ln(1/share), the accelerated method about sqrt(kappa) ln(1/share).

    Descent's number follows from the slowest eigenvector alone; half of that is granted to the start.
    """
    given = quadratic(np.geomspace(1e-3, 1, 30), 2, ridge=ridge)
    slow, fast = (epochs_to(name, given, 1e-6, rate=1 / (1 + ridge)) for name in ("gradient-descent", "nesterov"))
    kappa = (1 + ridge) / (1e-3 + ridge)
    assert slow > kappa / 4 * np.log(1e6)
    assert fast < 4 * np.sqrt(kappa) * np.log(1e6)
    assert fast < slow / 10


def test_it_restarts_where_the_last_move_went_uphill_and_only_there() -> None:
    given = quadratic(np.geomspace(1e-2, 1, 30), 2)
    working = solver("nesterov", given)
    restarts, resting = 0, True
    for _ in range(400):
        before, point = working.model, working.query()
        advance(working, given)
        uphill = np.sum(given.slope(point) * (working.model - before)) > 0
        assert (working.to_arrays()["theta"] == 1) == uphill
        restarts += uphill
        # from theta = 1 the first speed is zero
        assert np.array_equal(working.query(), working.model) == (uphill or resting)
        resting = uphill
    assert restarts > 1


@pytest.mark.parametrize("ridge", [0.3, np.array([[0.7], [0.3], [0.5]])], ids=["one weight", "by feature"])
def test_the_momentum_is_that_of_the_constant_step_scheme(ridge: float | np.ndarray) -> None:
    """theta'^2 = (1 - theta') theta^2 + q theta' with q = 0.3 / 4, the root by numpy; beta follows from both."""
    given = Quadratic(np.diag([0.1, 0.5, 0.3]), np.array([[1.0], [2.0], [-1.0]]), ridge)
    working = solver("nesterov", given, rate=0.25)
    before, theta = working.model, 1.0
    for _ in range(6):
        point = working.query()
        advance(working, given)
        assert np.array_equal(working.model, point - 0.25 * given.slope(point))
        (root,) = (each for each in np.roots([1, theta**2 - 0.075, -(theta**2)]).real if each > 0)
        beta = theta * (1 - theta) / (theta**2 + root)
        assert working.query() == pytest.approx(working.model + beta * (working.model - before), rel=1e-12)
        assert working.to_arrays()["theta"] == pytest.approx(root, rel=1e-12)
        before, theta = working.model, root


def test_a_rate_above_the_inverse_of_the_weight_leaves_no_momentum() -> None:
    """q counts as at most 1, from where on theta stays 1 and beta is zero; L = 0.02 + 1.2, so the rate is stable."""
    given = Quadratic(np.diag([0.02, 0.01]), np.ones((2, 1)), 1.2)
    working = solver("nesterov", given, rate=1.0)
    for _ in range(5):
        advance(working, given)
        assert working.to_arrays()["theta"] == 1
        assert np.array_equal(working.query(), working.model)


def test_a_step_neither_down_nor_up_keeps_the_momentum() -> None:
    """The gradients of three batches are -1, 0 and -1, so that the second move is zero; in FISTA's variables."""
    working = solver("nesterov", Quadratic(np.eye(1), np.ones((1, 1)), 0.0))
    t = [1.0]
    for slope in (-1.0, 0.0, -1.0):
        working.update(np.array([[slope]]))
        t.append((1 + np.sqrt(1 + 4 * t[-1] ** 2)) / 2)
    assert working.model == 2
    assert working.query()[0, 0] == pytest.approx(2 + (t[2] - 1) / t[3], rel=1e-14)


@pytest.mark.parametrize("curvature", [1.3, 1.36])
def test_the_declared_limit_of_its_rate_is_the_limit_of_its_stability(curvature: float) -> None:
    """Along one eigenvector at full speed (beta = 1) the recursion has roots outside the circle iff mu h > 4/3.

    z^2 - 2 (1 - mu h) z + (1 - mu h) = 0 for the ratio z of two models; stable_share is in units of 2/L.
    """
    roots = np.roots([1, -2 * (1 - curvature), 1 - curvature])
    share = SOLVERS["nesterov"].stable_share
    assert share is not None
    assert (np.abs(roots).max() > 1) == (curvature > 2 * share)


@pytest.mark.parametrize("name", ["gradient-descent", "nesterov"])
def test_below_the_declared_limit_it_converges(name: str) -> None:
    given = quadratic(np.geomspace(0.1, 1, 6), 2)
    share = SOLVERS[name].stable_share
    assert share is not None
    found = models(solver(name, given, rate=0.98 * share * 2), given, 2000)
    assert np.linalg.norm(found[-1] - given.solution) <= 1e-9 * np.linalg.norm(given.solution)
