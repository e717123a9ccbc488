"""Lying workers: the model is that of the honest run to the last bit, and the liar is named, or the run stops."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.codes.modular import PRIME_61
from codedfl.engines import VirtualEngine
from codedfl.errors import CipherError, LostDevicesError, LyingDeviceError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.testing.lying import Liar
from codedfl.training import State, train
from tiny import is_one_sentence, problem, scenario

SIZES = [9, 6, 8, 7, 5, 6, 8]
EPOCHS = 8
SOLVERS = ("gradient-descent", "conjugate-gradients")
SCHEMES = ("sealed-coded", "coded-padded")


def chosen(scheme: str, spare: int, solver: str = "gradient-descent", **changes: Any) -> Scenario:
    """Seven devices: of ``sealed-coded`` the five fastest are workers; ``spare`` replies are not needed."""
    rates = [{"count": 1, "mac_rate": 1e4 / (1 + number)} for number in range(len(SIZES))]
    own = {"workers": 5, "threshold": 5 - spare} if scheme == "sealed-coded" else {"alpha": 1 + spare}
    base = {"scheme": scheme, "fleet.devices": rates, "training.epochs": EPOCHS, "task.precision": "float64"}
    return scenario({**base, f"schemes.{scheme}": own, "training.solver": solver, "training.tolerance": 0.0, **changes})


def trained(
    wanted: Scenario,
    liars: Sequence[Liar] = (),
    state: State | None = None,
    after_epoch: Callable[[State], None] = lambda state: None,
    last_epochs: Mapping[int, int] | None = None,
) -> State:
    given_problem = problem(SIZES, dtype="float64")
    scheme = schemes.create(wanted, given_problem)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given_problem.shards)]
    for liar in liars:
        liar.corrupt(devices, scheme.formats.field)
    state = state or State.fresh(given_problem)
    delays, timing = DelayModel.create(wanted.fleet, wanted.links), wanted.timing
    last_epochs = last_epochs or {}
    engine = VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw, now=state.now, last_epochs=last_epochs)
    return train(given_problem, wanted, scheme, engine, state, after_epoch)


_honest: dict[tuple[str, int, str], State] = {}


def honest(scheme: str, spare: int, solver: str) -> State:
    key = scheme, spare, solver
    if key not in _honest:
        _honest[key] = trained(chosen(*key))
    return _honest[key]


def same_training(found: State, expected: State) -> None:
    """Everything but the time, which lies cost, and how many devices there were to ask."""
    assert found.model.tobytes() == expected.model.tobytes()
    assert found.plain_gradient.tobytes() == expected.plain_gradient.tobytes()
    for name in ("epoch", "accuracy", "loss", "gradient_norm", "gradient_error", "learning_rate"):
        assert np.array_equal(found.history.columns[name], expected.history.columns[name], equal_nan=True), name


ALWAYS: Callable[[int], bool] = lambda epoch: epoch > 1  # noqa: E731

epochs = st.one_of(
    st.just(ALWAYS),
    st.sets(st.integers(2, EPOCHS), min_size=1).map(lambda some: lambda epoch: epoch in some),
)


@settings(max_examples=60, deadline=None)
@given(
    scheme=st.sampled_from(SCHEMES),
    solver=st.sampled_from(SOLVERS),
    tells=st.lists(epochs, min_size=1, max_size=2),
    who=st.permutations(range(5)),
    entries=st.sampled_from(["all", "one"]),
)
def test_liars_within_the_bound_change_nothing_and_are_named(
    scheme: str, solver: str, tells: list[Any], who: list[int], entries: str
) -> None:
    """Whoever lies, in every epoch or some, by a little or at random; four spare replies are enough for two liars.

    A lie that arrives too late for anything is not seen. Who lies in every epoch is seen, fast or slow.
    """
    liars = [Liar(device, when, entries) for device, when in zip(who, tells, strict=False)]
    found = trained(chosen(scheme, 4, solver), liars)
    same_training(found, honest(scheme, 4, solver))
    named, speaking = {lie.device for lie in found.lies}, {liar.device for liar in liars if liar.told}
    assert named <= speaking
    assert {liar.device for liar in liars if liar.tells is ALWAYS} <= named
    assert (found.spoilt > 0) == bool(named)
    assert found.checked == set(range(1 if scheme == "coded-padded" else 2, EPOCHS + 1))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_honest_epochs_are_all_checked(scheme: str, solver: str) -> None:
    """But the first of ``sealed-coded``, in which every device has a band of its own."""
    found = honest(scheme, 1, solver)
    assert found.checked == set(range(1 if scheme == "coded-padded" else 2, EPOCHS + 1))
    assert (found.lies, found.spoilt) == ([], 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("entries", ["all", "one"])
def test_one_spare_reply_detects_and_the_run_stops_before_the_lie(scheme: str, entries: str) -> None:
    """The state that is left is that of the honest run after epoch 5: what was not checked is undone."""
    kept: dict[int, bytes] = {}
    trained(chosen(scheme, 1), after_epoch=lambda state: kept.setdefault(state.epoch, state.model.tobytes()))
    given_state = State.fresh(problem(SIZES, dtype="float64"))
    with pytest.raises(LyingDeviceError, match="replied wrong numbers in epoch 6") as error:
        trained(chosen(scheme, 1), [Liar(0, lambda epoch: epoch >= 6, entries)], given_state)
    assert is_one_sentence(str(error.value))
    assert given_state.epoch == 5
    assert given_state.model.tobytes() == kept[5]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_spare_reply_names_who_tells_the_truth_when_asked_again(scheme: str) -> None:
    """The same question must have the same answer."""
    calls: list[int] = []

    def once(epoch: int) -> bool:
        calls.append(epoch)
        return epoch == 6 and calls.count(6) == 1

    found = trained(chosen(scheme, 1), [Liar(0, once)])
    same_training(found, honest(scheme, 1, "gradient-descent"))
    assert [(lie.device, lie.epoch, lie.contradicts_itself) for lie in found.lies] == [(0, 6, True)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_spare_replies_nothing_is_checked_and_the_state_says_so(scheme: str) -> None:
    """W = K: a small lie passes, as it did everywhere before; a large one ends the run in most cases."""
    assert honest(scheme, 0, "gradient-descent").checked == set()
    with pytest.raises(CipherError, match="larger than the bounds allow"):
        trained(chosen(scheme, 0), [Liar(0)])


def test_everyone_is_awaited_after_a_lie_that_only_the_audit_shows() -> None:
    """One reply is enough, and all others come too late to check epoch 2: the same lie told again names its author."""
    calls: list[int] = []

    def twice(epoch: int) -> bool:
        calls.append(epoch)
        return epoch == 2 and calls.count(2) <= 2

    rates = [{"count": 1, "mac_rate": 1e4}, {"count": 6, "mac_rate": 1.0}]
    found = trained(chosen("coded-padded", 6, **{"fleet.devices": rates}), [Liar(0, twice, "one", 1)])
    same_training(found, honest("coded-padded", 6, "gradient-descent"))
    assert [(lie.device, lie.epoch) for lie in found.lies] == [(0, 2)]


def test_a_second_return_does_not_lead_to_what_the_first_one_undid() -> None:
    """Device 0 alone is in time and lies in epoch 1, which is asked again in the end.

    Then device 1 alone is in time and lies in epoch 2, as it did when nobody waited for it, which the audit shows: the
    training goes back to the model of epoch 1 as it was computed again.
    """
    asked: list[tuple[int, int]] = []

    def at_first(device: int, wrong: int, times: int) -> Liar:
        def tells(epoch: int) -> bool:
            asked.append((device, epoch))
            return epoch == wrong and asked.count((device, epoch)) <= times

        return Liar(device, tells, "one", 1)

    rates = [{"mac_rate": 1e7, "up_rate": 1e9}, {"mac_rate": 1e5, "up_rate": 1e4}]
    rates += [{"count": 5, "mac_rate": 1e5, "up_rate": 1.0}]
    changes = {"fleet.devices": rates, "training.first_epoch_offline": False}
    found = trained(chosen("coded-padded", 6, **changes), [at_first(0, 1, 1), at_first(1, 2, 2)])
    assert [(lie.device, lie.epoch) for lie in found.lies] == [(0, 1)]
    assert found.spoilt == EPOCHS + (EPOCHS - 1)
    same_training(found, honest("coded-padded", 6, "gradient-descent"))


def test_what_is_left_of_a_run_that_lost_too_many_devices_is_checked() -> None:
    """One spare reply, that of a device a thousand times slower: it is awaited when too few devices are left."""
    left = State.fresh(problem(SIZES, dtype="float64"))
    slow = chosen("coded-padded", 1, **{"fleet.devices.6.mac_rate": 1.0})
    with pytest.raises(LostDevicesError):
        trained(slow, state=left, last_epochs={0: 2, 6: 2})
    assert left.epoch == 2
    assert left.checked == {1, 2}


def test_the_liar_is_replaced_and_the_others_are_checked_as_before() -> None:
    """Five workers of seven devices; the sixth takes the place of the liar."""
    found = trained(chosen("sealed-coded", 2), [Liar(1)])
    assert sorted(found.server["workers"]) == [0, 2, 3, 4, 5]
    assert found.server["gone"].tolist() == [1]
    assert found.checked == set(range(2, EPOCHS + 1))
    replaced = [stage for stage in found.history.stages if stage.epoch > 0]
    assert [len(stage.costs) for stage in replaced] == [3], "K workers rebuild the coded block"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_run_killed_between_a_lie_and_its_detection_resumes_right(scheme: str, solver: str) -> None:
    """What is stored after any epoch leads to the honest model, also if the spoilt epoch was already over.

    One reply is enough (K = 1), so that a lie of one step passes all bounds: it is found by late replies alone.
    """
    spare, step = (4, pow(1 + 0, -1, PRIME_61)) if scheme == "sealed-coded" else (6, 1)
    liar = lambda: Liar(0, lambda epoch: epoch >= 4, "one", step)  # noqa: E731
    wanted, stored = chosen(scheme, spare, solver), []
    whole = trained(wanted, [liar()], after_epoch=lambda state: stored.append(state.to_arrays()))
    same_training(whole, honest(scheme, spare, solver))
    assert len(stored) > EPOCHS, "some epochs were computed twice"
    for arrays in stored[:-1]:
        again = trained(wanted, [liar()], State.from_arrays(arrays))
        same_training(again, honest(scheme, spare, solver))
        assert {lie.device for lie in again.lies} == {0}
