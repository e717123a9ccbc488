"""The paper's scheme at small size, through the training loop: hand-overs, forwarding and decoding for real."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codedfl.codes.erasure import DECODERS
from codedfl.engines import VirtualEngine
from codedfl.errors import CipherError, TrainingError
from codedfl.network import DelayModel
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import Transfer, Work, message_bits
from codedfl.schemes.sharing.code_based import CodeBased, CodeBasedDevice
from codedfl.task import Problem
from codedfl.training import State, train
from rundirs import FINISHED, Stopped, bits, files, results, stop_at, summary
from schemes.sharing.small_code import (
    BETA,
    DEVICES,
    EPOCHS,
    LIMIT,
    SUPPLIES,
    T_TOT,
    C,
    D,
    M,
    N,
    T,
    apart,
    created,
    digits,
    wanted,
    wanted64,
)
from tiny import gamma, is_one_sentence, moved, plain_gradient, spied, trained

Watch = Callable[[State, Sequence[CodeBasedDevice], CodeBased], None]


def watched(problem: Problem, chosen: Scenario, watch: Watch) -> State:
    """Train, and look at the devices after every epoch."""
    scheme = created(problem, chosen)
    devices = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
    delays = DelayModel.create(chosen.fleet, chosen.links)
    engine = VirtualEngine(devices, delays, seed=chosen.timing.seed, draw=chosen.timing.draw)
    return train(problem, chosen, scheme, engine, State.fresh(problem), lambda now: watch(now, devices, scheme))


def granted(server: Any, sender: int, recipient: int, support: int) -> Transfer:
    """The transfer of a hand-over, as a resumed server repeats it."""
    (stage,) = server.restore({"moved": np.array([(2, sender, recipient, support)])}).stages
    (transfer,) = stage.transfers
    return transfer  # type: ignore[no-any-return]


def holdings(state: State) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
    """Whose data and which supports lie on each active device, from the record of hand-overs alone."""
    found = {device: (frozenset({device}), frozenset[int]()) for device in range(DEVICES)}
    for sender, recipient, support in moved(state):
        data, supports = found.pop(sender)
        fresh = frozenset() if support is None else frozenset({support})
        found[recipient] = found[recipient][0] | data, found[recipient][1] | supports | fresh
    return found


def shares_and_forwards(state: State) -> bool:
    supports = [support for _, _, support in moved(state)]
    return None in supports and supports.count(None) < len(supports)


@pytest.mark.parametrize("precision", LIMIT)
@pytest.mark.parametrize("supply", SUPPLIES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_gradients_are_the_plaintext_ones_epoch_by_epoch(
    precision: str, supply: str, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once against the gradient at the scheme's own model, once against gradient descent on its own way."""
    problem = digits(precision)
    chosen = wanted({"task.precision": precision}, supply=supply, decoder=decoder)
    seen = spied(monkeypatch, chosen)
    state = trained(problem, chosen)
    assert shares_and_forwards(state)
    assert len(seen) == EPOCHS
    limit = LIMIT[precision] * np.linalg.norm(plain_gradient(problem.shards, np.zeros(problem.shape))[0])
    x = np.concatenate([shard.x for shard in problem.shards]).astype(float)
    y = np.concatenate([shard.y for shard in problem.shards]).astype(float)
    model = np.zeros(problem.shape)
    for epoch in seen:
        beside, _ = plain_gradient(problem.shards, epoch.model)
        assert np.linalg.norm(epoch.gradient - beside) <= limit
        own = x.T @ (x @ model - y) / len(x)
        assert np.linalg.norm(epoch.gradient - own) <= limit
        model = model - 0.5 * (0.8 if epoch.epoch >= 8 else 1.0) * (own + 9e-6 * model)
    assert max(state.history.columns["gradient_error"]) <= LIMIT[precision]


def test_the_gradient_error_is_measured_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that decodes to something else must be found out."""
    decrypt = created(digits(), wanted()).keys.private.__class__.decrypt
    monkeypatch.setattr(
        "codedfl.cipher.mceliece.private_key.PrivateKey.decrypt",
        lambda self, message, decoder: decrypt(self, message, decoder) * 1.01,
    )
    with pytest.raises(TrainingError, match="'code-based' breaks its promise in epoch") as error:
        trained(digits(), wanted())
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("precision", LIMIT)
@pytest.mark.parametrize("supply", SUPPLIES)
def test_errors_stay_on_the_granted_supports_inside_the_erasure_set(precision: str, supply: str) -> None:
    """D_v - (sum A) G, column by column, after every epoch.

    An entry of A G takes D products, and up to N_dev additions follow: gamma(D + N_dev) * sum |A| |G| bounds what
    rounding leaves, twice for the reference. Errors are as large as the data, so every column of a support shows.
    """
    problem = digits(precision)
    most = 0

    def watch(state: State, devices: Sequence[CodeBasedDevice], scheme: CodeBased) -> None:
        nonlocal most
        private, G = scheme.keys.private, scheme.keys.public.G.astype(float)
        held = holdings(state)
        assert sorted(held) == list(scheme_active(state))
        for device, (data, supports) in held.items():
            grams = [problem.shards[one].gram.astype(float) for one in sorted(data)]
            plain = sum(grams) @ G
            rounding = 2 * gamma(D + DEVICES, precision) * (sum(map(abs, grams)) @ abs(G))
            off = abs(devices[device].held.words.astype(float) - plain)
            dirty = set(np.flatnonzero((off > rounding).any(axis=0)).tolist())
            granted = {int(place) for number in supports for place in private.support(number).positions}
            assert dirty == granted
            assert granted <= set(private.erasures.tolist())
            most = max(most, len(granted))

    state = watched(problem, wanted({"task.precision": precision}, supply=supply), watch)
    assert shares_and_forwards(state)
    assert T < most <= T_TOT


def scheme_active(state: State) -> list[int]:
    return sorted(set(range(DEVICES)) - {sender for sender, _, _ in moved(state)})


def test_all_devices_are_asked_until_they_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = wanted(supply="reissued")
    seen = spied(monkeypatch, chosen)
    state = trained(digits(), chosen)
    for epoch in seen:
        gone = {costs.sender for when, costs in state.history.handovers if when < epoch.epoch}
        assert set(epoch.round.requests) == set(epoch.replies) == set(range(DEVICES)) - gone
    assert min(when for when, _ in state.history.handovers) == 2, "the first epoch tells nothing about speed"


def test_a_device_that_has_left_does_not_reply() -> None:
    devices: Sequence[CodeBasedDevice] = ()

    def watch(state: State, given: Sequence[CodeBasedDevice], scheme: CodeBased) -> None:
        nonlocal devices
        devices = given

    state = watched(digits(), wanted(supply="reissued"), watch)
    request = {"model": np.zeros((D, C), np.float32)}
    gone = {sender for sender, _, _ in moved(state)}
    assert gone
    for device in gone:
        with pytest.raises(CipherError, match=f"Device {device} has handed over its data and retired"):
            devices[device].reply(9, request, Work())
        with pytest.raises(CipherError, match="retired"):
            devices[device].export({}, Work())
        with pytest.raises(CipherError, match="retired"):
            devices[device].absorb({"words": np.zeros((D, N), np.float32)}, Work())
    for device in scheme_active(state):
        assert devices[device].reply(9, request, Work())["words"].shape == (C, N)


@pytest.mark.parametrize("precision", LIMIT)
def test_what_travels_differs_from_the_encoded_data_on_the_support_and_nowhere_else(precision: str) -> None:
    """Not a bit differs elsewhere, for nothing is added there."""
    problem = digits(precision)
    scheme = created(problem, wanted({"task.precision": precision}))
    for number in range(M):
        device = scheme.device(number, problem.shards[number])
        plain = device.held.words.copy()
        transfer = granted(scheme.server(), number, 9, number)
        parcel = device.export(transfer.grant, Work())
        assert set(parcel) == {"words"}
        assert parcel["words"].dtype == np.dtype(precision)
        columns = np.flatnonzero((parcel["words"] != plain).any(axis=0))
        assert columns.tolist() == scheme.keys.private.support(number).positions.tolist()
        assert len(columns) == T
        errors = (parcel["words"].astype(float) - plain)[:, columns]
        assert np.linalg.matrix_rank(errors, tol=1e-3 * np.linalg.norm(errors, 2)) == BETA


def test_two_devices_with_one_support_add_different_errors() -> None:
    problem = digits()
    scheme = created(problem, wanted(supply="reissued"))
    errors = []
    for index in (0, 1):
        device = scheme.device(index, problem.shards[0])
        plain = device.held.words.copy()
        transfer = granted(scheme.server(), index, 9, 0)
        errors.append(device.export(transfer.grant, Work())["words"] - plain)
    assert not np.array_equal(*errors)


def test_forwarding_adds_nothing() -> None:
    problem = digits()
    scheme = created(problem, wanted())
    sender, device = (scheme.device(index, problem.shards[index]) for index in (1, 0))
    device.absorb(sender.export(granted(scheme.server(), 1, 0, 0).grant, Work()), Work())
    held, work = device.held.words.copy(), Work()
    assert np.array_equal(device.export({}, work)["words"], held)
    assert work.macs == 0


def test_data_without_an_error_stay_where_they_are() -> None:
    problem = digits()
    device = created(problem, wanted()).device(0, problem.shards[0])
    with pytest.raises(CipherError, match="sends no data in clear") as error:
        device.export({}, Work())
    assert is_one_sentence(str(error.value))
    assert device.held.words.any()


@pytest.mark.parametrize(("precision", "width"), [("float32", 32), ("float64", 64)])
def test_costs_are_those_of_the_arrays(precision: str, width: int) -> None:
    """Down d c, up c n numbers, c d n MAC; first epoch: only c d numbers up. Grant: a number and t positions of 32 bit.

    Encrypting: d beta t MAC for the error matrix and d t additions; absorbing: d n additions.
    """
    state = trained(digits(precision), wanted({"task.precision": precision}, supply="reissued"))
    history = state.history
    first, *others = [history.rounds[number] for number in history.round_of_epoch]
    assert (first.down_bits.tolist(), first.macs.tolist()) == ([0] * DEVICES, [0] * DEVICES)
    assert first.up_bits.tolist() == [D * C * width] * DEVICES
    for epoch, costs in enumerate(others, start=2):
        active = DEVICES - sum(when < epoch for when, _ in history.handovers)
        assert len(costs.asked) == costs.quorum == active
        assert costs.down_bits.tolist() == [D * C * width] * active
        assert costs.up_bits.tolist() == [C * N * width] * active
        assert costs.macs.tolist() == [C * D * N] * active
        assert costs.server_macs == C * (T_TOT * (N - T_TOT) + D * D)
    assert shares_and_forwards(state)
    supported = list(zip(moved(state), history.handovers, strict=True))
    for (_, _, support), (_, costs) in supported:
        assert costs.parcel_bits == D * N * width
        assert costs.absorb_macs == D * N
        assert costs.grant_bits == (0 if support is None else 32 * (1 + T))
        assert costs.export_macs == (0 if support is None else D * T * BETA + D * T)
    for row, epoch in enumerate(history.columns["epoch"]):
        sent = [support for (_, _, support), (when, _) in supported if when == epoch]
        fresh = sum(support is not None for support in sent)
        round_ = history.rounds[history.round_of_epoch[row]]
        assert history.columns["d2d_bits"][row] == len(sent) * D * N * width
        assert history.columns["down_bits"][row] == round_.down_bits.sum() + fresh * 32 * (1 + T)
        macs = round_.macs.sum() + fresh * D * T * (BETA + 1) + len(sent) * D * N
        assert history.columns["device_macs"][row] == macs


def test_the_grant_names_the_support_and_the_parcel_does_not() -> None:
    scheme = created(digits(), wanted())
    transfer = granted(scheme.server(), 3, 1, 2)
    assert transfer == Transfer(3, 1, transfer.grant)
    assert transfer.grant["positions"].tolist() == scheme.keys.private.support(2).positions.tolist()
    assert int(transfer.grant["index"]) == 2
    assert message_bits(transfer.grant) == 32 * (1 + T)


def everything(state: State) -> dict[str, Any]:
    return {name: bits(np.asarray(array)) for name, array in state.to_arrays().items()}


@cache
def snapshots(supply: str) -> tuple[dict[str, Any], ...]:
    """The state after each epoch, as it would be saved."""
    saved: list[dict[str, Any]] = []
    trained(digits(), wanted(supply=supply), after_epoch=lambda state: saved.append(_copied(state)))
    return tuple(saved)


def _copied(state: State) -> dict[str, Any]:
    return {name: np.array(value) for name, value in state.to_arrays().items()}


@pytest.mark.parametrize("supply", SUPPLIES)
@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_resumed_after_any_epoch_it_ends_with_the_same_bits(supply: str, epoch: int) -> None:
    whole = State.from_arrays(snapshots(supply)[-1])
    assert shares_and_forwards(whole)
    state = trained(digits(), wanted(supply=supply), State.from_arrays(snapshots(supply)[epoch - 1]))
    assert everything(state) == everything(whole)
    assert state.history.stages == whole.history.stages


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("whole")
    return {s: results(runs.execute(wanted(supply=s), folder / s, problem=digits).path) for s in SUPPLIES}


@given(stops=st.lists(st.integers(1, EPOCHS), min_size=1, max_size=3), supply=st.sampled_from(SUPPLIES))
@example(stops=[1, 1, 2], supply="once")
@example(stops=[EPOCHS], supply="reissued")
@settings(max_examples=2)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    stops: list[int],
    supply: str,
    uninterrupted: dict[str, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)  # a checkpoint after every epoch
        for report in stops:
            try:
                runs.execute(wanted(supply=supply), path, problem=digits, progress=stop_at(report))
            except Stopped:
                assert not (path / "summary.json").exists()
        runs.execute(wanted(supply=supply), path, problem=digits)
    assert results(path) == uninterrupted[supply]
    assert summary(path)["handovers"] > 0
    assert not [name for name in files(path) if name not in FINISHED]


def test_the_summary_tells_of_hand_overs_and_the_verdict(tmp_path: Path) -> None:
    run = runs.execute(wanted(supply="reissued"), tmp_path / "run", problem=digits)
    state = trained(digits(), wanted(supply="reissued"))
    assert run.summary["handovers"] == len(state.history.handovers)
    assert run.summary["bits_sent"]["d2d"] == len(state.history.handovers) * D * N * 32
    assert run.summary["verdict"] == "broken"
    assert run.summary["gradient_error"] <= LIMIT["float32"]
    assert run.summary["survives_losses"] == 0


@pytest.mark.parametrize("supply", SUPPLIES)
def test_the_same_scenario_gives_the_same_bits(supply: str) -> None:
    assert everything(trained(digits(), wanted(supply=supply))) == everything(State.from_arrays(snapshots(supply)[-1]))


def test_another_key_seed_gives_other_keys_but_the_same_way() -> None:
    """Keys do not enter the times, so hand-overs are the same; the model is, up to rounding."""
    here, there = (trained(digits("float64"), chosen) for chosen in (wanted64(), wanted64(key_seed=1)))
    keys = [created(digits("float64"), chosen).keys for chosen in (wanted64(), wanted64(key_seed=1))]
    assert keys[0].public.fingerprint != keys[1].public.fingerprint
    assert moved(here) == moved(there)
    assert np.linalg.norm(here.model - there.model) <= apart(digits("float64"), EPOCHS)
