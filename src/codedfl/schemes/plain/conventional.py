"""Conventional federated learning: full batch, the server awaits all devices."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals import Z_64
from codedfl.codes.thin_products import symmetric_product, transposed_product
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.release import Release
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import CountedCosts, Device, Options, ReplySum, Round, Scheme, Server
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.plain.counting import counted_rounds
from codedfl.schemes.plain.pooling import ReplyPool, gradient_macs, pooled_total, speed_groups, worth_summing
from codedfl.schemes.plain.row_gradients import NoisyGradientDevice, NoisyGradients, RowDevice
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import NOTHING, Rounding
from codedfl.schemes.secrecy import CLEAR, Leakage, Secrecy, all_cells, clear_views
from codedfl.task import Problem, Shard
from codedfl.task.losses import SOFTMAX, SQUARED

Read = Callable[[Message], Float[np.ndarray, "d c"]]


@final
class GradientDevice(Device):
    """Replies A_i Theta - B_i, computed from the Gram matrix if that takes fewer multiplications.

    In a ``pooled`` simulation, where replies have last bits of their own, products are quicker.
    """

    def __init__(self, shard: Shard, *, pooled: bool = False) -> None:
        self._shard = shard
        self._pooled = pooled
        if shard.compact:
            _ = shard.gram, shard.moments  # computed now, so that the first request does not wait for them

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the sum of the gradients of all data points of the device."""
        shard, model = self._shard, request["model"]
        if self._pooled:
            work.add(gradient_macs(shard))
            if shard.compact:
                return {"gradient": symmetric_product(shard.gram, model) - shard.moments}
            return {"gradient": transposed_product(shard.x, shard.x @ model - shard.y)}
        if shard.compact:
            return {"gradient": work.product(shard.gram, model) - shard.moments}
        residual = work.product(shard.x, model) - shard.y
        return {"gradient": work.product(shard.x.T, residual)}


def _clear(reply: Message) -> Float[np.ndarray, "d c"]:
    return reply["gradient"]


@final
class AveragingServer(Server):
    """Sends requests to all devices, awaits the fastest ``quorum``, and averages over their data points.

    Parameters
    ----------
    public : Public
        What every party knows.
    quorum : int, optional
        How many replies to await; by default all.
    counts : callable, optional
        Maps an epoch to the number of data points behind each device's reply; by default all of the device.
    read : callable, optional
        Maps a reply to its gradient; by default its only array.
    reply : Layout, optional
        Layout of a reply, if ``read`` is given.
    deadline : float, optional
        Seconds after the request; from then on one reply suffices.
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
        """Request every device's gradient."""
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
        total = pooled_total(replies)
        if total is None:
            single = [self._read(replies[device]) for device in sorted(replies)]
            total = np.asarray(np.sum(single, axis=0, dtype=np.float64))
        counts = self._public.samples if self._counts is None else self._counts(epoch)
        return np.asarray(total / sum(counts[device] for device in replies))


def pooled_devices(
    scheme: Scheme[Any], problem: Problem, *, summed: bool = True, some_for: int = 0
) -> Sequence[Device]:
    """Return devices that reply the gradient of all their data, to be read singly or summed.

    ``some_for`` is for how many epochs, if some of them reply in an epoch and not all.
    """
    if problem.loss != SQUARED or scheme.public.release is not None:
        return [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
    devices = [GradientDevice(shard, pooled=True) for shard in problem.shards]
    macs = [gradient_macs(shard) for shard in problem.shards]
    sums = (lambda epoch: problem.sums) if summed else None
    groups = speed_groups(scheme.public.delays, macs) if some_for else []
    if not worth_summing(problem, len(groups), some_for):
        groups = []
    made = [(group, partial(problem.part_sums, group)) for group in groups]
    return ReplyPool(devices, lambda epoch: macs, sums, made).pooled()


def gradient_bound(public: Public, model: Float[np.ndarray, "d c"]) -> float:
    """Return a bound on the entries of the sum of all gradients: m F (F ||theta_k||_1 + T), plus rounding.

    F and T bound the features and targets; residuals of the softmax are at most 1. With n points and d features, at
    most n + d + 1 roundings enter an entry, each relative to the same expression in absolute values. So are the few
    roundings of this bound itself.
    """
    largest, target = public.largest_feature, public.largest_target
    norm = float(np.abs(model).sum(axis=0, dtype=np.float64).max())
    roundings = 2 * (public.most + public.features + 2) * float(np.finfo(public.dtype).eps)
    residual = 1.0 if public.loss == SOFTMAX else largest * norm + target
    bound = public.total * largest * residual * (1 + roundings)
    if isinstance(public.release, Release):
        # each device's share of the bound, by its rows, must hold its share of the noise
        noise = public.release.gram_reach() * norm + public.release.moments_reach()
        bound += noise * (1 + roundings) * sum(public.samples) / min(public.samples)
    return bound


class PlainScheme(Scheme[Options]):
    """Abstract: devices reply gradients in clear, and the server averages over the devices that replied."""

    averages = True  # subclasses may override it
    verdict = CLEAR
    verdict_reason = "Nothing is encrypted: the server reads every gradient of every device."
    allowed_if = "the server may read every gradient of every device, as in ordinary federated learning"

    def secrecy(self) -> tuple[Secrecy, ...]:
        """Nothing is hidden from the server; devices send each other nothing."""
        return all_cells(clear_views(self.public.devices, "it reads the gradient of every device in every epoch"))

    def leakage(self) -> Leakage:
        """Return what each party sees: gradients of single devices in clear."""
        return Leakage(
            server="the gradient of every device in every epoch, in clear",
            devices="only the summed gradients, which the models reveal",
            eavesdropper="every gradient on the links it taps, unless the transport is encrypted",
        )

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return nothing: devices send no parcels to each other."""
        return ()

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; by default it replies the gradient of all its data."""
        return GradientDevice(shard)

    @property
    def chosen_by_delays(self) -> Hashable:
        """Nothing: who is asked follows from the options."""
        return ()

    @property
    def reply_sum(self) -> ReplySum | None:
        """A bound on the sum of gradients, from the bounds on the data and the model."""
        return (lambda epoch, request: gradient_bound(self.public, request["model"])) if self.averages else None


@final
class Conventional(PlainScheme[SchemeOptions]):
    """Full batch, the server awaits all devices: as slow as the slowest device."""

    name = "conventional"
    options_type = SchemeOptions
    exact = True
    uses_rows = True

    @property
    def rounding(self) -> Rounding | None:
        """A sum of n_i products, one of d products and a subtraction, all in the precision of the devices."""
        if self.public.loss != SQUARED or self._noise is not None:
            return None
        return NOTHING.plus(self.public, max(self.public.samples) + self.public.features + 1)

    @property
    def _noise(self) -> GradientRelease | None:
        """The noise of each epoch, if there is any."""
        return self.public.release if isinstance(self.public.release, GradientRelease) else None

    @property
    def reply_sum(self) -> ReplySum:
        """As of all schemes in clear; with noise in each epoch, replies are steps of its grid in Z_2^64."""
        if self._noise is not None:
            return lambda epoch, request: Z_64
        return lambda epoch, request: gradient_bound(self.public, request["model"])

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device, which computes from rows if its loss or noise demands it."""
        if isinstance(shard, NoisyGradients):
            return NoisyGradientDevice(shard.gradients)
        return GradientDevice(shard) if self.public.loss == SQUARED else RowDevice(shard, self.public.loss)

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are summed in one product."""
        return pooled_devices(self, problem)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one device for each shard."""
        return counted_rounds(self, shards, epochs)

    def server(self) -> Server:
        """Prepare a server that awaits all devices."""
        noise = self._noise
        if noise is None:
            return AveragingServer(self.public)
        _, shape = self.public.model_layout

        def read(reply: Message) -> Float[np.ndarray, "d c"]:
            return np.ldexp(Z_64.centred(reply["gradient"]).astype(np.float64), -noise.bits)

        return AveragingServer(self.public, read=read, reply={"gradient": Z_64.wire_layout(*shape)})
