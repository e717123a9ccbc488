"""Coded products of a simulation that nobody reads one by one: decoded in one product with the sum of all padded data.

Replies of ``coded-padded`` are products of the model with coded sums over a prime field. What any N - alpha + 1 of them
decode to is the product with the sum of all padded data, to the last bit, because a field has no rounding. So a reply
is computed when somebody reads it, and the decoder takes one product with that sum. Costs are those of the single
replies. Such replies are right, so they need no check.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.seals import PrimeField, unpack_upper
from codedfl.codes.gradient_code import GradientCode
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Deferred, Layout, Message, Work


class CodedHolder(Device):
    """Abstract: a device that holds a coded sum, and replies its product with a model."""

    @abstractmethod
    def coded_triangle(self, work: Work) -> UInt[np.ndarray, "triangle"]:
        """Return the upper triangle of the coded sum of padded Gram matrices; refuse if some are missing."""


@final
class CodedPool:
    """The devices of a simulation, and what any of their replies decode to."""

    def __init__(self, devices: Sequence[CodedHolder], code: GradientCode, field: PrimeField, reply: Layout) -> None:
        self._devices = devices
        self._code = code
        self.field = field
        self.reply = reply

    def pooled(self) -> Sequence[Device]:
        """Return the same devices with products that are computed when they are read."""
        return [PooledCodedDevice(device, self) for device in self._devices]

    @cached_property
    def _sum(self) -> UInt[np.ndarray, "d d"]:
        """The sum of all padded Gram matrices, which the coded ones of the first devices decode to."""
        which = range(self._code.threshold)
        total = np.zeros_like(self._devices[0].coded_triangle(Work()))
        for device, factor in zip(which, self._code.decoder(which), strict=True):
            self.field.add_multiple(total, factor, self._devices[device].coded_triangle(Work()))
        return unpack_upper(total)

    def total(self, request: Message) -> UInt[np.ndarray, "c d"]:
        """Return what the replies to a request decode to."""
        return self.field.product(self.field.from_wire(request["model"]), self._sum)


@final
class CodedReply(Deferred):
    """A coded product that is computed when it is read."""

    def __init__(self, device: CodedHolder, pool: CodedPool, epoch: int, request: Message) -> None:
        super().__init__(pool.reply)
        self._device = device
        self.pool, self.epoch, self.request = pool, epoch, request

    def compute(self) -> Message:
        """Let the device reply; its work is counted already."""
        return self._device.reply(self.epoch, self.request, Work())


@final
class PooledCodedDevice(Device):
    """A device of a pool: it counts the work of a product, which is done when the product is read."""

    def __init__(self, inside: CodedHolder, pool: CodedPool) -> None:
        self._inside = inside
        self._pool = pool

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Promise the product; reply the right-hand side for real."""
        if "model" not in request:
            return self._inside.reply(epoch, request, work)
        self._inside.coded_triangle(work)
        ((_, shape),) = self._pool.reply.values()
        outputs, features = shape[:2]
        work.add(outputs * features * features)
        return CodedReply(self._inside, self._pool, epoch, request)

    def export(self, grant: Message, work: Work) -> Message:
        """Export for real."""
        return self._inside.export(grant, work)

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Absorb for real."""
        self._inside.absorb_from(sender, parcel, work, owners)


def pooled_product(replies: Mapping[int, Message]) -> UInt[np.ndarray, "c d"] | None:
    """Return what replies decode to, if all are those of one pool to one request; else None."""
    pooled = [reply for reply in replies.values() if isinstance(reply, CodedReply)]
    if not pooled or len(pooled) < len(replies):
        return None
    first = pooled[0]
    same = all(each.pool is first.pool and each.request is first.request for each in pooled)
    return first.pool.total(first.request) if same else None
