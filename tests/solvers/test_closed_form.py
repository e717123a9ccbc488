"""The closed form: through the training loop with a scheme that gives the sums, and refused without."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import ScenarioError, TrainingError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.solvers import ClosedForm, Conditions
from codedfl.task import Problem
from codedfl.testing.schemes import registered
from rundirs import small, small_problem
from solvers.quadratics import Quadratic, advance, awkward_rows, quadratic, solver, stored
from solvers.summed import Summed
from tiny import gamma, is_one_sentence, known, problem, scenario, trained

SIZES = [9, 6, 8, 7]
FLEET = [{"count": 4, "mac_rate": 1e4}]


@pytest.fixture(autouse=True)
def _summed() -> Iterator[None]:
    with registered(Summed):
        yield


def wanted(scheme: str = "summed", **settings: object) -> Scenario:
    changes = {f"training.{key}": value for key, value in settings.items()}
    return scenario({"scheme": scheme, "fleet.devices": FLEET, "training.solver": "closed-form", **changes})


def samples(given: Problem) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([shard.x for shard in given.shards]), np.concatenate([shard.y for shard in given.shards])


def test_one_epoch_gives_the_ridge_solution() -> None:
    """By another way: least squares on the samples with sqrt(m lambda) I below them, through a singular value
    decomposition. Both are within gamma times the condition of the normal equations."""
    given = problem(SIZES, kind="regression")
    final = trained(given, wanted())
    assert final.epoch == 1
    x, y = samples(given)
    tall = np.vstack([x, np.sqrt(30 * given.ridge) * np.eye(6)])
    expected = np.linalg.lstsq(tall, np.vstack([y, np.zeros((6, 3))]), rcond=None)[0]
    bound = np.linalg.cond(tall) ** 2 * gamma(6 * 36, float)
    assert np.linalg.norm(final.model - expected) <= bound * np.linalg.norm(expected)
    columns = final.history.columns
    assert (
        columns["loss"][0]
        < trained(given, wanted("conventional", solver="gradient-descent")).history.columns["loss"][-1]
    )
    assert columns["gradient_error"][0] <= gamma(100, float)
    assert np.isnan(columns["learning_rate"][0])


def test_a_finished_run_is_kept_and_loaded(tmp_path: Path) -> None:
    chosen = small({"scheme": "summed", "training.solver": "closed-form"})
    run = runs.execute(chosen, tmp_path / "run", problem=small_problem)
    assert run.summary["epochs"] == 1
    assert run.timings.shape == (50, 1)
    assert runs.execute(chosen, tmp_path / "run", problem=small_problem).summary == run.summary
    with np.load(tmp_path / "run/model.npz") as arrays:
        error = np.linalg.norm(arrays["theta"] - small_problem().ridge_solution())
    system = small_problem().total_gram / small_problem().samples + small_problem().ridge * np.eye(30)
    # the device's float32 sums differ from the yardstick's by roundings of at most as many rows as a device has
    rounding = np.linalg.cond(system) * gamma(400, np.float32)
    assert error <= rounding * np.linalg.norm(small_problem().ridge_solution())


@pytest.mark.parametrize("name", [*SCHEMES, "summed"])
def test_only_a_scheme_that_gives_the_sums_is_taken(name: str) -> None:
    if name == "summed" or known(name).sums:
        schemes.check(wanted(name))
        return
    with pytest.raises(ScenarioError) as error:
        schemes.check(wanted(name))
    assert "training.solver = 'closed-form'" in str(error.value)
    assert f"'{name}'" in str(error.value)
    assert str(error.value).endswith(
        "gradient-descent, nesterov" + ", conjugate-gradients" * schemes.nominal(wanted(name)).exact
    )
    assert is_one_sentence(str(error.value))


def test_a_scheme_with_sums_serves_the_other_solvers_too() -> None:
    given = problem(SIZES)
    solution = given.ridge_solution()
    final = trained(given, wanted(solver="conjugate-gradients", epochs=4))
    assert np.linalg.norm(final.model - solution) <= 1e-9 * np.linalg.norm(solution)
    assert schemes.create(wanted(), given).server().totals() is not None


def solved(given: Quadratic, ridges: tuple[float | np.ndarray, ...] = ()) -> ClosedForm:
    conditions = Conditions(given.B.shape, given.ridge, lambda epoch: 1.0, 0.0, float(np.finfo(float).eps), ridges)
    working = ClosedForm(conditions)
    working.solve(given.A, given.B)
    assert working.finished
    return working


@pytest.mark.parametrize("kind", ["collinear", "constant", "wide"])
def test_a_singular_system_has_the_solution_of_smallest_norm(kind: str) -> None:
    """By another way: a singular value decomposition of the rows, whose condition is the root of that of the system."""
    x, y = awkward_rows(kind)
    expected, _, rank, sizes = np.linalg.lstsq(x, y, rcond=None)
    assert rank < x.shape[1]
    found = solved(Quadratic(x.T @ x, x.T @ y, 0.0)).model
    bound = (sizes[0] / sizes[rank - 1]) ** 2 * gamma(len(x) * x.shape[1], float)
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize("exponent", [11, 12, 13, 16, 17, 18])
@pytest.mark.parametrize("seed", range(3))
def test_a_system_close_to_singular_gives_no_rubbish(exponent: int, seed: int) -> None:
    """Two columns that differ by 10^-(e/2): eigenvalues of the system down to 10^-e, with a cutoff of 2e-15.

    Above it the solution is that of the rows within condition times rounding. Below it, where a Cholesky factor often
    exists but is made of rounding errors, it is that of the rows without the singular value of the difference.
    """
    x, y = awkward_rows("full")
    other = np.random.default_rng(seed).standard_normal((len(x), 1))
    x = np.hstack([x, x[:, [0]] + 10 ** (-exponent / 2) * other])
    lost = exponent > 14
    expected, _, rank, sizes = np.linalg.lstsq(x, y, rcond=1e-7 if lost else None)
    found = solved(Quadratic(x.T @ x, x.T @ y, 0.0)).model
    bound = (sizes[0] / sizes[rank - 1]) ** 2 * gamma(len(x) * 7, float)
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)
    assert (rank == 6) == lost


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_errors_that_make_an_eigenvalue_negative_are_not_inverted(seed: int) -> None:
    """A Gram matrix known to 1e-6 with two directions without data: errors of either sign are left there."""
    x, y = awkward_rows("collinear")
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    noise = np.random.default_rng(seed).standard_normal((8, 8))
    noise = (noise + noise.T) * 1e-6
    values = np.linalg.eigvalsh(x.T @ x + noise)
    assert values[0] < 0 < values[1] < 1e-5
    found = solved(Quadratic(x.T @ x + noise, x.T @ y, 0.0)).model
    assert np.linalg.norm(found - expected) <= np.linalg.norm(noise) / values[2] * 2 * np.linalg.norm(expected)


@pytest.mark.parametrize("sums", ["gram", "moments"])
def test_sums_that_are_not_finite_get_one_sentence(sums: str) -> None:
    gram, moments = np.eye(2), np.ones((2, 1))
    (gram if sums == "gram" else moments)[1, 0] = np.inf
    with pytest.raises(TrainingError) as error:
        solved(Quadratic(gram, moments, 0.0))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(("second", "kept"), [(9.75, False), (10, False), (10.25, True)])
def test_eigenvalues_up_to_ten_times_the_most_negative_count_as_zero(second: float, kept: bool) -> None:
    """Of three directions one has an eigenvalue of -1/1024, which is an error; in the second it may be another."""
    given = Quadratic(np.diag([-1 / 1024, second / 1024, 1.0]), np.array([[2.0], [3.0], [5.0]]), 0.0)
    expected = [0.0, 3 * 1024 / second if kept else 0.0, 5.0]
    assert solved(given).model[:, 0] == pytest.approx(expected, rel=1e-14)


def test_no_data_give_the_zero_model() -> None:
    assert not solved(Quadratic(np.zeros((3, 3)), np.zeros((3, 2)), 0.0)).model.any()


def test_a_weight_of_some_features_bounds_the_errors_of_data() -> None:
    """An eigenvalue of 1e-8 is below the rounding of float32, but with any ridge term that of float64 decides."""
    gram, moments, single = np.diag([1.0, 1e-8]), np.ones((2, 1)), float(np.finfo(np.float32).eps)
    for weight, expected in [(1.0, [0.5, 1e8]), (0.0, [1.0, 0.0])]:
        ridge = np.array([[weight], [0.0]])
        working = ClosedForm(Conditions((2, 1), ridge, lambda epoch: 1.0, 0.0, single))
        working.solve(gram, moments)
        assert working.model[:, 0] == pytest.approx(expected, rel=1e-12)


PENALTY = np.geomspace(0.1, 10, 20)[:, None]


def test_a_weight_for_each_feature_is_a_diagonal_matrix() -> None:
    given = quadratic(np.geomspace(1e-3, 1, 20), 3, ridge=0.01 * PENALTY)
    expected = np.linalg.solve(given.A + np.diag(0.01 * PENALTY[:, 0]), given.B)
    assert np.linalg.norm(solved(given).model - expected) <= 1e3 * gamma(400, float) * np.linalg.norm(expected)


@pytest.mark.parametrize("penalty", [1.0, PENALTY], ids=["alike", "by feature"])
def test_a_path_is_the_solution_of_each_weight(penalty: float | np.ndarray) -> None:
    weights = (1e-4, 1e-2, 1.0)
    given = quadratic(np.geomspace(1e-3, 1, 20), 3, ridge=weights[0] * penalty)
    working = solved(given, tuple(weight * penalty for weight in weights))
    assert working.models.shape == (3, 20, 3)
    for weight, model in zip(weights, working.models, strict=True):
        expected = np.linalg.solve(given.A + weight * np.diag(np.broadcast_to(penalty, (20, 1))[:, 0]), given.B)
        assert np.linalg.norm(model - expected) <= 1e3 * gamma(400, float) * np.linalg.norm(expected)
    assert np.array_equal(working.model, working.models[0])
    again = ClosedForm(working._conditions)
    again.restore(stored(working.to_arrays()))
    assert again.models.tobytes() == working.models.tobytes()
    assert solved(given).models.shape == (1, 20, 3)


def test_weights_of_features_beside_numbers_on_one_path() -> None:
    given = quadratic(np.geomspace(1e-3, 1, 20), 3, ridge=0.01)
    for model, ridge in zip(solved(given, (0.01, PENALTY, 1.0)).models, (0.01, PENALTY, 1.0), strict=True):
        expected = np.linalg.solve(given.A + ridge * np.eye(20), given.B)
        assert np.linalg.norm(model - expected) <= 1e3 * gamma(400, float) * np.linalg.norm(expected)


def test_there_are_no_models_of_a_path_before_it_is_solved() -> None:
    conditions = Conditions((4, 2), 0.1, lambda epoch: 1.0, 0.0, 2**-52, (0.1, 1.0, 10.0))
    assert ClosedForm(conditions).models.shape == (0, 4, 2)


def test_the_measured_gradient_is_that_with_the_ridge_term() -> None:
    """At the solution it vanishes, and one without the term, or with it taken away, is 0.1 times the model or more."""
    given = quadratic(np.linspace(0.5, 1, 6), 2, ridge=0.1)
    working = solver("closed-form", given)
    advance(working, given)
    advance(working, given)
    first, norm = working.to_arrays()["norms"]
    assert first == pytest.approx(np.linalg.norm(given.B), rel=1e-14)
    assert norm <= 1e-13 * first


def test_it_is_within_the_condition_of_a_direct_solver() -> None:
    for exponent in (0, 3, 6, 9):
        given_quadratic = quadratic(np.geomspace(10.0**-exponent, 1, 20), 3)
        working = solver("closed-form", given_quadratic)
        working.solve(given_quadratic.A, given_quadratic.B)  # type: ignore[attr-defined]
        error = np.linalg.norm(working.model - given_quadratic.solution)
        assert error <= 10.0**exponent * gamma(20 * 20, float) * np.linalg.norm(given_quadratic.solution)
