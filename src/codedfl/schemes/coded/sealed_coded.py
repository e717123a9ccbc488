"""Sealed and coded: the sealed sum of all data in K column blocks, coded, and placed on the W fastest devices.

Set-up. Every device u seals its Gram matrix and right-hand side, A_u + R_u, with a pad that only it and the server can
compute. All later steps use sealed residues only, so any device may receive them, also repeatedly:

1. every device sends the others a public key, for masks that it adds to its sealed matrix and that cancel in the sum
   over all devices (``codedfl.schemes.coded.pairwise_masks``), so a server that pools with up to N - 2 devices learns
   the sum over the others only;
2. every device sends piece a of its sealed matrix to adder a of its group, which adds up the pieces (a reduce-scatter
   of one triangle: ``codedfl.schemes.coded.placing.bands``); in large fleets, sums of groups are added up along a tree
   of groups (``codedfl.schemes.coded.placing.groups``);
3. the adders of the first group exchange blocks, so that each has all of its band a of S = sum_u (A_u + R_u);
4. adder a sends the part of coded block w, sum_k g_wk S[:, block k], that follows from band a to worker w, for every
   worker.

Steps 2 to 4 are taken for one chunk of the matrix after the other, and overlap: a device sends on what is complete.

Epoch. Each worker replies theta^T times its coded block. Any K replies give theta^T S by the (N, K) MDS code, and the
server subtracts theta^T sum R. It sees sums over all devices only. Up to W - K workers may be lost, and all devices
that are not workers. A lost worker is replaced: K other workers send their coded blocks to another device, which
combines them into its own coded block.
"""

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import final

import numpy as np

from codedfl.cipher.masks.graph import COMPLETE, DEGREE, MaskGraph
from codedfl.cipher.seals import FIELD_31, FIELD_48, FIELD_61
from codedfl.errors import ScenarioError
from codedfl.network import RoundCosts
from codedfl.scenario import Privacy, SchemeOptions
from codedfl.schemes.coded.placing.block_layout import PIECE, BlockLayout
from codedfl.schemes.coded.placing.transfers import counted_stage, planned_stages
from codedfl.schemes.coded.sealed_coded_device import SealedCodedDevice
from codedfl.schemes.coded.sealed_coded_server import SealedCodedServer
from codedfl.schemes.coded.worker_choice import Workers, choose_workers
from codedfl.schemes.contract import CountedCosts, Device, Scheme, check_at_most
from codedfl.schemes.messages import Layout
from codedfl.schemes.private import once_only
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, check_bounds, choose_formats, ring_setting
from codedfl.schemes.secrecy import SUMS, Leakage, Secrecy, all_cells, summed_views
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, SEALED_REASON, fresh_grant
from codedfl.settings import setting
from codedfl.task import Shard

SEALED_CODED_RINGS = (FIELD_31, FIELD_48, FIELD_61)
_MASKED_REASON = (
    "Pieces look uniform as long as AES-256 in counter mode is a pseudo-random function, and with X25519 also to a "
    "server that pools with up to {} devices; links to it must be encrypted."
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
    overlap: bool = setting(
        default=True,
        help="Whether devices send on what is complete while the rest of the set-up arrives; else one stage follows "
        "the other, in fewer and larger parcels.",
    )
    masks: bool = setting(
        default=True,
        help="Whether masks that cancel in the sum hide single devices from a server that pools with others.",
    )
    neighbours: int | None = setting(
        default=None,
        low=2,
        help="With how many others a device shares a mask: any fewer may pool with the server; unset: all up to "
        f"{COMPLETE} devices, {DEGREE} in larger fleets.",
    )

    def check_fleet(self, devices: int) -> None:
        """Refuse a single device, W above the number of devices, and K above W."""
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


@final
class SealedCoded(Scheme[SealedCodedOptions]):
    """The sealed sum of all data, coded and placed on the fastest devices; any K replies finish an epoch."""

    name = "sealed-coded"
    options_type = SealedCodedOptions
    exact = True
    verdict = SUMS

    @property
    def harmless_pool(self) -> int:
        """How many devices may pool with the server, which then learns the sum of the others only; 0 without masks."""
        return 0 if self.graph is None else self.graph.size - 2

    @property
    def graph(self) -> MaskGraph | None:
        """Which devices share masks; None: there are none."""
        return MaskGraph.of(self.public.devices, self.options.neighbours) if self.options.masks else None

    @property
    def verdict_reason(self) -> str:
        """What the seals and masks rest on."""
        if not self.options.masks:
            return SEALED_REASON
        return _MASKED_REASON.format(self._pool_words)

    @property
    def _pool_words(self) -> str:
        return "N - 2" if self.harmless_pool == self.public.devices - 2 else str(self.harmless_pool)

    @property
    def allowed_if(self) -> str:
        """The server learns the sum, and without masks a device that helps it opens a band of all matrices."""
        alone = "the server colludes with no device"
        if self.harmless_pool:
            others = "at least two devices collude with nobody"
            everyone = self.harmless_pool == self.public.devices - 2
            alone = others if everyone else f"at most {self.harmless_pool} devices collude with it"
        return (
            "the server may learn the sum of all Gram matrices, and so who is in the data of all devices together, and "
            + alone
        )

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server reads sums over all devices, whatever it asks; without masks, with device a also band a of all."""
        return all_cells(summed_views(self.public.devices, 0 if self.graph is None else self.graph.size - 1))

    def refuses_noise(self, privacy: Privacy) -> str | None:
        """Take noise: all replies are computed from the sum over all devices."""
        if privacy.losses:
            return "privacy.losses must be 0, because its set-up needs every device"
        if privacy.colluding and not self.options.masks:
            return "privacy.colluding needs masks, without which a device shows the server parts of each other's data"
        if self.harmless_pool < min(privacy.colluding, self.public.devices - 2):
            return f"privacy.colluding must be at most {self.harmless_pool}, below schemes.sealed-coded.neighbours"
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

    @property
    def memory(self) -> int:
        """Sums, their blocks, and the coded blocks of the workers, which are 1/K of all columns each."""
        squares = 4 + self.workers.count / self.workers.threshold
        return int(8 * squares * self.public.features**2)

    @cached_property
    def layout(self) -> BlockLayout:
        """The public sizes of bands and blocks."""
        overlap = self.options.overlap
        return BlockLayout(self.public, self.workers.threshold, self.formats.field, self.graph, overlap=overlap)

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layouts of all kinds of parcels."""
        return self.layout.parcels(index)

    @property
    def parcels_at_once(self) -> int:
        """A key, and for each chunk a piece, a sum, a block and a part, if stages overlap."""
        return 1 + 4 * self.layout.bands.chunks if self.layout.overlaps else 1

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it seals its data when it receives a seed."""
        check_bounds(self.public, shard)
        return SealedCodedDevice(index, shard, self.formats, self.layout, self.public)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count transfers and rounds from the public sizes: they are the same for any data."""
        layout, tables = self.layout, []
        planned = planned_stages(layout, self.workers.chosen)
        pieces = next(stage for stage in planned if stage.kind == PIECE)
        for stage in planned:
            seed = fresh_grant(0) if stage is pieces else None
            tables.append(counted_stage(stage, layout, seed, first_offline=self.public.first_offline))
        d, c, K, bits = self.public.features, self.public.outputs, layout.code.K, layout.word_bits
        owners = np.array([layout.owner(number) for number in range(layout.bands.adders)])
        heights = np.array([sum(map(layout.bands.height, layout.owned_by(int(owner)))) for owner in owners])
        nothing, quorum = np.zeros_like(heights), len(owners)
        first = RoundCosts(owners, nothing, nothing, heights * c * bits, quorum, 0, least=quorum)
        workers = np.array(sorted(self.workers.chosen))
        each, server = np.ones(len(workers), np.int64), K * K * c * layout.width + c * d * d
        costs = (c * d * bits * each, c * d * layout.width * each, c * layout.width * bits * each)
        later = RoundCosts(workers, *costs, K, server, least=K)
        return CountedCosts([[first], *[[later]] * (epochs - 1)], tables, [stage.after for stage in planned])

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
        pooled = ""
        if self.options.masks:
            pooled = f"; if up to {self._pool_words} devices collude with it, the sum over the others"
        return Leakage(
            server="sums over all devices: of right-hand sides, and of products of the models with the data; nothing "
            f"about a single device{pooled}",
            devices=SEALED_DEVICES,
            eavesdropper=SEALED_EAVESDROPPER,
        )
