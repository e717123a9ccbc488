"""What sites and relays do wrong, by name."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.runs import Run
from codedfl.scenario import Scenario
from contracts.test_engines import DEVICES, RIDGE
from contracts.test_schemes import wanted
from fleets import InProcessFleet

EPOCHS = 7
AT = 3
"""The epoch in which things go wrong."""
CODED = {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 3}
"""Five workers of six devices, any three of which make a gradient; the sixth takes the place of one that is lost."""


def chosen(name: str, **changes: Any) -> Scenario:
    settings = {"fleet.devices": DEVICES, "training.epochs": EPOCHS, "task.precision": "float64", "task.ridge": RIDGE}
    return wanted(name).with_settings(settings | (CODED if name == "sealed-coded" else {}) | changes)


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


class Trouble:
    """Lets something happen to the answers (or questions) of some sites in one epoch, and remembers older answers."""

    def __init__(self, sites: InProcessFleet, who: set[str], when: int = AT) -> None:
        self._sites = sites
        self._who = who
        self._when = when
        self._epochs: dict[int, int] = {}
        self._old: dict[str, bytes] = {}
        self._noted = threading.Condition()
        sites.faults.question = self._note
        self.ask: Callable[[str, bytes], bytes | None] = lambda site, payload: payload
        self.answer: Callable[[str, bytes], list[bytes]] = lambda site, payload: [payload]
        self.others: Callable[[], None] = lambda: None
        sites.faults.reply = self._alter

    def _note(self, site: str, tag: int, payload: bytes) -> bytes | None:
        frame = decode(payload)
        if frame.kind == "reply":
            self._epochs[tag] = int(frame.fields["epoch"])
        return self.ask(site, payload) if self._hits(site, tag) else payload

    def _alter(self, site: str, tag: int, payload: bytes) -> list[bytes]:
        if self._epochs.get(tag) == self._when - 1:
            with self._noted:
                self._old[site] = payload
                self._noted.notify_all()
        if site not in self._who and self._epochs.get(tag) == self._when:
            self.others()
        return self.answer(site, payload) if self._hits(site, tag) else [payload]

    def old(self, site: str) -> bytes:
        """The answer to the epoch before, which a server that has heard enough does not wait for, but this does."""
        with self._noted:
            if not self._noted.wait_for(lambda: site in self._old, timeout=60):
                raise TimeoutError(f"{site} has not answered epoch {self._when - 1}")
            return self._old[site]

    def _hits(self, site: str, tag: int) -> bool:
        return site in self._who and self._epochs.get(tag) == self._when


def altered(change: Callable[[dict[str, np.ndarray]], dict[str, Any]]) -> Callable[[bytes], list[bytes]]:
    def alter(payload: bytes) -> list[bytes]:
        frame = decode(payload)
        return [encode(Frame(frame.kind, frame.fields, change(dict(frame.arrays))))]

    return alter


def arrange(kind: str, sites: InProcessFleet, who: set[str], when: int = AT) -> Trouble:
    """Make the trouble of that name happen."""
    trouble = Trouble(sites, who, when)

    def vanish(site: str, payload: bytes) -> None:
        sites.faults.silent.add(site)

    def die(site: str, payload: bytes) -> list[bytes]:
        vanish(site, payload)
        return []

    def part(site: str, payload: bytes) -> bytes:
        sites.faults.unreachable.add(site)
        return payload

    answers: dict[str, Callable[[bytes], list[bytes]]] = {
        "garbage": lambda payload: [b"\x93garbage" * 9],
        "cut": lambda payload: [payload[: len(payload) // 2]],
        "wrong shape": altered(lambda arrays: {name: array[:1] for name, array in arrays.items()}),
        "turned": altered(lambda arrays: {name: array.T.copy() for name, array in arrays.items()}),
        "wrong format": altered(lambda arrays: {name: array.astype(np.float32) for name, array in arrays.items()}),
        "not a number": altered(lambda arrays: {name: array * np.nan for name, array in arrays.items()}),
        "nothing": altered(lambda arrays: {}),
    }
    if kind == "silent before":
        trouble.ask = vanish
    elif kind == "silent during":
        trouble.answer = die
    elif kind == "unreachable":
        trouble.ask = part
        trouble.answer = lambda site, payload: []
    elif kind == "twice":
        trouble.answer = lambda site, payload: [payload, payload]
    elif kind == "older answer first":
        trouble.answer = lambda site, payload: [trouble.old(site), payload]
    elif kind == "older answer only":
        trouble.answer = lambda site, payload: [trouble.old(site)]
    else:
        trouble.answer = lambda site, payload: answers[kind](payload)
    return trouble


IMPROPER = ["garbage", "cut", "wrong shape", "turned", "wrong format", "not a number", "nothing"]
LOSING = ["silent before", "silent during", "unreachable", *IMPROPER, "older answer only"]
HARMLESS = ["twice", "older answer first"]
