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
from codedfl.task import Problem
from codedfl.testing.schemes import registered
from rundirs import small, small_problem
from solvers.quadratics import Quadratic, quadratic, solver
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


def test_a_singular_system_gets_one_sentence() -> None:
    given_quadratic = Quadratic(np.diag([1.0, 0.0]), np.ones((2, 1)), 0.0)
    working = solver("closed-form", given_quadratic)
    with pytest.raises(TrainingError) as error:
        working.solve(given_quadratic.A, given_quadratic.B)  # type: ignore[attr-defined]
    assert "task.ridge = 0" in str(error.value)
    assert is_one_sentence(str(error.value))
    assert not working.finished


def test_it_is_within_the_condition_of_a_direct_solver() -> None:
    for exponent in (0, 3, 6, 9):
        given_quadratic = quadratic(np.geomspace(10.0**-exponent, 1, 20), 3)
        working = solver("closed-form", given_quadratic)
        working.solve(given_quadratic.A, given_quadratic.B)  # type: ignore[attr-defined]
        error = np.linalg.norm(working.model - given_quadratic.solution)
        assert error <= 10.0**exponent * gamma(20 * 20, float) * np.linalg.norm(given_quadratic.solution)
