"""CodedPaddedFL: padded data shared with alpha - 1 neighbours, and a gradient code over them.

(Schlegel, Kumar, Rosnes, Graell i Amat, "CodedPaddedFL and CodedSecAgg: Straggler mitigation and secure aggregation in
federated learning", 2023.)

Set-up: each device j adds a pad to its Gram matrix and right-hand side once, A_j + R_j; only it and the server can
compute the pad. It sends the same padded data to the alpha - 1 devices whose windows contain j, through the server as
published, or over direct links. Device i keeps one matrix, sum_j b_ij (A_j + R_j) over its window
(``codedfl.codes.GradientCode``).

Epoch: each device replies theta^T times its matrix. Any N - alpha + 1 replies give theta^T sum_j (A_j + R_j), and the
server subtracts theta^T sum R. All arithmetic is modulo a prime, of 48 bits as published or another, and
therefore exact. Up to alpha - 1 devices
may be lost after the set-up.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.seals import FIELD_31, FIELD_48, FIELD_61, PadLedger, Ring, packed_size, seal, unpack_upper
from codedfl.codes.gradient_code import GradientCode
from codedfl.errors import CipherError, ScenarioError
from codedfl.network import RoundCosts, TransferCosts, TransferTable
from codedfl.scenario import SchemeOptions
from codedfl.schemes.coded.deferred_replies import DeferringDevice
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.worker_choice import choose_alpha
from codedfl.schemes.contract import CountedCosts, Device, Round, Scheme, Stage, Transfer, check_at_most
from codedfl.schemes.messages import Layout, Message, Work, message_bits
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, check_bounds, choose_formats, ring_setting
from codedfl.schemes.secrecy import (
    COMBINATIONS,
    LEAKS,
    SEALED_PARCELS,
    Cell,
    Leakage,
    Secrecy,
    all_cells,
    clear_views,
    replies,
    sealed_views,
    whole,
)
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, fresh_grant, pad_of
from codedfl.settings import setting
from codedfl.task import Problem, Shard

DATA_BITS: dict[Ring, int] = {FIELD_48: 24}
"""Bits after the binary point, of 48, as published; otherwise as many as fit."""


class CodedPaddedOptions(SchemeOptions):
    """How many devices hold the data of each device (alpha), and how padded data reach them.

    >>> CodedPaddedOptions(alpha=4, sharing="direct").relayed
    False
    """

    alpha: int | None = setting(
        default=None, low=1, help="Number of devices that hold the data of each; chosen by predicted time if unset."
    )
    sharing: str = setting(
        default="relay",
        choices=("relay", "direct"),
        help="How padded data reach other devices: by relay through the server, or over direct links.",
    )
    ring: str = ring_setting((FIELD_31, FIELD_48, FIELD_61), "Prime field")
    expected_epochs: int = setting(
        default=100, low=1, help="Number of epochs that the time of the set-up is weighed against."
    )

    @property
    def relayed(self) -> bool:
        """Whether parcels go through the server."""
        return self.sharing == "relay"

    def check_fleet(self, devices: int) -> None:
        """Refuse a single device, and an alpha above the number of devices."""
        if devices < 2:
            raise ScenarioError("scheme = 'coded-padded' needs at least 2 devices: with one, the sum is its own data")
        check_at_most(devices, "schemes.coded-padded.alpha", self.alpha)


EVERYTHING = 0
"""Block number of a device's only pad, which covers the triangle of its Gram matrix and its right-hand side."""


def split(
    vector: UInt[np.ndarray, "size"], features: int, outputs: int
) -> tuple[UInt[np.ndarray, "triangle"], UInt[np.ndarray, "d c"]]:
    """Split a vector into the upper triangle of the Gram matrix and the right-hand side."""
    size = packed_size(features)
    return vector[:size], vector[size:].reshape(features, outputs)


@final
class CodedPaddedDevice(Device):
    """Owns one shard, and holds one linear combination of the padded data of its window."""

    def __init__(self, index: int, shard: Shard, formats: Formats, code: GradientCode, nonce: bytes) -> None:
        self._index = index
        self._nonce = nonce
        self._missing = {owner for owner, factor in enumerate(code.matrix[index]) if factor}
        """Devices of its window whose padded data it does not hold yet."""
        self._formats = formats
        self._code = code
        self._shape = shard.moments.shape
        self._shard: Shard | None = shard
        self._ledger = PadLedger()
        self._parcel: Message = {}
        self._unsent = code.alpha - 1
        self._field = formats.field
        self._coded = np.zeros(packed_size(self._shape[0]) + shard.moments.size, self._field.dtype)
        self._held: UInt[np.ndarray, "d d"] | None = None

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the coded right-hand side in the first epoch, the coded product in every other."""
        if self._shard is not None and self._code.alpha == 1:  # data that are not sent need no pad
            self._add(self._index, self._encoded(self._shard), work)
            self._shard = None
        if self._missing:
            raise CipherError(
                f"Device {self._index} lacks the padded data of device {min(self._missing)}, without which its reply "
                "would be about fewer devices than agreed: finish the set-up first."
            )
        triangle, moments = split(self._coded, *self._shape)
        if "model" not in request:
            return {"moments": self._field.to_wire(moments)}
        if self._held is None:
            self._held = unpack_upper(triangle)
        model = self._field.read(request, "model", self._shape[::-1], f"The model for device {self._index}")
        work.macs += model.size * self._held.shape[1]
        return {"product": self._field.wire_product(model, self._held)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the padded data, the same for every recipient; the first grant contains the seed of the pad."""
        if "seed" in grant:
            self._pad(grant, work)
        if self._shard is not None or not self._unsent:
            reason = "has padded no data" if self._unsent else "has sent its data to all that hold them"
            raise CipherError(f"Device {self._index} {reason}: it sends nothing.")
        parcel = self._parcel
        self._unsent -= 1
        if not self._unsent:
            self._parcel = {}  # frees the memory
        return parcel

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Add a multiple of the sender's padded data to the combination."""
        self._add(sender, self._field.read(parcel, "words", self._coded.shape, f"A parcel of device {sender}"), work)

    def _pad(self, grant: Message, work: Work) -> None:
        if self._shard is None:
            raise CipherError(f"Device {self._index} has padded its data before: a second pad would reveal both.")
        pad, padded = pad_of(self._field, self._index, grant, EVERYTHING, self._nonce), self._encoded(self._shard)
        seal(padded, pad, self._ledger)
        self._shard = None
        work.add(padded.size)
        self._add(self._index, padded, work)
        self._parcel = {"owner": np.array(self._index, np.int32), "words": self._field.to_wire(padded)}

    def _encoded(self, shard: Shard) -> UInt[np.ndarray, "size"]:
        moments = self._formats.moments.encode(-shard.moments).reshape(-1)
        return np.concatenate([self._formats.gram.encode_symmetric(shard.gram), moments])

    def _add(self, owner: int, part: UInt[np.ndarray, "size"], work: Work) -> None:
        if owner not in self._missing:
            raise CipherError(f"The data of device {owner} are none that device {self._index} combines now: send none.")
        self._missing.remove(owner)
        work.add(part.size)
        self._field.add_multiple(self._coded, self._code.matrix[self._index][owner], part)


@final
class CodedPaddedServer(PaddedServer):
    """Grants seeds, decodes any N - alpha + 1 replies, and subtracts the pads."""

    def __init__(self, public: Public, formats: Formats, code: GradientCode, *, relayed: bool) -> None:
        super().__init__(public, formats, range(public.devices), code, public.features)
        self._moments_layout: Layout = {"moments": self._field.wire_layout(public.features, public.outputs)}
        self._distances = range(1, code.alpha)
        self._relayed = relayed

    def set_up(self) -> Sequence[Stage]:
        """Let every device send its padded data to the alpha - 1 devices before it, the nearest first."""
        n = self._public.devices
        if not self._distances:
            return []
        grants: list[dict[str, Any]] = [fresh_grant(0) for _ in range(n)]
        self.add_pads(grants)
        transfers = []
        for distance in self._distances:
            for sender in range(n):
                grant, grants[sender] = grants[sender], {}
                transfers.append(Transfer(sender, (sender - distance) % n, grant, relayed=self._relayed))
        return [Stage(transfers)]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up the pads of all devices."""
        d, c = self._public.features, self._public.outputs
        total = np.zeros(packed_size(d) + d * c, self._field.dtype)
        for device, grant in enumerate(grants):
            pad_of(self._field, device, grant, EVERYTHING, self._public.nonce(device)).add_to(total)
        triangle, moments = split(total, d, c)
        self._pads, self._moment_pads = unpack_upper(triangle), moments.copy()

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Request right-hand sides first, then products; any N - alpha + 1 replies suffice."""
        message: Message = {}
        reply, point, K = self._moments_layout, np.zeros_like(model), self._needed
        if epoch > 1:
            message = {"model": self._field.to_wire(self._products.ask(model))}
            reply, point = self._product_layout, self._products.point
        return Round.same(epoch, self._workers, message, reply, point=point, quorum=K, needed=K)

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> None:
        """Remove lost devices from later rounds; no repair is needed, because the others hold enough."""
        self._workers = [device for device in self._workers if device not in lost]

    def summed_moments(self, replies: Mapping[int, Message], work: Work) -> UInt[np.ndarray, "d c"]:
        """Decode any N - alpha + 1 replies."""
        return np.asarray(self.decoded("moments", replies, work)[0])


@final
class CodedPadded(Scheme[CodedPaddedOptions]):
    """Padded data shared with neighbours under a gradient code; any N - alpha + 1 replies finish an epoch."""

    name = "coded-padded"
    options_type = CodedPaddedOptions
    exact = True
    verdict = COMBINATIONS
    verdict_reason = (
        "What devices send each other looks uniform as long as AES-256 in counter mode is a pseudo-random function; "
        "the server knows the pads, so what it relays must be encrypted end to end, it must not collude with a device, "
        "and replies reveal to it N - alpha + 1 combinations of the gradients of N devices."
    )
    allowed_if = (
        "the server may learn N - alpha + 1 combinations of the data of N devices, for small alpha almost each of "
        "them, and colludes with no device"
    )

    def secrecy(self) -> tuple[Secrecy, ...]:
        """The server reads combinations; with a device that holds padded data of others, the data themselves."""
        if self.code.alpha == 1:
            return all_cells(clear_views(self.public.devices, "with alpha = 1 it reads the gradient of every device"))
        combined = f"it reads {self.code.K} combinations of the products of {self.public.devices} devices"
        server = replies(combined)._replace(gradient=Cell(LEAKS, f"{combined}: an estimate of each product"))
        pooled = f"a device holds the padded data of {self.code.alpha - 1} others, whose pads the server knows"
        views = sealed_views(self.public.devices, SEALED_PARCELS)
        views |= {"server": server, "deviating server": server, "server and devices": whole(pooled)}
        return all_cells(views)

    def check(self) -> None:
        """Refuse a single device, an alpha above the number of devices, and data that the field cannot hold."""
        self.options.check_fleet(self.public.devices)
        _ = self.formats

    @property
    def chosen_by_delays(self) -> Hashable:
        """How many devices hold the data of each."""
        return self.code.alpha

    @cached_property
    def formats(self) -> Formats:
        """The number formats, computed from public facts."""
        return choose_formats(self.public, self.options.ring, (FIELD_48, FIELD_61), data_bits=DATA_BITS)

    @property
    def rounding(self) -> Rounding:
        """Devices round their data to steps of the format."""
        return self.formats.rounding(self.public)

    @cached_property
    def code(self) -> GradientCode:
        """The gradient code: which device holds whose data, with which coefficients."""
        ring, relayed = self.formats.ring, self.options.relayed
        alpha = self.options.alpha or choose_alpha(
            self.public, ring.wire_bits, relayed=relayed, expected_epochs=self.options.expected_epochs
        )
        return GradientCode(self.public.devices, alpha, ring.modulus)

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layout of another device's padded data."""
        size = packed_size(self.public.features) + self.public.features * self.public.outputs
        return ({"owner": (np.dtype(np.int32), ()), "words": self.formats.ring.wire_layout(size)},)

    @property
    def memory(self) -> int:
        """Of each device: its coded triangle, and the matrix that it multiplies or the parcel that it sends."""
        return 12 * self.public.features**2 * self.public.devices

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it pads its data when it receives a seed."""
        check_bounds(self.public, shard)
        return CodedPaddedDevice(index, shard, self.formats, self.code, self.public.nonce(index))

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices that compute products when they are read."""
        d, c = self.public.features, self.public.outputs
        promised = {"product": self.formats.ring.wire_layout(c, d)}
        return [DeferringDevice(device, promised, c * d * d) for device in super().simulated(problem, epochs)]

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count transfers and rounds from the public sizes: they are the same for any data."""
        d, c, n, bits = self.public.features, self.public.outputs, self.public.devices, self.formats.ring.wire_bits
        size, K, alpha = packed_size(d) + d * c, self.code.K, self.code.alpha
        stages, own = [], size  # with alpha = 1 a device adds up its data when it is first asked
        if alpha > 1:
            first, later = (message_bits(fresh_grant(0)), 2 * size), (0, 0)  # its own data are padded and added once
            parcel, relayed = 32 + size * bits, self.options.relayed
            transfers = (
                TransferCosts(
                    sender, (sender - distance) % n, *(later if distance > 1 else first), parcel, size, relayed
                )
                for distance in range(1, alpha)
                for sender in range(n)
            )
            stages, own = [TransferTable.of(transfers)], 0
        everyone, each = np.arange(n), np.ones(n, np.int64)
        opening = RoundCosts(everyone, 0 * each, own * each, d * c * bits * each, K, K * d * c, least=K)
        macs, pads = d * d * c, d * d * c if alpha > 1 else 0
        words = d * c * bits * each
        other = RoundCosts(everyone, words, macs * each, words, K, K * d * c + pads, least=K)
        return CountedCosts([[opening], *[[other]] * (epochs - 1)], stages)

    def server(self) -> CodedPaddedServer:
        """Prepare the server."""
        return CodedPaddedServer(self.public, self.formats, self.code, relayed=self.options.relayed)

    @property
    def repeats_epochs(self) -> bool:
        """True: replies are products with sums over all devices."""
        return True

    @property
    def survives_losses(self) -> int:
        """alpha - 1 devices, after the set-up."""
        return self.code.alpha - 1

    def leakage(self) -> Leakage:
        """Return what each party sees."""
        replies = (
            "the sum of all right-hand sides; from the replies, which it can open because it knows the pads, products "
            "of the models with N - alpha + 1 known combinations of the data of N devices, none of a single device"
        )
        relay = "; the data themselves, unless the parcels that it relays are encrypted end to end"
        if self.code.alpha == 1:
            return Leakage(
                server="the right-hand side and the gradients of every device",
                devices="from the models: sums over all devices, and so the gradients of one device if all others "
                "collude",
                eavesdropper="nothing between devices; on links to the server everything, unless they are encrypted",
            )
        return Leakage(replies + (relay if self.options.relayed else ""), SEALED_DEVICES, SEALED_EAVESDROPPER)
