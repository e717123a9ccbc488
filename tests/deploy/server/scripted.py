"""An engine on sites that answer when they are told to."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from codedfl.deploy.protocol.carrier import Host
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server.channel import Channel
from codedfl.deploy.server.remote import RemoteEngine
from codedfl.engines.contract import Answer
from codedfl.schemes import Round, layout
from codedfl.testing.in_process import Faults, InProcessCarrier, StillClock


class Scripted(Host):
    """Answers the epoch it was asked in, as soon as its gate for that epoch is open."""

    def __init__(self, carrier: InProcessCarrier) -> None:
        self._carrier = carrier
        self.closed_gates: dict[int, threading.Event] = {}
        self.asked: list[int] = []
        self.pings = 0
        self.open_at_ping = 0

    def hold(self, epoch: int) -> threading.Event:
        """Let the answer to an epoch wait until the event that is returned."""
        return self.closed_gates.setdefault(epoch, threading.Event())

    def handle(self, payload: bytes) -> bytes:
        frame = decode(payload)
        echo = {name: frame.fields[name] for name in ("session", "number")}
        if frame.kind == "ping":
            self.pings += 1
            if self.pings == self.open_at_ping:
                self.close()
            return encode(Frame("answer", echo))
        epoch = int(frame.fields["epoch"])
        self.asked.append(epoch)
        if (gate := self.closed_gates.get(epoch)) is not None:
            with self._carrier.at_rest(lambda: not gate.is_set()):
                gate.wait()
        fields = {**echo, "macs": 10 * epoch, "working_seconds": 0.5}
        return encode(Frame("answer", fields, {"answer": np.full(2, epoch, np.float64)}))

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        raise AssertionError("nobody sends parcels here")

    def close(self) -> None:
        """Open all gates."""
        for gate in self.closed_gates.values():
            gate.set()


class Fleet:
    """An engine on scripted sites."""

    def __init__(self, count: int = 3, *, patience: float = 30.0, longest: float = 60.0, **options: Any) -> None:
        self.sites = [f"site-{number}" for number in range(count)]
        self.faults, self.clock = Faults(), StillClock()
        self.carrier = InProcessCarrier(self.faults, clock=self.clock)
        self.hosts = [Scripted(self.carrier) for _ in self.sites]
        for site, host in zip(self.sites, self.hosts, strict=True):
            self.carrier.attach(site, host)
        self.channel = Channel(self.carrier, self.sites, patience=patience, longest=longest, clock=self.clock)
        self.engine = RemoteEngine(self.channel, **options)

    def ask(self, question: Round, count: int, *, least: int = 0) -> Answer:
        return self.engine.ask(dataclasses.replace(question, quorum=count, least=least), offline=False)


def made_fleets() -> Iterator[Callable[..., Fleet]]:
    """Yield what makes fleets, and close them all in the end."""
    fleets: list[Fleet] = []

    def made(*arguments: Any, **options: Any) -> Fleet:
        fleets.append(Fleet(*arguments, **options))
        return fleets[-1]

    yield made
    for each in fleets:
        each.carrier.close()


REPLY = layout({"answer": np.zeros(2)})


def question(epoch: int, devices: Sequence[int], **more: Any) -> Round:
    requests = {device: {"request": np.zeros(4, np.float32)} for device in devices}
    return Round(epoch, requests, expected=dict.fromkeys(devices, REPLY), **more)


def devices(answer: Answer) -> set[int]:
    return {reply.device for reply in answer.replies}
