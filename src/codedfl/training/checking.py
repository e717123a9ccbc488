"""Wrong replies: epochs are checked by spare replies, late ones included, and computed again if one was wrong.

An epoch goes on as soon as it has the replies that it needs. Any further reply checks it, whenever it arrives. Until
then the training keeps what it takes to go back. Epochs that get no spare reply in time are checked together, by one
round after the last epoch (``codedfl.schemes.coded.server``). Where a simulation computes replies when they are read
(``Deferred``), devices are honest: one spare reply of an epoch is read, which checks it, and the others are not.
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
from codedfl.schemes.messages import Deferred, Message
from codedfl.training.records import Lie, Point, State

_ADVICE = (
    "begin again without it, or with more workers than replies are needed (schemes.sealed-coded.spares, "
    "schemes.coded-padded.alpha): two more find one liar"
)


@dataclass(eq=False)
class _Epoch:
    """An epoch that late replies may still concern: its question, the replies so far, and the point before it."""

    question: Round
    replies: dict[int, Message]
    before: Point | None
    used: frozenset[int] = frozenset()
    """Whose replies the gradient was computed from."""
    confirmed: bool = False

    @property
    def needed(self) -> int:
        """How many replies determine all others."""
        return self.question.needed or 0

    def with_spare(self) -> dict[int, Message]:
        """Return the replies to check: all; of those yet to be computed, no more than make one spare reply."""
        order = sorted(self.replies, key=lambda device: _is_open(self.replies[device]))
        known = sum(not _is_open(message) for message in self.replies.values())
        return {device: self.replies[device] for device in order[: max(known, self.needed + 1)]}

    def fits(self, server: Server, device: int, message: Message) -> bool:
        """Tell whether one more reply fits confirmed ones; as many as determine all others suffice for that."""
        others = [each for each in self.with_spare() if each != device][: self.needed]
        return server.check(self.question, {device: message} | {each: self.replies[each] for each in others}) == ()


class SpoiltEpoch(Exception):  # noqa: N818 - the loop goes on from it
    """Replies contradict each other; ``liars`` are those who gave wrong ones, None if they are to be found."""

    def __init__(self, found: _Epoch, liars: Sequence[int] | None = None) -> None:
        super().__init__(f"wrong replies in epoch {found.question.epoch}")
        self.found = found
        self.liars = liars


@final
class Watch:
    """Holds replies against each other, and tells the training when to go back."""

    def __init__(self, server: Server, engine: Engine, state: State) -> None:
        self._server = server
        self._engine = engine
        self._state = state
        self._before: Point | None = None
        self._recent: list[_Epoch] = []
        self._unchecked: list[_Epoch] = []
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
            self._recent.append(_Epoch(question, dict(replies), self._before, frozenset(replies)))
        self.collect()
        while len(self._recent) > LATE_ROUNDS:
            self._put_off(self._recent.pop(0))
        self._note_safe()

    def collect(self, *, wait: bool = False) -> None:
        """Take in late replies, and check every epoch that has a spare one."""
        for question, reply in self._engine.late(wait=wait):
            for each in self._recent:
                if each.question is question:
                    self._take(each, reply.device, reply.message)
        for each in self._recent:
            self._confirm(each)
        self._note_safe()

    def _take(self, found: _Epoch, device: int, message: Message) -> None:
        """Take in a late reply; one that does not fit confirmed ones is wrong, and the epoch is right."""
        if found.confirmed and not _is_open(message) and not found.fits(self._server, device, message):
            raise SpoiltEpoch(found, [device])
        found.replies[device] = message

    def _confirm(self, found: _Epoch) -> None:
        """Check an epoch, if it has a spare reply."""
        if found.confirmed or len(found.replies) <= found.needed:
            return
        if self._server.check(found.question, found.with_spare()) != ():
            raise SpoiltEpoch(found)
        found.confirmed = True
        self._state.checked.add(found.question.epoch)

    def _note_safe(self) -> None:
        self._state.safe = next((each.before for each in self._recent if not each.confirmed), None)

    def _put_off(self, found: _Epoch) -> None:
        """Await no more late replies to an epoch; leave it to the audit if it is not checked yet."""
        changed = None if found.confirmed else self._server.defer(found.question, found.replies)
        if changed is not None:
            self._first_deferred = self._first_deferred or found.before
            for each in self._recent:
                if each.before is not None:
                    each.before.server.update(changed)
        elif not found.confirmed:
            self._unchecked.append(found)

    def settle(self) -> None:
        """Check everything that is left, with questions of its own if need be."""
        self.collect(wait=True)
        while self._recent:
            self._put_off(self._recent.pop(0))
        for each in self._unchecked:
            if self._ask_again(each, each.needed + 1):
                raise SpoiltEpoch(each)
            self._confirm(each)
        self._unchecked.clear()
        self._audit()
        self._state.safe = None

    def _ask_again(self, found: _Epoch, quorum: int) -> set[int]:
        """Ask the same question again, and take in the replies; return who replies otherwise than before."""
        answer = self._engine.ask(dataclasses.replace(found.question, quorum=quorum, least=0), offline=False)
        told = {reply.device: reply.message for reply in answer.replies}
        known = found.replies
        differing = {device for device in told if device in known and _differ(told[device], known[device])}
        known.update({device: message for device, message in told.items() if device not in differing})
        return differing

    def _audit(self) -> None:
        """Check all deferred epochs by one round."""
        question = self._server.audit(max(2, self._state.epoch))  # in the first epoch, replies are others
        if question is None:
            return
        found = _Epoch(question, {}, self._first_deferred)
        self._ask_again(found, found.needed + 1)
        if len(found.replies) <= found.needed:
            return
        if self._server.check(question, found.replies) != ():
            raise SpoiltEpoch(found)
        confirmed = self._server.audited(found.replies)
        if confirmed is None:
            raise SpoiltEpoch(found, [])
        self._state.checked.update(confirmed)

    def recover(self, spoilt: SpoiltEpoch) -> Sequence[int]:
        """Go back to before the wrong replies; return who gave them, or nobody if only the next lie can tell."""
        found, state = spoilt.found, self._state
        epoch, target = found.question.epoch, found.before
        liars = self._named(found) if spoilt.liars is None else dict.fromkeys(spoilt.liars, False)
        if liars and found.used.isdisjoint(liars):  # the gradient is right; only the present epoch was interrupted
            target = self._before
        if target is None:
            raise LyingDeviceError(
                f"a device replied wrong numbers before the run was saved in epoch {state.epoch} or earlier, and it "
                f"cannot go back there; {_ADVICE}"
            )
        self._recent = [each for each in self._recent if each.question.epoch <= target.epoch and each is not found]
        self._unchecked = [each for each in self._unchecked if each.question.epoch <= target.epoch]
        state.spoilt += (state.epoch if self._before is None else self._before.epoch + 1) - target.epoch
        state.go_back(target)
        self._server.rewind(target.server)
        if self._first_deferred is not None and target.epoch <= self._first_deferred.epoch:
            self._first_deferred = None  # none of the epochs that were deferred is left
        self._note_safe()
        if liars is None:
            raise LyingDeviceError(
                f"a device replied wrong numbers in epoch {epoch}, and {len(found.replies)} replies do not tell which "
                f"one where {found.needed} are needed; the run is saved up to epoch {state.epoch}: {_ADVICE}"
            )
        self._careful |= not liars
        for device, itself in liars.items():
            lie = Lie(device, epoch, itself)
            state.lies.append(lie)
            self._engine.drop(device, lie_words(lie))
        return sorted(liars)

    def _named(self, found: _Epoch) -> dict[int, bool] | None:
        """Ask everyone again; return who lied, and whether it contradicted itself, or None if it cannot be told."""
        itself = self._ask_again(found, len(found.question.requests))
        rest = {device: reply for device, reply in found.replies.items() if device not in itself}
        wrong = self._server.check(found.question, rest) if len(rest) > found.needed else ()
        liars = None if wrong is None else dict.fromkeys(wrong, False) | dict.fromkeys(itself, True)
        if liars and found.used.isdisjoint(liars):
            self._state.checked.add(found.question.epoch)
        return liars or None


def lie_words(lie: Lie) -> str:
    """Return a lie in words."""
    if lie.contradicts_itself:
        return f"it replied two different numbers to the same question of epoch {lie.epoch}"
    return f"its reply in epoch {lie.epoch} does not fit the replies of the others"


def _is_open(message: Message) -> bool:
    """Tell whether a simulation has yet to compute a message."""
    return isinstance(message, Deferred) and not message.is_computed


def _differ(one: Message, other: Message) -> bool:
    return one.keys() != other.keys() or any(not np.array_equal(one[name], other[name]) for name in one)
