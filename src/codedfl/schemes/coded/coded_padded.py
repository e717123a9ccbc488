"""CodedPaddedFL: padded data shared with alpha - 1 neighbours, and a gradient code over them.

(Schlegel, Kumar, Rosnes, Graell i Amat, "CodedPaddedFL and CodedSecAgg: Straggler mitigation and secure aggregation in
federated learning", 2023.) Set-up, before the first epoch: every device j pads its Gram matrix and moments once,
A_j + R_j, with a pad that only it and the server can make, and sends the same padded data to the alpha - 1 devices
whose windows contain it, through the server as published or over direct links. Device i keeps one matrix,
sum_j b_ij (A_j + R_j) over its window (``codedfl.codes.GradientCode``).

An epoch: each device replies theta^T times its matrix. Any N - alpha + 1 replies give theta^T sum_j (A_j + R_j), and
the server takes theta^T sum R away. Everything is computed modulo a prime of 48 bits, so that it is exact. Up to
alpha - 1 devices may be lost for good after the set-up.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt64

from codedfl.cipher.seals import FIELD_48, packed_size, unpack_upper
from codedfl.codes.gradient_code import GradientCode
from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.coded.coded_padded_device import EVERYTHING, CodedPaddedDevice, split
from codedfl.schemes.coded.server import PaddedServer
from codedfl.schemes.coded.window_choice import choose_alpha
from codedfl.schemes.contract import Device, Leakage, Public, Round, Scheme, Stage, Transfer
from codedfl.schemes.messages import Message, Work, layout
from codedfl.schemes.sealing import Formats, check_bounds
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, fresh_grant, pad_of
from codedfl.settings import setting
from codedfl.task import Shard

DATA_BITS = 24
"""Bits behind the point that are published: 24 of 48."""


class CodedPaddedOptions(SchemeOptions):
    """Alpha, how many devices hold the data of each; chosen by predicted time where it is not given.

    ``sharing`` says how padded data get there: by ``relay`` through the server or over ``direct`` links;
    ``expected_epochs`` is what the set-up is weighed against.
    """

    alpha: int | None = setting(
        default=None, low=1, help="Number of devices that hold the data of each; chosen by predicted time if unset."
    )
    sharing: str = setting(
        default="relay",
        choices=("relay", "direct"),
        help="How padded data reach other devices: by relay through the server, or over direct links.",
    )
    expected_epochs: int = setting(
        default=100, low=1, help="Number of epochs that the time of the set-up is weighed against."
    )

    @property
    def relayed(self) -> bool:
        """Whether parcels go through the server."""
        return self.sharing == "relay"

    def check_fleet(self, devices: int) -> None:
        """Nobody can hold the data of more devices than there are."""
        if devices < 2:
            raise ScenarioError("scheme = 'coded-padded' needs at least 2 devices: with one, the sum is its own data")
        if self.alpha is not None and self.alpha > devices:
            raise ScenarioError(
                f"schemes.coded-padded.alpha = {self.alpha} must be at most {devices}, the number of devices"
            )


@final
class CodedPaddedServer(PaddedServer):
    """Hands out seeds, decodes any N - alpha + 1 replies, and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, code: GradientCode, *, relayed: bool) -> None:
        super().__init__(public, formats, range(public.devices))
        self._code = code
        self._relayed = relayed

    def set_up(self) -> Sequence[Stage]:
        """Let everyone send its padded data to the devices before it, one turn after the other."""
        n, turns = self._public.devices, range(1, self._code.alpha)
        if not turns:
            return []
        grants: list[dict[str, Any]] = [fresh_grant(0) for _ in range(n)]
        self.add_pads(grants)
        transfers = []
        for turn in turns:
            for sender in range(n):
                grant, grants[sender] = grants[sender], {}
                transfers.append(Transfer(sender, (sender - turn) % n, grant, relayed=self._relayed))
        return [Stage(transfers)]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up the pads of all devices."""
        d, c = self._public.features, self._public.outputs
        total = np.zeros(packed_size(d) + d * c, FIELD_48.dtype)
        for device, grant in enumerate(grants):
            pad_of(FIELD_48, device, grant, EVERYTHING).add_to(total)
        triangle, moments = split(total, d, c)
        self._pads, self._moment_pads = unpack_upper(triangle), moments.copy()

    def ask(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask everyone who is there, for moments first, then for products; any N - alpha + 1 replies suffice."""
        message: Message = {}
        point = np.zeros_like(model)
        reply = {"moments": FIELD_48.to_wire(np.zeros(model.shape, FIELD_48.dtype))}
        if epoch > 1:
            message = {"model": FIELD_48.to_wire(self._products.ask(model))}
            reply, point = {"product": message["model"]}, self._products.point
        return Round.same(epoch, self._workers, message, layout(reply), point=point, quorum=self._code.threshold)

    def after_epoch(self, epoch: int, reply_seconds: Mapping[int, float], lost: Sequence[int]) -> None:
        """Ask the lost no more; nothing is sent again, because the others hold enough."""
        self._workers = [device for device in self._workers if device not in lost]

    def replacements(self) -> Sequence[Stage]:
        """Nobody is replaced."""
        return ()

    def decoded_moments(self, replies: Mapping[int, Message], work: Work) -> UInt64[np.ndarray, "d c"]:
        """Decode any N - alpha + 1 replies."""
        return self._combined(replies, "moments", work)

    def decoded(self, replies: Mapping[int, Message], work: Work) -> UInt64[np.ndarray, "c d"]:
        """Decode any N - alpha + 1 replies."""
        return self._combined(replies, "product", work)

    def _combined(self, replies: Mapping[int, Message], name: str, work: Work) -> UInt64[np.ndarray, "..."]:
        which = sorted(replies)[: self._code.threshold]
        total = np.zeros(replies[which[0]][name].shape[:-1], FIELD_48.dtype)
        for device, factor in zip(which, self._code.decoder(which), strict=True):
            work.add(total.size)
            FIELD_48.add_multiple(total, factor, FIELD_48.from_wire(replies[device][name]))
        return total


@final
class CodedPadded(Scheme[CodedPaddedOptions]):
    """Padded data shared with neighbours under a gradient code; any N - alpha + 1 replies finish an epoch."""

    name = "coded-padded"
    options_type = CodedPaddedOptions
    exact = True
    verdict = "holds"
    verdict_reason = (
        "What devices send each other looks uniform as long as AES-256 in counter mode is a pseudo-random function; "
        "the server knows the pads, so what it relays must be encrypted end to end, it must not collude with a device, "
        "and replies tell it N - alpha + 1 combinations of the gradients of N devices."
    )

    def check(self) -> None:
        """Refuse a fleet of one, more parts than devices, and data that the field cannot hold."""
        self.options.check_fleet(self.public.devices)
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        return Formats.choose(FIELD_48, self.public, data_bits=DATA_BITS)

    @cached_property
    def code(self) -> GradientCode:
        """Who holds whose data, with what coefficients."""
        alpha = self.options.alpha or choose_alpha(
            self.public, FIELD_48.bits, relayed=self.options.relayed, expected_epochs=self.options.expected_epochs
        )
        return GradientCode(self.public.devices, alpha, FIELD_48.modulus)

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it pads its data when it is granted a seed."""
        check_bounds(self.public, shard)
        return CodedPaddedDevice(index, shard, self.formats, self.code)

    def server(self) -> CodedPaddedServer:
        """Prepare the server."""
        return CodedPaddedServer(self.public, self.formats, self.code, relayed=self.options.relayed)

    @property
    def survives_losses(self) -> int:
        """All but as many as decode, after the set-up."""
        return self.code.alpha - 1

    def leakage(self) -> Leakage:
        """Say who sees what."""
        replies = (
            "the sum of all moments; from all replies, which it can open because it knows the pads, the products of "
            "the models with N - alpha + 1 known combinations of the data of N devices, none of a single one"
        )
        relay = "; the data themselves, if it can read the parcels that it relays: they must be encrypted end to end"
        if self.code.alpha == 1:
            return Leakage(
                server="the moments and the gradient of every single device",
                devices="nothing is sent to them but models, which tell sums over all devices, and so the gradients of "
                "a single device if all others collude",
                eavesdropper="nothing between devices; on links to the server everything, unless they are encrypted",
            )
        return Leakage(replies + (relay if self.options.relayed else ""), SEALED_DEVICES, SEALED_EAVESDROPPER)
