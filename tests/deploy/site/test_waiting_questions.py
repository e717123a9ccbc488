"""Questions that come while a device works or sleeps: which wait, and which are dropped."""

import threading
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, decode
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.locks import RequestQueue
from codedfl.schemes import Device, Message, Work
from codedfl.schemes.plain.conventional import Conventional
from deploy.site.test_host import Asker, host
from tiny import scenario


class Gated(Device):
    """Works on an epoch until its gate opens."""

    def __init__(self) -> None:
        self.gates: dict[int, threading.Event] = {}
        self.begun: dict[int, threading.Event] = {}
        self.queued: dict[int, threading.Event] = {}
        """By the number of the question: set when it sleeps or waits for its turn."""
        self.done: list[int] = []

    def event(self, table: dict[int, threading.Event], epoch: int) -> threading.Event:
        return table.setdefault(epoch, threading.Event())

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        self.event(self.begun, epoch).set()
        if epoch in self.gates:
            self.gates[epoch].wait()
        self.done.append(epoch)
        return {"gradient": np.full(1, epoch, float)}


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Gated:
    device, check = Gated(), RequestQueue._check

    def checked(turns: RequestQueue, number: int, cancellable: bool) -> None:
        device.event(device.queued, number).set()
        check(turns, number, cancellable)

    monkeypatch.setattr(Conventional, "device", lambda self, index, shard: device)
    monkeypatch.setattr(RequestQueue, "_check", checked)
    return device


class Calls:
    """Questions in threads of their own, each put when those before it have come in."""

    def __init__(self, asker: Asker, gated: Gated) -> None:
        self.asker = asker
        self.gated = gated
        self.answers: dict[int, Frame] = {}
        self.threads: dict[int, threading.Thread] = {}

    def put(self, epoch: int, **more: Any) -> None:
        payload = self.asker.round(epoch, **more)

        def call() -> None:
            self.answers[epoch] = decode(self.asker.host.handle(payload))

        self.threads[epoch] = threading.Thread(target=call)
        self.threads[epoch].start()
        assert self.gated.event(self.gated.queued, decode(payload).fields["number"]).wait(60)

    def result(self, epoch: int) -> Frame:
        self.threads[epoch].join()
        return self.answers[epoch]


def test_a_newer_question_takes_the_place_of_one_that_has_not_begun(gated: Gated) -> None:
    """Epoch 1 is being worked on and is finished; 2 waits and is dropped when 3 comes."""
    asker = Asker(host())
    asker.begin()
    calls, gate = Calls(asker, gated), gated.event(gated.gates, 1)
    calls.put(1)
    gated.event(gated.begun, 1).wait()
    calls.put(2)
    calls.put(3)
    assert calls.result(2).kind == "superseded"
    gate.set()
    assert [calls.result(epoch).kind for epoch in (1, 3)] == ["answer", "answer"]
    assert gated.done == [1, 3]


def test_standing_questions_are_answered_in_their_order(gated: Gated) -> None:
    asker = Asker(host())
    asker.begin()
    calls, gate = Calls(asker, gated), gated.event(gated.gates, 1)
    calls.put(1)
    gated.event(gated.begun, 1).wait()
    for epoch in (2, 3, 4):
        calls.put(epoch, standing=True)
    gate.set()
    assert [calls.result(epoch).kind for epoch in (1, 2, 3, 4)] == ["answer"] * 4
    assert gated.done == [1, 2, 3, 4]


def test_a_ping_is_answered_while_the_device_works(gated: Gated) -> None:
    asker = Asker(host())
    asker.begin()
    calls, gate = Calls(asker, gated), gated.event(gated.gates, 1)
    calls.put(1)
    gated.event(gated.begun, 1).wait()
    assert asker.ask("ping").kind == "answer"
    gate.set()
    calls.result(1)


def sleeper() -> Emulation:
    """A device that would take a million seconds for one multiplication."""
    wanted = scenario({"fleet.devices": [{"mac_rate": 1.0, "setup_ratio": 0.0}], "links.down_rate": 1.0})
    return Emulation.of_scenario(wanted, 0)


@pytest.mark.parametrize("end", ["newer question", "new session", "close", "forget"])
def test_an_emulated_device_wakes_up_when_nobody_awaits_it(end: str, gated: Gated) -> None:
    """The question of epoch 1 takes 192 bits at one bit a second to come in; nothing of it is worked on."""
    asker = Asker(host(sleeper()))
    asker.begin()
    calls = Calls(asker, gated)
    calls.put(1)
    if end == "newer question":
        calls.put(2)
        assert calls.result(1).kind == "superseded"
        asker.host.close()
        assert calls.result(2).kind == "superseded"
    elif end == "new session":
        Asker(asker.host, session="s2").begin()
    elif end == "close":
        asker.host.close()
    else:
        asker.ask("forget", stage=None)
    assert calls.result(1).kind == "superseded"
    assert gated.done == []
