"""Mini-batch federated learning, the paper's benchmark: every epoch uses the next batch of each device's data."""

from collections.abc import Sequence
from typing import final

from codedfl.errors import ScenarioError
from codedfl.scenario import InexactOptions
from codedfl.schemes.contract import CountedCosts, Device, Server
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.plain.conventional import AveragingServer, PlainScheme
from codedfl.schemes.plain.counting import counted_rounds
from codedfl.schemes.plain.pooling import ReplyPool, batch_memory, worth_summing
from codedfl.settings import setting
from codedfl.task import Problem, Shard
from codedfl.task.shard import batch_rows


class MinibatchOptions(InexactOptions):
    """The number of batches of each device.

    >>> MinibatchOptions(parts=4).parts
    4
    """

    parts: int = setting(default=5, low=1, help="Batches into which each device cuts its data; an epoch uses one.")


@final
class BatchDevice(Device):
    """Replies the gradient of one batch of its data."""

    def __init__(self, shard: Shard, parts: int) -> None:
        self._shard = shard
        self._parts = parts

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply X_b^T (X_b Theta - Y_b) for this epoch's batch b."""
        rows = batch_rows(self._shard.samples, self._parts, epoch)
        x, y = self._shard.x[rows], self._shard.y[rows]
        return {"gradient": work.product(x.T, work.product(x, request["model"]) - y)}


@final
class Minibatch(PlainScheme[MinibatchOptions]):
    """Batches of every device's data in turn; the server awaits all devices."""

    name = "minibatch"
    options_type = MinibatchOptions
    exact = False

    def check(self) -> None:
        """Refuse more batches than the smallest shard has data points."""
        fewest = min(self.public.samples)
        if self.options.parts > fewest:
            raise ScenarioError(
                f"schemes.minibatch.parts = {self.options.parts} must be at most {fewest}, "
                "the number of data points of the smallest shard"
            )

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that replies the gradient of a batch."""
        return BatchDevice(shard, self.options.parts)

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are summed in one product, if the Gram matrices of all batches are worth it."""
        devices, parts = super().simulated(problem, epochs), self.options.parts
        if not worth_summing(problem, parts, epochs):
            return devices

        def macs(epoch: int) -> list[int]:
            d, c = problem.shape
            batches = [batch_rows(shard.samples, parts, epoch) for shard in problem.shards]
            return [int(2 * (rows.stop - rows.start) * d * c) for rows in batches]

        return ReplyPool(devices, macs, lambda epoch: problem.batch_sums(parts, epoch)).pooled()

    @property
    def memory(self) -> int:
        """The sums of the Gram matrices of all batches."""
        return batch_memory(self.public, self.options.parts)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one device for each shard."""
        return counted_rounds(self, shards, epochs)

    def server(self) -> Server:
        """Prepare a server that awaits all devices."""
        return AveragingServer(self.public, counts=self._batch_sizes)

    def _batch_sizes(self, epoch: int) -> list[int]:
        rows = (batch_rows(samples, self.options.parts, epoch) for samples in self.public.samples)
        return [part.stop - part.start for part in rows]
