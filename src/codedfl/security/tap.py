"""A tap on devices: they behave as before, and every message they receive or send is recorded."""

from collections.abc import Sequence, Set
from typing import Any, final

from codedfl.schemes.contract import Device
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
        if set(parcel) != {"moments"}:  # replies to models are not computed from right-hand sides
            self._contents |= origin.contents
            self._received += (origin,)


def tap(devices: Sequence[Device], transcript: Transcript) -> list[Device]:
    """Return the same devices with a tap on all they receive and send."""
    return [_TappedDevice(index, device, transcript) for index, device in enumerate(devices)]
