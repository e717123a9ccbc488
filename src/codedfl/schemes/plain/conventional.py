"""Conventional federated learning: full batch, everyone is awaited."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, Leakage, Options, Public, ReplySum, Round, Scheme, Server
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.task import Shard

Read = Callable[[Message], Float[np.ndarray, "d c"]]


@final
class GradientDevice(Device):
    """Replies A_i Theta - B_i, through the Gram matrix where that takes fewer multiplications."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        if shard.compact:
            _ = shard.gram, shard.moments  # known from here on, so that no first question waits for them

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer with the sum of the gradients of all own data points."""
        shard, model = self._shard, request["model"]
        if shard.compact:
            return {"gradient": work.product(shard.gram, model) - shard.moments}
        residual = work.product(shard.x, model) - shard.y
        return {"gradient": work.product(shard.x.T, residual)}


def _clear(reply: Message) -> Float[np.ndarray, "d c"]:
    return reply["gradient"]


@final
class AveragingServer(Server):
    """Asks everyone, awaits the fastest ``quorum`` (all unless given), and averages over the data points of those.

    ``counts(epoch)`` tells how many data points each device's reply stands for (all of its own unless given), and
    ``read`` makes a gradient of a reply, whose layout ``reply`` may give where that is not its only array.
    With a ``deadline``, in seconds after the request, it goes on then, as soon as there is a reply.
    """

    def __init__(
        self,
        public: Public,
        *,
        quorum: int | None = None,
        counts: Callable[[int], Sequence[int]] | None = None,
        read: Read = _clear,
        reply: Layout | None = None,
        deadline: float | None = None,
    ) -> None:
        self._public = public
        self._quorum = public.devices if quorum is None else quorum
        self._counts = counts
        self._read = read
        self._reply = {"gradient": public.model_layout} if read is _clear else reply
        self._deadline = deadline

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask every device for its gradient."""
        return Round.same(
            epoch,
            range(self._public.devices),
            {"model": model.astype(self._public.dtype)},
            self._reply,
            quorum=self._quorum,
            least=self._quorum if self._deadline is None else 1,
            deadline=self._deadline,
        )

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add the replies in float64, in the order of the devices, and divide by the number of data points."""
        total = np.sum([self._read(replies[device]) for device in sorted(replies)], axis=0, dtype=np.float64)
        counts = self._public.samples if self._counts is None else self._counts(epoch)
        return np.asarray(total / sum(counts[device] for device in replies))


def gradient_bound(public: Public, model: Float[np.ndarray, "d c"]) -> float:
    """Return what no entry of the sum of all gradients exceeds: m F (F ||theta_k||_1 + T), and their rounding.

    F and T bound the features and targets. With n points and d features a device makes at most n + d + 1 roundings on
    the way to an entry, each relative to the same expression in absolute values, and so are the few of this bound.
    """
    largest, target = public.largest_feature, public.largest_target
    norm = float(np.abs(model).sum(axis=0, dtype=np.float64).max())
    roundings = 2 * (max(public.samples) + public.features + 2) * float(np.finfo(public.dtype).eps)
    return sum(public.samples) * largest * (largest * norm + target) * (1 + roundings)


class PlainScheme(Scheme[Options]):
    """Abstract: devices reply with gradients in clear, and the server averages over those who replied."""

    averages = True  # a scheme that does otherwise says so
    verdict = "not encrypted"
    verdict_reason = "Nothing is encrypted: the server reads every gradient of every device."

    def leakage(self) -> Leakage:
        """Single gradients in clear."""
        return Leakage(
            server="the gradient of every single device in every epoch, in clear",
            devices="nothing of each other but what the models tell: the summed gradients",
            eavesdropper="every gradient on the links it taps, unless the transport is encrypted",
        )

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that replies with the gradient of all its data, unless the scheme says otherwise."""
        return GradientDevice(shard)

    @property
    def reply_sum(self) -> ReplySum | None:
        """Gradients are as large as the bounds on the data and the model allow."""
        return (lambda epoch, request: gradient_bound(self.public, request["model"])) if self.averages else None


@final
class Conventional(PlainScheme[SchemeOptions]):
    """Full batch, everyone is awaited: as slow as the slowest device."""

    name = "conventional"
    options_type = SchemeOptions
    exact = True

    def server(self) -> Server:
        """Prepare a server that awaits everyone."""
        return AveragingServer(self.public)
