"""The paper's scheme (section IV): stragglers hand their encrypted Gram matrix to a faster device and leave.

Every device holds D_v = (A_v + all A it received) G + all E it received and replies theta^T D_v. The server adds the
replies up; errors lie in t_tot known positions only, so decoding is erasure decoding and returns theta^T sum_i A_i.

**Its cipher is broken** (see ``codedfl.cipher``): it is here to reproduce the paper, not to keep data private.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from codedfl.cipher.mceliece import (
    Ciphertext,
    Encoded,
    EncryptedReply,
    KeyPair,
    Parameters,
    PublicKey,
    Support,
    generate_keys,
)
from codedfl.codes.erasure import DECODERS
from codedfl.errors import CodedflError, ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import (
    Device,
    Exposure,
    Leakage,
    Message,
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
from codedfl.schemes.sharing.policy import SharingPolicy
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.security.transcript import Asked, Sent, reply_series
from codedfl.security.views.kinds import ForwardView, ParcelView, RowView, SharedSupportView
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = ["CodeBased"]


class CodeBasedOptions(SchemeOptions):
    """Sizes of the cipher in the paper's symbols (n, t_tot, t, M, beta), and the sharing policy.

    ``degree`` is that of a column of H. ``supply``: each support once (the paper's text), or all M again in every
    epoch (what its numbers fit). ``key_seed`` makes a study in virtual time repeatable; it protects nothing.
    """

    n: int = setting(default=4000, low=2, help="Length of the code.")
    degree: int = setting(default=45, low=1, help="Ones in each column of the parity-check matrix.")
    t_tot: int = setting(default=256, low=1, help="Number of positions that all supports together cover.")
    t: int = setting(default=64, low=1, help="Number of positions in one support.")
    M: int = setting(default=16, low=1, help="Number of supports.")
    beta: int = setting(default=4, low=1, help="Rank of the error matrix.")
    delta: float = setting(
        default=3.0,
        low=0,
        help="A device that replies so many seconds after the fastest is a straggler and hands over its data.",
    )
    supply: str = setting(
        default="once",
        choices=("once", "reissued"),
        help="Whether each support is used once, or all M are issued again in every epoch.",
    )
    decoder: str = setting(default="least-squares", choices=tuple(DECODERS), help="Erasure decoder of the server.")
    parallel_reception: bool = setting(
        default=False, help="Whether a device receives several parcels at the same time; one after the other if not."
    )
    key_seed: int = setting(
        default=0, low=0, help="Seed of the keys, which makes a study repeatable; it protects nothing."
    )

    def decoding_problem(self, features: int) -> DecodingProblem:
        """Return the problem that the claimed level rests on; a number has 32 bits, as in section V-E."""
        return DecodingProblem(self.n, features, self.t, self.beta, q_bits=32)


@lru_cache(maxsize=2)
def _keys(parameters: Parameters, dtype: str, decoder: str, key_seed: int) -> KeyPair:
    return generate_keys(parameters, dtype=dtype, decoder=decoder, seed=_seed(key_seed, "keys"))


_products: WeakKeyDictionary[Shard, tuple[tuple[int, ...], Float[np.ndarray, "d n"]]] = WeakKeyDictionary()


def _encoded(shard: Shard, public: PublicKey, key_seed: int) -> Encoded:
    """Return A G; settings of the cipher that share a code share the product, which is the whole cost of encoding."""
    code = (public.parameters.n, public.parameters.k, public.parameters.degree, key_seed)
    if shard not in _products or _products[shard][0] != code:
        _products[shard] = code, public.encode(shard.gram).words
    return Encoded(public.fingerprint, _products[shard][1])


def _seed(key_seed: int, purpose: str) -> bytes:
    return hashlib.sha256(f"codedfl code-based {key_seed} {purpose}".encode()).digest()


@final
class CodeBasedDevice(SharingDevice):
    """Holds encoded data, its own and what it received, and multiplies it by the model."""

    def __init__(self, index: int, shard: Shard, public: PublicKey, key_seed: int) -> None:
        self._index = index
        self._public = public
        self._key_seed = key_seed
        self._moments = shard.moments
        self._held: Encoded | Ciphertext | None = _encoded(shard, public, key_seed)

    @property
    def held(self) -> Encoded | Ciphertext:
        """D_v, while the device takes part."""
        if self._held is None:
            raise RuntimeError(f"device {self._index} has handed over its data and left")
        return self._held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Answer the first epoch with the gradient at zero, every other with theta^T D_v."""
        if epoch == 1:
            return {"gradient": -self._moments}
        return {"words": work.product(np.ascontiguousarray(request["model"].T), self.held.words)}

    def export(self, grant: Message, work: Work) -> Message:
        """Hand over D_v, with an error matrix on the granted support if there is one."""
        parcel, self._held = self.held, None
        if "positions" in grant:
            support = Support(self._public.fingerprint, int(grant["index"]), grant["positions"].astype(np.int64))
            # a device exports once in a run, so its number makes the seed of its errors unique
            parcel = self._public.add_error(parcel, support, seed=_seed(self._key_seed, f"device {self._index}"))
            # E' = S G'_E takes d * beta * t multiplications, adding it d * t additions
            work.add(parcel.rows * support.size * (self._public.parameters.beta + 1))
        return {"words": parcel.words}

    def absorb(self, parcel: Message, work: Work) -> None:
        """Add another device's D to the own one."""
        received = Ciphertext(self._public.fingerprint, parcel["words"])
        self._held = self.held + received
        work.add(received.words.size)


@final
class CodeBasedServer(SharingServer):
    """Holds the private key, decides who shares, adds the replies up and decodes the sum."""

    def __init__(self, public: Public, keys: KeyPair, policy: SharingPolicy, decoder: str) -> None:
        self._public = public
        self._private = keys.private
        self._policy = policy
        self._decoder = decoder
        self._first = np.zeros((public.features, public.outputs))

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Send theta to every active device."""
        message = {"model": model.astype(self._public.dtype)}
        words = self._public.dtype, (self._public.outputs, self._private.parameters.n)
        reply = {"gradient": self._public.model_layout} if epoch == 1 else {"words": words}
        active = self._policy.active
        return Round(epoch, dict.fromkeys(active, message), expected=dict.fromkeys(active, reply))

    @property
    def quorum(self) -> int:
        """All active devices."""
        return len(self._policy.active)

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Add up in float64, decode in the precision of the replies, and add the first gradient."""
        samples = sum(self._public.samples)
        ordered = [replies[device] for device in sorted(replies)]
        if epoch == 1:
            self._first = np.sum([reply["gradient"] for reply in ordered], axis=0, dtype=np.float64)
            return np.asarray(self._first / samples)
        exact = np.sum([reply["words"] for reply in ordered], axis=0, dtype=np.float64)
        total = np.asarray(exact).astype(self._public.dtype)
        product = self._private.decrypt(EncryptedReply(self._private.key, total), self._decoder)
        self._charge_decoding(total, work)
        return np.asarray((self._first + product.T) / samples)

    def _charge_decoding(self, words: Float[np.ndarray, "c n"], work: Work) -> None:
        """Count restoring the erased symbols from the known ones, and undoing the scrambling."""
        rows, n = words.shape
        erased, k = self._private.erasures.size, self._private.parameters.k
        work.add(rows * (erased * (n - erased) + k * k))

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Sequence[Transfer]:
        """Ask the policy, and grant supports."""
        decision = self._policy.after_epoch(reply_seconds)
        return [self._transfer(move.sender, move.recipient, move.support) for move in decision.handovers]

    def memory(self) -> Message:
        """Return the first gradient, which is sent only once."""
        return {"first": self._first}

    def resume(self, moved: Sequence[tuple[int, int, int | None]], memory: Message) -> Sequence[Transfer]:
        """Take over earlier hand-overs and the first gradient."""
        self._policy.resume(moved)
        self._first = memory.get("first", self._first)
        return [self._transfer(*move) for move in moved]

    def _transfer(self, sender: int, recipient: int, number: int | None) -> Transfer:
        if number is None:
            return Transfer(sender, recipient, None, {})
        support = self._private.support(number)
        grant = {"index": np.array(number, dtype=np.int32), "positions": support.positions.astype(np.int32)}
        return Transfer(sender, recipient, number, grant)


@final
class CodeBased(SharingScheme[CodeBasedOptions]):
    """Interleaved McEliece ciphertexts, shared by the paper's policy; decoded in every epoch."""

    name = "code-based"
    options_type = CodeBasedOptions
    exact = True
    follows_timing = False
    adds_up = True
    verdict = "broken"
    because = (
        "An error matrix has rank beta, so one ciphertext and the public key give the Gram matrix of a device by "
        "linear algebra, whatever level is claimed."
    )

    def check(self) -> None:
        """Refuse sizes that make no cipher."""
        try:
            self._parameters = Parameters(
                k=self.public.features,
                **{name: getattr(self.options, name) for name in ("n", "degree", "t_tot", "t", "M", "beta")},
            )
            _ = self.keys  # whether supports and a decodable erasure set exist shows when they are drawn
        except CodedflError as error:
            raise ScenarioError(f"schemes.code-based does not fit {self.public.features} features: {error}") from None

    @property
    def keys(self) -> KeyPair:
        """The server's key pair, drawn once."""
        return _keys(self._parameters, self.public.dtype.name, self.options.decoder, self.options.key_seed)

    def device(self, index: int, shard: Shard) -> Device:
        """Encode the shard's Gram matrix under the public key."""
        return CodeBasedDevice(index, shard, self.keys.public, self.options.key_seed)

    def server(self) -> Server:
        """Prepare the server with the private key."""
        return CodeBasedServer(self.public, self.keys, self.policy(), self.options.decoder)

    def policy(self) -> SharingPolicy:
        """Return the sharing policy at its beginning."""
        options: Any = self.options
        return SharingPolicy(
            devices=self.public.devices, supports=options.M, delta=options.delta, supply=options.supply
        )

    @property
    def parallel_reception(self) -> bool:
        """As the option says."""
        return self.options.parallel_reception

    @property
    def survives_losses(self) -> int:
        """None: every active device is awaited."""
        return 0

    def leakage(self) -> Leakage:
        """Say who sees what."""
        return Leakage(
            server="the first gradient of every single device in clear; then encoded replies of active devices, "
            "each readable by itself, for it holds the private key",
            devices="the Gram matrix of everyone who hands over to them: the cipher is broken by linear algebra",
            eavesdropper="every Gram matrix handed over on a link it taps: the cipher is broken by linear algebra",
        )

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Parcels for whoever taps the link, forwarded ones for their senders, supports known twice, and replies."""
        exposer = _Exposer(self.keys, shards)
        found = [*exposer.parcels(transcript.sent), *exposer.forwarded(transcript.sent)]
        return [*found, *exposer.known_supports(transcript.sent), *exposer.replies(transcript)]


@final
class _Exposer:
    """Turns the messages of a run into what single parties see; it knows keys and data, for the truth beside it."""

    def __init__(self, keys: KeyPair, shards: Sequence[Shard]) -> None:
        self._keys = keys
        self._shards = shards
        self._G = keys.public.G

    def parcels(self, sent: Iterable[Sent]) -> Iterable[Exposure]:
        """A device's own data under a fresh error, one row of it, and the same with errors of full rank."""
        for entry in sent:
            if len(entry.contents) == 1 and "positions" in entry.grant:
                size = self._keys.public.parameters
                words, positions = entry.parcel["words"], entry.grant["positions"].astype(np.int64)
                gram = self._shards[entry.sender].gram
                view = ParcelView(self._G, words, size.t, size.beta)
                yield Exposure(view, entry.sender, gram, positions)
                yield Exposure(RowView(self._G, words[0], size.t), entry.sender, gram[:1], positions)
                yield self._full_rank(entry.sender, Support(self._keys.public.fingerprint, 0, positions))
                return

    def _full_rank(self, device: int, support: Support) -> Exposure:
        size = dataclasses.replace(self._keys.public.parameters, beta=support.size)
        public = PublicKey(size, self._G)
        support = dataclasses.replace(support, key=public.fingerprint)
        gram = self._shards[device].gram
        words = public.add_error(public.encode(gram), support, seed=_seed(0, "errors of full rank")).words
        view = ParcelView(self._G, words, size.t, size.beta)
        return Exposure(view, device, gram, support.positions, f"errors of rank t = {size.t} instead of beta")

    def forwarded(self, sent: Iterable[Sent]) -> Iterable[Exposure]:
        """Without a fresh support, those who sent before can take their parcels away from the forwarded one."""
        for entry in sent:
            if "positions" not in entry.grant:
                received = tuple(parcel.parcel["words"] for parcel in entry.received)
                view = ForwardView(self._G, received, entry.parcel["words"])
                yield Exposure(view, entry.sender, self._shards[entry.sender].gram)
                return

    def known_supports(self, sent: Iterable[Sent]) -> Iterable[Exposure]:
        """A support that is handed out again is known to the device that had it before."""
        known: set[int] = set()
        for entry in sent:
            if "positions" not in entry.grant:
                continue
            if int(entry.grant["index"]) in known:
                positions = entry.grant["positions"].astype(np.int64)
                total = np.sum([self._shards[device].gram for device in entry.contents], axis=0)
                yield Exposure(
                    SharedSupportView(self._G, entry.parcel["words"], positions), entry.sender, total, positions
                )
                return
            known.add(int(entry.grant["index"]))

    def replies(self, transcript: Transcript) -> Iterable[Exposure]:
        """The server holds the private key, so it reads every single reply."""
        entries = transcript.series()[0]
        total = np.sum([self._shards[device].gram for device in entries[0].contents], axis=0)
        yield Exposure(reply_series(entries, self._read), entries[0].device, total)

    def _read(self, entry: Asked) -> Float[np.ndarray, "d c"]:
        reply = EncryptedReply(self._keys.public.fingerprint, entry.reply["words"])
        return np.asarray(self._keys.private.decrypt(reply).T)
