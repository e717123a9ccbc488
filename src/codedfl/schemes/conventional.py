"""Conventional federated learning: full batch, everyone is awaited."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, Exposure, Leakage, Message, Public, Round, Scheme, Server, Transcript, Work
from codedfl.schemes.transcript import reply_series
from codedfl.task import Shard

__all__ = ["PLAIN_LEAKAGE", "PLAIN_REASON", "AveragingServer", "Conventional", "GradientDevice", "gradient_exposures"]

PLAIN_REASON = "Nothing is encrypted: the server reads every gradient of every device."

PLAIN_LEAKAGE = Leakage(
    server="the gradient of every single device in every epoch, in clear",
    devices="nothing of each other but what the models tell: the summed gradients",
    eavesdropper="every gradient on the links it taps, unless the transport is encrypted",
)


@final
class GradientDevice(Device):
    """Replies A_i Theta - B_i, through the Gram matrix where that takes fewer multiplications."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer with the sum of the gradients of all own data points."""
        shard, model = self._shard, request["model"]
        if shard.compact:
            return {"gradient": work.product(shard.gram, model) - shard.moments}
        residual = work.product(shard.x, model) - shard.y
        return {"gradient": work.product(shard.x.T, residual)}


@final
class AveragingServer(Server):
    """Asks everyone, awaits the fastest ``quorum``, and averages over the data points of those who replied.

    ``counts(epoch)`` tells how many data points each device's reply stands for.
    """

    def __init__(self, public: Public, quorum: int, counts: Callable[[int], Sequence[int]]) -> None:
        self._public = public
        self._quorum = quorum
        self._counts = counts

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask every device for its gradient."""
        message, everyone = {"model": model.astype(self._public.dtype)}, range(self._public.devices)
        reply = {"gradient": self._public.model_layout}
        return Round(epoch, dict.fromkeys(everyone, message), expected=dict.fromkeys(everyone, reply))

    @property
    def quorum(self) -> int:
        """How many replies are awaited."""
        return self._quorum

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add the replies in float64, in the order of the devices, and divide by the number of data points."""
        total = np.sum([replies[device]["gradient"] for device in sorted(replies)], axis=0, dtype=np.float64)
        counts = self._counts(epoch)
        return np.asarray(total / sum(counts[device] for device in replies))


def gradient_exposures(transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the server's view of one device whose gradients of all its data it sees."""
    entries = transcript.series()[0]
    device = entries[0].device
    at_zero = transcript.first(device).reply["gradient"]
    view = reply_series(entries, lambda entry: entry.reply["gradient"], at_zero=at_zero)
    return [Exposure(view, device, shards[device].gram)]


class ConventionalOptions(SchemeOptions):
    """None."""


@final
class Conventional(Scheme[ConventionalOptions]):
    """Full batch, everyone is awaited: as slow as the slowest device."""

    name = "conventional"
    options_type = ConventionalOptions
    exact = True
    follows_timing = False
    verdict = "not encrypted"
    because = PLAIN_REASON

    def check(self) -> None:
        """Every fleet will do."""

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that replies with its gradient."""
        return GradientDevice(shard)

    def server(self) -> Server:
        """Prepare a server that awaits everyone."""
        return AveragingServer(self.public, self.public.devices, lambda epoch: self.public.samples)

    @property
    def survives_losses(self) -> int:
        """None: everyone is awaited."""
        return 0

    def leakage(self) -> Leakage:
        """Single gradients in clear."""
        return PLAIN_LEAKAGE

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """The server sees the gradients of a single device."""
        return gradient_exposures(transcript, shards)
