"""A tap on devices: they behave as before, and everything they receive and send is written down."""

from collections.abc import Sequence
from typing import final

from codedfl.schemes.contract import Device, SharingDevice
from codedfl.schemes.messages import Message, Work
from codedfl.security.transcript import Asked, Sent, Transcript

__all__ = ["tap"]


class _Record:
    """What the tap knows of one device."""

    def __init__(self, index: int, transcript: Transcript) -> None:
        self.index = index
        self.transcript = transcript
        self.contents = frozenset({index})
        self.received: tuple[Sent, ...] = ()

    def reply(self, inside: Device, epoch: int, request: Message, work: Work) -> Message:
        message = inside.reply(epoch, request, work)
        self.transcript.asked.append(Asked(self.index, epoch, self.contents, request, message))
        return message

    def sent(self, grant: Message, parcel: Message) -> None:
        self.transcript.sent.append(Sent(self.index, self.contents, grant, parcel, self.received))

    def took(self, parcel: Message) -> None:
        origin = next(entry for entry in reversed(self.transcript.sent) if entry.parcel is parcel)
        if set(parcel) == {"moments"}:  # moments are no part of what replies are computed from
            return
        self.contents |= origin.contents
        self.received += (origin,)


@final
class _TappedDevice(Device):
    def __init__(self, inside: Device, record: _Record) -> None:
        self._inside = inside
        self._record = record

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return self._record.reply(self._inside, epoch, request, work)


@final
class _TappedSharingDevice(SharingDevice):
    def __init__(self, inside: SharingDevice, record: _Record) -> None:
        self._inside = inside
        self._record = record

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return self._record.reply(self._inside, epoch, request, work)

    def export(self, grant: Message, work: Work) -> Message:
        parcel = self._inside.export(grant, work)
        self._record.sent(grant, parcel)
        return parcel

    def absorb(self, parcel: Message, work: Work) -> None:
        self._inside.absorb(parcel, work)
        self._record.took(parcel)


def tap(devices: Sequence[Device], transcript: Transcript) -> list[Device]:
    """Return the same devices with a tap on all they receive and send."""
    tapped: list[Device] = []
    for index, device in enumerate(devices):
        record = _Record(index, transcript)
        if isinstance(device, SharingDevice):
            tapped.append(_TappedSharingDevice(device, record))
        else:
            tapped.append(_TappedDevice(device, record))
    return tapped
