"""Sealed and coded: the sealed sum of all data in K column blocks, coded, and placed on the W fastest devices.

Set-up. Every device u seals its Gram matrix and right-hand side, A_u + R_u, with a pad that only it and the server can
compute. All later steps use sealed residues only, so any device may receive them, also repeatedly:

1. every device sends every other one a public key, for masks that it adds to its sealed matrix and that cancel in the
   sum over all devices (``codedfl.schemes.coded.pairwise_masks``), so a server that pools with up to N - 2 devices
   learns the sum over the others only;
2. every device sends piece a of its sealed matrix to device a, which adds up the pieces (a reduce-scatter of one
   triangle: ``codedfl.schemes.coded.placement``);
3. devices exchange blocks, so that device a has all of band a of S = sum_u (A_u + R_u);
4. device a sends its rows of coded block w, sum_k g_wk S[:, block k], to worker w, for every worker.

Epoch. Each worker replies theta^T times its coded block. Any K replies give theta^T S by the (N, K) MDS code, and the
server subtracts theta^T sum R. It sees sums over all devices only. Up to W - K workers may be lost, and all devices
that are not workers. A lost worker is replaced: K other workers send their coded blocks to another device, which
combines them into its own coded block.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals import FIELD_31, FIELD_48, FIELD_61
from codedfl.codes.correction import ReedSolomon
from codedfl.errors import ScenarioError
from codedfl.scenario import Privacy, SchemeOptions
from codedfl.schemes.coded.sealed_coded_device import BLOCK, KEY, PART, PIECE, REPAIR, BlockLayout, SealedCodedDevice
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from codedfl.schemes.contract import Device, Round, Scheme, Stage, Transfer, check_at_most
from codedfl.schemes.messages import Layout, Message, Work, layout
from codedfl.schemes.private import once_only
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, check_bounds, choose_formats, ring_setting
from codedfl.schemes.secrecy import SUMS, Leakage, Secrecy, all_cells, summed_views
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, SEALED_REASON, fresh_grant, pad_of
from codedfl.settings import setting
from codedfl.task import Shard

SEALED_CODED_RINGS = (FIELD_31, FIELD_48, FIELD_61)
MOST_MASKED = 256
"""Devices up to which every two of them agree on a mask."""
_MASKED_REASON = (
    "Pieces look uniform as long as AES-256 in counter mode is a pseudo-random function, and with X25519 also to a "
    "server that pools with up to N - 2 devices; links to it must be encrypted."
)


class SealedCodedOptions(SchemeOptions):
    """W workers and the threshold K: any K replies finish an epoch. Both are chosen by predicted time if unset.

    >>> SealedCodedOptions(workers=12, threshold=10).spares
    1
    """

    workers: int | None = setting(default=None, low=1, help="Number W of workers; chosen by predicted time if unset.")
    threshold: int | None = setting(
        default=None,
        low=1,
        help="Number K of workers whose replies finish an epoch; chosen by predicted time if unset.",
    )
    spares: int = setting(default=1, low=0, help="Smallest W - K when they are chosen by predicted time.")
    ring: str = ring_setting(SEALED_CODED_RINGS, "Prime field")
    expected_epochs: int = setting(
        default=100, low=1, help="Number of epochs that the time of the set-up is weighed against."
    )
    masks: bool = setting(
        default=True,
        help="Whether masks that cancel in the sum hide single devices from a server that pools with others; "
        f"for at most {MOST_MASKED} devices.",
    )

    def check_fleet(self, devices: int) -> None:
        """Refuse a single device, W above the number of devices, and K above W."""
        if devices < 2:
            raise ScenarioError("scheme = 'sealed-coded' needs at least 2 devices: with one, the sum is its own data")
        if self.masks and devices > MOST_MASKED:
            raise ScenarioError(
                f"schemes.sealed-coded.masks = true takes a key for every two devices, for at most {MOST_MASKED} "
                f"devices and not {devices}; if the server colludes with no device, set it to false"
            )
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


@final
class SealedCodedServer(PaddedServer):
    """Grants seeds, decodes any K replies, and subtracts the pads."""

    def __init__(self, public: Public, formats: Formats, layout: BlockLayout, workers: Workers) -> None:
        super().__init__(public, formats, workers.chosen)
        self._layout = layout
        self._first_workers = workers
        self._replacement: int | None = None

    def set_up(self) -> Sequence[Stage]:
        """Return the stages: exchange mask keys, add up pieces, exchange blocks, distribute parts of coded blocks."""
        grants = [fresh_grant(0) for _ in range(self._public.devices)]
        self.add_pads(grants)
        bands = self._layout.bands
        n = self._public.devices
        turns = [(a, (a + turn) % n) for turn in range(1, n) for a in range(n)]
        keys = [Stage([_transfer(a, b, KEY) for a, b in turns])] if self._layout.masked else []
        pieces = []
        for sender, target in turns:
            if target < bands.bands:
                seed, grants[sender] = grants[sender], {}
                pieces.append(_transfer(sender, target, PIECE, seed))
        blocks = [_transfer(a, b, BLOCK) for a, b in turns if a < bands.bands and b in bands.held_by(a)]
        chosen = set(self._first_workers.chosen)
        parts = [_transfer(a, w, PART) for a, w in turns if a < bands.bands and w in chosen]
        return [*keys, Stage(pieces), Stage(blocks), Stage(parts)]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up all pads piece by piece, and assemble the sum as devices assemble the data."""
        bands = self._layout.bands
        self._pads = np.zeros((self._public.features,) * 2, self._field.dtype)
        for number in range(bands.bands):
            total = np.zeros(bands.size(number), self._field.dtype)
            for device, grant in enumerate(grants):
                pad_of(self._field, device, grant, number, self._public.nonce(device)).add_to(total)
            blocks, self._moment_pads[bands.band(number)] = bands.unpack(number, total)
            for other, block in blocks.items():
                self._pads[bands.band(number), bands.band(other)] = block
                self._pads[bands.band(other), bands.band(number)] = block.T

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request the bands of the right-hand side first, then products, any K of which suffice."""
        if epoch == 1:
            return self._ask_moments(model)
        workers, K = sorted(self._workers), self._layout.code.K
        message = {"model": self._field.to_wire(self._products.ask(model))}
        point, reply = self._products.point, self.product_layout()
        return Round.same(epoch, workers, message, reply, point=point, quorum=K, needed=K)

    @property
    def redundancy(self) -> ReedSolomon:
        """The MDS code of the products."""
        return self._layout.code.reed_solomon

    def product_layout(self) -> Layout:
        """Return the layout of a product of the model and a coded block."""
        return self._reply("product", self._public.outputs, self._layout.width)

    def _ask_moments(self, model: Float[np.ndarray, "d c"]) -> Round:
        bands = self._layout.bands
        heights = {device: bands.height(device) for device in range(bands.bands)}
        expected = {device: self._reply("moments", each, self._public.outputs) for device, each in heights.items()}
        return Round(1, {device: {} for device in heights}, np.zeros_like(model), expected=expected)

    def _reply(self, name: str, rows: int, columns: int) -> Layout:
        return layout({name: self._field.to_wire(np.zeros((rows, columns), self._field.dtype))})

    def decoded(self, name: str, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "..."]:
        """Concatenate the bands of the right-hand side, or decode any K products."""
        if name == "moments":
            return np.concatenate([self.part("moments", device, replies) for device in sorted(replies)])
        code, d = self._layout.code, self._public.features
        which = sorted(replies)[: code.K]
        parts = np.stack([self.part("product", device, replies) for device in which])
        work.macs += code.K * parts.size
        blocks = self._field.product(code.decoder(which), parts.reshape(code.K, -1)).reshape(parts.shape)
        return np.ascontiguousarray(np.concatenate(list(blocks), axis=1)[:, :d])

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> Stage | None:
        """Replace a lost worker by the fastest remaining device, while at least K workers are left."""
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
        """Let K workers send multiples of their coded blocks, whose sum is the new coded block."""
        code = self._layout.code
        factors = self._field.product(code.generator[replacement : replacement + 1], code.decoder(helpers))[0]
        pairs = zip(helpers, self._field.to_wire(factors), strict=True)
        return Stage([_transfer(each, replacement, REPAIR, {"factor": np.array(factor)}) for each, factor in pairs])

    def replacements(self) -> Sequence[Stage]:
        """Let replacement workers get their coded blocks from K of the first workers, present ones first."""
        helpers = sorted(self._first_workers.chosen, key=self._gone.__contains__)[: self._layout.code.K]
        later = [worker for worker in self._workers if worker not in self._first_workers.chosen]
        return [self._rebuild(worker, helpers) for worker in later]


def _transfer(sender: int, recipient: int, kind: int, more: Message | None = None) -> Transfer:
    grant: dict[str, Any] = {"kind": np.array(kind, np.int8), "target": np.array(recipient, np.int32), **(more or {})}
    return Transfer(sender, recipient, grant)


@final
class SealedCoded(Scheme[SealedCodedOptions]):
    """The sealed sum of all data, coded and placed on the fastest devices; any K replies finish an epoch."""

    name = "sealed-coded"
    options_type = SealedCodedOptions
    exact = True
    verdict = SUMS

    @property
    def verdict_reason(self) -> str:
        """What the seals and masks rest on."""
        return _MASKED_REASON if self.options.masks else SEALED_REASON

    @property
    def allowed_if(self) -> str:
        """The server learns the sum, and without masks a device that helps it opens a band of all matrices."""
        pooled = self.options.masks and self.public.devices > 2
        alone = "at least two devices collude with nobody" if pooled else "the server colludes with no device"
        return (
            "the server may learn the sum of all Gram matrices, and so who is in the data of all devices together, and "
            + alone
        )

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server reads sums over all devices, whatever it asks; without masks, with device a also band a of all."""
        return all_cells(summed_views(self.public.devices, masked=self.options.masks))

    def refuses_noise(self, privacy: Privacy) -> str | None:
        """Take noise: all replies are computed from the sum over all devices."""
        if privacy.losses:
            return "privacy.losses must be 0, because its set-up needs every device"
        if privacy.colluding and not self.options.masks:
            return "privacy.colluding needs masks, without which a device shows the server parts of each other's data"
        return once_only(privacy)

    def check(self) -> None:
        """Refuse a single device, a single feature, which cannot be divided, and data that the field cannot hold."""
        self.options.check_fleet(self.public.devices)
        if self.public.features < 2:
            raise ScenarioError(
                "scheme = 'sealed-coded' needs at least 2 features; add one, or choose scheme = 'sealed'"
            )
        _ = self.formats

    @property
    def chosen_by_delays(self) -> Hashable:
        """The workers and how many of their replies make an epoch."""
        return self.workers.chosen, self.workers.threshold

    @cached_property
    def formats(self) -> Formats:
        """The number formats, computed from public facts."""
        return choose_formats(self.public, self.options.ring, SEALED_CODED_RINGS)

    @property
    def rounding(self) -> Rounding:
        """Devices round their data to steps of the format."""
        return self.formats.rounding(self.public)

    @cached_property
    def workers(self) -> Workers:
        """The workers and the threshold K."""
        given = self.options
        return choose_workers(
            self.public,
            self.formats.ring.wire_bits,
            workers=given.workers,
            threshold=given.threshold,
            spares=given.spares,
            expected_epochs=given.expected_epochs,
        )

    @cached_property
    def layout(self) -> BlockLayout:
        """The public sizes of bands and blocks."""
        return BlockLayout(self.public, self.workers.threshold, self.formats.field, masked=self.options.masks)

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layouts of all kinds of parcels."""
        return self.layout.parcels(index, self.formats.field)

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it seals its data when it receives a seed."""
        check_bounds(self.public, shard)
        return SealedCodedDevice(index, shard, self.formats, self.layout, self.public)

    def server(self) -> SealedCodedServer:
        """Prepare the server."""
        return SealedCodedServer(self.public, self.formats, self.layout, self.workers)

    @property
    def repeats_epochs(self) -> bool:
        """True: replies are products with sums over all devices."""
        return True

    @property
    def survives_losses(self) -> int:
        """W - K workers; after the set-up also every device that is not a worker."""
        return self.workers.count - self.workers.threshold

    def leakage(self) -> Leakage:
        """Return what each party sees."""
        pooled = "; if up to N - 2 devices collude with it, the sum over the others" if self.options.masks else ""
        return Leakage(
            server="sums over all devices: of right-hand sides, and of products of the models with the data; nothing "
            f"about a single device{pooled}",
            devices=SEALED_DEVICES,
            eavesdropper=SEALED_EAVESDROPPER,
        )
