"""The paper's sharing policy with homomorphic encryption (CKKS) in place of the paper's cipher.

The server draws a key pair and sends the public key to all devices. Every device encrypts its Gram matrix before the
first epoch, two rows per ciphertext, and then computes on ciphertexts only. It holds D_v = its own + all it received,
and replies theta^T D_v, one ciphertext per class. So the cost of a reply does not depend on what the device received,
and every parcel, forwarded or not, contains the sender's own fresh ciphertexts. Numbers are the residues of ``sealed``.
Decryption rounds the noise away, so models do not depend on keys (probability: ``codedfl.cipher.ckks.lattice``).

Right-hand sides are added up before the first epoch: the first device sends its own, encrypted, to the second; then all
others send theirs to the first, which adds them up. The server learns the sum and nothing about a single device.

CKKS of the paper's size takes minutes to set up. With ``backend = "ckks"`` the scheme encrypts. With ``"costs"`` it
computes the same numbers in clear, in messages of the same sizes and with the same counted work, and protects nothing.
With ``"auto"`` it encrypts up to ``ENCRYPTED_FEATURES`` features if TenSEAL is installed.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped, UInt32

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import Lattice
from codedfl.cipher.seals import unpack_upper
from codedfl.errors import CipherError, MissingExtraError, ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, Round, Stage, Transfer
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import Rounding
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds
from codedfl.schemes.secrecy import (
    ADVERSARIES,
    COSTS_ONLY,
    NOT_EXAMINED,
    REPLIES,
    REPLIES_ALLOWED,
    Leakage,
    Secrecy,
    alike,
    all_cells,
    sharing_views,
)
from codedfl.schemes.sharing.he_backends import RING, CkksBackend, CkksOpener, ClearBackend, ClearOpener
from codedfl.schemes.sharing.server import (
    Codec,
    SharingScheme,
    count_first_gradient,
    delta_setting,
    detect_from_setting,
    parallel_setting,
)
from codedfl.settings import setting
from codedfl.task import Shard

ENCRYPTED_FEATURES = 32
"""Largest number of features that ``backend = "auto"`` encrypts: setting up 25 devices takes one or two seconds."""
LEAST_STEPS = 2
"""Least root mean square of a model's entries in steps; with fewer steps, models are too coarse."""
NO_ENCRYPTION = "this run only models the costs of encryption and encrypts NOTHING; with encryption: "


class EncryptedOptions(SchemeOptions):
    """Whether to encrypt or only to model the costs, and Delta of the sharing policy in seconds.

    >>> EncryptedOptions(backend="costs").delta
    2.0
    """

    backend: str = setting(
        default="auto",
        choices=("auto", "ckks", "costs"),
        help="ckks encrypts; costs computes in clear and models the costs only; auto encrypts where the task is small.",
    )
    delta: float = delta_setting(2.0)
    detect_from: int = detect_from_setting()
    parallel_reception: bool = parallel_setting()


@final
class EncryptedDevice(Device):
    """Holds its own encrypted rows plus what it received, and multiplies them by the model."""

    def __init__(self, index: int, shard: Shard, formats: Formats, backend: CkksBackend | ClearBackend) -> None:
        self._index = index
        self._backend = backend
        self._own: UInt32[np.ndarray, "d d"] | None = unpack_upper(formats.gram.encode_symmetric(shard.gram))
        self._own_moments = formats.moments.encode(np.ascontiguousarray(-shard.moments.T))
        self._received_moments: Shaped[np.ndarray, "..."] | None = None
        self._held: Shaped[np.ndarray, "..."] | None = None

    @property
    def held(self) -> Shaped[np.ndarray, "..."]:
        """D_v, until the device retires; its own rows are encrypted on first use."""
        if self._own is not None:
            self._held, self._own = self._backend.hide(self._own), None
        if self._held is None:
            raise RuntimeError(f"device {self._index} has handed over its data and retired")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the summed right-hand side in the first epoch, theta^T D_v in every other."""
        if epoch == 1:
            count_first_gradient(request, work)
            return {"moments": self._backend.to_bytes(self._all_moments(work))}
        model = request["model"]
        work.add(self._backend.lattice.product_macs(*model.shape))
        return {"product": self._backend.to_bytes(self._backend.multiply(model, self.held))}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the encrypted right-hand side, or everything held as a hand-over."""
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
        """Encrypt the device's right-hand side (zeros after it was sent) and add what was received."""
        moments = self._backend.hide(self._own_moments)
        work.add(self._backend.lattice.encryption_macs(len(moments)))
        return moments if self._received_moments is None else self._backend.add(moments, self._received_moments)


@final
class EncryptedCodec(Codec):
    """Holds the key, adds up ciphertexts and decrypts the sum."""

    def __init__(self, public: Public, formats: Formats, opener: CkksOpener | ClearOpener, lattice: Lattice) -> None:
        self._public = public
        self._formats = formats
        self._opener = opener
        self._lattice = lattice
        self.products = self._products = PointedProducts(formats.gram, public, longest=lattice.longest(public.devices))

    def set_up(self) -> Sequence[Stage]:
        """Send the key to all devices, and collect the right-hand sides at the first device."""
        grant = {"key": self._opener.public_words}
        others = [Transfer(sender, 0, grant) for sender in range(1, self._public.devices)]
        return [Stage([Transfer(0, 1, grant)]), Stage(others)]

    def first_round(self, model: Float[np.ndarray, "d c"], active: Sequence[int], *, everyone: bool) -> Round:
        """Ask the first device for the summed right-hand side; the others, who gave theirs away, encrypt zeros."""
        expected = {"moments": self._ciphertexts(self._lattice.count(self._public.outputs))}
        asked, request = (active, {"model": np.zeros(model.shape, self._public.dtype)}) if everyone else ((0,), {})
        return Round.same(1, asked, request, expected, point=np.zeros_like(model))

    def decode_first(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Decrypt and decode."""
        outputs = self._public.outputs
        rows = self._opener.open_sum([reply["moments"] for reply in replies.values()]).reshape(
            -1, self._public.features
        )
        work.add(self._lattice.decryption_macs(self._lattice.count(outputs)))
        return self._formats.moments.decode_sum(rows[:outputs]).T

    def encode(self, model: Float[np.ndarray, "d c"]) -> tuple[Message, Layout, Float[np.ndarray, "d c"]]:
        """Return the model as residues, and the point that they represent."""
        reply = {"product": self._ciphertexts(self._public.outputs)}
        return {"model": self._products.ask(model)}, reply, self._products.point

    def decode(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add up ciphertexts, decrypt, and decode."""
        total = self._opener.open_sum([reply["product"] for reply in replies.values()])
        work.add(self._lattice.decryption_macs(self._public.outputs))
        return self._products.take(total[:, 0])

    def _ciphertexts(self, count: int) -> tuple["np.dtype[Any]", tuple[int, int]]:
        return np.dtype(np.uint8), (count, self._lattice.ciphertext_bytes)


@final
class Encrypted(SharingScheme[EncryptedOptions]):
    """The paper's sharing policy under homomorphic encryption."""

    name = "he"
    options_type = EncryptedOptions
    needs = ("pyarrow",)
    exact = True
    verdict_reason = (
        "What devices send is CKKS ciphertext at 128 bits by the table of the homomorphic encryption standard, as long "
        "as the server colludes with no device and backend = 'costs', which encrypts nothing, is not used."
    )

    @property
    def verdict(self) -> str:
        """As ``sealed`` if it encrypts."""
        return REPLIES if self.encrypts else COSTS_ONLY

    @property
    def allowed_if(self) -> str:
        """As ``sealed`` if it encrypts."""
        if not self.encrypts:
            return "no real data are involved: it models the costs of encryption, and encrypts nothing"
        return REPLIES_ALLOWED

    def secrecy(self) -> tuple[Secrecy, ...]:
        """Parcels are ciphertexts under the server's key; nothing is said where only costs are modelled."""
        if not self.encrypts:
            silent = alike(NOT_EXAMINED, "this run models the costs of encryption, and encrypts nothing")
            return all_cells(dict.fromkeys(ADVERSARIES, silent))
        parcels = "what devices send is CKKS ciphertext, hidden if ring learning with errors is hard"
        return all_cells(sharing_views(self.public.devices, parcels))

    def check(self) -> None:
        """Refuse sizes that ciphertexts cannot hold, and encryption without its library."""
        if self.public.devices < 2:
            raise ScenarioError(
                "scheme = 'he' needs at least 2 devices, which add up their right-hand sides; add devices"
            )
        if self.options.backend == "ckks" and not ckks.installed():
            raise MissingExtraError(
                "schemes.he.backend = 'ckks' needs TenSEAL; install it with: pip install 'codedfl[he]'"
            )
        length, features = self.lattice.longest(self.public.devices), self.public.features
        if length < LEAST_STEPS * math.sqrt(features):
            raise ScenarioError(
                f"scheme = 'he' has too much noise for {features} features on {self.public.devices} devices; use "
                "fewer features or fewer devices"
            )
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, computed from public facts."""
        return Formats.choose(RING, self.public)

    @property
    def rounding(self) -> Rounding:
        """Devices round their data to steps of the format; decryption is exact."""
        return self.formats.rounding(self.public)

    @cached_property
    def lattice(self) -> Lattice:
        """The size of ciphertexts."""
        try:
            return Lattice.holding(self.public.features)
        except CipherError as error:
            raise ScenarioError(f"scheme = 'he' does not fit {self.public.features} features: {error}") from None

    @property
    def encrypts(self) -> bool:
        """Whether this run encrypts instead of only modelling the costs."""
        if self.options.backend == "auto":
            return self.public.features <= ENCRYPTED_FEATURES and ckks.installed()
        return self.options.backend == "ckks"

    @property
    def unfit_for_sites(self) -> str | None:
        """Real sites must not send data in clear."""
        if self.encrypts:
            return None
        return "scheme = 'he' would only model the costs here and encrypt nothing; set schemes.he.backend = 'ckks'"

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layouts of encrypted right-hand sides and Gram matrices."""
        sizes = {"moments": self.public.outputs, "gram": self.public.features}
        shapes = {name: (self.lattice.count(rows), self.lattice.ciphertext_bytes) for name, rows in sizes.items()}
        return tuple({name: (np.dtype(np.uint8), shape)} for name, shape in shapes.items())

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix and right-hand side."""
        check_bounds(self.public, shard)
        plain = ClearBackend(self.lattice, self.public.features)
        return EncryptedDevice(index, shard, self.formats, CkksBackend(self.lattice) if self.encrypts else plain)

    def codec(self) -> Codec:
        """Draw the key; a resumed run draws a new one, which changes no result."""
        kind = CkksOpener if self.encrypts else ClearOpener
        return EncryptedCodec(self.public, self.formats, kind(self.lattice, self.public.features), self.lattice)

    def leakage(self) -> Leakage:
        """Return what each party sees; say that nothing is hidden if only the costs are modelled."""
        mode = "" if self.encrypts else NO_ENCRYPTION
        return Leakage(
            server=f"{mode}the sum of all right-hand sides; the product of the model with the data that each active "
            "device holds: its own data until it receives a parcel, then sums",
            devices=f"{mode}nothing from parcels, which are encrypted; from the models: sums over all devices, and so "
            "the gradients of one device if all others collude",
            eavesdropper=f"{mode}the models, which are sent in clear; nothing about parcels and replies",
        )
