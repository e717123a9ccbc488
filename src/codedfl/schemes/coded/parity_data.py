"""Parity data at the server of ``parity``; in a simulation, made once for all trainings on the same data.

Generators are constant, so every repetition of a training has the same parity data. In a simulation nobody reads those
of a single device: a parcel is made when the server adds it up, and the sums are kept with the data set.
"""

from collections.abc import Hashable, Sequence
from typing import final
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Deferred, Layout, Message, Work
from codedfl.schemes.plain.pooling import LEAST_MACS
from codedfl.task import Problem
from codedfl.task.shard import Sums, gram

ParityRows = tuple[Float[np.ndarray, "rows d"], Float[np.ndarray, "rows c"]]
"""Features and targets of the parity data of a batch."""


@final
class ParityPool:
    """What trainings with the same batches, loads and generators share: sums of batches, and of parity data."""

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self.sums: dict[int, Sums] = {}
        """Sums over the points of each batch that devices work on."""
        self.parity: dict[tuple[int, tuple[int, ...]], ParityRows] = {}
        """Parity data by batch, and by the devices that have sent theirs."""
        self.summed = False
        """Whether a training takes so many epochs that Gram matrices of parity data are worth it."""
        self.parity_sums: dict[tuple[int, tuple[int, ...]], Sums] = {}
        """Gram matrices and right-hand sides of parity data, by the same."""

    @classmethod
    def of(cls, problem: Problem, key: Hashable) -> "ParityPool":
        """Return the pool of a problem; one with another key takes the place of the former."""
        known = _pools.get(problem)
        if known is None or known._key != key:
            known = _pools[problem] = cls(key)
        return known


_pools: WeakKeyDictionary[Problem, ParityPool] = WeakKeyDictionary()


@final
class PooledParity(Deferred):
    """The parity data of one device and batch, made when they are read."""

    def __init__(self, device: Device, pool: ParityPool, grant: Message, promised: Layout) -> None:
        self.promised = promised
        self._device, self._grant = device, grant
        self.pool = pool
        self.batch = int(grant["batch"])

    def compute(self) -> Message:
        """Let the device export; its work is counted already."""
        return self._device.export(self._grant, Work())


@final
class PooledParityDevice(Device):
    """A device of a pool: its parcels are made when they are read."""

    def __init__(self, inside: Device, pool: ParityPool, promised: Sequence[Layout], macs: Sequence[int]) -> None:
        """Take the layout of the parcel of each batch, and the multiplications that it is charged with."""
        self._inside = inside
        self._pool = pool
        self._promised, self._macs = promised, macs

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply for real."""
        return self._inside.reply(epoch, request, work)

    def export(self, grant: Message, work: Work) -> Message:
        """Promise the parity data of the batch that the grant names."""
        batch = int(grant["batch"])
        work.add(self._macs[batch])
        return PooledParity(self._inside, self._pool, grant, self._promised[batch])


@final
class ParityData:
    """The parity data of every batch at the server."""

    def __init__(
        self,
        rows: Sequence[int],
        sizes: tuple[int, int],
        dtype: "np.dtype[np.floating]",
        places: Sequence[Sequence[slice]],
    ) -> None:
        """Take the number of ``rows`` of each batch, and the ``places`` of each device's rows in each batch."""
        self._known: list[ParityRows] = [
            (np.zeros((count, sizes[0]), dtype), np.zeros((count, sizes[1]), dtype)) for count in rows
        ]
        self._places = places
        self._promised: list[list[tuple[int, PooledParity]]] = [[] for _ in rows]
        self._summed: dict[int, tuple[ParityPool, tuple[int, tuple[int, ...]]]] = {}
        """Where the sums over the parity data of a batch are kept, if a training uses them."""

    def receive(self, sender: int, parcel: Message) -> None:
        """Add a device's parity data to those of the batch, now or when they are first used."""
        if isinstance(parcel, PooledParity):
            self._promised[parcel.batch].append((sender, parcel))
        else:
            self._add(int(parcel["batch"]), sender, parcel)

    def _add(self, batch: int, sender: int, parcel: Message) -> None:
        rows = self._places[batch][sender]
        for total, more in zip(self._known[batch], (parcel["features"], parcel["targets"]), strict=True):
            total[rows] += more

    def of(self, batch: int) -> ParityRows:
        """Return the parity data of a batch."""
        promised = self._promised[batch]
        if promised:
            pool, key = promised[0][1].pool, (batch, tuple(sender for sender, _ in promised))
            if key in pool.parity:
                self._known[batch] = pool.parity[key]
                promised.clear()
            while promised:  # one at a time, since each may be as large as the sum
                self._add(batch, *promised.pop(0))
            for array in self._known[batch]:
                array.setflags(write=False)  # other trainings will use it
            pool.parity[key] = self._known[batch]
            if pool.summed:
                self._summed[batch] = pool, key
        return self._known[batch]

    def gradient(self, batch: int, model: Float[np.ndarray, "d c"], work: Work) -> Float[np.ndarray, "d c"]:
        """Return X~^T (X~ Theta - Y~) in float64, from the Gram matrix where that takes fewer multiplications."""
        features, targets = self.of(batch)
        macs = 2 * features.size * model.shape[1]
        if batch not in self._summed or macs < max(LEAST_MACS, model.size * len(model)):
            return work.product(features.T, work.product(features, model) - targets).astype(np.float64)
        pool, key = self._summed[batch]
        if key not in pool.parity_sums:
            moments = np.asarray(features.T @ targets, dtype=np.float64)
            pool.parity_sums[key] = Sums(gram(features), moments, len(features))
        work.add(macs)
        return pool.parity_sums[key].gradient(model)
