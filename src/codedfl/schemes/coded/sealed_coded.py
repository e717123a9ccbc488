"""Sealed and coded: all data summed under seals, cut into K column blocks, coded, and placed on the W fastest devices.

Set-up, before the first epoch. Every device u seals its Gram matrix and moments, A_u + R_u, with a pad that only it and
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

from codedfl.cipher.seals import FIELD_31
from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.coded.sealed_coded_device import BLOCK, PART, PIECE, REPAIR, Layout, SealedCodedDevice
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from codedfl.schemes.contract import Device, Leakage, Public, Round, Scheme, Stage, Transfer
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.sealing import Formats, check_bounds
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, SEALED_REASON, fresh_grant, pad_of
from codedfl.settings import setting
from codedfl.task import Shard


class SealedCodedOptions(SchemeOptions):
    """W workers, any K of whose replies finish an epoch; chosen by predicted time where they are not given.

    ``spares`` is the least W - K of that choice, and ``expected_epochs`` what the set-up is weighed against.
    """

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
        workers = devices if self.workers is None else self.workers
        if workers > devices:
            raise ScenarioError(
                f"schemes.sealed-coded.workers = {workers} must be at most {devices}, the number of devices"
            )
        if self.threshold is not None and self.threshold > workers:
            raise ScenarioError(
                f"schemes.sealed-coded.threshold = {self.threshold} must be at most {workers}, the number of workers"
            )
        if self.threshold is None and self.spares >= workers:
            raise ScenarioError(
                f"schemes.sealed-coded.spares = {self.spares} must be below {workers}, the number of workers"
            )


@final
class SealedCodedServer(PaddedServer):
    """Hands out seeds, decodes any K replies, and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, layout: Layout, workers: Workers) -> None:
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
        quorum, point = self._layout.code.K, self._products.point
        return Round.same(epoch, workers, message, reply, point=point, quorum=quorum)

    def _ask_moments(self, model: Float[np.ndarray, "d c"]) -> Round:
        bands = self._layout.bands
        shapes = {device: (bands.height(device), self._public.outputs) for device in range(bands.bands)}
        expected = {device: {"moments": (FIELD_31.dtype, shape)} for device, shape in shapes.items()}
        return Round(1, {device: {} for device in shapes}, np.zeros_like(model), expected=expected)

    def decoded_moments(self, replies: Mapping[int, Message], work: Work) -> UInt32[np.ndarray, "d c"]:
        """Put the bands together."""
        return np.concatenate([replies[device]["moments"] for device in sorted(replies)])

    def decoded(self, replies: Mapping[int, Message], work: Work) -> UInt32[np.ndarray, "c d"]:
        """Decode any K replies."""
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
        return Stage(
            [
                _transfer(helper, replacement, REPAIR, {"factor": np.array(factor)})
                for helper, factor in zip(helpers, factors, strict=True)
            ]
        )

    def replacements(self) -> Sequence[Stage]:
        """Let workers that were none at first get their coded blocks from the first workers."""
        helpers = self._first_workers.chosen[: self._layout.code.K]
        later = [worker for worker in self._workers if worker not in self._first_workers.chosen]
        return [self._rebuild(worker, helpers) for worker in later]


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
        options = self.options
        return choose_workers(
            self.public,
            workers=options.workers,
            threshold=options.threshold,
            spares=options.spares,
            expected_epochs=options.expected_epochs,
        )

    @cached_property
    def layout(self) -> Layout:
        """The sizes that everybody knows."""
        return Layout(self.public, self.workers.threshold)

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
