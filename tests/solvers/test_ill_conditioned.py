"""Singular and ill-conditioned systems: solvers end, with the gradient of rounding and the smallest solution."""

from typing import Any

import numpy as np
import pytest

from codedfl.solvers import ConjugateGradients, RidgePath, Solver
from solvers.quadratics import Quadratic, awkward_rows, solver
from tiny import gamma

KRYLOV = (ConjugateGradients.name, RidgePath.name)


def rows_of_condition(condition: float, dtype: Any) -> Quadratic:
    """The Gram matrix of rows whose singular values are evenly spread, and moments of targets linear in them."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((rows, 30)))[0] for rows in (200, 30))
    x = (left * np.geomspace(condition**-0.5, 1, 30)) @ right.T
    y = x @ rng.standard_normal((30, 3)) + 0.03 * rng.standard_normal((200, 3))
    x, y = x.astype(dtype), y.astype(dtype)
    return Quadratic((x.T @ x).astype(float), (x.T @ y).astype(float), 0.0)


def ended(name: str, given_quadratic: Quadratic, dtype: Any, limit: int = 400) -> tuple[Solver, int]:
    """Devices compute in the precision; a tolerance that no precision attains. Also the epochs that it took."""
    working, epochs = solver(name, given_quadratic, tolerance=1e-17, epsilon=np.finfo(dtype).eps), 0
    A, B = given_quadratic.A.astype(dtype), given_quadratic.B.astype(dtype)
    for _ in range(limit):
        if not working.finished:
            working.update((A @ working.query().astype(dtype) - B).astype(float))
            epochs += 1
    assert working.finished
    return working, epochs


SINGLE, DOUBLE = np.float32, np.float64
ATTAINABLE = {
    ConjugateGradients.name: [(DOUBLE, exponent) for exponent in (2, 4, 6, 8)] + [(SINGLE, 2), (SINGLE, 4)],
    RidgePath.name: [(DOUBLE, exponent) for exponent in range(2, 14, 2)] + [(SINGLE, 2), (SINGLE, 4)],
}


@pytest.mark.parametrize(
    ("name", "dtype", "exponent"), [(name, *case) for name, cases in ATTAINABLE.items() for case in cases]
)
def test_where_rounding_stops_it_a_solver_ends_with_the_gradient_of_rounding(
    name: str, dtype: Any, exponent: int
) -> None:
    """A slope is computed within gamma(d + 1) of |A| |Theta| + |B|, whatever the condition 10^exponent."""
    given_quadratic = rows_of_condition(10.0**exponent, dtype)
    working, epochs = ended(name, given_quadratic, dtype)
    sizes = abs(given_quadratic.A) @ abs(working.model) + abs(given_quadratic.B)
    assert np.linalg.norm(given_quadratic.slope(working.model)) <= gamma(31, dtype) * np.linalg.norm(sizes)
    if name == RidgePath.name:
        assert epochs <= 1 + 30 // 3, "directions of three outputs that span all of 30 dimensions"
    asked = working.query()
    working.update(given_quadratic.gradient(asked))
    assert working.finished and np.array_equal(asked, working.model), "asked again, it stays"


@pytest.mark.parametrize("name", KRYLOV)
@pytest.mark.parametrize("kind", ["collinear", "constant", "wide"])
def test_a_singular_system_ends_with_the_solution_of_smallest_norm(name: str, kind: str) -> None:
    x, y = awkward_rows(kind)
    expected, _, rank, sizes = np.linalg.lstsq(x, y, rcond=None)
    working, _ = ended(name, Quadratic(x.T @ x, x.T @ y, 0.0), DOUBLE)
    bound = (sizes[0] / sizes[rank - 1]) ** 2 * gamma(len(x) * x.shape[1], float)
    assert np.linalg.norm(working.model - expected) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize("kind", ["collinear", "constant", "wide"])
def test_in_single_precision_a_path_has_the_smallest_solution_too(kind: str) -> None:
    """Devices that compute in float32 know a Gram matrix to 1e-7, and so what is orthogonal to all rows."""
    x, y = awkward_rows(kind)
    expected, _, rank, sizes = np.linalg.lstsq(x, y, rcond=None)
    working, _ = ended(RidgePath.name, Quadratic(x.T @ x, x.T @ y, 0.0), SINGLE)
    bound = (sizes[0] / sizes[rank - 1]) ** 2 * gamma(len(x), SINGLE)
    assert np.linalg.norm(working.model - expected) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize("exponent", [14, 16])
def test_beyond_rounding_a_path_still_has_no_rubbish(exponent: int) -> None:
    """The smallest curvatures are rounding: rows are predicted as well as the data without them allow."""
    given_quadratic = rows_of_condition(10.0**exponent, DOUBLE)
    working, epochs = ended(RidgePath.name, given_quadratic, DOUBLE)
    assert epochs <= 1 + 30 // 3
    values, vectors = np.linalg.eigh(given_quadratic.A)
    kept = values > 100 * np.finfo(float).eps * 30 * values[-1]
    best = vectors[:, kept] / values[kept] @ (vectors[:, kept].T @ given_quadratic.B)
    loss = [float(np.vdot(m, given_quadratic.A @ m / 2 - given_quadratic.B)) for m in (working.model, best)]
    assert loss[0] <= loss[1] * (1 - 1e-9)
    assert np.linalg.norm(working.model) <= 100 * np.linalg.norm(best)
