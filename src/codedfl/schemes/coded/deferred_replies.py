"""Replies of coded schemes in a simulation: computed when somebody reads them.

An epoch ends with the first K replies. In a simulation of honest devices nobody reads the others, but for one that
checks the epoch (``codedfl.training.checking``), so that those of stragglers need not be computed. What is read is the
reply of the device itself, encoded as it would be sent. Costs are those of all replies.
"""

from collections.abc import Set
from typing import final

from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Deferred, Layout, Message, Work


@final
class DeferredReply(Deferred):
    """A reply that the device computes when it is read."""

    def __init__(self, device: Device, epoch: int, request: Message, promised: Layout) -> None:
        self.promised = promised
        self._device, self._epoch, self._request = device, epoch, request

    def compute(self) -> Message:
        """Let the device reply; its work is counted already."""
        return self._device.reply(self._epoch, self._request, Work())


@final
class DeferringDevice(Device):
    """A device that replies to models when replies are read; all else it does at once.

    Parameters
    ----------
    inside : Device
        The device itself; what it holds must not change after the set-up.
    promised : Layout
        Layout of its reply to a model.
    macs : int
        Multiplications of that reply.
    """

    def __init__(self, inside: Device, promised: Layout, macs: int) -> None:
        self._inside = inside
        self._promised, self._macs = promised, macs

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Promise the reply to a model; reply to anything else."""
        if "model" not in request:
            return self._inside.reply(epoch, request, work)
        work.add(self._macs)
        return DeferredReply(self._inside, epoch, request, self._promised)

    def export(self, grant: Message, work: Work) -> Message:
        """Export at once."""
        return self._inside.export(grant, work)

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Absorb at once."""
        self._inside.absorb_from(sender, parcel, work, owners)
