"""A tap on devices and engine: they behave as before, and every message is recorded."""

from collections.abc import Sequence, Set
from typing import Any, final

from codedfl.engines import Answer, Engine
from codedfl.engines.contract import Receive, Reply, StageOutcome
from codedfl.schemes.contract import Device, Round, Stage
from codedfl.schemes.messages import Message, Work
from codedfl.security.transcript import RecordedParcel, RecordedReply, Transcript


@final
class _TappedDevice(Device):
    """A device with a tap; ``_contents`` are the devices whose data its replies are computed from."""

    def __init__(self, index: int, inside: Any, transcript: Transcript) -> None:
        self._index = index
        self._inside = inside
        self._transcript = transcript
        self._contents = frozenset({index})
        self._received: tuple[RecordedParcel, ...] = ()

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        message: Message = self._inside.reply(epoch, request, work)
        self._transcript.replies.append(RecordedReply(self._index, epoch, self._contents, request, message))
        return message

    def export(self, grant: Message, work: Work) -> Message:
        parcel: Message = self._inside.export(grant, work)
        self._transcript.parcels.append(RecordedParcel(self._index, self._contents, grant, parcel, self._received))
        return parcel

    def owners(self, grant: Message) -> Set[int]:
        found: Set[int] = self._inside.owners(grant)
        return found

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        self._inside.absorb_from(sender, parcel, work, owners)
        origin = next(entry for entry in reversed(self._transcript.parcels) if entry.parcel is parcel)
        # replies to models are not computed from right-hand sides, and keys are no data
        if set(parcel) != {"moments"} and "key" not in parcel:
            self._contents |= origin.contents
            self._received += (origin,)


def tap(devices: Sequence[Device], transcript: Transcript) -> list[Device]:
    """Return the same devices with a tap on all they receive and send."""
    return [_TappedDevice(index, device, transcript) for index, device in enumerate(devices)]


@final
class TappedEngine(Engine):
    """An engine that records the model of every epoch as devices get it."""

    def __init__(self, inside: Engine, transcript: Transcript) -> None:
        self._inside = inside
        self._points = transcript.points

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._inside.now

    def ask(self, question: Round, *, offline: bool) -> Answer:
        """Record the model, if the round has one and it is the first of its epoch that does."""
        if len(self._points) < question.epoch:
            sent = next((request["model"] for request in question.requests.values() if "model" in request), None)
            point = sent if question.point is None else question.point
            if point is not None:
                self._points.append(point)
        return self._inside.ask(question, offline=offline)

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        """Pass on."""
        return self._inside.late(wait=wait)

    def drop(self, device: int, reason: str) -> None:
        """Pass on."""
        self._inside.drop(device, reason)

    def reopen(self, question: Round, began: float) -> None:
        """Pass on."""
        self._inside.reopen(question, began)

    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        """Pass on."""
        return self._inside.carry(stage, number, receive)

    def carry_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> Sequence[StageOutcome]:
        """Pass on."""
        return self._inside.carry_overlapping(stages, first, receive)

    def replay(self, stage: Stage, receive: Receive) -> None:
        """Pass on."""
        self._inside.replay(stage, receive)

    def charge_server(self, macs: int) -> None:
        """Pass on."""
        self._inside.charge_server(macs)
