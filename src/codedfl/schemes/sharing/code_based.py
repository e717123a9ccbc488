"""The paper's scheme (section IV): stragglers hand their encrypted Gram matrix to a faster device and retire.

Device v holds D_v = (A_v + all A it received) G + all E it received, and replies theta^T D_v. The server adds up the
replies. Errors are in t_tot known positions only, so erasure decoding of the sum returns theta^T sum_i A_i.

**Its cipher is broken** (see ``codedfl.cipher``). It serves to reproduce the paper, not to keep data private.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import Any, cast, final
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.mceliece.parameters import FAMILIES, Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, draw_code, generate_keys
from codedfl.cipher.mceliece.public_key import PublicKey
from codedfl.cipher.mceliece.supports import Support
from codedfl.codes.erasure import DECODERS
from codedfl.codes.mdpc import CONSTRUCTIONS, WEIGHTS, MdpcCode
from codedfl.codes.thin_products import thin_product
from codedfl.errors import CipherError, CodedflError, ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, Round
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.rounding import FLOAT64, OTHER, Rounding, relative_error
from codedfl.schemes.secrecy import BROKEN, LEAKS, Cell, Leakage, Secrecy, all_cells, clear_views, from_models, whole
from codedfl.schemes.sharing.policy import OddSet, Supply
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


class CodeBasedOptions(SchemeOptions):
    """Parameters of the cipher, in the paper's symbols (n, t_tot, t, M, beta), and of the sharing policy.

    ``supply = "once"`` follows the paper's text; ``"reissued"`` fits the paper's numbers. ``key_seed`` makes a study in
    virtual time repeatable; keys from a seed protect nothing. The server of real sites draws fresh keys, keeps the
    private one, and announces the public one.

    >>> CodeBasedOptions(t=128, M=4).t_tot
    256
    """

    n: int = setting(default=4000, low=2, help="Length of the code.")
    degree: int = setting(default=45, low=1, help="Ones in each column of the parity-check matrix.")
    t_tot: int = setting(default=256, low=1, help="Number of positions that all supports together cover.")
    t: int = setting(default=64, low=1, help="Number of positions in one support.")
    M: int = setting(default=16, low=1, help="Number of supports.")
    beta: int = setting(default=4, low=1, help="Rank of the error matrix.")
    weights: str = setting(
        default="signed-uniform",
        choices=tuple(WEIGHTS),
        help="Nonzeros of the parity-check matrix: random sign times uniform(0.5, 1.5), all 1, or random signs.",
    )
    construction: str = setting(
        default="peg",
        choices=tuple(CONSTRUCTIONS),
        help="Tanner graph of the code: progressive edge growth, or random edges (configuration model).",
    )
    family: str = setting(
        default="auto",
        choices=FAMILIES,
        help="Layout of the supports: smallest overlap found, disjoint blocks, hyperplanes of AG(m, q), or random.",
    )
    noise: float = setting(
        default=1.0, above=0, help="Root mean square of an error column against that of the data column it hides."
    )
    delta: float = delta_setting(3.0)
    detect_from: int = detect_from_setting()
    supply: str = setting(
        default="once",
        choices=("once", "reissued"),
        help="Whether each support is used once, or all M are issued again in every epoch.",
    )
    odd_set: str = setting(
        default="partner",
        choices=("partner", "two-errors"),
        help="Of an odd number of stragglers, the last sends with a device that does not straggle, or adds two errors.",
    )
    decoder: str = setting(default="least-squares", choices=tuple(DECODERS), help="Erasure decoder of the server.")
    parallel_reception: bool = parallel_setting()
    key_seed: int = setting(
        default=0, low=0, help="Seed of the keys in virtual time, for studies; the server of real sites draws its own."
    )


@lru_cache(maxsize=2)
def _keys(parameters: Parameters, dtype: str, decoder: str, key_seed: int) -> KeyPair:
    secret = _seed(key_seed, "keys")
    code = _study_code(replace(parameters, t_tot=1, t=1, M=1, beta=1, family="auto", noise=1.0), secret)
    return generate_keys(parameters, dtype=dtype, decoder=decoder, seed=secret, code=code)


@lru_cache(maxsize=1)
def _study_code(parameters: Parameters, secret: bytes) -> MdpcCode:
    """Draw the code of a study once for parameters that differ in errors and supports; keys of sites are not here."""
    return draw_code(parameters, secret)


_products: WeakKeyDictionary[Shard, tuple[tuple[Any, ...], Float[np.ndarray, "d n"]]] = WeakKeyDictionary()


def _encoded(shard: Shard, public: PublicKey, key_seed: int | None) -> Encoded:
    """Return A G; in a study, parameters with the same code share this product, the whole cost of encoding."""
    if key_seed is None:
        return public.encode(shard.gram)
    p = public.parameters  # t_tot, t, M, beta, family, noise and the decoder change errors and supports, but not G
    code = (p.n, p.k, p.degree, p.weights, p.construction, public.dtype.name, key_seed)
    if shard not in _products or _products[shard][0] != code:
        _products[shard] = code, public.encode(shard.gram).words
    return Encoded(public.fingerprint, _products[shard][1])


def _seed(key_seed: int, purpose: str) -> bytes:
    return hashlib.sha256(f"codedfl code-based {key_seed} {purpose}".encode()).digest()


def granted_supports(grant: Message) -> list[tuple[int, Int64[np.ndarray, "t"]]]:
    """Return number and positions of each support of a grant: none, one or two."""
    if "positions" not in grant:
        return []
    positions = np.atleast_2d(grant["positions"]).astype(np.int64)
    return list(zip(np.atleast_1d(grant["index"]).tolist(), positions, strict=True))


@final
class CodeBasedDevice(Device):
    """Holds its own encoded data plus what it received, and multiplies them by the model.

    It needs the public key only. Without ``key_seed`` the operating system draws its errors.
    """

    def __init__(self, index: int, shard: Shard, public: PublicKey, key_seed: int | None) -> None:
        self._index = index
        self._public = public
        self._key_seed = key_seed
        self._moments = shard.moments
        self._held: Encoded | Ciphertext | None = _encoded(shard, public, key_seed)

    @property
    def held(self) -> Encoded | Ciphertext:
        """D_v, until the device retires."""
        if self._held is None:
            raise CipherError(f"Device {self._index} has handed over its data and retired: ask the device it went to.")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply the gradient at the zero model in the first epoch, theta^T D_v in every other."""
        if epoch == 1:
            count_first_gradient(request, work)
            return {"gradient": -self._moments}
        model, words = request["model"], self.held.words
        work.macs += model.size * words.shape[1]
        return {"words": thin_product(model.T, words)}

    def export(self, grant: Message, work: Work) -> Message:
        """Hand over D_v, with an error matrix on each granted support."""
        parcel = self.held
        if isinstance(parcel, Encoded) and not granted_supports(grant):
            raise CipherError(
                f"Device {self._index} has received no errors and was granted no support: it sends no data in clear."
            )
        for number, (index, positions) in enumerate(granted_supports(grant)):
            support = Support(self._public.fingerprint, index, positions)
            # a device exports once in a run, so its number makes the seeds of its errors unique
            purpose = f"device {self._index}" + (" again" if number else "")
            seed = None if self._key_seed is None else _seed(self._key_seed, purpose)
            parcel = self._public.add_error(parcel, support, seed=seed)
            # E' = S G'_E takes d * beta * t multiplications, adding it d * t additions
            work.add(parcel.rows * support.size * (self._public.parameters.beta + 1))
        self._held = None  # not before: an improper grant must leave the data where they are
        return {"words": parcel.words}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add another device's D to its own."""
        if "words" not in parcel or parcel["words"].shape != self.held.words.shape:
            raise CipherError(f"A parcel for device {self._index} holds no data of its shape: send what was exported.")
        received = Ciphertext(self._public.fingerprint, parcel["words"])
        self._held = self.held + received
        work.add(received.words.size)


@final
class CodeBasedCodec(Codec):
    """Sends models in clear, grants error supports, and decodes the sum of the replies."""

    def __init__(self, public: Public, keys: KeyPair, decoder: str) -> None:
        self._public = public
        self._private = keys.private
        self._decoder = decoder

    def first_round(self, model: Float[np.ndarray, "d c"], active: Sequence[int], *, everyone: bool) -> Round:
        """Ask every device for its gradient, in any case."""
        reply = {"gradient": self._public.model_layout}
        return Round.same(1, active, {"model": model.astype(self._public.dtype)}, reply)

    def decode_first(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Return the sum of the gradients in float64."""
        return np.asarray(np.sum([replies[device]["gradient"] for device in sorted(replies)], axis=0, dtype=np.float64))

    def encode(self, model: Float[np.ndarray, "d c"]) -> tuple[Message, Layout, None]:
        """Return theta as the request."""
        words = self._public.dtype, (self._public.outputs, self._private.parameters.n)
        return {"model": model.astype(self._public.dtype)}, {"words": words}, None

    def decode(self, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add up the replies in float64, and decode the sum in the precision of the replies."""
        exact = np.sum([replies[device]["words"] for device in sorted(replies)], axis=0, dtype=np.float64)
        total = np.asarray(exact).astype(self._public.dtype)
        product = self._private.decrypt(EncryptedReply(self._private.key, total), self._decoder)
        # restoring the erased symbols from the known ones, then multiplying by the inverse scrambling matrix
        (rows, n), erased, k = total.shape, self._private.erasures.size, self._private.parameters.k
        work.macs += rows * (erased * (n - erased) + k * k)
        return np.asarray(product.T)

    def grant(self, sender: int, supports: Sequence[int]) -> Message:
        """Grant supports."""
        if not supports:
            return {}
        positions = np.stack([self._private.support(support).positions for support in supports])
        both = np.array(supports, dtype=np.int32), positions.astype(np.int32)
        index, places = both if len(supports) > 1 else (part[0] for part in both)
        return {"index": np.asarray(index), "positions": places}


@final
class CodeBased(SharingScheme[CodeBasedOptions]):
    """Hand-overs by the paper's policy under interleaved McEliece ciphertexts, decoded in every epoch."""

    name = "code-based"
    options_type = CodeBasedOptions
    needs = ("scipy",)
    exact = True
    adds_up = True
    verdict = BROKEN
    verdict_reason = (
        "An error matrix has rank beta, so one ciphertext and the public key give the Gram matrix of a device by "
        "linear algebra, at every claimed security level."
    )
    allowed_if = "no private data are involved: its cipher is broken"

    def secrecy(self) -> tuple[Secrecy, ...]:
        """Whoever has a parcel has the Gram matrix behind it."""
        read = whole("one ciphertext and the public key give the Gram matrix by linear algebra")
        right = "the Gram matrix gives it up to the right-hand side, which is not in the parcel"
        tapped = read._replace(gradient=Cell(LEAKS, right))
        views = clear_views(self.public.devices, "it decodes the reply of every device with the private key")
        views |= from_models(self.public.devices, read) | {"eavesdropper": tapped, "server and devices": read}
        return all_cells(views)

    def check(self) -> None:
        """Refuse parameters for which there is no cipher."""
        try:
            _ = self.public_key  # only drawing shows whether supports and a decodable erasure set exist
        except CodedflError as error:
            raise ScenarioError(f"schemes.code-based does not fit {self.public.features} features: {error}") from None

    @property
    def memory(self) -> int:
        """Of each device: its Gram matrix and its encoded one; of the keys: matrices of n columns while drawn."""
        n, d, item = self.options.n, self.public.features, self.public.dtype.itemsize
        return item * d * (n + d) * self.public.devices + 4 * 8 * n * d

    @property
    def parameters(self) -> Parameters:
        """The parameters of the cipher, which everybody knows."""
        names = (field.name for field in fields(Parameters) if field.name != "k")
        return Parameters(k=self.public.features, **{name: getattr(self.options, name) for name in names})

    @cached_property
    def keys(self) -> KeyPair:
        """The server's key pair, drawn once; a resumed run on real sites has another."""
        if self.public.announced is not None:
            raise CipherError("A site has no private key: it takes the public one that the server announces.")
        dtype, decoder = self.public.dtype.name, self.options.decoder
        if self.public.fresh_keys:
            return generate_keys(self.parameters, dtype=dtype, decoder=decoder)
        return _keys(self.parameters, dtype, decoder, self.options.key_seed)

    @cached_property
    def public_key(self) -> PublicKey:
        """The announced public key at a site, else that of the pair."""
        announced = self.public.announced
        return self.keys.public if announced is None else PublicKey(self.parameters, announced["generator"])

    @cached_property
    def rounding(self) -> Rounding | None:
        """Devices multiply by G and by the model, and the server decodes, all in the precision of the messages.

        G is random, so that the words of a row of the Gram matrix are about as large as its entries, whatever they
        are: at most E_A times the length of a column of G. Decoding multiplies independent errors of words by
        ``error_gain``, measured for the key. A site has no private key and states nothing.
        """
        if self.public.announced is not None:
            return None
        public, p = self.public, self.parameters
        gain = self.keys.private.plan(self.options.decoder, public.dtype.name).error_gain
        share = gain * relative_error(3 * p.k + p.n + public.devices, public.dtype)
        words = f"the decoder {self.options.decoder}, which multiplies rounding errors of {public.dtype.name} by"
        advice = FLOAT64 if public.dtype == np.float32 else OTHER
        decoded = Rounding(share * public.gram_bound, 0.0, cause=f"{words} {gain:.2g}", advice=advice)
        return decoded.plus(public, max(public.samples) + 1)

    def parcels(self, index: int) -> Sequence[Layout]:
        """Return the layout of encoded Gram matrices."""
        return ({"words": (self.public.dtype, (self.public.features, self.parameters.n))},)

    def announcement(self) -> Message:
        """Publish G."""
        return {"generator": self.public_key.G}

    @property
    def announcement_layout(self) -> Layout:
        """G is k x n in the precision of the messages."""
        return {"generator": (self.public.dtype, (self.public.features, self.options.n))}

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix under the public key."""
        key_seed = self.options.key_seed if self.public.announced is None else None
        return CodeBasedDevice(index, shard, self.public_key, key_seed)

    def codec(self) -> Codec:
        """Prepare decoding with the private key."""
        return CodeBasedCodec(self.public, self.keys, self.options.decoder)

    @property
    def decode_failures(self) -> int:
        """How many sets of erasures were drawn before one that the decoder restores."""
        return self.keys.private.redrawn

    @property
    def supports(self) -> tuple[int, Supply]:
        """M supports, each granted once in a run or once in an epoch."""
        return self.options.M, cast(Supply, self.options.supply)

    @property
    def odd_set(self) -> OddSet:
        """As the option says."""
        return cast(OddSet, self.options.odd_set)

    def leakage(self) -> Leakage:
        """Return what each party sees."""
        return Leakage(
            server="the first gradient of every device in clear; then the reply of every active device, which it can "
            "decode alone because it holds the private key",
            devices="the Gram matrix of every device that hands over to them: linear algebra breaks the cipher",
            eavesdropper="every Gram matrix handed over on a tapped link: linear algebra breaks the cipher",
        )
