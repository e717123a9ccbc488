"""Epochs of several questions, of open questions and of none: the loop, its records and its timing draws."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.engines import VirtualEngine
from codedfl.errors import LostDevicesError
from codedfl.network import DelayModel
from codedfl.scenario import SchemeOptions
from codedfl.schemes import Device, Message, Public, Restored, Round, Scheme, Server, Work
from codedfl.task import Shard
from codedfl.training import State, train
from codedfl.training.timeline import timeline
from codedfl.training.timing import epoch_ends
from tiny import problem, scenario


class Talker(Device):
    """Replies with as many numbers as it is asked for, after as many multiplications."""

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        work.add(1000 * request["count"].size)
        return {"numbers": np.zeros(request["count"].size, np.float32)}


def ask(epoch: int, devices: Sequence[int], count: int, **more: Any) -> Round:
    return Round(epoch, {device: {"count": np.zeros(count, np.float32)} for device in devices}, **more)


class Curious(Server):
    """Asks everyone, then two, then one; the epoch after that asks nobody at all."""

    def __init__(self) -> None:
        self.asked = 0
        self.combined: list[list[int]] = []

    def ask(self, epoch: int, model: np.ndarray) -> Round:
        self.asked = 3 if epoch % 2 == 0 else 0
        return ask(epoch, [] if epoch % 2 == 0 else range(4), 5)

    def follow_up(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
        if self.asked >= 2:
            return None
        self.asked += 1
        work.add(8)
        return ask(epoch, sorted(replies)[: 3 - self.asked], 3 - self.asked)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        self.combined.append(sorted(replies))
        work.add(2)
        return np.zeros((6, 3))


class Patient(Server):
    """Awaits everyone once, then goes on with every second reply while the others work on."""

    def __init__(self) -> None:
        self.out: dict[int, int] = {}

    def ask(self, epoch: int, model: np.ndarray) -> Round:
        idle = [device for device in range(4) if device not in self.out]
        self.out |= dict.fromkeys(idle, epoch)
        return ask(epoch, idle, 5, quorum=4 if epoch == 1 else 2, standing=epoch > 1)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
        for device in replies:
            del self.out[device]
        return np.zeros((6, 3))

    def state(self) -> Message:
        return {"out": np.array(sorted(self.out.items()), np.int64).reshape(-1, 2)}

    def restore(self, state: Message) -> Restored:
        self.out = {int(device): int(epoch) for device, epoch in state["out"]}
        epochs = sorted(set(self.out.values()))
        out = {epoch: [device for device, asked in self.out.items() if asked == epoch] for epoch in epochs}
        return Restored(rounds=[ask(epoch, devices, 5) for epoch, devices in out.items()])


class Asking(Scheme[SchemeOptions]):
    """A scheme that consists of its server."""

    exact = False
    verdict = verdict_reason = "none"
    asking: Server

    def device(self, index: int, shard: Shard) -> Device:
        return Talker()

    def server(self) -> Server:
        return self.asking

    def leakage(self) -> Any: ...


FLEET = [{"count": 3, "mac_rate": 1e4}, {"count": 1, "mac_rate": 1e3}]
CHOSEN = scenario({"fleet.devices": FLEET, "training.epochs": 6, "links.loss": 0.3, "fleet.server_mac_rate": 16.0})
GIVEN = problem([5] * 4)
DELAYS = DelayModel.create(CHOSEN.fleet, CHOSEN.links)


def trained(
    server: Server, *, draw: int = 0, state: State | None = None, stop: int | None = None, **more: Any
) -> State:
    scheme = Asking(Public((5,) * 4, 6, 3, np.dtype(np.float64)), SchemeOptions())
    scheme.asking = server
    state = state or State.fresh(GIVEN)
    engine = VirtualEngine([Talker() for _ in range(4)], DELAYS, seed=3, draw=draw, now=state.now, **more)

    def after_epoch(current: State) -> None:
        if current.epoch == stop:
            raise KeyboardInterrupt

    try:
        return train(GIVEN, CHOSEN, scheme, engine, state, after_epoch)
    except KeyboardInterrupt:
        return state


def test_questions_follow_each_other_until_the_server_has_enough() -> None:
    """Bits by hand: epoch 3 sends 5, 2 and 1 numbers of 32 bits to 4, 2 and 1 devices, and gets as many back."""
    server = Curious()
    history = trained(server).history
    assert [len(numbers) for numbers in history.questions()] == [3, 1, 3, 1, 3, 1]
    assert [len(replied) for replied in server.combined] == [1, 0, 1, 0, 1, 0]
    assert history.columns["up_bits"][1:4] == [0, 32 * (4 * 5 + 2 * 2 + 1), 0]
    assert history.columns["down_bits"][1:4] == [0, 32 * (4 * 5 + 2 * 2 + 1), 0]
    assert history.columns["device_macs"][2] == 1000 * (4 * 5 + 2 * 2 + 1)
    assert history.columns["server_macs"][2] == 8 + 8 + 2
    assert history.columns["replies"] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("server", [Curious, Patient])
def test_a_draw_of_the_costs_is_the_run_that_lives_in_it(server: type[Server]) -> None:
    runs = [trained(server(), draw=draw).history for draw in range(6)]
    (seconds,) = epoch_ends([runs[0]], DELAYS, epochs=6, seed=3, draws=6)
    for own, run in zip(seconds, runs, strict=True):
        # every epoch adds at most ten numbers to the time
        assert np.allclose(own, run.columns["time"], rtol=60 * np.finfo(float).eps, atol=0)
    assert len({run.columns["time"][-1] for run in runs}) == 6


@pytest.mark.parametrize("server", [Curious, Patient])
@pytest.mark.parametrize("stop", range(1, 6))
def test_an_interrupted_run_ends_at_the_same_time(server: type[Server], stop: int) -> None:
    whole = trained(server())
    half = trained(server(), stop=stop)
    assert half.epoch == stop
    resumed = trained(server(), state=State.from_arrays(half.to_arrays()))
    assert resumed.history.columns["time"] == whole.history.columns["time"]
    assert resumed.history.questions() == whole.history.questions()
    assert [costs.key() for costs in resumed.history.rounds] == [costs.key() for costs in whole.history.rounds]


def test_who_works_on_is_not_asked_again() -> None:
    """The slow device takes at least 5 s for its work, five replies of a fast one: it is out for some epochs."""
    history = trained(Patient()).history
    asked = [set(history.rounds[number].asked.tolist()) for number in history.round_of_epoch]
    assert asked[:2] == [{0, 1, 2, 3}] * 2
    assert all(3 not in epoch for epoch in asked[2:4])
    assert [len(epoch) for epoch in asked[2:]] == [2] * 4


def test_a_loss_between_two_questions_is_told_like_any_other() -> None:
    with pytest.raises(LostDevicesError, match="epoch 3 got 3 of the 4 replies that it needs"):
        trained(Curious(), last_epochs={2: 2})


@pytest.mark.parametrize("server", [Curious, Patient])
def test_the_timeline_holds_every_reply(server: type[Server]) -> None:
    """Each asked device receives, computes and sends (not in the offline epoch 1), no later than the run ends."""
    history = trained(server()).history
    rows = timeline(history, DELAYS, seed=3, draw=0, parallel=False)
    asked = sum(len(history.rounds[number].asked) for numbers in history.questions()[1:] for number in numbers)
    assert sum(np.array(rows["epoch"]) > 1) <= 3 * asked
    assert max(rows["end"]) <= history.columns["time"][-1]
    for device in range(4):
        own = sorted((b, e) for d, b, e in zip(rows["device"], rows["begin"], rows["end"], strict=True) if d == device)
        rounding = 30 * np.finfo(float).eps * history.columns["time"][-1]  # a time is a sum of at most thirty numbers
        assert all(before[1] <= after[0] + rounding for before, after in itertools.pairwise(own))
