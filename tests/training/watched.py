"""Epochs under watch: a server that knows all right replies, and an engine that brings those that a test lays down."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl.engines import Answer, Engine
from codedfl.engines.contract import Reply
from codedfl.network import RoundCosts
from codedfl.schemes.contract import Round, Server
from codedfl.schemes.messages import Deferred, Layout, Message
from codedfl.training.checking import SpoiltEpoch, Watch
from codedfl.training.records import State
from tiny import problem

NEEDED, DEVICES = 2, 6
WRONG = -1


def right(epoch: int, device: int) -> int:
    return 100 * epoch + device


def message(number: int) -> Message:
    return {"number": np.array([number]), "same": np.zeros(2)}


class Open(Deferred):
    """A reply that says whether it was computed."""

    def __init__(self, number: int) -> None:
        self.promised: Layout = {"number": (np.dtype(np.int64), (1,)), "same": (np.dtype(float), (2,))}
        self.number = number

    def compute(self) -> Message:
        return message(self.number)


class Referee(Server):
    """Knows all right replies; names half as many liars as there are spare replies, as codes do.

    With ``defers`` it remembers for its audit whether the replies of epochs were right; those of ``asked_again`` it
    does not defer.
    """

    def __init__(self, *, defers: bool = False, asked_again: Sequence[int] = ()) -> None:
        self.defers, self.asked_again = defers, asked_again
        self.deferred: dict[int, bool] = {}
        self.deferred_of: list[int] = []
        self.audits: list[int] = []
        self.rewound: list[Message] = []

    def ask(self, epoch: int, model: Any) -> Round: ...

    def combine(self, *_: Any) -> Any: ...

    def state(self) -> Message:
        return {"server": np.array(7)}

    def check(self, question: Round, replies: Mapping[int, Message]) -> tuple[int, ...] | None:
        spare = len(replies) - NEEDED
        wrong = [each for each in sorted(replies) if replies[each]["number"][0] != right(question.epoch, each)]
        assert spare > 0, "so few fit each other in any case"
        if not wrong:
            return ()
        return tuple(wrong) if 2 * len(wrong) <= spare else None

    def defer(self, question: Round, replies: Mapping[int, Message]) -> Message | None:
        self.deferred_of.append(question.epoch)
        if not self.defers or question.epoch in self.asked_again:
            return None
        fine = all(reply["number"][0] == right(question.epoch, device) for device, reply in replies.items())
        self.deferred[question.epoch] = fine
        return {"deferred": np.array(sorted(self.deferred))}

    def audit(self, epoch: int) -> Round | None:
        self.audits.append(epoch)
        return question(epoch) if self.deferred else None

    def audited(self, replies: Mapping[int, Message]) -> Sequence[int] | None:
        epochs, fine = sorted(self.deferred), all(self.deferred.values())
        self.deferred = {}
        return epochs if fine else None

    def rewind(self, state: Message) -> None:
        self.rewound.append(state)
        known = state["deferred"].tolist() if "deferred" in state else []
        self.deferred = {epoch: self.deferred.get(epoch, True) for epoch in known}


def question(epoch: int, devices: int = DEVICES, **more: Any) -> Round:
    return Round.same(epoch, range(devices), message(0), **{"quorum": NEEDED, "needed": NEEDED, **more})


Answers = Callable[[int, int], Message | None]
honest: Answers = lambda epoch, device: message(right(epoch, device))  # noqa: E731


class Post(Engine):
    """Brings late replies that are laid down here, and answers questions at once; None does not answer."""

    now = 0.0

    def __init__(self, answers: Answers = honest) -> None:
        self.answers = answers
        self.arrived: list[tuple[Round, Reply]] = []
        self.on_their_way: list[tuple[Round, Reply]] = []
        self.asked: list[Round] = []
        self.dropped: list[tuple[int, str]] = []

    def ask(self, question: Round, *, offline: bool) -> Answer:
        assert not offline
        self.asked.append(question)
        found = [(device, self.answers(question.epoch, device)) for device in question.requests]
        replies = [Reply(device, told, 1.0) for device, told in found if told is not None][: question.quorum]
        assert len(replies) >= question.least
        return Answer(tuple(replies), NOTHING)

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        found = self.arrived + (self.on_their_way if wait else [])
        self.arrived = []
        self.on_their_way = [] if wait else self.on_their_way
        return found

    def arrives(self, question: Round, *devices: int, wrong: Sequence[int] = ()) -> None:
        for device in devices:
            number = WRONG if device in wrong else right(question.epoch, device)
            self.arrived.append((question, Reply(device, message(number), 1.0)))

    def drop(self, device: int, reason: str) -> None:
        self.dropped.append((device, reason))

    def reopen(self, *_: Any) -> None: ...
    def carry(self, *_: Any) -> Any: ...
    def replay(self, *_: Any) -> None: ...
    def charge_server(self, macs: int) -> None: ...


NOTHING = RoundCosts(*(np.zeros(0, np.int64) for _ in range(4)), quorum=0, server_macs=0)


class Training:
    """Epochs whose models count them: after a return the model says where the training stands."""

    def __init__(self, server: Referee | None = None, answers: Answers = honest) -> None:
        self.server, self.post = server or Referee(), Post(answers)
        self.state = State.fresh(problem([3, 3]))
        self.watch = Watch(self.server, self.post, self.state)

    def epoch(self, *devices: int, wrong: Sequence[int] = (), asked: Round | None = None) -> Round:
        """Devices 0 and 1 reply if none are named."""
        number = self.state.epoch + 1
        self.watch.begin()
        put = self.watch.put(asked or question(number))
        told = {each: message(WRONG if each in wrong else right(number, each)) for each in devices or (0, 1)}
        self.watch.answered(put, told)
        self.state.model = self.state.model + 1
        self.state.server = {"epoch": np.array(number)}
        self.state.history.add_round(NOTHING)
        return put

    def checked_epochs(self, count: int) -> None:
        """Epochs with a spare reply and a late one; then signatures are checked no more, which reads messages."""
        for _ in range(count):
            self.post.arrives(self.epoch(0, 1, 2), 3)
            self.watch.collect()

    def epochs(self, count: int) -> list[Round]:
        return [self.epoch() for _ in range(count)]

    def spoilt(self, act: Callable[[], Any]) -> SpoiltEpoch:
        with pytest.raises(SpoiltEpoch) as raised:
            act()
        return raised.value

    def stands_after(self, epoch: int) -> bool:
        return self.state.epoch == epoch and bool((self.state.model == epoch).all())

    @property
    def safe(self) -> int | None:
        return None if self.state.safe is None else self.state.safe.epoch
