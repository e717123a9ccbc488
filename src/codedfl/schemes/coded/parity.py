"""Coded federated learning with parity data at the server (CFL, CodedFedL).

Every device divides its data into batches, and each epoch uses the next batch. Before the first epoch, device i uploads
parity data of every batch, X~_i = G_i W_i X_i and Y~_i = G_i W_i Y_i: c random linear combinations of its data points.
The server adds up the parity data of all devices (``rows = "summed"``, as published). In an epoch, device i works on
l_i of its points and replies their gradient. At the deadline t* the server adds the gradient of the parity data:

    sum_{i replied} X_l^T (X_l Theta - Y_l) + X~^T (X~ Theta - Y~),   divided by the points of the batch.

The loads l_i and t* come from ``codedfl.network.load_allocation``. W_i is diagonal: the weight of a point that the
device works on is sqrt(1 - P(reply by t*)), that of any other point is 1. The entries of G_i are independent and normal
with variance 1/c, so E[G^T G] = I, and the expectation over generators and delays is the gradient of the batch. The
generators are constant during a training, so the error of the parity data does not average out over epochs.

With ``rows = "own"`` (ours) the c rows are divided among the devices. Device i makes c_i rows with entries of variance
1/c_i, where c_i / c is its share of all squared weights, and the server stacks them. With B_i = W_i X_i and
r_i = W_i (X_i Theta - Y_i), the variance of the parity gradient is (||B||^2 ||r||^2 + ||B^T r||^2) / c for summed rows,
and the sum of (||B_i||^2 ||r_i||^2 + ||B_i^T r_i||^2) / c_i for own rows. The first terms agree if the points of all
devices have the same distribution. Devices compute and send only c_i / c as much, and the server sees fewer rows of
each device.

Replies of the first epoch are precomputed, so more of them arrive by t* than the weights assume. If no device has
replied by t*, the server awaits the first reply.

Sources: Dhakal, Prakash, Yona, Talwar and Himayat, "Coded federated learning", IEEE Globecom Workshops 2019; Prakash,
Dhakal, Akdeniz, Yona, Talwar, Avestimehr and Himayat, "Coded computing for low-latency federated learning over wireless
edge networks", IEEE JSAC 39, 2021.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Int

from codedfl.errors import ScenarioError
from codedfl.network import Allocation, ReplyChances, allocate
from codedfl.network.delays import addressed_seed
from codedfl.scenario import InexactOptions
from codedfl.schemes.coded.parity_data import ParityData, ParityPool, PooledParityDevice
from codedfl.schemes.contract import SERVER, Device, Restored, Round, Scheme, Server, Stage, Transfer
from codedfl.schemes.messages import Layout, Message, Work, message_bits
from codedfl.schemes.plain.pooling import ReplyPool, batch_memory, pooled_total, worth_summing
from codedfl.schemes.public import Public
from codedfl.schemes.secrecy import CLEAR, FALLS, LEAKS, Cell, Leakage, Secrecy, all_cells, clear_views
from codedfl.settings import setting
from codedfl.task import Problem, Shard
from codedfl.task.shard import Sums, batch_rows, row_sums


class ParityOptions(InexactOptions):
    """Number of batches, parity rows per data point, and the seed of the generator matrices and chosen points.

    The result of a run depends on the generators, so a seed makes it repeatable. On real devices the seed must be known
    to the devices only.

    >>> ParityOptions(redundancy=0.2).parts
    5
    """

    parts: int = setting(default=5, low=1, help="Batches into which each device cuts its data.")
    redundancy: float = setting(default=0.1, above=0, below=1, help="Rows of parity data for each sample of a batch.")
    rows: str = setting(
        default="summed",
        choices=("summed", "own"),
        help="Whether the server holds the sum of all parity data (summed) or that of each device (own).",
    )
    seed: int = setting(
        default=0, low=0, help="Seed of the generators and loads; whoever knows it can undo the combinations."
    )
    charge_encoding: bool = setting(
        default=False, help="Whether the time of making parity data counts; only their upload if not."
    )


@final
@dataclass(frozen=True)
class Batch:
    """Public facts about one batch of one device: its rows, the load, and the probability of a reply by the deadline.

    The device contributes to ``parity_rows`` rows of the server's parity data, from ``first_row`` on.
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
        """The rows of the server's parity data that the device contributes to."""
        return slice(self.first_row, self.first_row + self.parity_rows)

    @property
    def squares(self) -> tuple[float, float]:
        """The squared weight of a point that the device works on, and that of any other point."""
        return max(0.0, 1.0 - self.chance), 1.0

    @property
    def weighted(self) -> int:
        """Number of points with a positive weight."""
        return self.points if self.squares[0] > 0 else self.points - self.load

    @property
    def mass(self) -> float:
        """The sum of the squared weights: how many points the parity data replace."""
        return self.load * self.squares[0] + (self.points - self.load)


@final
class Secrets:
    """What only the device knows about a batch: which points it works on, and its generator matrix.

    Seed, device and batch number determine both, so they can be drawn again.
    """

    def __init__(self, seed: int, device: int, number: int, batch: Batch) -> None:
        self._batch = batch
        self._rng = np.random.default_rng(addressed_seed(seed, device, number))
        worked = self._rng.permutation(batch.points) < batch.load
        self._weights = np.sqrt(np.where(worked, *batch.squares))
        self.worked: Int[np.ndarray, "l"] | slice = batch.rows.start + np.flatnonzero(worked)
        """The rows of the shard that the device works on."""
        if batch.load == batch.points:
            self.worked = batch.rows  # a slice copies nothing
        self.weighted: Int[np.ndarray, "k"] = batch.rows.start + np.flatnonzero(self._weights > 0)
        """The rows of the shard that enter the parity data."""

    def generator(self, dtype: "np.dtype[np.floating]", work: Work) -> Float[np.ndarray, "c k"]:
        """Return G W: normal numbers of variance 1/c times the weights. Call it once: each call draws new numbers."""
        weights = self._weights[self._weights > 0] / np.sqrt(self._batch.parity_rows)
        normal = self._rng.standard_normal((self._batch.parity_rows, len(weights)), dtype=dtype)
        work.add(normal.size)
        return np.asarray(normal * weights.astype(dtype))


@final
class ParityDevice(Device):
    """Uploads parity data, and works on as many points of each batch as its load says."""

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
        """Reply X_l^T (X_l Theta - Y_l) for the points of this epoch's batch that it works on."""
        rows = self._worked[(epoch - 1) % len(self._batches)]
        x, y = self._shard.x[rows], self._shard.y[rows]
        return {"gradient": work.product(x.T, work.product(x, request["model"]) - y)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return G W X and G W Y of the batch that the grant names."""
        secrets = self._secrets(int(grant["batch"]))
        x, y = self._shard.x[secrets.weighted], self._shard.y[secrets.weighted]
        encoding = work if self._charge_encoding else Work()
        generator = secrets.generator(x.dtype, encoding)
        features, targets = encoding.product(generator, x), encoding.product(generator, y)
        return {"batch": grant["batch"], "features": features, "targets": targets}


@final
class ParityServer(Server):
    """Adds up parity data, and uses them in place of replies that miss the deadline."""

    def __init__(self, public: Public, allocations: Sequence[Allocation], batches: Sequence[Sequence[Batch]]) -> None:
        self._public = public
        self._allocations = allocations
        self._batches = batches
        self._gone: set[int] = set()
        self._model = np.zeros((public.features, public.outputs), public.dtype)
        rows = [max(batch.parity.stop for batch in each) for each in batches]
        places = [[batch.parity for batch in each] for each in batches]
        self._parity = ParityData(rows, (public.features, public.outputs), public.dtype, places)

    def set_up(self) -> Sequence[Stage]:
        """Let every device upload parity data of every batch in which a point has a positive weight."""
        transfers = [
            Transfer(device, SERVER, {"batch": np.array(number, np.int32)})
            for number, each in enumerate(self._batches)
            for device, batch in enumerate(each)
            if batch.weighted > 0
        ]
        return [Stage(transfers)]

    def receive(self, sender: int, parcel: Message) -> None:
        """Add a device's parity data to those of the batch."""
        self._parity.receive(sender, parcel)

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request gradients from all devices that have a load and are not lost, with this batch's deadline."""
        self._model = model.astype(self._public.dtype)
        allocation = self._allocations[(epoch - 1) % len(self._allocations)]
        asked = [device for device in np.flatnonzero(allocation.loads).tolist() if device not in self._gone]
        reply = {"gradient": self._public.model_layout}
        # await at least one reply: without any, the model would be fitted to parity data only
        return Round.same(epoch, asked, {"model": self._model}, reply, least=1, deadline=allocation.deadline)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add the replies and the gradient of the parity data, and divide by the size of the batch."""
        number = (epoch - 1) % len(self._allocations)
        total = self._parity.gradient(number, self._model, work)
        together = pooled_total(replies)
        for gradient in [replies[device]["gradient"] for device in sorted(replies)] if together is None else [together]:
            total += gradient
        return np.asarray(total / sum(batch.points for batch in self._batches[number]))

    def losses_left(self, promised: int, lost: Set[int]) -> int:
        """Return what is left of the promise without those that were lost in any epoch."""
        return max(0, promised - len(self._gone | lost))

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> None:
        """Remove lost devices from later rounds; no other device has their data."""
        self._gone |= set(lost)

    def state(self) -> Message:
        """Return the lost devices; devices upload parity data again."""
        return {"gone": np.array(sorted(self._gone), np.int64)}

    def restore(self, state: Message) -> Restored:
        """Restore the lost devices; there are no stages beside the set-up."""
        self._gone = {int(device) for device in state["gone"]}
        return Restored()


@final
class Parity(Scheme[ParityOptions]):
    """Mini-batches with a deadline; parity data at the server replace the replies that miss it."""

    name = "parity"
    options_type = ParityOptions
    needs = ("scipy",)
    exact = False
    follows_timing = True
    uploads = True
    verdict = CLEAR
    verdict_reason = (
        "Nothing is encrypted: the server reads the gradients of every device, and parity data reveal which points are "
        "in the data of a device."
    )
    allowed_if = "the server may read the gradients of every device, and may learn who is in its data"

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server has parity data of every device beside gradients of single devices."""
        views = clear_views(self.public.devices, "it reads gradients of some points of every device")
        rows = "parity data are random combinations of the rows of one batch of one device"
        member = Cell(FALLS, f"{rows}, which tell who is in it if there are as many rows as points")
        seen = views["server"]._replace(gram=Cell(LEAKS, f"{rows}: an estimate of its Gram matrix"), own=member)
        parties = ("server", "server and devices", "deviating server")
        return all_cells(views | dict.fromkeys(parties, seen._replace(union=member)))

    def check(self) -> None:
        """Refuse batches with fewer than two points, one for devices and one for parity data, and unknown delays."""
        fewest = min(sum(batch.points for batch in each) for each in self._cut)
        if fewest < 2:
            raise ScenarioError(
                f"schemes.parity.parts = {self.options.parts} leaves a batch with {fewest} data points of all devices; "
                "lower it so that every batch has at least 2"
            )
        if self.public.delays is None:
            raise ScenarioError("scheme = 'parity' needs known delays; declare the fleet and its links")

    @property
    def _cut(self) -> list[list[Batch]]:
        parts = self.options.parts
        sizes = self.public.samples
        return [[Batch(batch_rows(size, parts, part + 1)) for size in sizes] for part in range(parts)]

    @property
    def chosen_by_delays(self) -> Hashable:
        """Deadline and loads of every batch."""
        return tuple((each.deadline, each.loads.tobytes(), each.chances.tobytes()) for each in self.allocations)

    @cached_property
    def allocations(self) -> tuple[Allocation, ...]:
        """Deadline, loads and reply probabilities of every batch, computed from public facts once per batch size."""
        assert self.public.delays is not None  # noqa: S101 - checked before
        matrix = np.empty((self.public.features, self.public.outputs), self.public.dtype)
        bits = message_bits({"matrix": matrix})
        chances = ReplyChances.create(self.public.delays, point_macs=2 * matrix.size, down_bits=bits, up_bits=bits)
        points = [tuple(batch.points for batch in each) for each in self._cut]
        known = {
            each: allocate(chances, np.array(each, np.int64), self._parity_rows(sum(each))) for each in set(points)
        }
        return tuple(known[each] for each in points)

    def _parity_rows(self, points: int) -> int:
        return max(1, min(points - 1, round(self.options.redundancy * points)))

    @cached_property
    def batches(self) -> tuple[tuple[Batch, ...], ...]:
        """Every batch of every device, with its load and parity rows."""
        found = []
        for each, allocation in zip(self._cut, self.allocations, strict=True):
            loads = allocation.loads.tolist(), allocation.chances.tolist()
            loaded = [
                replace(batch, load=load, chance=chance) for batch, load, chance in zip(each, *loads, strict=True)
            ]
            found.append(tuple(self._with_parity_rows(loaded)))
        return tuple(found)

    def _with_parity_rows(self, each: Sequence[Batch]) -> list[Batch]:
        """Assign all parity rows to every device, or divide them by the share of squared weights."""
        rows = self._parity_rows(sum(batch.points for batch in each))
        if self.options.rows == "summed":
            return [replace(batch, parity_rows=rows) for batch in each]
        mass = sum(batch.mass for batch in each)
        counts = [max(1, round(rows * batch.mass / mass)) if batch.weighted else 0 for batch in each]
        firsts = [0, *np.cumsum(counts).tolist()]
        return [
            replace(batch, first_row=first, parity_rows=count)
            for batch, first, count in zip(each, firsts[:-1], counts, strict=True)
        ]

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return nothing: devices send no parcels to each other."""
        return ()

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device, which draws the points that it works on."""
        own, options = [each[index] for each in self.batches], self.options
        return ParityDevice(index, shard, own, options.seed, charge_encoding=options.charge_encoding)

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are summed in one product, if the Gram matrices of all batches are worth it."""
        options, parts = self.options, self.options.parts
        pool = ParityPool.of(problem, (options.redundancy, options.rows, options.seed, self.chosen_by_delays))
        devices = [self._pooled(index, shard, pool) for index, shard in enumerate(problem.shards)]
        if not worth_summing(problem, parts, epochs):
            return devices
        pool.summed = True

        def sums(epoch: int) -> Sums:
            number = (epoch - 1) % parts
            if number not in pool.sums:
                secrets = (Secrets(options.seed, i, number, each) for i, each in enumerate(self.batches[number]))
                pool.sums[number] = row_sums(problem.shards, [each.worked for each in secrets])
            return pool.sums[number]

        def macs(epoch: int) -> list[int]:
            d, c = problem.shape
            return [2 * batch.load * d * c for batch in self.batches[(epoch - 1) % parts]]

        return ReplyPool(devices, macs, sums).pooled()

    def _pooled(self, index: int, shard: Shard, pool: ParityPool) -> Device:
        """Prepare a device whose parity data are made when they are read."""
        d, c, own = shard.x.shape[1], shard.y.shape[1], [each[index] for each in self.batches]
        kinds = [{"features": (batch.parity_rows, d), "targets": (batch.parity_rows, c)} for batch in own]
        promised = [
            {"batch": (np.dtype(np.int32), ()), **{name: (shard.x.dtype, shape) for name, shape in each.items()}}
            for each in kinds
        ]
        each_point = 1 + d + c if self.options.charge_encoding else 0
        macs = [batch.parity_rows * batch.weighted * each_point for batch in own]
        return PooledParityDevice(self.device(index, shard), pool, promised, macs)

    @property
    def memory(self) -> int:
        """The sums of the Gram matrices of all batches, and the Gram matrices of their parity data."""
        return 2 * batch_memory(self.public, self.options.parts)

    def server(self) -> Server:
        """Prepare the server."""
        return ParityServer(self.public, self.allocations, self.batches)

    @property
    def survives_losses(self) -> int:
        """All but one of the devices with a load; only parity data still represent the lost ones."""
        return min(int(np.count_nonzero(allocation.loads)) for allocation in self.allocations) - 1

    def leakage(self) -> Leakage:
        """Return what each party sees: gradients of single devices and their parity data."""
        return Leakage(
            server="the gradient of some points of every device in every epoch, in clear; parity data of every device, "
            "which reveal whether a given point is in its data, and its target, if a batch has at most as many points "
            "of a device as parity rows and features, and which always give an estimate of its Gram matrix",
            devices="only the summed gradients, which the models reveal",
            eavesdropper="every gradient and all parity data on the links it taps, unless the transport is encrypted",
        )
