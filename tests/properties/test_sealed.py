"""Laws of the sealed schemes over random histories: who shares with whom, who is lost and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.errors import CipherError, LostDevicesError
from codedfl.schemes import Work
from codedfl.task import Problem
from codedfl.training import State
from schemes.residues import carry, decoded, is_exact, set_up, summed, wanted
from tiny import is_one_sentence, problem, promised_gradient, spied, trained

DEVICES = 6
EPOCHS = 7
SECONDS = st.one_of(st.integers(0, 3).map(float), st.floats(0.0, 4.0))


@cache
def shared() -> Problem:
    return problem([4, 7, 1, 5, 9, 3], features=8, outputs=2)


@contextmanager
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(st.data())
@settings(max_examples=12)
def test_every_history_of_sharing_is_exact_and_no_pad_is_used_twice(data: st.DataObject) -> None:
    """Hand-overs, forwardings and chains of them: the decoded product is that of whole numbers, to the last bit.

    Seeds are all different, and so are (device, export); a second export under one grant is refused.
    """
    given_problem = shared()
    ring = data.draw(st.sampled_from(["Z_2^32", "Z_2^64"]))
    options = {"schemes.sealed": {"delta": data.draw(st.sampled_from([0.0, 0.5, 1.0])), "ring": ring}}
    scheme: Any = schemes.create(wanted("sealed", options), given_problem)
    with patched() as patch:
        products = decoded(patch)
        server, devices, granted, _ = set_up(scheme, given_problem.shards)
        moved: list[Any] = []
        first = server.combine(1, {0: devices[0].reply(1, {}, Work())}, Work())
        for epoch in range(2, EPOCHS):
            model = np.array(data.draw(st.lists(st.floats(-4, 4), min_size=16, max_size=16))).reshape(8, 2)
            asked = server.ask(epoch, model).requests
            assert set(asked) == set(range(DEVICES)) - {transfer.sender for transfer in moved}
            replies = {device: devices[device].reply(epoch, asked[device], Work()) for device in asked}
            server.combine(epoch, replies, Work())
            stage = server.after_epoch(epoch, {device: data.draw(SECONDS) for device in asked}, ())
            transfers = [] if stage is None else stage.transfers
            carry(devices, transfers)
            moved += transfers
        assert len(products) == EPOCHS - 2
        assert all(is_exact(*entry, scheme, given_problem.shards) for entry in products)
    moments = summed([-shard.moments for shard in given_problem.shards], scheme.formats.moments)
    steps = (moments * scheme.formats.moments.data_step).astype(float)
    assert np.array_equal(first, steps / given_problem.samples)
    grants = [*granted, *moved]
    assert len({transfer.grant["seed"].tobytes() for transfer in grants}) == len(grants)
    assert len({(transfer.sender, int(transfer.grant["export"])) for transfer in grants}) == len(grants)
    for transfer in moved:
        with pytest.raises(CipherError, match="handed over"):
            devices[transfer.sender].export(transfer.grant, Work())


def coded(workers: int, threshold: int, **changes: Any) -> Any:
    options = {"workers": workers, "threshold": threshold}
    return wanted("sealed-coded", {"schemes.sealed-coded": options, "training.epochs": EPOCHS, **changes})


@pytest.mark.parametrize(("workers", "threshold"), [(6, 3), (5, 1), (4, 4), (5, 4)])
def test_any_k_replies_decode_to_the_same_exact_product(workers: int, threshold: int) -> None:
    """Eight columns in K blocks of 3, 8, 2 and 2: in the first case, zeros fill the last one up."""
    given_problem = shared()
    scheme: Any = schemes.create(coded(workers, threshold), given_problem)
    rng = np.random.default_rng(0)
    with patched() as patch:
        products = decoded(patch)
        server, devices, _, _ = set_up(scheme, given_problem.shards)
        replies = {device: devices[device].reply(1, {}, Work()) for device in server.ask(1, np.zeros((8, 2))).requests}
        first = server.combine(1, replies, Work())
        for epoch in (2, 3):
            asked = server.ask(epoch, rng.standard_normal((8, 2))).requests
            assert len(asked) == workers
            replies = {device: devices[device].reply(epoch, asked[device], Work()) for device in asked}
            subsets = list(combinations(asked, threshold))
            found = [server.combine(epoch, {d: replies[d] for d in subset}, Work()) for subset in subsets]
            assert all(np.array_equal(gradient, found[0]) for gradient in found)
        assert all(is_exact(*entry, scheme, given_problem.shards) for entry in products)
    moments = summed([-shard.moments for shard in given_problem.shards], scheme.formats.moments)
    assert np.array_equal(first, (moments * scheme.formats.moments.data_step).astype(float) / given_problem.samples)


@cache
def undisturbed(workers: int, threshold: int) -> State:
    return trained(shared(), coded(workers, threshold))


LOST = st.dictionaries(st.integers(0, DEVICES - 1), st.integers(1, EPOCHS - 1), min_size=1)


@given(LOST, st.sampled_from([2, 3, 5]))
@settings(max_examples=16)
def test_losses_up_to_the_promise_change_no_bit_and_one_more_is_told(leaving: dict[int, int], threshold: int) -> None:
    """All six devices work, so nobody can replace a lost one. The last loss that is one too many ends the training."""
    given_problem, chosen = shared(), coded(DEVICES, threshold)
    expected = undisturbed(DEVICES, threshold)
    assert schemes.create(chosen, given_problem).survives_losses == DEVICES - threshold
    if len(leaving) <= DEVICES - threshold:
        with patched() as patch:
            seen = spied(patch, chosen)
            state = trained(given_problem, chosen, last_epochs=leaving)
        assert state.model.tobytes() == expected.model.tobytes()
        for column in ("gradient_norm", "gradient_error", "accuracy", "loss"):
            assert state.history.columns[column] == expected.history.columns[column]
        scheme = schemes.create(chosen, given_problem)
        for epoch in seen:
            assert not {device for device in epoch.replies if leaving.get(device, EPOCHS) < epoch.epoch}
            plain, bound = promised_gradient(scheme, given_problem.shards, seen[: epoch.epoch])
            assert np.all(abs(epoch.gradient - plain) <= bound)
        return
    last = sorted(leaving.values())[DEVICES - threshold]
    states = [State.fresh(given_problem)]
    with pytest.raises(LostDevicesError) as error:
        trained(given_problem, chosen, states[0], last_epochs=leaving)
    assert is_one_sentence(str(error.value))
    assert f"epoch {last + 1} got" in str(error.value)
    assert f"of the {threshold} replies" in str(error.value)
    assert states[0].epoch == last, "the epochs before are there, and nothing of the one that failed"
    kept = states[0].history.columns["gradient_norm"]
    assert kept == expected.history.columns["gradient_norm"][:last]


@given(st.permutations(range(DEVICES)), st.integers(1, EPOCHS - 1))
@settings(max_examples=6)
def test_a_lost_worker_is_replaced_while_there_is_a_spare_device(order: list[int], stop: int) -> None:
    """W = 4, K = 3: one loss at a time is survived, three times over, because two spare devices step in.

    A training that was stopped after any of these epochs goes on with the same bits.
    """
    given_problem, chosen = shared(), coded(4, 3)
    scheme: Any = schemes.create(chosen, given_problem)
    workers, leaving = list(scheme.workers.chosen), {}
    spare = [device for device in scheme.workers.order if device not in workers]
    for epoch, place in zip((1, 3, 5), order, strict=False):
        lost = workers.pop(place % len(workers))
        leaving[lost] = epoch
        workers += [spare.pop(0)] if spare else []
    kept: list[dict[str, Any]] = []

    def keep(state: State) -> None:
        if state.epoch == stop:
            kept.append({name: np.array(value) for name, value in state.to_arrays().items()})

    whole = trained(given_problem, chosen, after_epoch=keep, last_epochs=leaving)
    assert whole.model.tobytes() == undisturbed(4, 3).model.tobytes()
    repairs = [stage for stage in whole.history.stages if stage.epoch > 0]
    assert [len(stage.costs) for stage in repairs] == [3, 3], "K coded blocks are sent to each of two replacements"
    assert [stage.epoch for stage in repairs] == [2, 4]
    again = trained(given_problem, chosen, State.from_arrays(kept[0]), last_epochs=leaving).to_arrays()
    for name, array in whole.to_arrays().items():
        assert array.tobytes() == again[name].tobytes(), name


def test_who_is_no_worker_may_leave_after_the_first_epoch() -> None:
    given_problem, chosen = shared(), coded(3, 2)
    scheme: Any = schemes.create(chosen, given_problem)
    leaving = {device: 1 for device in range(DEVICES) if device not in scheme.workers.chosen}
    assert len(leaving) == 3
    state = trained(given_problem, chosen, last_epochs=leaving)
    assert state.model.tobytes() == undisturbed(3, 2).model.tobytes()
    assert state.history.columns == undisturbed(3, 2).history.columns


def test_a_spare_device_that_is_gone_too_is_noticed_and_the_next_one_steps_in() -> None:
    """Nobody asks a device that does not work, so that its loss shows only when it is to replace another."""
    given_problem, chosen = shared(), coded(4, 3)
    workers = schemes.create(chosen, given_problem).workers  # type: ignore[attr-defined]
    spare = [device for device in workers.order if device not in workers.chosen]
    leaving = {spare[0]: 1, workers.chosen[0]: 2, workers.chosen[1]: 4}
    state = trained(given_problem, chosen, last_epochs=leaving)
    assert state.model.tobytes() == undisturbed(4, 3).model.tobytes()
    later = [stage for stage in state.history.stages if stage.epoch > 0]
    repairs = [(stage.epoch, {cost.recipient for cost in stage.costs}) for stage in later]
    assert repairs == [(3, {spare[1]})], "nothing is sent to a device that is gone"
