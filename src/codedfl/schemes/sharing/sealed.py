"""Sealed sharing: the paper's policy with a secure cipher (one-time pads from AES-256 in counter mode).

Device v holds D_v = A_v + all it received, as residues, and replies theta^T D_v in the ring. A device that hands over
adds a pad that only it and the server can compute, so the recipient holds residues that look uniform. Pads remain in
the sum, so the server subtracts theta^T (sum of all pads) from the sum of the replies. Every export uses a new seed,
also when a device forwards, so any number of devices may hand over.

Before the first epoch all other devices send their sealed right-hand sides B_i to the first device, which adds them up.
The server learns the sum and nothing about a single device.
"""

from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import (
    Z_32,
    Z_64,
    Domain,
    Pad,
    PadLedger,
    Ring,
    Seed,
    pack_upper,
    packed_size,
    seal,
    unpack_upper,
)
from codedfl.errors import CipherError
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
_SESSION_PADS = b"codedfl session pads 1 "
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


def pad_of(ring: Ring, device: int, grant: Message, block: int, nonce: bytes = b"") -> Pad:
    """Return the pad that a grant's seed and the device's nonce of the session determine.

    With the nonce, a server that grants one seed in two sessions gets two pads; virtual time has one session only.
    """
    if missing := [name for name in ("seed", "export") if name not in grant]:
        raise CipherError(f"A grant without {missing[0]} seals nothing: device {device} sends no data in clear.")
    seed = Seed(grant["seed"].tobytes())
    if nonce:
        seed = Seed(seed.derive(_SESSION_PADS + nonce))
    return Pad(ring, seed, Domain(device, int(grant["export"]), block))


@final
class SealedDevice(Device):
    """Holds its own residues plus what it received, and multiplies them by the model; it sends nothing unsealed."""

    def __init__(self, index: int, shard: Shard, formats: Formats, public: Public) -> None:
        self._index = index
        self._ring = formats.gram.ring
        self._nonce = public.nonce(index)
        self._ledger = PadLedger()
        self._moments = formats.moments.encode(-shard.moments)
        self._held: UInt[np.ndarray, "d d"] | None = unpack_upper(formats.gram.encode_symmetric(shard.gram))
        self._owners = {MOMENTS: frozenset({index}), GRAM: frozenset({index})}

    @property
    def held(self) -> UInt[np.ndarray, "d d"]:
        """D_v, until the device retires."""
        if self._held is None:
            raise CipherError(f"Device {self._index} has handed over its data and retired: ask the device it went to.")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the summed right-hand side in the first epoch, theta^T D_v in every other."""
        if epoch == 1:
            count_first_gradient(request, work)
            return {"moments": self._moments}
        held, shape = self.held, self._moments.shape[::-1]
        model = self._ring.read(request, "model", shape, f"The model for device {self._index}")
        work.macs += model.size * held.shape[1]
        return {"product": self._ring.product(model, held)}

    def owners(self, grant: Message) -> Set[int]:
        """Return whose right-hand sides, or whose Gram matrices, are in the parcel of a grant."""
        return self._owners[_kind(grant)]

    def covers(self, epoch: int) -> Set[int]:
        """Return whose right-hand sides are in the reply of the first epoch, and whose Gram matrices in the others."""
        return self._owners[MOMENTS if epoch == 1 else GRAM]

    def export(self, grant: Message, work: Work) -> Message:
        """Return the right-hand side, or everything held, under the granted pad."""
        kind = _kind(grant)
        pad = pad_of(self._ring, self._index, grant, kind, self._nonce)
        if kind == MOMENTS:
            parcel = {"moments": seal(self._moments, pad, self._ledger)}
            self._moments = np.zeros_like(self._moments)
        else:
            parcel = {"gram": seal(pack_upper(self.held), pad, self._ledger)}
            self._held = None
        self._owners[kind] = frozenset()
        work.add(sum(array.size for array in parcel.values()))
        return parcel

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Add another device's residues to its own."""
        kind, who = _kind(parcel), f"A parcel of device {sender}"
        if twice := self._owners[kind] & owners:
            raise CipherError(f"{who} is refused: device {self._index} holds data of device {min(twice)} already.")
        if kind == MOMENTS:
            received = self._ring.read(parcel, "moments", self._moments.shape, who)
            self._moments = self._ring.add(self._moments, received)
        else:
            received = self._ring.read(parcel, "gram", (packed_size(len(self.held)),), who)
            self._held = self._ring.add(self.held, unpack_upper(received))
        work.add(received.size)
        self._owners[kind] |= owners


def _kind(message: Message) -> int:
    return MOMENTS if "moments" in message else GRAM


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
            pad_of(self._ring, sender, grant, MOMENTS, self._public.nonce(sender)).add_to(self._moment_pads.reshape(-1))
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
        pad = pad_of(self._ring, sender, grant, GRAM, self._public.nonce(sender))
        packed = unpack_upper(pad.residues(d * (d + 1) // 2))
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

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layouts of sealed right-hand sides and of the upper triangles of Gram matrices."""
        ring, d, c = self.formats.ring, self.public.features, self.public.outputs
        return {"moments": ring.wire_layout(d, c)}, {"gram": ring.wire_layout(packed_size(d))}

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and right-hand side."""
        check_bounds(self.public, shard)
        return SealedDevice(index, shard, self.formats, self.public)

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
