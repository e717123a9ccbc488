"""Conventional mini-batch federated learning, the paper's benchmark: cyclic parts of every device's data."""

from collections.abc import Sequence
from typing import final

from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import AddingScheme, Device, Exposure, Leakage, Message, Server, Transcript, Work
from codedfl.schemes.plain.conventional import PLAIN_LEAKAGE, PLAIN_REASON, AveragingServer, gradient_bound
from codedfl.security.transcript import reply_series
from codedfl.settings import setting
from codedfl.task import Shard, gram

__all__ = ["Minibatch"]


def batch_rows(samples: int, parts: int, epoch: int) -> slice:
    """Return the rows of a device's data that are used in an epoch: part (epoch - 1) mod parts, nearly equal sizes."""
    part = (epoch - 1) % parts
    return slice(part * samples // parts, (part + 1) * samples // parts)


class MinibatchOptions(SchemeOptions):
    """Into how many parts each device's data is cut."""

    parts: int = setting(default=5, low=1, help="Batches into which each device cuts its data; an epoch uses one.")


@final
class BatchDevice(Device):
    """Replies with the gradient of one part of its data."""

    def __init__(self, shard: Shard, parts: int) -> None:
        self._shard = shard
        self._parts = parts

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer X_b^T (X_b Theta - Y_b) for the part b of this epoch."""
        rows = batch_rows(self._shard.samples, self._parts, epoch)
        x, y = self._shard.x[rows], self._shard.y[rows]
        return {"gradient": work.product(x.T, work.product(x, request["model"]) - y)}


@final
class Minibatch(AddingScheme[MinibatchOptions]):
    """A part of everyone's data in turn, everyone is awaited."""

    name = "minibatch"
    options_type = MinibatchOptions
    exact = False
    follows_timing = False
    averages = True
    verdict = "not encrypted"
    because = PLAIN_REASON

    def check(self) -> None:
        """Every device must have a data point for every part."""
        fewest = min(self.public.samples)
        if self.options.parts > fewest:
            raise ScenarioError(
                f"schemes.minibatch.parts = {self.options.parts} must be at most {fewest}, "
                "the number of data points of the smallest shard"
            )

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that replies with the gradient of a part."""
        return BatchDevice(shard, self.options.parts)

    def server(self) -> Server:
        """Prepare a server that awaits everyone."""
        return AveragingServer(self.public, self.public.devices, self._batch_sizes)

    def _batch_sizes(self, epoch: int) -> list[int]:
        rows = (batch_rows(samples, self.options.parts, epoch) for samples in self.public.samples)
        return [part.stop - part.start for part in rows]

    @property
    def survives_losses(self) -> int:
        """None: everyone is awaited."""
        return 0

    def reply_sum(self, epoch: int, request: Message) -> float:
        """Gradients are as large as the bounds on the data and the model allow."""
        return gradient_bound(self.public, request["model"])

    def leakage(self) -> Leakage:
        """Single gradients in clear."""
        return PLAIN_LEAKAGE

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """The server sees gradients of the first part of a device's data again and again."""
        parts, everything = self.options.parts, transcript.series()[0]
        first = transcript.first(everything[0].device)
        entries = [entry for entry in everything if (entry.epoch - first.epoch) % parts == 0]
        shard = shards[first.device]
        view = reply_series(entries, lambda entry: entry.reply["gradient"], at_zero=first.reply["gradient"])
        return [Exposure(view, first.device, gram(shard.x[batch_rows(shard.samples, parts, first.epoch)]))]
