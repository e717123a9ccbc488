"""Every solver on every scheme, through the one training loop."""

import io
from typing import Any

import numpy as np
import pytest

from codedfl.engines.contract import LATE_ROUNDS
from codedfl.errors import ScenarioError
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, check, create
from codedfl.solvers import SOLVERS
from codedfl.task import Problem, accuracy
from codedfl.training import State
from contracts.test_schemes import SIZES, tiny
from contracts.test_schemes import wanted as wanted_of
from tiny import is_one_sentence, known, problem, promised_gradient, spied, trained

EPOCHS = 10


def served(solver: str, scheme: str) -> bool:
    kind, made = SOLVERS[solver], known(scheme)
    return (made.exact or not kind.needs_exact) and (made.sums or not kind.needs_sums)


PAIRS = [pytest.param(solver, scheme, id=f"{solver} on {scheme}") for solver in SOLVERS for scheme in SCHEMES]
SERVED = [pair for pair in PAIRS if served(*pair.values)]  # type: ignore[arg-type]


def wanted(solver: str, scheme: str, changes: dict[str, Any] | None = None) -> Scenario:
    return wanted_of(scheme, {"training.solver": solver, **(changes or {})})


def lasts(solver: str) -> int:
    """The closed form is finished after its first epoch."""
    return 1 if SOLVERS[solver].needs_sums else EPOCHS


@pytest.mark.parametrize(("solver", "scheme"), PAIRS)
def test_a_solver_is_refused_in_one_sentence_or_serves(solver: str, scheme: str) -> None:
    if served(solver, scheme):
        check(wanted(solver, scheme))
        return
    with pytest.raises(ScenarioError) as error:
        check(wanted(solver, scheme))
    assert f"training.solver = '{solver}'" in str(error.value)
    assert f"'{scheme}'" in str(error.value)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if not known(name).sums])
def test_a_scheme_that_promises_no_sums_gives_none(scheme: str) -> None:
    assert create(wanted("gradient-descent", scheme), tiny(scheme)).server().totals() is None


def check_scores(solver: str, given: Problem, models: list[np.ndarray], columns: dict[str, Any]) -> None:
    """The accuracy and loss of each model, and the rate of each epoch where there is one."""
    assert columns["accuracy"] == [accuracy(given.x_test @ model, given.y_test) for model in models]
    x, y = (np.concatenate([getattr(shard, key) for shard in given.shards]) for key in ("x", "y"))
    losses = [
        np.sum((x @ model - y) ** 2) / (2 * given.samples) + given.ridge / 2 * np.sum(model**2) for model in models
    ]
    assert np.allclose(columns["loss"], losses, rtol=1e-12)
    rates = [np.nan if SOLVERS[solver].stable_share is None else 0.1] * lasts(solver)
    assert np.array_equal(columns["learning_rate"], rates, equal_nan=True)
    assert min(losses) < given.target_energy / (2 * given.samples)


IN_SINGLE_PRECISION = "conjugate-gradients"
"""The solver that feels rounding most; the others ask and are answered alike."""


@pytest.mark.parametrize(
    ("solver", "scheme", "precision"),
    [
        pytest.param(*pair.values, precision, id=f"{precision}-{pair.id}")
        for pair in SERVED
        for precision in ("float32", "float64")
        if precision == "float64" or pair.values[0] == IN_SINGLE_PRECISION
    ],
)
def test_gradients_are_those_of_the_queries_and_scores_those_of_the_solvers_model(
    solver: str, scheme: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients within the rounding of devices that compute in clear, or of fixed point; the first query is zero."""
    given, chosen = tiny(scheme, precision), wanted(solver, scheme, {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    models: list[np.ndarray] = []
    columns = trained(given, chosen, after_epoch=lambda state: models.append(state.model)).history.columns
    if precision == "float64":
        check_scores(solver, given, models, columns)
    assert not seen[0].model.any()
    assert len(columns["gradient_error"]) == len(seen) == lasts(solver)
    if not known(scheme).exact:
        assert np.all(np.isnan(columns["gradient_error"]))
        return
    first = np.linalg.norm(seen[0].gradient)
    made = create(chosen, given)
    for epoch, noted in zip(seen, columns["gradient_error"], strict=True):
        expected, bound = promised_gradient(made, given.shards, seen[: epoch.epoch])
        assert np.all(abs(epoch.gradient - expected) <= bound)
        assert noted <= np.linalg.norm(2 * bound) / first, "the run's own yardstick rounds too"


@pytest.mark.parametrize(("solver", "scheme"), SERVED)
def test_stopped_after_an_epoch_it_ends_with_the_same_bits(solver: str, scheme: str) -> None:
    """What was saved after an epoch of a whole training is all that a killed one leaves."""
    given, chosen = tiny(scheme, "float32"), wanted(solver, scheme, {"task.precision": "float32"})
    stops = (1, EPOCHS - 1) if solver == "gradient-descent" else (EPOCHS // 2,)
    saved = {stop: io.BytesIO() for stop in stops if stop < lasts(solver)}

    def save(state: State) -> None:
        if state.epoch in saved:
            np.savez(saved[state.epoch], allow_pickle=False, **state.to_arrays())

    whole = trained(given, chosen, after_epoch=save).to_arrays()
    for stop, file in saved.items():
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            state = State.from_arrays(arrays)
        assert stop - LATE_ROUNDS <= state.epoch <= stop, "what late replies may show to be wrong is not stored"
        again = trained(given, chosen, state).to_arrays()
        assert again.keys() == whole.keys()
        for name, array in whole.items():
            assert (array.dtype, array.shape) == (again[name].dtype, again[name].shape), name
            assert array.tobytes() == again[name].tobytes(), (stop, name)


@pytest.mark.parametrize(("solver", "scheme"), [pair for pair in SERVED if known(pair.values[1]).exact])  # type: ignore[index]
def test_a_tolerance_ends_the_training_and_all_its_epochs_are_scored(
    solver: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient at the last query, ridge term included, is the first that is small enough."""
    if SOLVERS[solver].needs_sums:
        return
    given = tiny(scheme)
    chosen = wanted(solver, scheme, {"training.tolerance": 0.05, "training.epochs": 500, "training.learning_rate": 0.4})
    seen = spied(monkeypatch, chosen)
    final = trained(given, chosen)
    norms = [np.linalg.norm(epoch.gradient + given.ridge * epoch.model) for epoch in seen]
    assert 1 < final.epoch == len(norms) < 500
    assert {len(values) for values in final.history.columns.values()} == {final.epoch}
    assert norms[-1] <= 0.05 * norms[0]
    if SOLVERS[solver].asks_at_model:
        assert norms[-2] > 0.05 * norms[0]
    again = trained(given, chosen, State.from_arrays(final.to_arrays()))
    assert again.epoch == final.epoch, "a finished training is not trained on"


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if known(name).exact])
def test_conjugate_gradients_end_whatever_a_scheme_can_send(scheme: str) -> None:
    """A scheme that rounds what it sends comes closer to the model by repeating the question: a few epochs more."""
    given = problem([40] * len(SIZES[scheme]), features=24, outputs=3)
    fleet = wanted("gradient-descent", scheme).to_table()["fleet"]
    changes = {"training.epochs": 60, "training.tolerance": 1e-3, "fleet": fleet}
    small = {"n": 48, "degree": 5, "t_tot": 8, "t": 4, "M": 4, "beta": 2} if scheme == "code-based" else {}
    chosen = wanted("conjugate-gradients", scheme, changes | ({f"schemes.{scheme}": small} if small else {}))
    plain = trained(given, wanted("conjugate-gradients", "conventional", changes))
    state = trained(given, chosen)
    assert state.epoch <= plain.epoch + 8
    exact = given.ridge_solution()
    first = np.linalg.norm(given.total_moments / given.samples)
    curvature = given.total_gram / given.samples + given.ridge * np.eye(24)
    residual = np.linalg.norm(curvature @ (state.model - exact))
    assert residual <= 2e-3 * first, "the gradient at the end is as small as was asked for, up to the rounding of data"
