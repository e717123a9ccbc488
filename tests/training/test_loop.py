"""The training loop: the model against exact arithmetic, records, resuming, divergence and stopping."""

import io
import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from codedfl.engines import VirtualEngine
from codedfl.engines.contract import LATE_ROUNDS, Receive, StageOutcome
from codedfl.errors import TrainingError
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.schemes.contract import Stage
from codedfl.task import Problem, Shard
from codedfl.training import BLOCK, COLUMNS, History, State
from tiny import gamma, is_one_sentence, problem, scenario, spied, trained

FLEET = [{"count": 2, "mac_rate": 1e4}, {"count": 2, "mac_rate": 1e3}]
SIZES = [9, 6, 8, 7]


SMALL = {
    "schemes.drop-slowest": {"wait_for": 3},
    "schemes.code-based": {"n": 12, "degree": 3, "t_tot": 4, "t": 2, "M": 2, "beta": 1, "delta": 1e-3},
}
"""Options that fit so small a problem, where the defaults do not."""


def wanted(changes: dict[str, Any] | None = None) -> Scenario:
    base = {"scheme": "conventional", "fleet.devices": FLEET, **SMALL}
    return scenario({**base, **(changes or {})})


# --- the model ---


def test_the_model_is_that_of_exact_arithmetic() -> None:
    """Two devices, two features, one output, integers; three epochs in fractions.

    X_1 = [[1, 2], [0, 1]], Y_1 = [1, 0]; X_2 = [[2, 0]], Y_2 = [3]; m = 3, lambda = 1/8, mu = 1/4, halved from
    epoch 3 on. All of it is exact in binary but the division by 3; each epoch rounds less than 20 times in a row, and
    |1 - mu L| <= 1 keeps earlier errors from growing: L <= trace = (5 + 5)/3 + 1/8, so mu L < 2.
    """
    shards = (
        Shard(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[1.0], [0.0]])),
        Shard(np.array([[2.0, 0.0]]), np.array([[3.0]])),
    )
    given_problem = Problem(shards, np.eye(2), np.array([[0.0], [1.0]]), "regression", 0.125)
    settings_ = {"training.learning_rate": 0.25, "training.decay": 0.5, "training.decay_epochs": [3]}
    chosen = wanted({**settings_, "training.epochs": 3, "fleet.devices": [{"count": 2, "mac_rate": 1.0}]})
    rows = [((1, 2), 1), ((0, 1), 0), ((2, 0), 3)]
    theta, largest = [Fraction(0), Fraction(0)], Fraction(0)
    for epoch in (1, 2, 3):
        mu = Fraction(1, 4) if epoch < 3 else Fraction(1, 8)
        errors = [sum(a * t for a, t in zip(x, theta, strict=True)) - y for x, y in rows]
        slope = [sum(e * x[j] for e, (x, _) in zip(errors, rows, strict=True)) / 3 + theta[j] / 8 for j in (0, 1)]
        largest = max([largest, *map(abs, theta), *map(abs, slope)])
        theta = [t - mu * s for t, s in zip(theta, slope, strict=True)]
    found = trained(given_problem, chosen).model[:, 0]
    size = float(max(largest, *map(abs, theta))) * 10  # rows add up to at most |1| + |2| + |2| and |y| <= 3 in size
    assert all(abs(found[j] - float(theta[j])) <= 3 * gamma(20, float) * size for j in (0, 1))


@pytest.mark.parametrize("scheme", ["conventional", "minibatch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_records_are_those_of_the_models(scheme: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy by scikit-learn, norms and rates of each epoch, and the running time of the state."""
    epochs = 2 * BLOCK + 3
    given_problem = problem(SIZES, dtype=dtype)
    milestone = {"training.decay_epochs": [4], "training.decay": 0.5}
    chosen = wanted({"scheme": scheme, "training.epochs": epochs, "task.precision": dtype, **milestone})
    seen = spied(monkeypatch, chosen)
    models, times = [], []

    def note(state: State) -> None:
        models.append(state.model.astype(dtype))
        times.append(state.now)

    columns = trained(given_problem, chosen, after_epoch=note).history.columns
    expected = dict.fromkeys((*COLUMNS, "gradient_bound"), epochs)
    assert {name: len(values) for name, values in columns.items()} == expected
    assert columns["epoch"] == list(range(1, epochs + 1))
    assert columns["time"] == times == sorted(times)
    assert columns["learning_rate"] == [0.05] * 3 + [0.025] * (epochs - 3)
    assert columns["gradient_norm"] == [float(np.linalg.norm(epoch.gradient)) for epoch in seen]
    assert columns["replies"] == [len(epoch.replies) for epoch in seen]
    predicted = [np.argmax(given_problem.x_test @ model, axis=1) for model in models]
    assert columns["accuracy"] == [accuracy_score(given_problem.y_test, labels) for labels in predicted]
    assert columns["d2d_bits"] == [0] * epochs
    assert np.isnan(columns["gradient_error"]).all() == (scheme == "minibatch"), "a part is no full gradient"


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**30])
def test_errors_of_gradients_are_relative(unit: float) -> None:
    """In another unit of targets, a power of two, gradients change by it to the last bit, and relative errors not."""
    base = problem(SIZES, kind="regression")
    shards = tuple(Shard(shard.x, unit * shard.y) for shard in base.shards)
    other = Problem(shards, base.x_test, unit * base.y_test, "regression", base.ridge)
    one, two = (trained(each, wanted()).history.columns for each in (base, other))
    assert np.array_equal(np.array(one["gradient_norm"]) * unit, two["gradient_norm"])
    assert max(one["gradient_error"]) > 0
    assert one["gradient_error"] == two["gradient_error"]


@pytest.mark.parametrize("offline", [True, False])
def test_the_first_epoch_is_offline_if_so_wanted(offline: bool) -> None:
    history = trained(problem(SIZES), wanted({"training.first_epoch_offline": offline})).history
    first, second = (history.rounds[number] for number in history.round_of_epoch[:2])
    assert np.array_equal(first.up_bits, second.up_bits)
    assert np.array_equal(first.macs, 0 * second.macs if offline else second.macs)
    assert np.array_equal(first.down_bits, 0 * second.down_bits if offline else second.down_bits)


def test_every_epoch_records_how_many_losses_are_left() -> None:
    """Three replies of four are awaited, so that one device may be lost."""
    columns = trained(problem(SIZES), wanted({"scheme": "drop-slowest"})).history.columns
    assert columns["losses_left"] == [1] * 5


@pytest.mark.parametrize(
    ("scheme", "epochs", "left", "repairs"),
    [
        ("drop-slowest", 6, [1, 1, 1, 1, 0, 0], []),
        ("sealed-coded", 5, [1, 1, 1, 1, 0], []),
        ("sealed-coded", 6, [1, 1, 1, 1, 1, 1], [5]),
    ],
)
def test_a_lost_device_is_replaced_where_the_scheme_can_unless_it_is_the_end(
    scheme: str, epochs: int, left: list[int], repairs: list[int]
) -> None:
    """Device 1 is gone from epoch 5 on; "sealed-coded" repairs after that epoch, if another one follows."""
    state = trained(problem(SIZES), wanted({"scheme": scheme, "training.epochs": epochs}), last_epochs={1: 4})
    assert state.lost == {1}
    assert state.history.columns["losses_left"] == left
    assert [stage.epoch for stage in state.history.stages if stage.epoch > 0] == repairs


def test_devices_keep_what_they_hold_anew_after_a_set_up_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up makes all keep it under a new key; a repair, whoever it sends parcels to, under the same."""
    kept: list[tuple[set[int], bool]] = []
    keep = VirtualEngine.keep

    def noted(self: VirtualEngine, own: Any, devices: Any, *, anew: bool) -> None:
        kept.append((set(devices), anew))
        keep(self, own, devices, anew=anew)

    monkeypatch.setattr(VirtualEngine, "keep", noted)
    trained(problem(SIZES), wanted({"scheme": "sealed-coded", "training.epochs": 6}), last_epochs={1: 4})
    first, repair = kept
    assert first == ({0, 1, 2, 3}, True)
    assert repair[0] and repair[0] < {0, 2, 3} and not repair[1]


def test_equal_rounds_are_kept_once() -> None:
    """Conventional rounds are alike from the second epoch on; parts of 9 samples in 2 differ in turn."""
    conventional = trained(problem(SIZES), wanted()).history
    assert conventional.round_of_epoch == [0, 1, 1, 1, 1]
    assert len(conventional.rounds) == 2
    parts = {"scheme": "minibatch", "schemes.minibatch.parts": 2}
    minibatch = trained(problem([9, 9, 8, 8]), wanted(parts)).history
    assert minibatch.round_of_epoch == [0, 1, 2, 1, 2]
    assert len(minibatch.rounds) == 3


def test_a_zero_gradient_at_the_beginning_has_no_relative_error() -> None:
    """Targets of zero: the zero model is right, and there is nothing to be relative to."""
    shards = tuple(Shard(shard.x, 0 * shard.y) for shard in problem(SIZES).shards)
    given_problem = Problem(shards, np.eye(6)[:2], np.array([[0.0], [1.0]]).repeat(3, axis=1), "regression", 0.01)
    columns = trained(given_problem, wanted()).history.columns
    assert np.isnan(columns["gradient_error"]).all() and np.isnan(columns["gradient_bound"]).all()
    assert columns["loss"] == [0.0] * 5


# --- going on after an interruption ---


class InterruptionError(Exception):
    """Stands for a kill."""


def stored(state: State) -> dict[str, np.ndarray]:
    """A state as it comes back from a file."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **state.to_arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """The same names, types, shapes and bits."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape), name
        assert array.tobytes() == other[name].tobytes(), name


def stopped_after(given_problem: Problem, chosen: Scenario, epoch: int) -> dict[str, np.ndarray]:
    """What a training left behind that was killed after an epoch."""
    kept: dict[str, np.ndarray] = {}

    def stop(state: State) -> None:
        if state.epoch == epoch:
            kept.update(stored(state))
            raise InterruptionError

    with pytest.raises(InterruptionError):
        trained(given_problem, chosen, after_epoch=stop)
    return kept


@settings(max_examples=10)
@given(
    stops=st.sets(st.integers(1, 2 * BLOCK + 4), max_size=2),
    scheme=st.sampled_from(list(SCHEMES)),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_a_resumed_training_ends_with_the_same_bits(stops: set[int], scheme: str, precision: str) -> None:
    given_problem = problem(SIZES, dtype=precision)
    changes = {"scheme": scheme, "task.precision": precision, "training.epochs": 2 * BLOCK + 5}
    chosen = wanted(changes)
    whole = trained(given_problem, chosen)
    state: State | None = None
    for stop in sorted(stops):
        kept: dict[str, np.ndarray] = {}

        def interrupt(current: State, stop: int = stop, kept: dict[str, np.ndarray] = kept) -> None:
            if current.epoch == stop:
                kept.update(stored(current))
                raise InterruptionError

        with pytest.raises(InterruptionError):
            trained(given_problem, chosen, state, interrupt)
        state = State.from_arrays(kept)
        assert stop - LATE_ROUNDS <= state.epoch <= stop, "what late replies may show to be wrong is not stored"
    assert_same(trained(given_problem, chosen, state).to_arrays(), whole.to_arrays())


@pytest.mark.parametrize("epoch", [1, BLOCK - 1, BLOCK, BLOCK + 3])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_state_comes_back_from_its_arrays_bit_for_bit(epoch: int, precision: str) -> None:
    given_problem = problem(SIZES, dtype=precision)
    chosen = wanted({"training.epochs": BLOCK + 5, "scheme": "minibatch"})
    arrays = stopped_after(given_problem, chosen, epoch)
    state = State.from_arrays(arrays)
    assert state.epoch == epoch
    assert len(state.waiting_models) == len(state.waiting_gradients) == epoch % BLOCK
    assert_same(state.to_arrays(), arrays)


def test_a_fresh_state_comes_back_too() -> None:
    fresh = State.fresh(problem(SIZES))
    again = State.from_arrays(stored(fresh))
    assert again.epoch == 0
    assert np.array_equal(again.model, fresh.model)
    assert trained(problem(SIZES), wanted(), again).history.columns == trained(problem(SIZES), wanted()).history.columns


def test_a_history_comes_back_with_its_rounds() -> None:
    history = trained(problem([9, 9, 8, 8]), wanted({"scheme": "minibatch", "schemes.minibatch.parts": 2})).history
    again = History.from_arrays(history.to_arrays())
    assert len(again) == len(history) == 5
    assert again.round_of_epoch == history.round_of_epoch
    assert [costs.key() for costs in again.rounds] == [costs.key() for costs in history.rounds]
    again.add_round(history.rounds[1])
    assert again.round_of_epoch[-1] == 1, "a round that is known already is not kept twice"
    for name in COLUMNS:
        one, other = history.columns[name], again.columns[name]
        assert [type(value) for value in one] == [type(value) for value in other]
        assert np.array_equal(one, other, equal_nan=True)


def test_a_finished_training_is_not_trained_on() -> None:
    final = trained(problem(SIZES), wanted())
    assert_same(trained(problem(SIZES), wanted(), State.from_arrays(final.to_arrays())).to_arrays(), final.to_arrays())


def test_a_set_up_is_replayed_by_the_numbers_of_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages name by number those they come after; "he" has a set-up of two stages, one after the other."""
    numbers: list[int] = []
    carry, replay = VirtualEngine.carry, VirtualEngine.replay_overlapping

    def carried(engine: VirtualEngine, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        numbers.append(number)
        return carry(engine, stage, number, receive)

    def replayed(engine: VirtualEngine, stages: Sequence[Stage], first: int, receive: Receive) -> None:
        numbers.append(first)
        replay(engine, stages, first, receive)

    monkeypatch.setattr(VirtualEngine, "carry", carried)
    monkeypatch.setattr(VirtualEngine, "replay_overlapping", replayed)
    chosen = wanted({"scheme": "he", "training.epochs": 2})
    kept = stopped_after(problem(SIZES), chosen, 1)
    assert numbers == [0, 1]
    trained(problem(SIZES), chosen, State.from_arrays(kept))
    assert numbers[2:4] == [0, 1]


# --- divergence ---


@pytest.mark.parametrize("factor", [1.5, 1e30, 1e300])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_divergence_is_told_with_the_rate_to_stay_below(factor: float, precision: str) -> None:
    given_problem = problem(SIZES, dtype=precision)
    x = np.concatenate([shard.x for shard in given_problem.shards]).astype(float)
    stable = 2 / (np.linalg.eigvalsh(x.T @ x / 30)[-1] + given_problem.ridge)
    settings_ = {"training.epochs": 3 * BLOCK, "task.precision": precision}
    chosen = wanted({**settings_, "training.learning_rate": factor * stable})
    with pytest.raises(TrainingError) as error:
        trained(given_problem, chosen)
    text = str(error.value)
    assert "diverged" in text
    assert "training.learning_rate" in text
    assert f"now {factor * stable:g}" in text
    assert text.endswith(f"below {stable:.3g}")
    assert is_one_sentence(text)
    advised = wanted({**settings_, "training.learning_rate": 0.95 * stable})
    columns = trained(given_problem, advised).history.columns
    assert columns["loss"][-1] < columns["loss"][0]


@pytest.mark.parametrize(("rate", "diverges"), [(1001.0, False), (1001.125, True)])
def test_a_loss_of_a_thousand_times_that_of_zero_is_no_divergence_yet(rate: float, diverges: bool) -> None:
    """A constant is fitted to 41, -39, 21 and -19, of mean 1 and variance 1000: a step from 0 leads to the rate.

    The loss of zero is (1000 + 1) / 2, that of 1001 is (1000 + 1000^2) / 2. All of it is exact.
    """
    shards = tuple(Shard(np.ones((2, 1)), np.array([[1.0 + size], [1.0 - size]])) for size in (40, 20))
    given_problem = Problem(shards, np.ones((2, 1)), np.array([[0.0], [1.0]]), "regression", 0.0)
    two = {"fleet.devices": [{"count": 2, "mac_rate": 1.0}]}
    chosen = wanted({**two, "training.epochs": 1, "training.learning_rate": rate, "task.ridge": 0.0})
    begun = replace(given_problem, start=np.zeros((1, 1)))  # a first model that is zero, too
    for each, first in ((given_problem, "zero"), (begun, "first")):
        if diverges:
            with pytest.raises(TrainingError, match=f"the loss is 5.01e[+]05, that of the {first} model 500;"):
                trained(each, chosen)
        else:
            assert trained(each, chosen).history.columns["loss"] == [500.5 * 1000]


# --- stopping ---


def test_training_stops_at_the_end_of_the_block_that_meets_the_last_target() -> None:
    """Targets are set to scores that the same training is known to reach; R^2 rises from epoch to epoch."""
    given_problem = problem(SIZES, kind="regression")
    scores = trained(given_problem, wanted({"training.epochs": 40})).history.columns["accuracy"]
    assert all(a < b for a, b in itertools.pairwise(scores)), "so that each epoch is first to reach its own score"
    for reached in (1, BLOCK, BLOCK + 1, 2 * BLOCK + 3):
        stop = {"training.epochs": 40, "training.targets": [scores[reached - 1]], "training.stop_at_last_target": True}
        final = trained(given_problem, wanted(stop))
        assert final.epoch == -(-reached // BLOCK) * BLOCK
        assert final.history.columns["accuracy"] == scores[: final.epoch]


@pytest.mark.parametrize(
    "changes",
    [
        {"training.stop_at_last_target": False, "training.targets": [-100.0]},
        {"training.stop_at_last_target": True, "training.targets": []},
        {"training.stop_at_last_target": True, "training.targets": [-100.0, 0.9999999]},
    ],
)
def test_training_goes_on_where_it_is_not_to_stop(changes: dict[str, Any]) -> None:
    given_problem = problem(SIZES, kind="regression")
    assert trained(given_problem, wanted({"training.epochs": 2 * BLOCK, **changes})).epoch == 2 * BLOCK


@pytest.mark.parametrize("epoch", [BLOCK - 2, BLOCK])
def test_a_stopped_training_resumes_to_the_same_end(epoch: int) -> None:
    """Also one that was killed when its last target was met, before it could end."""
    given_problem = problem(SIZES, kind="regression")
    stop = {"training.epochs": 40, "training.targets": [-100.0], "training.stop_at_last_target": True}
    whole = trained(given_problem, wanted(stop))
    assert whole.epoch == BLOCK
    kept = stopped_after(given_problem, wanted(stop), epoch)
    assert_same(trained(given_problem, wanted(stop), State.from_arrays(kept)).to_arrays(), whole.to_arrays())
