"""Sealed sharing: the paper's policy with a cipher that holds (one-time pads from AES-256 in counter mode).

Every device holds D_v = A_v + all it received, as residues, and replies theta^T D_v in the ring. A device that hands
over adds a pad that only it and the server can make: the recipient holds residues that look uniform. Pads stay in the
sum, so the server takes theta^T (sum of all pads) away from the sum of the replies. Every export takes a fresh seed,
forwarding too, so there is no limit to how many devices may hand over.

Before the first epoch all devices seal their moments B_i to one of them, which adds them up: the server learns their
sum and nothing of a single one.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import RINGS, Domain, Pad, PadLedger, Ring, Seed, pack_upper, seal, unpack_upper
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import (
    AddingScheme,
    Device,
    Exposure,
    Leakage,
    Message,
    PlacingServer,
    Public,
    Round,
    Server,
    SharingDevice,
    SharingScheme,
    SharingServer,
    Transcript,
    Transfer,
    Work,
)
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds, product, summed
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.security.views.kinds import ForwardView, RepliesView
from codedfl.security.views.sealed import as_seen, from_models, sealed_exposures, sealed_pair
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = [
    "SEALED_DEVICES",
    "SEALED_EAVESDROPPER",
    "SEALED_REASON",
    "Sealed",
    "fresh_grant",
    "pad_of",
]

SEALED_REASON = (
    "What devices send each other looks uniform as long as AES-256 in counter mode is a pseudo-random function; the "
    "server must not collude with a device, and links to it must be encrypted."
)
SEALED_DEVICES = (
    "parcels: nothing, they are sealed; from the models they are sent: sums over all devices, and so the gradients of "
    "a single device if all others collude"
)
SEALED_EAVESDROPPER = (
    "nothing on links between devices; on links to the server the seeds, and with them everything, unless the "
    "transport is encrypted"
)
MOMENTS, GRAM = 0, 1
"""What a pad hides, as the block number of its domain."""


class SealedOptions(SchemeOptions):
    """The ring that is computed in, and Delta of the sharing policy in seconds."""

    ring: str = setting(default="Z_2^32", choices=("Z_2^32", "Z_2^64"), help="Ring of the sealed residues.")
    delta: float = setting(
        default=1.0,
        low=0,
        help="A device that replies so many seconds after the fastest is a straggler and hands over its data.",
    )
    parallel_reception: bool = setting(
        default=False, help="Whether a device receives several parcels at the same time; one after the other if not."
    )


def fresh_grant(export: int) -> dict[str, Any]:
    """Return what a device needs to seal: a seed of its own, over a secure channel, and the number of the export."""
    return {"seed": np.frombuffer(fresh_seed(None), np.uint8), "export": np.array(export, np.int64)}


def pad_of(ring: Ring, device: int, grant: Message, block: int) -> Pad:
    """Return the pad that a grant gives a device."""
    return Pad(ring, Seed(grant["seed"].tobytes()), Domain(device, int(grant["export"]), block))


@final
class SealedDevice(SharingDevice):
    """Holds residues, its own and what it received, and multiplies them by the model."""

    def __init__(self, index: int, shard: Shard, formats: Formats) -> None:
        self._index = index
        self._ring = formats.gram.ring
        self._ledger = PadLedger()
        self._moments = formats.moments.encode(-shard.moments)
        self._held: UInt[np.ndarray, "d d"] | None = unpack_upper(formats.gram.encode_symmetric(shard.gram))

    @property
    def held(self) -> UInt[np.ndarray, "d d"]:
        """D_v, while the device takes part."""
        if self._held is None:
            raise RuntimeError(f"device {self._index} has handed over its data and left")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the summed moments, every other with theta^T D_v."""
        if epoch == 1:
            return {"moments": self._moments}
        return {"product": product(self._ring, request["model"], self.held, work)}

    def export(self, grant: Message, work: Work) -> Message:
        """Seal the moments, or everything held, under the granted pad."""
        if "moments" in grant:
            pad = pad_of(self._ring, self._index, grant, MOMENTS)
            work.add(self._moments.size)
            return {"moments": seal(self._moments.copy(), pad, self._ledger)}
        packed, self._held = pack_upper(self.held), None
        work.add(packed.size)
        return {"gram": seal(packed, pad_of(self._ring, self._index, grant, GRAM), self._ledger)}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add another device's residues to the own ones."""
        if "moments" in parcel:
            work.add(parcel["moments"].size)
            self._moments = self._ring.add(self._moments, parcel["moments"])
            return
        work.add(parcel["gram"].size)
        self._held = self._ring.add(self.held, unpack_upper(parcel["gram"]))


@final
class SealedServer(SharingServer, PlacingServer):
    """Hands out seeds, decides who shares, adds the replies up and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, policy: SharingPolicy) -> None:
        self._public = public
        self._formats = formats
        self._ring = formats.gram.ring
        self._policy = policy
        self._products = PointedProducts(formats.gram, public)
        self._exports = 0
        self._quorum = 1
        self._pads: UInt[np.ndarray, "d d"] | None = None
        self._moment_pads = np.zeros((public.features, public.outputs), self._ring.dtype)
        self._first = np.zeros((public.features, public.outputs))

    def stages(self) -> Sequence[Sequence[Transfer]]:
        """Let everyone seal its moments to the first device."""
        transfers = []
        for sender in range(1, self._public.devices):
            grant = self._grant() | {"moments": np.array(1, np.int8)}
            pad_of(self._ring, sender, grant, MOMENTS).add_to(self._moment_pads.reshape(-1))
            transfers.append(Transfer(sender, 0, None, grant))
        return [transfers]

    def repair(self, lost: Sequence[int]) -> Sequence[Transfer]:
        """Nothing can be done: what an active device holds is nowhere else."""
        return ()

    def recall(self, memory: Message) -> Sequence[Sequence[Transfer]]:
        """Nothing was sent beside the set-up and the hand-overs, which ``resume`` takes over."""
        return ()

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask the first device for the moments, then every active device for its product."""
        if epoch == 1:
            self._quorum = 1
            expected = {"moments": (self._ring.dtype, model.shape)}
            return Round(epoch, {0: {}}, np.zeros_like(model), expected={0: expected})
        active = self._policy.active
        self._quorum = len(active)
        message = {"model": self._products.ask(model)}
        expected = {"product": (self._ring.dtype, model.shape[::-1])}
        return Round(
            epoch,
            dict.fromkeys(active, message),
            self._products.point,
            expected=dict.fromkeys(active, expected),
        )

    @property
    def quorum(self) -> int:
        """The first device, then all active devices."""
        return self._quorum

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add up in the ring, take the pads away, and decode."""
        samples = sum(self._public.samples)
        if epoch == 1:
            total = self._ring.subtract(replies[0]["moments"], self._moment_pads)
            self._first = self._formats.moments.decode_sum(total)
            return np.asarray(self._first / samples)
        total = summed(self._ring, [reply["product"] for reply in replies.values()])
        if self._pads is not None:
            total = self._ring.subtract(total, product(self._ring, self._products.asked, self._pads, work))
        return np.asarray((self._first + self._products.take(total)) / samples)

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Sequence[Transfer]:
        """Ask the policy, and grant a fresh seed for every hand-over."""
        decision = self._policy.after_epoch(reply_seconds)
        return [self._transfer(move.sender, move.recipient, move.support) for move in decision.handovers]

    def memory(self) -> Message:
        """Return the summed moments, which are sent only once, and where the newest product is known."""
        return {"first": self._first, **self._products.memory()}

    def resume(self, moved: Sequence[tuple[int, int, int | None]], memory: Message) -> Sequence[Transfer]:
        """Take over earlier hand-overs; they are repeated under fresh seeds, which changes no result."""
        self._policy.resume(moved)
        self._first = memory.get("first", self._first)
        self._products.recall(memory)
        return [self._transfer(*move) for move in moved]

    def _grant(self) -> dict[str, Any]:
        self._exports += 1
        return fresh_grant(self._exports)

    def _transfer(self, sender: int, recipient: int, support: int | None) -> Transfer:
        grant = self._grant()
        pad = pad_of(self._ring, sender, grant, GRAM)
        d = self._public.features
        packed = unpack_upper(pad.residues(d * (d + 1) // 2))
        self._pads = packed if self._pads is None else self._ring.add(self._pads, packed, out=self._pads)
        return Transfer(sender, recipient, support, grant)


@final
class Sealed(SharingScheme[SealedOptions], AddingScheme[SealedOptions]):
    """The paper's sharing policy without its limit: fresh one-time pads on every export."""

    name = "sealed"
    options_type = SealedOptions
    exact = True
    follows_timing = False
    verdict = "holds"
    because = SEALED_REASON

    def check(self) -> None:
        """Refuse a ring that is too small for the data."""
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        return Formats.choose(RINGS[self.options.ring], self.public)

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and moments."""
        check_bounds(self.public, shard)
        return SealedDevice(index, shard, self.formats)

    def server(self) -> Server:
        """Prepare the server."""
        return SealedServer(self.public, self.formats, self.policy())

    def policy(self) -> SharingPolicy:
        """Return the sharing policy at its beginning."""
        return SharingPolicy(devices=self.public.devices, supports=0, delta=self.options.delta, supply="unlimited")

    @property
    def parallel_reception(self) -> bool:
        """As the option says."""
        return self.options.parallel_reception

    @property
    def survives_losses(self) -> int:
        """None: every active device is awaited."""
        return 0

    def reply_sum(self, epoch: int, request: Message) -> Ring:
        """Replies are residues."""
        return self.formats.gram.ring

    def leakage(self) -> Leakage:
        """Say who sees what."""
        return Leakage(
            server="the sum of all moments; the product of the model with the data that each active device holds: its "
            "own alone until it receives, sums after that",
            devices=SEALED_DEVICES,
            eavesdropper=SEALED_EAVESDROPPER,
        )

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Return sealed parcels as an attacker would read them, and the server's view of a device's own data."""
        form = self.formats.gram
        parcels = [entry for entry in transcript.sent if "gram" in entry.parcel]
        words = {id(entry): as_seen(form.ring, unpack_upper(entry.parcel["gram"])) for entry in parcels}
        entries = next(series for series in transcript.series() if len(series[0].contents) == 1)
        models = np.stack([as_seen(form.ring, entry.request["model"]).T for entry in entries])
        replies = np.stack([as_seen(form.ring, entry.reply["product"]).T for entry in entries]) * form.data_step
        device = entries[0].device
        found = [Exposure(RepliesView(models, replies), device, shards[device].gram)]
        found.append(from_models(form, models, device, shards[device].gram))
        for entry in parcels[:1]:
            found += sealed_exposures(form, words[id(entry)], entry.sender, shards[entry.sender].gram)
        own = [entry for entry in parcels if len(entry.contents) == 1][:2]
        if len(own) == 2:
            found.append(sealed_pair(form, *((words[id(entry)], shards[entry.sender].gram) for entry in own)))
        for entry in (entry for entry in parcels if entry.received):
            sent = tuple(words[id(parcel)] for parcel in entry.received if id(parcel) in words)
            view = ForwardView(np.eye(self.public.features) / form.data_step, sent, words[id(entry)])
            return [*found, Exposure(view, entry.sender, shards[entry.sender].gram)]
        return found
