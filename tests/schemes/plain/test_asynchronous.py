"""Asynchronous updates: who replies when, with which model and which weight, and what stays open over a stop."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.errors import ScenarioError, TrainingError
from codedfl.network import DelayModel, Draws
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import Message, Work
from codedfl.schemes.plain.asynchronous import AsynchronousServer
from codedfl.training import History
from codedfl.training.timeline import timeline
from codedfl.training.timing import epoch_ends, replay
from rundirs import Stopped, results, small_run, stop_at
from tiny import gamma, is_one_sentence, plain_gradient, problem, scenario, spied, trained

RATES = np.repeat([1e4, 1e3, 1e2], [3, 3, 2])
FLEET = [{"count": 3, "mac_rate": 1e4}, {"count": 3, "mac_rate": 1e3}, {"count": 2, "mac_rate": 1e2}]
ALIKE = [{"count": 6, "mac_rate": 1e3, "setup_ratio": 0.0}, {"count": 2, "mac_rate": 5e2, "setup_ratio": 0.0}]
"""Nothing but transmissions is left to chance, so that many reply at the same time."""
SIZES = [4, 5, 6, 7, 8, 9, 10, 11]
EPOCHS = 30


def wanted(options: dict[str, Any], changes: dict[str, Any] | None = None) -> Scenario:
    base = {"scheme": "asynchronous", "schemes.asynchronous": options, "fleet.devices": FLEET}
    return scenario({**base, "training.epochs": EPOCHS, **(changes or {})})


def added_gradient(shard: Any, model: np.ndarray, weight: float, replies: int) -> tuple[np.ndarray, np.ndarray]:
    """A device's share of an update, and how far it may be off.

    Beside the roundings of a plain gradient, the server makes two for the weight, then a division, a product, K
    additions, a division and a product; as many are in the reference.
    """
    value, bound = plain_gradient([shard], model)
    x, y = abs(shard.x), abs(shard.y)
    size = x.T @ (x @ abs(model) + y) / shard.samples
    return weight * value, weight * (bound + 2 * gamma(replies + 6, float) * size)


@pytest.mark.parametrize("buffer", [1, 3, 8])
@pytest.mark.parametrize(("power", "step", "draw"), [(0.5, 1.0, 0), (0.0, 0.25, 7), (2.0, 1.5, 1)])
def test_every_update_by_hand(
    buffer: int, power: float, step: float, draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of arrivals, added up here: the K earliest make an update, and go on with the model after it."""
    made = problem(SIZES)
    options = {"buffer": buffer, "power": power, "step": step}
    chosen = wanted(options, {"timing.draw": draw, "training.learning_rate": 1e-3})
    seen = spied(monkeypatch, chosen)
    history = trained(made, chosen).history
    delays = DelayModel.create(chosen.fleet, chosen.links)
    bits = 6 * 3 * 64 * 1.1
    now, due, asked, models = 0.0, dict[int, float](), dict[int, int](), dict[int, np.ndarray]()
    for epoch, end in zip(seen, history.columns["time"], strict=True):
        luck = delays.chance(0, epoch.epoch, draw, 1)
        seconds = luck.up_tries[0] * bits / 5e6
        if epoch.epoch > 1:
            seconds = seconds + luck.down_tries[0] * bits / 10e6 + 6 * 6 * 3 / RATES * (1 + luck.setup[0] / 2)
        models[epoch.epoch] = epoch.model
        for device in set(range(8)) - due.keys():
            due[device], asked[device] = now + seconds[device], epoch.epoch
        first = sorted(due, key=lambda device: due[device])[: buffer if epoch.epoch > 1 else 8]
        now = max(now, due[first[-1]])
        assert abs(end - now) <= gamma(20 * epoch.epoch, float) * now
        assert set(epoch.replies) == set(first)
        parts = [
            added_gradient(
                made.shards[device],
                models[asked[device]],
                step * (1 + epoch.epoch - asked[device]) ** -power / len(first),
                len(first),
            )
            for device in first
        ]
        assert np.all(abs(epoch.gradient - sum(value for value, _ in parts)) <= sum(bound for _, bound in parts))
        for device in first:
            del due[device]
    assert history.columns["replies"] == [8.0] + [float(buffer)] * (EPOCHS - 1)


def test_awaiting_everyone_is_conventional(monkeypatch: pytest.MonkeyPatch) -> None:
    """With K = N nothing is ever stale; with shards of one size the mean of means is the mean of all."""
    made = problem([6] * 8)
    chosen = wanted({"buffer": 8})
    seen = spied(monkeypatch, chosen)
    state = trained(made, chosen)
    assert len(seen) == EPOCHS
    for epoch in seen:
        expected, _ = plain_gradient(made.shards, epoch.model)
        bounds = [added_gradient(shard, epoch.model, 1 / 8, 8)[1] for shard in made.shards]
        assert np.all(abs(epoch.gradient - expected) <= sum(bounds))
    conventional = trained(made, chosen.with_settings({"scheme": "conventional"}))
    assert state.history.columns["time"] == conventional.history.columns["time"]


def with_work(monkeypatch: pytest.MonkeyPatch, macs: int) -> None:
    """Let the server compute for so long after every update that replies come meanwhile."""
    combine = AsynchronousServer.combine

    def slow(self: AsynchronousServer, epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        work.add(macs)
        return combine(self, epoch, replies, work)

    monkeypatch.setattr(AsynchronousServer, "combine", slow)


@pytest.mark.parametrize("fleet", [FLEET, ALIKE], ids=["uneven", "alike"])
@pytest.mark.parametrize("macs", [0, 100])
@pytest.mark.parametrize("buffer", [1, 3, 7])
def test_a_draw_is_the_run_that_lives_in_it(
    fleet: Any, macs: int, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timed by vectors, to the last bit: also where replies come together, or while the server computes 0.1 s."""
    with_work(monkeypatch, macs)
    changes = {"fleet.devices": fleet, "fleet.server_mac_rate": 1e3, "links.loss": 0.4}
    made = problem([6] * 8)
    for draw in (0, 3):
        chosen = wanted({"buffer": buffer}, {**changes, "timing.draw": draw})
        history = trained(made, chosen).history
        delays = DelayModel.create(chosen.fleet, chosen.links)
        (ends,) = epoch_ends([history], delays, epochs=len(history), seed=0, draws=4)
        assert ends[draw].tolist() == history.columns["time"]
        questions = np.zeros(8, int)
        for number in history.round_of_epoch[1:]:
            questions[history.rounds[number].asked] += 1
        assert times_asked(history, delays, 4)[draw].tolist() == questions.tolist()


def times_asked(history: History, delays: DelayModel, draws: int) -> np.ndarray:
    """How often each device is asked in standing rounds, by draw."""
    epochs = replay(history, Draws(delays, seed=0, count=draws))
    return sum(who.astype(int) for epoch in epochs for _, who in epoch.rounds if who is not None)


def test_nobody_waits_for_the_slow_and_the_slow_are_heard() -> None:
    chosen = wanted({"buffer": 3}, {"training.epochs": 100})
    made = problem(SIZES)
    history = trained(made, chosen).history
    conventional = trained(made, chosen.with_settings({"scheme": "conventional"})).history
    assert history.columns["time"][-1] < conventional.columns["time"][-1]
    asked = times_asked(history, DelayModel.create(chosen.fleet, chosen.links), 1)
    assert asked.min() > 1, "everyone has replied at least once"
    assert asked[0, :3].min() > asked[0, 6:].max(), "the fast most often"


def test_a_device_does_one_thing_after_the_other() -> None:
    """It begins with the model of an update, and with none before its last reply is sent; a few roundings are allowed.

    What is under way when the run ends is cut off there.
    """
    chosen = wanted({"buffer": 3})
    history = trained(problem(SIZES), chosen).history
    delays = DelayModel.create(chosen.fleet, chosen.links)
    rows = timeline(history, delays, seed=0, draw=0, parallel=False)
    updates = history.columns["time"]
    slack = gamma(8, float) * updates[-1]
    for device in range(8):
        own = [place for place, number in enumerate(rows["device"]) if number == device]
        steps = [(rows["begin"][place], rows["end"][place]) for place in own]
        assert all(one[1] <= other[0] + slack for one, other in pairwise(steps))
        for place in own:
            if rows["activity"][place] == "receive model":
                assert abs(rows["begin"][place] - updates[rows["epoch"][place] - 2]) <= slack
    assert max(rows["end"]) == updates[-1]
    assert sum(activity == "receive model" for activity in rows["activity"]) == 8 + 3 * (EPOCHS - 2)


@pytest.mark.parametrize(("devices", "buffer"), [(1, 1), (2, 1), (5, 2), (24, 9), (25, 10), (100, 10)])
def test_the_buffer_unless_given(devices: int, buffer: int) -> None:
    chosen = wanted({}, {"fleet.devices": [{"count": devices, "mac_rate": 1e3}]})
    scheme = schemes.create(chosen, problem([4] * devices))
    server = scheme.server()
    assert [server.ask(epoch, np.zeros((6, 3))).quorum for epoch in (1, 2)] == [devices, buffer]
    assert scheme.survives_losses == devices - buffer


def test_a_buffer_larger_than_the_fleet_is_refused() -> None:
    with pytest.raises(ScenarioError) as error:
        schemes.create(wanted({"buffer": 9}), problem(SIZES))
    assert "schemes.asynchronous.buffer = 9 must be at most 8" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_a_lost_device_is_asked_no_more_and_its_open_question_is_never_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Device 7 is out with a model when it is lost; the others go on."""
    chosen = wanted({"buffer": 3}, {"training.epochs": 60})
    seen = spied(monkeypatch, chosen)
    trained(problem(SIZES), chosen, last_epochs={0: 5, 7: 2})
    assert all(0 not in epoch.replies for epoch in seen[5:])
    assert all(7 not in epoch.replies for epoch in seen[2:])
    assert {device for epoch in seen[10:] for device in epoch.replies} == {1, 2, 3, 4, 5, 6}


def test_a_rate_that_is_stable_may_be_too_high_for_old_gradients() -> None:
    """Every reply is about eight updates old, weighted in full, at nearly the rate that bears none that is old."""
    made = problem([6] * 8)
    rate = 0.9 * made.largest_stable_rate()
    changes = {"fleet.devices": ALIKE, "training.learning_rate": rate, "training.epochs": 400}
    trained(made, wanted({"buffer": 8}, changes))
    with pytest.raises(TrainingError) as error:
        trained(made, wanted({"buffer": 1, "power": 0.0}, changes))
    assert f"lower training.learning_rate (now {rate:g})" in str(error.value)
    assert is_one_sentence(str(error.value))


# --- stopped and resumed ---


def test_models_are_remembered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open, under the epoch in which it was asked, with the model that was sent; nothing else."""
    chosen = wanted({"buffer": 3})
    seen = spied(monkeypatch, chosen)
    made = problem(SIZES, dtype="float32")
    memories = [dict[str, np.ndarray]()]
    trained(made, chosen, after_epoch=lambda state: memories.append(dict(state.server)))
    for epoch in range(1, EPOCHS + 1):
        still: dict[int, int] = {}
        for entry in seen[:epoch]:
            still |= dict.fromkeys(entry.round.requests, entry.epoch)
            for device in entry.replies:
                del still[device]
        server = schemes.create(chosen, made).server()
        assert isinstance(server, AsynchronousServer)
        rounds = server.restore(memories[epoch]).rounds
        assert [question.epoch for question in rounds] == sorted(set(still.values()))
        assert len(memories[epoch]["models"]) == len(rounds)
        assert {d: question.epoch for question in rounds for d in question.requests} == still
        for question in rounds:
            for device, request in question.requests.items():
                sent = seen[question.epoch - 1].round.requests[device]["model"]
                assert np.array_equal(request["model"], sent)
                assert request["model"].dtype == sent.dtype == np.float32


def test_a_state_that_lacks_a_device_an_epoch_or_a_model_is_refused() -> None:
    server = schemes.create(wanted({"buffer": 3}), problem(SIZES)).server()
    server.ask(1, np.zeros((6, 3)))
    state = dict(server.state())
    assert len(server.restore(state).rounds[0].requests) == 8
    for name in ("devices", "asked", "models"):
        with pytest.raises(ValueError, match=r"zip\(\) argument 2 is"):
            server.restore({**state, name: state[name][:-1]})


VARIANTS: dict[str, dict[str, Any]] = {
    "uneven": {},
    "alike": {"fleet.devices": [{"count": 5, "mac_rate": 2.5e6, "setup_ratio": 0.0}]},
    "lossy": {"fleet.devices.1.last_epoch": 9, "links.loss": 0.5},
}
"""As usual; with replies that come at the same time; with devices that are lost while a question is open."""


@pytest.mark.parametrize("variant", VARIANTS)
@given(stops=st.lists(st.integers(1, 24), min_size=1, max_size=3))
@example(stops=[1])
@example(stops=[8, 1, 1])
@settings(max_examples=4)
def test_stopped_anywhere_it_ends_with_the_same_bits(
    variant: str, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("asynchronous")
    changes = {"scheme": "asynchronous", "timing.repeats": 1, **VARIANTS[variant]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)  # a checkpoint after every epoch
        for report in stops:
            with suppress(Stopped):
                small_run(folder / "run", changes, progress=stop_at(report))
        small_run(folder / "run", changes)
    assert results(folder / "run") == results(small_run(folder / "whole", changes).path)
