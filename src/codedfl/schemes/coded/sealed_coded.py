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
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from codedfl.schemes.contract import (
    Device,
    Exposure,
    Leakage,
    Message,
    PlacingServer,
    Public,
    Round,
    Scheme,
    Server,
    Transcript,
    Transfer,
    Work,
)
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds, product
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, SEALED_REASON, fresh_grant, pad_of
from codedfl.security.transcript import Asked
from codedfl.security.views.kinds import RepliesView
from codedfl.security.views.sealed import as_seen, from_models, sealed_exposures, sealed_pair
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = ["SealedCoded"]


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
class SealedCodedServer(PlacingServer):
    """Hands out seeds, decodes any K replies, and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, layout: Layout, workers: Workers) -> None:
        self._public = public
        self._formats = formats
        self._layout = layout
        self._first_workers = workers
        self._workers = list(workers.chosen)
        self._gone: set[int] = set()
        self._replacement: int | None = None
        self._products = PointedProducts(formats.gram, public)
        self._quorum = layout.bands.bands
        self._first = np.zeros((public.features, public.outputs))
        self._pads = np.zeros((public.features, public.features), np.uint32)
        self._moment_pads = np.zeros((public.features, public.outputs), np.uint32)

    def stages(self) -> Sequence[Sequence[Transfer]]:
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
        return [pieces, blocks, self._spread(turns)]

    def _spread(self, turns: Sequence[tuple[int, int]]) -> list[Transfer]:
        chosen = set(self._first_workers.chosen)
        return [_transfer(a, w, PART) for a, w in turns if a < self._layout.bands.bands and w in chosen]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up all pads, piece by piece, and put the sum together as devices put together the data."""
        bands = self._layout.bands
        for number in range(bands.bands):
            total = np.zeros(bands.size(number), np.uint32)
            for device, grant in enumerate(grants):
                pad_of(FIELD_31, device, grant, number).add_to(total)
            blocks, self._moment_pads[bands.band(number)] = bands.unpack(number, total)
            for other, block in blocks.items():
                self._pads[bands.band(number), bands.band(other)] = block
                self._pads[bands.band(other), bands.band(number)] = block.T

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask those who added for the moments, then the workers for products."""
        if epoch == 1:
            return self._ask_moments(model)
        self._quorum, workers = self._layout.code.K, sorted(self._workers)
        message = {"model": self._products.ask(model)}
        reply = {"product": (FIELD_31.dtype, (self._public.outputs, self._layout.width))}
        return Round(
            epoch, dict.fromkeys(workers, message), self._products.point, expected=dict.fromkeys(workers, reply)
        )

    def _ask_moments(self, model: Float[np.ndarray, "d c"]) -> Round:
        bands = self._layout.bands
        self._quorum, adders = bands.bands, range(bands.bands)
        shapes = {device: (bands.height(device), self._public.outputs) for device in adders}
        expected = {device: {"moments": (FIELD_31.dtype, shape)} for device, shape in shapes.items()}
        return Round(1, {device: {} for device in adders}, np.zeros_like(model), expected=expected)

    @property
    def quorum(self) -> int:
        """All who added, then any K workers."""
        return self._quorum

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Decode any K replies and take the pads away."""
        samples = sum(self._public.samples)
        if epoch == 1:
            total = np.concatenate([replies[device]["moments"] for device in sorted(replies)])
            self._first = self._formats.moments.decode_sum(FIELD_31.subtract(total, self._moment_pads))
            return np.asarray(self._first / samples)
        total = self.opened(self._products.asked, replies, work)
        return np.asarray((self._first + self._products.take(total)) / samples)

    def opened(
        self, model: UInt32[np.ndarray, "c d"], replies: Mapping[int, Message], work: Work
    ) -> UInt32[np.ndarray, "c d"]:
        """Decode the product of a model with the sum of all data from any K replies."""
        code, d = self._layout.code, self._public.features
        which = sorted(replies)[: code.K]
        parts = [replies[device]["product"] for device in which]
        total = np.ascontiguousarray(np.concatenate(code.decode(which, parts), axis=1)[:, :d])
        work.add(code.K * code.K * parts[0].size)
        return FIELD_31.subtract(total, product(FIELD_31, model, self._pads, work))

    def repair(self, lost: Sequence[int]) -> Sequence[Transfer]:
        """Replace a lost worker by the fastest device that is still there, as long as K workers are left."""
        if self._replacement is not None and not lost:
            self._workers.append(self._replacement)
        self._gone |= set(lost)
        self._replacement = None
        self._workers = [worker for worker in self._workers if worker not in self._gone]
        spare = [d for d in self._first_workers.order if d not in self._gone and d not in self._workers]
        enough = self._layout.code.K <= len(self._workers) < self._first_workers.count
        if not (enough and spare):
            return ()
        self._replacement = spare[0]
        return self._rebuild(spare[0], self._workers[: self._layout.code.K])

    def _rebuild(self, replacement: int, helpers: Sequence[int]) -> list[Transfer]:
        """Let K workers send their coded blocks, each times the factor that makes the sum the new coded block."""
        code = self._layout.code
        factors = FIELD_31.product(code.generator[replacement : replacement + 1], code.decoder(helpers))[0]
        return [
            _transfer(helper, replacement, REPAIR, {"factor": np.array(factor)})
            for helper, factor in zip(helpers, factors, strict=True)
        ]

    def memory(self) -> Message:
        """Return the summed moments, where the newest product is known, and who works."""
        gone = np.array(sorted(self._gone), np.int64)
        return {
            "first": self._first,
            "workers": np.array(self._workers, np.int64),
            "gone": gone,
            **self._products.memory(),
        }

    def recall(self, memory: Message) -> Sequence[Sequence[Transfer]]:
        """Take back what was remembered; return how replacements got their blocks, from the first workers."""
        self._first = memory["first"]
        self._products.recall(memory)
        self._gone = {int(device) for device in memory["gone"]}
        self._workers = [int(device) for device in memory["workers"]]
        helpers = self._first_workers.chosen[: self._layout.code.K]
        return [self._rebuild(w, helpers) for w in self._workers if w not in self._first_workers.chosen]


def _transfer(sender: int, recipient: int, kind: int, more: Message | None = None) -> Transfer:
    grant: dict[str, Any] = {"kind": np.array(kind, np.int8), "target": np.array(recipient, np.int32), **(more or {})}
    return Transfer(sender, recipient, None, grant)


@final
class SealedCoded(Scheme[SealedCodedOptions]):
    """All data summed under seals, coded, and placed on the fastest devices; any K replies finish an epoch."""

    name = "sealed-coded"
    options_type = SealedCodedOptions
    exact = True
    follows_timing = False
    verdict = "holds"
    because = SEALED_REASON

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

    def server(self) -> Server:
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

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Return the pieces that two devices sealed and sent, the server's sums, and what models tell."""
        form = self.formats.gram
        words = [self._sealed(transcript, device) for device in (0, 1)]
        sums = self._sums(transcript)
        return [
            *sealed_exposures(form, words[0], 0, shards[0].gram),
            sealed_pair(form, (words[0], shards[0].gram), (words[1], shards[1].gram)),
            Exposure(sums, 0, shards[0].gram),
            from_models(form, sums.models, 0, shards[0].gram),
        ]

    def _sealed(self, transcript: Transcript, device: int) -> Float[np.ndarray, "d d"]:
        """Put together all pieces that a device sent; the one it kept for itself stays zero."""
        bands = self.layout.bands
        words = np.zeros((self.public.features,) * 2)
        for entry in transcript.sent:
            if entry.sender == device and int(entry.parcel["kind"]) == PIECE:
                number = int(entry.grant["target"])
                blocks, _ = bands.unpack(number, entry.parcel["piece"])
                for other, block in blocks.items():
                    words[bands.band(number), bands.band(other)] = as_seen(FIELD_31, block)
                    words[bands.band(other), bands.band(number)] = as_seen(FIELD_31, block).T
        return words

    def _sums(self, transcript: Transcript) -> RepliesView:
        """Decode the replies as the server does: sums over all devices, scaled to the share of the first one."""
        server = SealedCodedServer(self.public, self.formats, self.layout, self.workers)
        grants = {entry.sender: entry.grant for entry in transcript.sent if "seed" in entry.grant}
        server.add_pads([grants[device] for device in range(self.public.devices)])
        epochs: dict[int, dict[int, Asked]] = {}
        for entry in transcript.asked:
            if entry.epoch > 1:
                epochs.setdefault(entry.epoch, {})[entry.device] = entry
        models = [next(iter(entries.values())).request["model"] for entries in epochs.values()]
        sums = [
            server.opened(model, {device: entry.reply for device, entry in entries.items()}, Work())
            for model, entries in zip(models, epochs.values(), strict=True)
        ]
        share = self.public.samples[0] / sum(self.public.samples)
        points, products = (np.stack([as_seen(FIELD_31, item).T for item in items]) for items in (models, sums))
        return RepliesView(points, share * (products * self.formats.gram.data_step))
