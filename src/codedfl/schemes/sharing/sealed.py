"""Sealed sharing: the paper's policy with a secure cipher (one-time pads from AES-256 in counter mode).

Device v holds D_v = A_v + all it received, as residues, and replies theta^T D_v in the ring. A device that hands over
adds a pad that only it and the server can compute, so the recipient holds residues that look uniform. Pads remain in
the sum, so the server subtracts theta^T (sum of all pads) from the sum of the replies. Every export uses a new seed,
also when a device forwards, so any number of devices may hand over.

Before the first epoch all other devices send their sealed right-hand sides B_i to the first device, which adds them up.
The server learns the sum and nothing about a single device.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import Z_32, Z_64, Domain, Pad, PadLedger, Ring, Seed, pack_upper, seal, unpack_upper
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, ReplySum, Round, Stage, Transfer
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds, choose_formats, ring_setting, summed
from codedfl.schemes.secrecy import REPLIES, REPLIES_ALLOWED, SEALED_PARCELS, Leakage, Secrecy, all_cells, sharing_views
from codedfl.schemes.sharing.server import (
    Codec,
    SharingScheme,
    count_first_gradient,
    delta_setting,
    detect_from_setting,
    parallel_setting,
)
from codedfl.task import Shard

SEALED_REASON = (
    "What devices send each other looks uniform as long as AES-256 in counter mode is a pseudo-random function; the "
    "server must not collude with a device, and links to it must be encrypted."
)
SEALED_DEVICES = (
    "nothing from parcels, which are sealed; from the models: sums over all devices, and so the gradients of one "
    "device if all others collude"
)
SEALED_EAVESDROPPER = (
    "nothing on links between devices; on links to the server everything, because seeds are sent there, unless the "
    "transport is encrypted"
)
MOMENTS, GRAM = 0, 1
"""What a pad hides (right-hand side or Gram matrix), as the block number of its domain."""


SEALED_RINGS = (Z_32, Z_64)


class SealedOptions(SchemeOptions):
    """The ring of the residues, and Delta of the sharing policy in seconds.

    >>> SealedOptions(ring="Z_2^64").delta
    1.0
    """

    ring: str = ring_setting(SEALED_RINGS)
    delta: float = delta_setting(1.0)
    detect_from: int = detect_from_setting()
    parallel_reception: bool = parallel_setting()


def fresh_grant(export: int) -> dict[str, Any]:
    """Return what a device needs to seal a parcel: a new seed, sent over a secure channel, and a number."""
    return {"seed": np.frombuffer(fresh_seed(None), np.uint8), "export": np.array(export, np.int64)}


def pad_of(ring: Ring, device: int, grant: Message, block: int) -> Pad:
    """Return the pad that a grant's seed determines for a device."""
    return Pad(ring, Seed(grant["seed"].tobytes()), Domain(device, int(grant["export"]), block))


@final
class SealedDevice(Device):
    """Holds its own residues plus what it received, and multiplies them by the model."""

    def __init__(self, index: int, shard: Shard, formats: Formats) -> None:
        self._index = index
        self._ring = formats.gram.ring
        self._ledger = PadLedger()
        self._moments = formats.moments.encode(-shard.moments)
        self._held: UInt[np.ndarray, "d d"] | None = unpack_upper(formats.gram.encode_symmetric(shard.gram))

    @property
    def held(self) -> UInt[np.ndarray, "d d"]:
        """D_v, until the device retires."""
        if self._held is None:
            raise RuntimeError(f"device {self._index} has handed over its data and retired")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the summed right-hand side in the first epoch, theta^T D_v in every other."""
        if epoch == 1:
            count_first_gradient(request, work)
            return {"moments": self._moments}
        model, held = request["model"], self.held
        work.macs += model.size * held.shape[1]
        return {"product": self._ring.product(model, held)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the right-hand side, or everything held, under the granted pad."""
        if "moments" in grant:
            pad = pad_of(self._ring, self._index, grant, MOMENTS)
            work.add(self._moments.size)
            moments, self._moments = self._moments, np.zeros_like(self._moments)
            return {"moments": seal(moments, pad, self._ledger)}
        packed, self._held = pack_upper(self.held), None
        work.add(packed.size)
        return {"gram": seal(packed, pad_of(self._ring, self._index, grant, GRAM), self._ledger)}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add another device's residues to its own."""
        if "moments" in parcel:
            work.add(parcel["moments"].size)
            self._moments = self._ring.add(self._moments, parcel["moments"])
            return
        work.add(parcel["gram"].size)
        self._held = self._ring.add(self.held, unpack_upper(parcel["gram"]))


@final
class SealedCodec(Codec):
    """Grants seeds, adds up residues and subtracts the pads."""

    def __init__(self, public: Public, formats: Formats) -> None:
        self._public = public
        self._formats = formats
        self._ring = formats.gram.ring
        self.products = self._products = PointedProducts(formats.gram, public)
        self._exports = 0
        self._pads: UInt[np.ndarray, "d d"] | None = None
        self._moment_pads = np.zeros((public.features, public.outputs), self._ring.dtype)

    def set_up(self) -> Sequence[Stage]:
        """Let all other devices send sealed right-hand sides to the first device."""
        transfers = []
        for sender in range(1, self._public.devices):
            grant = self._fresh_grant() | {"moments": np.array(1, np.int8)}
            pad_of(self._ring, sender, grant, MOMENTS).add_to(self._moment_pads.reshape(-1))
            transfers.append(Transfer(sender, 0, grant))
        return [Stage(transfers)]

    def first_round(self, model: Float[np.ndarray, "d c"], active: Sequence[int], *, everyone: bool) -> Round:
        """Ask the first device for the summed right-hand side; the others, who gave theirs away, reply zeros."""
        expected = {"moments": (self._ring.dtype, model.shape)}
        asked, request = (active, {"model": np.zeros(model.shape, self._ring.dtype)}) if everyone else ((0,), {})
        return Round.same(1, asked, request, expected, point=np.zeros_like(model))

    def decode_first(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Take the pads away, and decode."""
        total = summed(self._ring, [reply["moments"] for reply in replies.values()])
        return self._formats.moments.decode_sum(self._ring.subtract(total, self._moment_pads))

    def encode(self, model: Float[np.ndarray, "d c"]) -> tuple[Message, Layout, Float[np.ndarray, "d c"]]:
        """Return the model as residues, and the point that they represent."""
        reply = {"product": (self._ring.dtype, model.shape[::-1])}
        return {"model": self._products.ask(model)}, reply, self._products.point

    def decode(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add up the replies in the ring, subtract the pads, and decode."""
        total, asked = summed(self._ring, [reply["product"] for reply in replies.values()]), self._products.asked
        if self._pads is not None:
            work.macs += asked.size * self._pads.shape[1]
            total = self._ring.subtract(total, self._ring.product(asked, self._pads))
        return self._products.take(total)

    def grant(self, sender: int, supports: Sequence[int]) -> Message:
        """Grant a fresh seed, and add its pad to those in the sum."""
        grant, d = self._fresh_grant(), self._public.features
        packed = unpack_upper(pad_of(self._ring, sender, grant, GRAM).residues(d * (d + 1) // 2))
        self._pads = packed if self._pads is None else self._ring.add(self._pads, packed, out=self._pads)
        return grant

    def _fresh_grant(self) -> dict[str, Any]:
        self._exports += 1
        return fresh_grant(self._exports)


@final
class Sealed(SharingScheme[SealedOptions]):
    """The paper's sharing policy without a limit on hand-overs: a new one-time pad for every export."""

    name = "sealed"
    options_type = SealedOptions
    exact = True
    verdict = REPLIES
    verdict_reason = SEALED_REASON
    allowed_if = REPLIES_ALLOWED

    def secrecy(self) -> tuple[Secrecy, ...]:
        """Parcels are sealed; the server reads the replies of single devices, and opens any parcel it is given."""
        return all_cells(sharing_views(self.public.devices, SEALED_PARCELS))

    def check(self) -> None:
        """Refuse a ring that is too small for the data."""
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, computed from public facts."""
        return choose_formats(self.public, self.options.ring, SEALED_RINGS)

    @property
    def rounding(self) -> Rounding:
        """Devices round their data to steps of the format."""
        return self.formats.rounding(self.public)

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and right-hand side."""
        check_bounds(self.public, shard)
        return SealedDevice(index, shard, self.formats)

    def codec(self) -> Codec:
        """Prepare the codec that grants seeds and subtracts pads."""
        return SealedCodec(self.public, self.formats)

    @property
    def reply_sum(self) -> ReplySum:
        """The ring of the replies, which are residues."""
        return lambda epoch, request: self.formats.gram.ring

    def leakage(self) -> Leakage:
        """Return what each party sees."""
        return Leakage(
            server="the sum of all right-hand sides; the product of the model with the data that each active device "
            "holds: its own data until it receives a parcel, then sums",
            devices=SEALED_DEVICES,
            eavesdropper=SEALED_EAVESDROPPER,
        )
