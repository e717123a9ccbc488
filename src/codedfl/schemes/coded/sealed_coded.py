"""Sealed and coded: all data summed under seals, cut into K column blocks, coded, and placed on the W fastest devices.

Set-up, before epoch 1. Every device u seals Gram matrix and right-hand side, A_u + R_u, with a pad that only it and
the server can make. All that follows handles sealed residues only, so it may go anywhere and be sent again:

1. every device sends piece a of its sealed matrix to device a, which adds up what it gets (a reduce-scatter of one
   triangle: ``codedfl.schemes.coded.placement``);
2. devices exchange blocks, so that device a has band a of S = sum_u (A_u + R_u) whole;
3. device a sends its rows of coded block w, sum_k g_wk S[:, block k], to worker w, for every worker.

An epoch: each worker replies theta^T times its coded block. Any K replies give theta^T S by the (N, K) MDS code, and
the server takes theta^T sum R away. It sees sums over all devices only. Up to W - K workers may be lost for good, and
every other device with them: nothing is awaited from those. A lost worker is replaced: K of the others send their
coded blocks to a device that is still there, which combines them to its own.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt32

from codedfl.cipher.seals import FIELD_31, PadLedger, seal, unpack_upper
from codedfl.codes.mds import MdsCode
from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.coded.placement import Bands
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from codedfl.schemes.contract import Device, Leakage, Public, Round, Scheme, Stage, Transfer, check_at_most
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sealing import Formats, check_bounds
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, SEALED_REASON, fresh_grant, pad_of
from codedfl.settings import setting
from codedfl.task import Shard


class SealedCodedOptions(SchemeOptions):
    """W workers, any K of whose replies finish an epoch; chosen by predicted time where they are not given."""

    workers: int | None = setting(default=None, low=1, help="Number W of workers; chosen by predicted time if unset.")
    threshold: int | None = setting(
        default=None,
        low=1,
        help="Number K of workers whose replies finish an epoch; chosen by predicted time if unset.",
    )
    spares: int = setting(default=1, low=0, help="Smallest W - K when they are chosen by predicted time.")
    expected_epochs: int = setting(
        default=100, low=1, help="Number of epochs that the time of the set-up is weighed against."
    )

    def check_fleet(self, devices: int) -> None:
        """There must be W devices, and K of them."""
        if devices < 2:
            raise ScenarioError("scheme = 'sealed-coded' needs at least 2 devices: with one, the sum is its own data")
        check_at_most(devices, "schemes.sealed-coded.workers", self.workers)
        workers = devices if self.workers is None else self.workers
        if self.threshold is not None and self.threshold > workers:
            raise ScenarioError(
                f"schemes.sealed-coded.threshold = {self.threshold} must be at most {workers}, the number of workers"
            )
        if self.threshold is None and self.spares >= workers:
            raise ScenarioError(
                f"schemes.sealed-coded.spares = {self.spares} must be below {workers}, the number of workers"
            )


PIECE, BLOCK, PART, REPAIR = range(4)
"""The kinds of parcels: a sealed piece, a block of a band, a part of a coded block, a whole coded block."""


@final
class BlockLayout:
    """The sizes that everybody knows: bands of rows, K column blocks of equal width (zeros fill the last), the code."""

    def __init__(self, public: Public, threshold: int) -> None:
        self.bands = Bands(public.features, min(public.devices, public.features), public.outputs)
        self.code = MdsCode(public.devices, threshold)
        self.width = -(-public.features // threshold)

    def coded_rows(self, worker: int, rows: UInt32[np.ndarray, "rows d"]) -> UInt32[np.ndarray, "rows width"]:
        """Return rows of a worker's coded block, from the same rows of the whole matrix."""
        padded = np.zeros((len(rows), self.width * self.code.K), rows.dtype)
        padded[:, : rows.shape[1]] = rows
        blocks = [padded[:, k * self.width : (k + 1) * self.width] for k in range(self.code.K)]
        return self.code.encode_block(worker, blocks)


@final
class SealedCodedDevice(Device):
    """Owner of data, adder of one band, and perhaps a worker."""

    def __init__(self, index: int, shard: Shard, formats: Formats, layout: BlockLayout) -> None:
        self._index = index
        self._formats = formats
        self._layout = layout
        self._shard: Shard | None = shard
        self._ledger = PadLedger()
        self._pieces: dict[int, UInt32[np.ndarray, "size"]] = {}
        self._sum: UInt32[np.ndarray, "size"] | None = None
        self._blocks: dict[int, UInt32[np.ndarray, "rows columns"]] = {}
        self._moments: UInt32[np.ndarray, "rows c"] | None = None
        self._coded: UInt32[np.ndarray, "d width"] | None = None

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the own band of the summed right-hand side, every other with a coded product."""
        if epoch == 1:
            self._unpack()
            return {} if self._moments is None else {"moments": self._moments}
        if self._coded is None:
            raise RuntimeError(f"device {self._index} is no worker")
        model = request["model"]
        work.macs += model.size * self._coded.shape[1]
        return {"product": FIELD_31.product(model, self._coded)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return what the grant asks for: a sealed piece, a block, a part of a coded block, or a whole one."""
        kind, target = int(grant["kind"]), int(grant["target"])
        if kind == PIECE:
            if not self._pieces:
                self._seal(grant, work)
            return {"kind": grant["kind"], "piece": self._pieces.pop(target)}
        if kind == BLOCK:
            self._unpack()
            return {"kind": grant["kind"], "band": np.array(self._index, np.int32), "block": self._blocks[target]}
        if kind == PART:
            return {"kind": grant["kind"], "band": np.array(self._index, np.int32), "part": self._part(target, work)}
        return {"kind": grant["kind"], "coded": self._scaled(grant["factor"], work)}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Take in one parcel of any kind."""
        kind = int(parcel["kind"])
        if kind == PIECE:
            work.add(parcel["piece"].size)
            self._sum = _added(self._sum, parcel["piece"])
        elif kind == BLOCK:
            self._unpack()
            self._blocks[int(parcel["band"])] = np.ascontiguousarray(parcel["block"].T)
        elif kind == PART:
            self._place(int(parcel["band"]), parcel["part"], work)
        else:
            work.add(parcel["coded"].size)
            self._coded = _added(self._coded, parcel["coded"])

    def _seal(self, grant: Message, work: Work) -> None:
        """Seal everything once; the own piece goes straight into the own sum."""
        if self._shard is None:
            raise RuntimeError(f"device {self._index} has sealed its data before")
        bands, shard, self._shard = self._layout.bands, self._shard, None
        gram = unpack_upper(self._formats.gram.encode_symmetric(shard.gram))
        moments = self._formats.moments.encode(-shard.moments)
        for number in range(bands.bands):
            piece = bands.piece(number, gram, moments)
            work.add(piece.size)
            self._pieces[number] = seal(piece, pad_of(FIELD_31, self._index, grant, number), self._ledger)
        if self._index in self._pieces:
            self._sum = _added(self._sum, self._pieces.pop(self._index))

    def _unpack(self) -> None:
        """Turn the sum of pieces into blocks; nothing can be added after that."""
        if self._sum is not None:
            blocks, self._moments = self._layout.bands.unpack(self._index, self._sum)
            self._blocks.update(blocks)
            self._sum = None

    def _part(self, worker: int, work: Work) -> UInt32[np.ndarray, "rows width"]:
        rows = self._layout.bands.joined(self._index, self._blocks)
        work.add(rows.size)
        return self._layout.coded_rows(worker, rows)

    def _place(self, band: int, part: UInt32[np.ndarray, "rows width"], work: Work) -> None:
        bands = self._layout.bands
        if self._coded is None:
            self._coded = np.zeros((bands.rows, self._layout.width), np.uint32)
            if self._index < bands.bands:  # the own band is not sent
                self._coded[bands.band(self._index)] = self._part(self._index, work)
        self._coded[bands.band(band)] = part

    def _scaled(self, factor: UInt32[np.ndarray, ""], work: Work) -> UInt32[np.ndarray, "d width"]:
        if self._coded is None:
            raise RuntimeError(f"device {self._index} is no worker")
        work.add(self._coded.size)
        scaled = np.zeros_like(self._coded)
        FIELD_31.add_multiple(scaled, int(factor), self._coded)
        return scaled


@final
class SealedCodedServer(PaddedServer):
    """Hands out seeds, decodes any K replies, and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, layout: BlockLayout, workers: Workers) -> None:
        super().__init__(public, formats, workers.chosen)
        self._layout = layout
        self._first_workers = workers
        self._replacement: int | None = None

    def set_up(self) -> Sequence[Stage]:
        """Seal and add up; exchange blocks; spread coded blocks. In each, senders take recipients in turn."""
        grants = [fresh_grant(0) for _ in range(self._public.devices)]
        self.add_pads(grants)
        bands = self._layout.bands
        n = self._public.devices
        turns = [(a, (a + turn) % n) for turn in range(1, n) for a in range(n)]
        pieces = []
        for sender, target in turns:
            if target < bands.bands:
                seed, grants[sender] = grants[sender], {}
                pieces.append(_transfer(sender, target, PIECE, seed))
        blocks = [_transfer(a, b, BLOCK) for a, b in turns if a < bands.bands and b in bands.held_by(a)]
        chosen = set(self._first_workers.chosen)
        parts = [_transfer(a, w, PART) for a, w in turns if a < bands.bands and w in chosen]
        return [Stage(pieces), Stage(blocks), Stage(parts)]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up all pads, piece by piece, and put the sum together as devices put together the data."""
        bands = self._layout.bands
        self._pads = np.zeros((self._public.features,) * 2, np.uint32)
        for number in range(bands.bands):
            total = np.zeros(bands.size(number), np.uint32)
            for device, grant in enumerate(grants):
                pad_of(FIELD_31, device, grant, number).add_to(total)
            blocks, self._moment_pads[bands.band(number)] = bands.unpack(number, total)
            for other, block in blocks.items():
                self._pads[bands.band(number), bands.band(other)] = block
                self._pads[bands.band(other), bands.band(number)] = block.T

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask those who added for the moments, then the workers for products, any K of which suffice."""
        if epoch == 1:
            return self._ask_moments(model)
        workers = sorted(self._workers)
        message = {"model": self._products.ask(model)}
        reply = {"product": (FIELD_31.dtype, (self._public.outputs, self._layout.width))}
        return Round.same(epoch, workers, message, reply, point=self._products.point, quorum=self._layout.code.K)

    def _ask_moments(self, model: Float[np.ndarray, "d c"]) -> Round:
        bands = self._layout.bands
        shapes = {device: (bands.height(device), self._public.outputs) for device in range(bands.bands)}
        expected = {device: {"moments": (FIELD_31.dtype, shape)} for device, shape in shapes.items()}
        return Round(1, {device: {} for device in shapes}, np.zeros_like(model), expected=expected)

    def decoded(self, name: str, replies: Mapping[int, Message], work: Work) -> UInt32[np.ndarray, "..."]:
        """Put the bands of the moments together; decode any K products."""
        if name == "moments":
            return np.concatenate([replies[device]["moments"] for device in sorted(replies)])
        code, d = self._layout.code, self._public.features
        which = sorted(replies)[: code.K]
        parts = np.stack([replies[device]["product"] for device in which])
        work.macs += code.K * parts.size
        blocks = FIELD_31.product(code.decoder(which), parts.reshape(code.K, -1)).reshape(parts.shape)
        return np.ascontiguousarray(np.concatenate(list(blocks), axis=1)[:, :d])

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Replace a lost worker by the fastest device that is still there, as long as K workers are left."""
        if self._replacement is not None and not lost:
            self._workers.append(self._replacement)
        elif not lost:
            return None
        self._gone |= set(lost)
        self._replacement = None
        self._workers = [worker for worker in self._workers if worker not in self._gone]
        spare = [d for d in self._first_workers.order if d not in self._gone and d not in self._workers]
        enough = self._layout.code.K <= len(self._workers) < self._first_workers.count
        if not (enough and spare):
            return None
        self._replacement = spare[0]
        return self._rebuild(spare[0], self._workers[: self._layout.code.K])

    def _rebuild(self, replacement: int, helpers: Sequence[int]) -> Stage:
        """Let K workers send their coded blocks, each times the factor that makes the sum the new coded block."""
        code = self._layout.code
        factors = FIELD_31.product(code.generator[replacement : replacement + 1], code.decoder(helpers))[0]
        pairs = zip(helpers, factors, strict=True)
        return Stage([_transfer(each, replacement, REPAIR, {"factor": np.array(factor)}) for each, factor in pairs])

    def replacements(self) -> Sequence[Stage]:
        """Let workers that were none at first get their coded blocks from the first workers."""
        helpers = self._first_workers.chosen[: self._layout.code.K]
        later = [worker for worker in self._workers if worker not in self._first_workers.chosen]
        return [self._rebuild(worker, helpers) for worker in later]


def _added(total: UInt32[np.ndarray, "..."] | None, more: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    return more if total is None else FIELD_31.add(total, more)


def _transfer(sender: int, recipient: int, kind: int, more: Message | None = None) -> Transfer:
    grant: dict[str, Any] = {"kind": np.array(kind, np.int8), "target": np.array(recipient, np.int32), **(more or {})}
    return Transfer(sender, recipient, grant)


@final
class SealedCoded(Scheme[SealedCodedOptions]):
    """All data summed under seals, coded, and placed on the fastest devices; any K replies finish an epoch."""

    name = "sealed-coded"
    options_type = SealedCodedOptions
    exact = True
    verdict = "holds"
    verdict_reason = SEALED_REASON

    def check(self) -> None:
        """Refuse a fleet of one, a single feature, which cannot be cut up, and data that the field cannot hold."""
        self.options.check_fleet(self.public.devices)
        if self.public.features < 2:
            raise ScenarioError(
                "scheme = 'sealed-coded' needs at least 2 features; add one, or choose scheme = 'sealed'"
            )
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        return Formats.choose(FIELD_31, self.public)

    @cached_property
    def workers(self) -> Workers:
        """W and K."""
        given = self.options
        return choose_workers(
            self.public,
            workers=given.workers,
            threshold=given.threshold,
            spares=given.spares,
            expected_epochs=given.expected_epochs,
        )

    @cached_property
    def layout(self) -> BlockLayout:
        """The sizes that everybody knows."""
        return BlockLayout(self.public, self.workers.threshold)

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it seals its data when it is granted a seed."""
        check_bounds(self.public, shard)
        return SealedCodedDevice(index, shard, self.formats, self.layout)

    def server(self) -> SealedCodedServer:
        """Prepare the server."""
        return SealedCodedServer(self.public, self.formats, self.layout, self.workers)

    @property
    def survives_losses(self) -> int:
        """W - K workers, and after the set-up every device that is no worker."""
        return self.workers.count - self.workers.threshold

    def leakage(self) -> Leakage:
        """Say who sees what."""
        return Leakage(
            server="sums over all devices, of their moments and of their products with the models; nothing of a "
            "single device",
            devices=SEALED_DEVICES,
            eavesdropper=SEALED_EAVESDROPPER,
        )
