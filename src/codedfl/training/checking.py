"""Wrong replies: epochs are checked by spare replies, late ones included, and computed again if one was wrong.

An epoch goes on as soon as it has the replies that it needs. Any further reply checks it, whenever it arrives. Until
then the training keeps what it takes to go back. Epochs that get no spare reply in time are checked together, by one
round after the last epoch (``codedfl.schemes.coded.server``).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from codedfl.engines import Engine
from codedfl.engines.contract import LATE_ROUNDS
from codedfl.errors import LyingDeviceError
from codedfl.schemes.contract import Round, Server
from codedfl.schemes.messages import Message
from codedfl.training.records import Lie, Point, State

_ADVICE = (
    "begin again without it, or with more workers than replies are needed (schemes.sealed-coded.spares, "
    "schemes.coded-padded.alpha): two more find one liar"
)


@dataclass(frozen=True, eq=False)
class _Epoch:
    """An epoch that is not checked yet: its question, the replies so far, and the point before it."""

    epoch: int
    question: Round
    replies: dict[int, Message]
    before: Point | None

    @property
    def spare(self) -> int:
        """How many replies there are beyond those that are needed."""
        return len(self.replies) - (self.question.needed or 0)


class SpoiltEpoch(Exception):  # noqa: N818 - the loop goes on from it
    """Replies to a question contradict each other, or those of the audit contradict an earlier epoch."""

    def __init__(self, found: _Epoch, *, named: bool = True) -> None:
        super().__init__(f"wrong replies in epoch {found.epoch}")
        self.found = found
        self.named = named
        """Whether the replies at hand can name the liar."""


@final
class Watch:
    """Holds replies against each other, and tells the training when to go back."""

    def __init__(self, server: Server, engine: Engine, state: State) -> None:
        self._server = server
        self._engine = engine
        self._state = state
        self._before: Point | None = None
        self._open: list[_Epoch] = []
        self._unasked: list[_Epoch] = []
        """Epochs without a spare reply that the audit does not cover."""
        self._first_deferred: Point | None = None
        self._careful = False

    def begin(self) -> None:
        """Note where the training stands before an epoch."""
        state = self._state
        self._before = state.point(state.server if state.epoch else self._server.state())

    def put(self, question: Round) -> Round:
        """Return the question as it is asked: after lies whose author is not known, all devices are awaited."""
        if not self._careful or question.needed is None:
            return question
        return dataclasses.replace(question, quorum=len(question.requests), least=question.least)

    def answered(self, question: Round, replies: Mapping[int, Message]) -> None:
        """Take in an epoch's replies, and check all epochs with the late replies that have arrived."""
        if question.needed is not None and len(question.requests) > question.needed:
            self._open.append(_Epoch(question.epoch, question, dict(replies), self._before))
        self.collect()
        while len(self._open) > LATE_ROUNDS:
            self._put_off(self._open.pop(0))
        self._state.safe = self._open[0].before if self._open else None

    def collect(self, *, wait: bool = False) -> None:
        """Take in late replies, and check every epoch that has a spare one."""
        for question, reply in self._engine.late(wait=wait):
            for each in self._open:
                if each.question is question:
                    each.replies[reply.device] = reply.message
        for each in [each for each in self._open if each.spare > 0]:
            self._confirm(each)
        self._state.safe = self._open[0].before if self._open else None

    def _confirm(self, found: _Epoch) -> None:
        if self._server.check(found.question, found.replies) != ():
            raise SpoiltEpoch(found)
        self._state.checked.add(found.epoch)
        if found in self._open:
            self._open.remove(found)

    def _put_off(self, found: _Epoch) -> None:
        """Leave an epoch to the audit; no late reply to it is awaited any more."""
        changed = self._server.defer(found.question, found.replies)
        if changed is None:
            self._unasked.append(found)
            return
        self._first_deferred = self._first_deferred or found.before
        for each in self._open:
            if each.before is not None:
                each.before.server.update(changed)

    def settle(self) -> None:
        """Check everything that is left, with questions of its own if need be."""
        self.collect(wait=True)
        while self._open:
            self._put_off(self._open.pop(0))
        for each in self._unasked:
            self._ask_again(each, each.question.needed or 0)
            if each.spare > 0:
                self._confirm(each)
        self._unasked.clear()
        self._audit()
        self._state.safe = None

    def _ask_again(self, found: _Epoch, beyond: int) -> set[int]:
        """Ask the same question again until more than so many reply; return who answers otherwise than before."""
        question = found.question
        quorum = min(beyond + 1, len(question.requests))
        answer = self._engine.ask(dataclasses.replace(question, quorum=quorum, least=0), offline=False)
        told = {reply.device: reply.message for reply in answer.replies}
        differing = {
            device for device in told if device in found.replies and _differ(told[device], found.replies[device])
        }
        if differing and beyond < len(question.requests):
            raise SpoiltEpoch(found)
        found.replies.update(told)
        return differing

    def _audit(self) -> None:
        """Check all deferred epochs by one round."""
        epoch = self._state.epoch
        question = self._server.audit(epoch)
        if question is None:
            return
        found = _Epoch(epoch, question, {}, self._first_deferred)
        self._ask_again(found, question.needed or 0)
        if found.spare <= 0:
            return
        if self._server.check(question, found.replies) != ():
            raise SpoiltEpoch(found)
        confirmed = self._server.audited(found.replies)
        if confirmed is None:
            raise SpoiltEpoch(found, named=False)
        self._state.checked.update(confirmed)

    def recover(self, spoilt: SpoiltEpoch) -> Sequence[int]:
        """Go back to before the wrong replies; return who gave them, or nobody if the next lie will tell."""
        found, state = spoilt.found, self._state
        if found.before is None:
            raise LyingDeviceError(
                f"a device replied wrong numbers before the run was saved in epoch {state.epoch} or earlier, and it "
                f"cannot go back there; {_ADVICE}"
            )
        liars = self._name(found) if spoilt.named else {}
        self._open = [each for each in self._open if each.epoch <= found.before.epoch]
        self._unasked = [each for each in self._unasked if each.epoch <= found.before.epoch]
        state.safe = None
        state.spoilt += (state.epoch if self._before is None else self._before.epoch + 1) - found.before.epoch
        state.go_back(found.before)
        self._server.rewind(found.before.server)
        if found.before is self._first_deferred:
            self._first_deferred = None
        state.safe = self._open[0].before if self._open else None
        if spoilt.named and not liars:
            raise LyingDeviceError(
                f"a device replied wrong numbers in epoch {found.epoch}, and {len(found.replies)} replies do not tell "
                f"which one where {found.question.needed} are needed; the run is saved up to epoch {state.epoch}: "
                f"{_ADVICE}"
            )
        self._careful |= not liars
        for device, itself in liars.items():
            state.lies.append(Lie(device, found.epoch, itself))
            self._engine.drop(device, lie_words(state.lies[-1]))
        return sorted(liars)

    def _name(self, found: _Epoch) -> dict[int, bool]:
        """Ask everyone again, and return who lied, and whether it contradicted itself."""
        earlier = dict(found.replies)
        itself = self._ask_again(found, len(found.question.requests))
        rest = {device: reply for device, reply in (earlier | found.replies).items() if device not in itself}
        wrong = self._server.check(found.question, rest) if len(rest) > (found.question.needed or 0) else ()
        return dict.fromkeys(wrong or (), False) | dict.fromkeys(itself, True) if wrong is not None else {}


def lie_words(lie: Lie) -> str:
    """Return a lie in words."""
    if lie.contradicts_itself:
        return f"it replied two different numbers to the same question of epoch {lie.epoch}"
    return f"its reply in epoch {lie.epoch} does not fit the replies of the others"


def _differ(one: Message, other: Message) -> bool:
    return one.keys() != other.keys() or any(not np.array_equal(one[name], other[name]) for name in one)
