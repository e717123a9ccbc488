"""Replies of a simulation that nobody reads one by one: computed when they are read, or summed in one product.

Devices in clear reply gradients, of which the server uses the sum. With the Gram matrices of all devices added up, one
product gives that sum; the replies that are missing in it are subtracted. Where slow devices rarely reply in time, the
sum over the fast ones is nearer, and the few that differ from it are added or subtracted. Costs are those of the single
replies.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.network import DelayModel
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Deferred, Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.task import Problem, Shard
from codedfl.task.losses import SQUARED
from codedfl.task.shard import Sums

_MOST_SPEEDS = 8
"""Sets of devices up to a speed whose sums are kept at most."""
LEAST_MACS = 10**8
"""Multiplications of an epoch below which replies are read singly, so that a small run has the bits of a deployment."""


def gradient_macs(shard: Shard) -> int:
    """Return the multiplications of A_i Theta - B_i, from the Gram matrix or from rows, whichever takes fewer."""
    d, c = shard.x.shape[1], shard.y.shape[1]
    return int((d if shard.compact else 2 * shard.samples) * d * c)


def worth_summing(problem: Problem, parts: int, epochs: int) -> bool:
    """Tell whether to sum the Gram matrices of so many batches for so many epochs at most.

    They take as many multiplications as d / (4 c) epochs each, and must need no more room than the data.
    """
    d, c = problem.shape
    return problem.loss == SQUARED and 4 * c * epochs >= parts * d and parts * d <= problem.samples


def batch_memory(public: Public, parts: int) -> int:
    """Return the bytes of such sums, at most."""
    return public.dtype.itemsize * public.features * min(parts * public.features, sum(public.samples))


def speed_groups(delays: DelayModel | None, macs: Sequence[int]) -> list[tuple[int, ...]]:
    """Return groups of devices that take as long for their work on average, the fastest first; at most eight.

    >>> from codedfl.scenario import load
    >>> fleet = load("paper")
    >>> [len(group) for group in speed_groups(DelayModel.create(fleet.fleet, fleet.links), [10**7] * 25)]
    [10, 5, 5, 5]
    """
    if delays is None:
        return [tuple(range(len(macs)))]
    seconds = delays.work_seconds(np.array(macs), np.ones(len(macs)))
    levels = np.unique(seconds)
    if len(levels) > _MOST_SPEEDS:
        shares = np.arange(1, _MOST_SPEEDS + 1) / _MOST_SPEEDS
        levels = np.unique(np.quantile(seconds, shares, method="inverted_cdf"))
    level = np.searchsorted(levels, seconds)
    return [tuple(np.flatnonzero(level == each).tolist()) for each in range(len(levels))]


@final
class ReplyPool:
    """The devices of a simulation, and the sum of what they reply to the same request.

    Parameters
    ----------
    devices : Sequence[Device]
        The devices, which reply a gradient to a model.
    macs : callable
        Maps an epoch to the multiplications of the reply of each device.
    sums : callable, optional
        Maps an epoch to the sums over the data behind the replies of all devices; by default replies are not summed.
    groups : sequence, optional
        Groups of devices, with what returns the sums over their data. Who replies is often near the union of the first
        few.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        macs: Callable[[int], Sequence[int]],
        sums: Callable[[int], Sums] | None = None,
        groups: Sequence[tuple[Sequence[int], Callable[[], Sums]]] = (),
    ) -> None:
        self._devices = devices
        self._sums = sums
        self._groups = groups
        self._unions = [set(union) for union in accumulate((tuple(group) for group, _ in groups[:-1]))]
        self._known: dict[int, Sums] = {}
        self._macs = macs
        self._counted: tuple[int, Sequence[int]] = (-1, ())

    def macs(self, epoch: int) -> Sequence[int]:
        """Return the multiplications of each device's reply; those of the last epoch are kept."""
        if epoch != self._counted[0]:
            self._counted = epoch, self._macs(epoch)
        return self._counted[1]

    def pooled(self) -> Sequence[Device]:
        """Return the same devices with replies that are computed when they are read."""
        return [PooledDevice(device, index, self) for index, device in enumerate(self._devices)]

    def total(self, epoch: int, request: Message, present: Sequence[int]) -> Float[np.ndarray, "d c"] | None:
        """Return the sum of the replies of some devices in float64; None where single replies cost little or less."""
        if self._sums is None:
            return None
        model, given, macs = request["model"], set(present), self.macs(epoch)
        single, product = sum(macs[device] for device in present), model.size * len(model)
        if single < LEAST_MACS:
            return None
        # who replied decides alone, so that a resumed run has the same bits
        other = [sum(macs[each] for each in given ^ union) for union in (self._everyone, *self._unions)]
        nearest = int(np.argmin(other))
        if product + other[nearest] >= single:
            return None
        union = self._unions[nearest - 1] if nearest else self._everyone
        found = (self._union_sums(nearest) if nearest else self._sums(epoch)).gradient(model)
        for device in sorted(given ^ union):
            if macs[device]:
                reply = self._devices[device].reply(epoch, request, Work())["gradient"]
                found += reply if device in given else -reply
        return found

    @property
    def _everyone(self) -> set[int]:
        return set(range(len(self._devices)))

    def _union_sums(self, count: int) -> Sums:
        """Return the sums over the first so many groups, made once."""
        if count not in self._known:
            parts = [sums() for _, sums in self._groups[:count]]
            total = np.sum([part.moments for part in parts], axis=0)
            gram = parts[0].gram.astype(np.float64)
            for part in parts[1:]:
                gram += part.gram
            self._known[count] = Sums(gram.astype(parts[0].gram.dtype), total, sum(part.samples for part in parts))
        return self._known[count]


@final
class PooledReply(Deferred):
    """A gradient that is computed when it is read."""

    def __init__(self, device: Device, pool: ReplyPool, epoch: int, request: Message, promised: Layout) -> None:
        self.promised = promised
        self._device = device
        self.pool, self.epoch, self.request = pool, epoch, request

    def compute(self) -> Message:
        """Let the device reply; its work is counted already."""
        return self._device.reply(self.epoch, self.request, Work())


@final
class PooledDevice(Device):
    """A device of a pool: it counts the work of a reply, which is done when the reply is read."""

    def __init__(self, inside: Device, index: int, pool: ReplyPool) -> None:
        self._inside = inside
        self._index = index
        self._pool = pool

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Promise the gradient."""
        work.macs += self._pool.macs(epoch)[self._index]
        model = request["model"]
        return PooledReply(self._inside, self._pool, epoch, request, {"gradient": (model.dtype, model.shape)})

    def export(self, grant: Message, work: Work) -> Message:
        """Export for real."""
        return self._inside.export(grant, work)


def pooled_total(replies: Mapping[int, Message]) -> Float[np.ndarray, "d c"] | None:
    """Return the sum of the gradients in float64, if all are replies of one pool to one request and that is cheaper."""
    pooled = [reply for reply in replies.values() if isinstance(reply, PooledReply)]
    if not pooled or len(pooled) < len(replies):
        return None
    first = pooled[0]
    same = all(
        (each.pool, each.epoch) == (first.pool, first.epoch) and each.request is first.request for each in pooled
    )
    return first.pool.total(first.epoch, first.request, sorted(replies)) if same else None
