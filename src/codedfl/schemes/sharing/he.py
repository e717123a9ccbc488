"""The paper's sharing policy with homomorphic encryption (CKKS) in place of the paper's cipher.

The server draws a key and sends its public part to all devices. Every device encrypts its Gram matrix beforehand, two
rows a ciphertext, and computes on ciphertexts from then on: it holds D_v = its own + all it received, and replies
theta^T D_v, one ciphertext a class. So a reply costs the same whatever was received, and a parcel, forwarded or not,
hides under the sender's own fresh ciphertexts. Numbers are the residues of ``sealed``, exact below the noise, so that
models do not depend on keys (``codedfl.cipher.ckks.lattice`` says with what probability).

Before the first epoch the first device encrypts its moments to the second, then all others theirs to the first, which
adds them up: the server learns their sum and nothing of a single one.

CKKS of the paper's size takes minutes to set up. Option ``backend``: ``ckks`` encrypts; ``costs`` computes the same
numbers in clear, in messages of the same sizes, with the same counted work, and protects nothing; ``auto`` encrypts up
to ``ENCRYPTED_FEATURES`` features where TenSEAL is installed.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped, UInt8, UInt32

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import PRIME_BITS, SCALE, Lattice
from codedfl.cipher.seals import unpack_upper
from codedfl.errors import CipherError, MissingExtraError, ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import (
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
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds
from codedfl.schemes.sharing.he_backends import (
    RING,
    Backend,
    CkksBackend,
    CkksOpener,
    ClearBackend,
    ClearOpener,
    Opener,
)
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.security.transcript import Sent
from codedfl.security.views.kinds import ForwardView, PairView, RepliesView
from codedfl.security.views.sealed import as_seen, from_models, sealed_exposures
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = ["ENCRYPTED_FEATURES", "Encrypted"]

ENCRYPTED_FEATURES = 32
"""Up to so many features ``backend = "auto"`` really encrypts: a fleet of 25 is set up in a second or two."""
LEAST_STEPS = 2
"""Steps that an entry of a model must have in the mean square; below, noise leaves too few."""
COSTS_ONLY = "this run only models the costs of encryption and encrypts NOTHING; if it did: "


class EncryptedOptions(SchemeOptions):
    """Whether to encrypt or to model the costs of it, and Delta of the sharing policy in seconds."""

    backend: str = setting(
        default="auto",
        choices=("auto", "ckks", "costs"),
        help="ckks encrypts; costs computes in clear and models the costs only; auto encrypts where the task is small.",
    )
    delta: float = setting(
        default=2.0,
        low=0,
        help="A device that replies so many seconds after the fastest is a straggler and hands over its data.",
    )
    parallel_reception: bool = setting(
        default=False, help="Whether a device receives several parcels at the same time; one after the other if not."
    )


@final
class EncryptedDevice(SharingDevice):
    """Holds encrypted rows, its own and what it received, and multiplies them by the model."""

    def __init__(self, index: int, shard: Shard, formats: Formats, backend: Backend) -> None:
        self._index = index
        self._backend = backend
        self._own: UInt32[np.ndarray, "d d"] | None = unpack_upper(formats.gram.encode_symmetric(shard.gram))
        self._own_moments = formats.moments.encode(np.ascontiguousarray(-shard.moments.T))
        self._received_moments: Shaped[np.ndarray, "..."] | None = None
        self._held: Shaped[np.ndarray, "..."] | None = None

    @property
    def held(self) -> Shaped[np.ndarray, "..."]:
        """D_v, while the device takes part; its own rows are encrypted when they are first needed."""
        if self._own is not None:
            self._held, self._own = self._backend.hide(self._own), None
        if self._held is None:
            raise RuntimeError(f"device {self._index} has handed over its data and left")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the summed moments, every other with theta^T D_v."""
        if epoch == 1:
            return {"moments": self._backend.to_bytes(self._all_moments(work))}
        model = request["model"]
        work.add(self._backend.lattice.product_macs(*model.shape))
        return {"product": self._backend.to_bytes(self._backend.multiply(model, self.held))}

    def export(self, grant: Message, work: Work) -> Message:
        """Encrypt the moments, or hand over everything held, which was encrypted beforehand."""
        if "key" in grant:
            self._backend.take_key(grant["key"])
            moments = self._all_moments(work)
            self._own_moments, self._received_moments = np.zeros_like(self._own_moments), None
            return {"moments": self._backend.to_bytes(moments)}
        parcel, self._held = self.held, None
        return {"gram": self._backend.to_bytes(parcel)}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add another device's ciphertexts to those held."""
        [received] = [self._backend.from_bytes(packed) for packed in parcel.values()]
        work.add(len(received) * self._backend.lattice.words)
        if "moments" not in parcel:
            self._held = self._backend.add(self.held, received)
        elif self._received_moments is None:
            self._received_moments = received
        else:
            self._received_moments = self._backend.add(self._received_moments, received)

    def _all_moments(self, work: Work) -> Shaped[np.ndarray, "..."]:
        """Encrypt the own moments (zeros, once they are given away) and add what was received."""
        moments = self._backend.hide(self._own_moments)
        work.add(self._backend.lattice.encryption_macs(len(moments)))
        return moments if self._received_moments is None else self._backend.add(moments, self._received_moments)


@final
class EncryptedServer(SharingServer, PlacingServer):
    """Holds the key, decides who shares, adds the replies up and decrypts the sum."""

    def __init__(
        self, public: Public, formats: Formats, policy: SharingPolicy, opener: Opener, lattice: Lattice
    ) -> None:
        self._public = public
        self._formats = formats
        self._policy = policy
        self._opener = opener
        self._lattice = lattice
        self._products = PointedProducts(formats.gram, public, longest=lattice.longest(public.devices))
        self._quorum = 1
        self._first = np.zeros((public.features, public.outputs))

    def stages(self) -> Sequence[Sequence[Transfer]]:
        """Send the key to everyone, and let the moments come together at the first device."""
        grant = {"key": self._opener.public_words}
        others = [Transfer(sender, 0, None, grant) for sender in range(1, self._public.devices)]
        return [[Transfer(0, 1, None, grant)], others]

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
            expected = {"moments": self._ciphertexts(self._lattice.count(self._public.outputs))}
            return Round(epoch, {0: {}}, np.zeros_like(model), expected={0: expected})
        active = self._policy.active
        self._quorum = len(active)
        message = {"model": self._products.ask(model)}
        expected = {"product": self._ciphertexts(self._public.outputs)}
        return Round(
            epoch,
            dict.fromkeys(active, message),
            self._products.point,
            expected=dict.fromkeys(active, expected),
        )

    def _ciphertexts(self, count: int) -> tuple["np.dtype[Any]", tuple[int, int]]:
        return np.dtype(np.uint8), (count, self._lattice.ciphertext_bytes)

    @property
    def quorum(self) -> int:
        """The first device, then all active devices."""
        return self._quorum

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add ciphertexts up, decrypt, and decode."""
        samples, outputs = sum(self._public.samples), self._public.outputs
        if epoch == 1:
            rows = self._opener.open_sum([replies[0]["moments"]]).reshape(-1, self._public.features)
            work.add(self._lattice.decryption_macs(self._lattice.count(outputs)))
            self._first = self._formats.moments.decode_sum(rows[:outputs]).T
            return np.asarray(self._first / samples)
        total = self._opener.open_sum([reply["product"] for reply in replies.values()])
        work.add(self._lattice.decryption_macs(outputs))
        return np.asarray((self._first + self._products.take(total[:, 0])) / samples)

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Sequence[Transfer]:
        """Ask the policy; nothing need be granted."""
        decision = self._policy.after_epoch(reply_seconds)
        return [Transfer(move.sender, move.recipient, move.support, {}) for move in decision.handovers]

    def memory(self) -> Message:
        """Return the summed moments, which are sent only once, and where the newest product is known."""
        return {"first": self._first, **self._products.memory()}

    def resume(self, moved: Sequence[tuple[int, int, int | None]], memory: Message) -> Sequence[Transfer]:
        """Take over earlier hand-overs; they are repeated under a fresh key, which changes no result."""
        self._policy.resume(moved)
        self._first = memory.get("first", self._first)
        self._products.recall(memory)
        return [Transfer(*move, {}) for move in moved]


@final
class Encrypted(SharingScheme[EncryptedOptions]):
    """The paper's sharing policy under homomorphic encryption."""

    name = "he"
    options_type = EncryptedOptions
    exact = True
    follows_timing = False
    verdict = "holds"
    because = (
        "What devices send is CKKS ciphertext at 128 bits by the table of the homomorphic encryption standard, as long "
        "as the server colludes with no device and backend = 'costs', which encrypts nothing, is not used."
    )

    def check(self) -> None:
        """Refuse sizes beyond the ciphertexts, and encryption without its library."""
        if self.public.devices < 2:
            raise ScenarioError("scheme = 'he' hands moments from device to device and needs two or more; add devices")
        if self.options.backend == "ckks" and not ckks.installed():
            raise MissingExtraError(
                "schemes.he.backend = 'ckks' needs TenSEAL; install it with: pip install 'codedfl[he]'"
            )
        length, features = self.lattice.longest(self.public.devices), self.public.features
        if length < LEAST_STEPS * math.sqrt(features):
            raise ScenarioError(
                f"scheme = 'he' has too much noise for {features} features on {self.public.devices} devices; take "
                "fewer of either"
            )
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        return Formats.choose(RING, self.public)

    @cached_property
    def lattice(self) -> Lattice:
        """The size of ciphertexts."""
        try:
            return Lattice.holding(self.public.features)
        except CipherError as error:
            raise ScenarioError(f"scheme = 'he' does not fit {self.public.features} features: {error}") from None

    @property
    def encrypts(self) -> bool:
        """Whether this run encrypts, or models the costs of it only."""
        if self.options.backend == "auto":
            return self.public.features <= ENCRYPTED_FEATURES and ckks.installed()
        return self.options.backend == "ckks"

    @property
    def unfit_for_sites(self) -> str | None:
        """Data of real devices are encrypted or stay where they are."""
        if self.encrypts:
            return None
        return "scheme = 'he' would only model the costs here and encrypt nothing; set schemes.he.backend = 'ckks'"

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and moments."""
        check_bounds(self.public, shard)
        plain = ClearBackend(self.lattice, self.public.features)
        return EncryptedDevice(index, shard, self.formats, CkksBackend(self.lattice) if self.encrypts else plain)

    def server(self) -> Server:
        """Draw the key."""
        kind = CkksOpener if self.encrypts else ClearOpener
        opener = kind(self.lattice, self.public.features)
        return EncryptedServer(self.public, self.formats, self.policy(), opener, self.lattice)

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

    def leakage(self) -> Leakage:
        """Say who sees what, and that nothing is hidden where only costs are modelled."""
        mode = "" if self.encrypts else COSTS_ONLY
        return Leakage(
            server=f"{mode}the sum of all moments; the product of the model with the data that each active device "
            "holds: its own alone until it receives, sums after that",
            devices=f"{mode}parcels: nothing, they are encrypted; from the models they are sent: sums over all "
            "devices, and so the gradients of a single device if all others collude",
            eavesdropper=f"{mode}the models, which are sent in clear; nothing of parcels and replies",
        )

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Return ciphertexts as an attacker would read them, and the server's view of a device's own data."""
        form = self.formats.gram
        entries = next(series for series in transcript.series() if len(series[0].contents) == 1)
        device = entries[0].device
        models = np.stack([as_seen(RING, entry.request["model"]).T for entry in entries])
        # what the server decrypts is exact: the product of the model with the rounded data
        replies = as_seen(RING, form.encode(shards[device].gram)) * form.data_step @ models
        found = [Exposure(RepliesView(models, np.asarray(replies)), device, shards[device].gram)]
        found.append(from_models(form, models, device, shards[device].gram))
        parcels = [entry for entry in transcript.sent if "gram" in entry.parcel]
        return [*found, *(self._caught(parcels, shards) if self.encrypts else self._encrypted(parcels, shards))]

    def _caught(self, parcels: Sequence[Sent], shards: Sequence[Shard]) -> Iterable[Exposure]:
        """One parcel of a device's own data, two beside each other, and a forwarded one for those who sent before."""
        form, features = self.formats.gram, self.public.features
        words = {id(entry): _as_read(self.lattice, entry.parcel["gram"], features) for entry in parcels}
        own = [entry for entry in parcels if len(entry.contents) == 1]
        for entry in own[:1]:
            yield from sealed_exposures(form, words[id(entry)], entry.sender, shards[entry.sender].gram)
        if len(own) > 1:
            one, other = own[:2]
            view = PairView(words[id(one)], words[id(other)], 2.0**PRIME_BITS / SCALE, form.data_step)
            yield Exposure(view, one.sender, shards[one.sender].gram - shards[other.sender].gram)
        for entry in [entry for entry in parcels if entry.received][:1]:
            sent = tuple(words[id(parcel)] for parcel in entry.received if id(parcel) in words)
            view_of_senders = ForwardView(np.eye(features) / form.data_step, sent, words[id(entry)])
            yield Exposure(view_of_senders, entry.sender, shards[entry.sender].gram)

    def _encrypted(self, parcels: Sequence[Sent], shards: Sequence[Shard]) -> Iterable[Exposure]:
        """Where only costs were modelled, encrypt one parcel for the attackers, if that can be done."""
        for entry in parcels[:1] if ckks.installed() else ():
            form, gram = self.formats.gram, shards[entry.sender].gram
            backend = CkksBackend(self.lattice)
            backend.take_key(CkksOpener(self.lattice, self.public.features).public_words)
            packed = backend.to_bytes(backend.hide(unpack_upper(form.encode_symmetric(gram))))
            for exposure in sealed_exposures(form, _as_read(self.lattice, packed, len(gram)), entry.sender, gram):
                yield dataclasses.replace(exposure, assumption="encrypted for the attack: the run models costs only")


def _as_read(lattice: Lattice, packed: UInt8[np.ndarray, "count bytes"], features: int) -> Float[np.ndarray, "d d"]:
    """Return the first polynomials of ciphertexts as signed numbers, half of one in place of each row."""
    first = lattice.from_bytes(packed)[:, : lattice.degree].reshape(-1, lattice.degree // 2)
    signed = (first[:features, :features] << np.uint64(4)).view(np.int64) >> 4
    return np.asarray(signed / SCALE)
