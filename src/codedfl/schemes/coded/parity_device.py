"""The device of coded federated learning: it uploads parity data once, and replies with gradients of some points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work
from codedfl.task import Shard


@final
@dataclass(frozen=True)
class Batch:
    """What everybody knows of one batch of one device: its rows, how many it works on, and the chance of a reply.

    It adds to so many rows of the server's parity data, from ``first_row`` on.
    """

    rows: slice
    load: int = 0
    chance: float = 0.0
    first_row: int = 0
    parity_rows: int = 0

    @property
    def points(self) -> int:
        """Data points in the batch."""
        return int(self.rows.stop - self.rows.start)

    @property
    def parity(self) -> slice:
        """The rows of the server's parity data that the device adds to."""
        return slice(self.first_row, self.first_row + self.parity_rows)

    @property
    def squares(self) -> tuple[float, float]:
        """The squared weight of a point that is worked on, and that of any other."""
        return max(0.0, 1.0 - self.chance), 1.0

    @property
    def weighted(self) -> int:
        """How many points have a weight above zero."""
        return self.points if self.squares[0] > 0 else self.points - self.load

    @property
    def mass(self) -> float:
        """The sum of the squared weights: how many points the parity data stand for."""
        worked, other = self.squares
        return self.load * worked + (self.points - self.load) * other


@final
class Secrets:
    """What only the device knows of a batch: which points it works on, and its generator matrix, made when asked for.

    All of it comes from the seed, the number of the device and that of the batch, so that it can be made again.
    """

    def __init__(self, seed: int, device: int, number: int, batch: Batch) -> None:
        self._batch = batch
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(device, number)))
        worked = self._rng.permutation(batch.points) < batch.load
        self._weights = np.sqrt(np.where(worked, *batch.squares))
        self.worked: Int[np.ndarray, "l"] | slice = batch.rows.start + np.flatnonzero(worked)
        """The rows of the shard that are worked on."""
        if batch.load == batch.points:
            self.worked = batch.rows  # a slice copies nothing
        self.weighted: Int[np.ndarray, "k"] = batch.rows.start + np.flatnonzero(self._weights > 0)
        """The rows of the shard that parity data are made of."""

    def generator(self, dtype: "np.dtype[np.floating]", work: Work) -> Float[np.ndarray, "c k"]:
        """Return G W: normal numbers of variance 1/c, times the weight of each point; call it once."""
        weights = self._weights[self._weights > 0] / np.sqrt(self._batch.parity_rows)
        normal = self._rng.standard_normal((self._batch.parity_rows, len(weights)), dtype=dtype)
        work.add(normal.size)
        return np.asarray(normal * weights.astype(dtype))


@final
class ParityDevice(Device):
    """Keeps its data to itself but for parity data; works on as many points of a batch as it was given."""

    def __init__(
        self, index: int, shard: Shard, batches: Sequence[Batch], seed: int, *, charge_encoding: bool = False
    ) -> None:
        self._index = index
        self._shard = shard
        self._batches = batches
        self._seed = seed
        self._charge_encoding = charge_encoding
        self._worked = [self._secrets(number).worked for number in range(len(batches))]

    def _secrets(self, number: int) -> Secrets:
        return Secrets(self._seed, self._index, number, self._batches[number])

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer X_l^T (X_l Theta - Y_l) for the points of this epoch's batch that it works on."""
        rows = self._worked[(epoch - 1) % len(self._batches)]
        x, y = self._shard.x[rows], self._shard.y[rows]
        return {"gradient": work.product(x.T, work.product(x, request["model"]) - y)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return G W X and G W Y of the batch that is asked for."""
        secrets = self._secrets(int(grant["batch"]))
        x, y = self._shard.x[secrets.weighted], self._shard.y[secrets.weighted]
        encoding = work if self._charge_encoding else Work()
        generator = secrets.generator(x.dtype, encoding)
        features, targets = encoding.product(generator, x), encoding.product(generator, y)
        return {"batch": grant["batch"], "features": features, "targets": targets}
