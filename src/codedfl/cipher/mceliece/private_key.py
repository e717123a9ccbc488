"""What the server holds: the sparse parity checks, the erasure set and the supports inside it."""

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Int64

from codedfl.cipher.mceliece.messages import PRECISIONS, Ciphertext, Encoded, EncryptedReply, capital
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.public_key import PublicKey
from codedfl.cipher.mceliece.supports import Support
from codedfl.cipher.randomness import Stream, fresh_seed
from codedfl.codes.bounds import least_overlap
from codedfl.codes.constant_weight import Family, affine_hyperplanes, family, greedy_random, partition_family
from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.contract import ErasureDecoder, ErasurePlan
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CipherError, CodeError, UndecodableError

ATTEMPTS = 100
"""Draws of a code or an erasure set before the parameters are called impossible."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class PrivateKey:
    """The code with its sparse parity checks, t_tot erasure positions, and M supports of size t among them.

    ``erasures`` is kept in random order, so that the regular layout of ``family`` (indices into it) says
    nothing about where the positions of another support lie. ``key`` is the fingerprint of the public key, and
    ``redrawn`` the number of erasure sets that were drawn before this one and that the decoder did not restore.
    """

    parameters: Parameters
    key: str
    code: MdpcCode
    erasures: Int64[np.ndarray, "t_tot"]
    family: Int64[np.ndarray, "M t"]
    redrawn: int = 0
    _plans: dict[tuple[str, str], ErasurePlan] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        p = self.parameters
        if (self.code.n, self.code.k) != (p.n, p.k):
            raise CipherError(
                f"The code has n = {self.code.n}, k = {self.code.k} and the parameters n = {p.n}, k = {p.k}: "
                "build both with generate_keys."
            )
        if not _distinct_below(self.erasures[None, :], p.n, (1, p.t_tot)):
            raise CipherError(f"The erasure set does not hold {p.t_tot} distinct positions below {p.n}.")
        if not _distinct_below(self.family, p.t_tot, (p.M, p.t)):
            raise CipherError(f"The supports are not {p.M} sets of {p.t} distinct members of the erasure set.")

    def support(self, index: int) -> Support:
        """Return support number ``index`` (from 0 to M - 1), to be sent to one device over a secure channel."""
        if not 0 <= index < self.parameters.M:
            raise CipherError(
                f"There is no support {index}: this key has {self.parameters.M}, numbered from 0; "
                "generate keys with a larger M if more are needed."
            )
        return Support(self.key, index, np.sort(self.erasures[self.family[index]]))

    def plan(self, decoder: str, dtype: str) -> ErasurePlan:
        """Return the decoder prepared for the erasure set; made on first use and kept."""
        if (decoder, dtype) not in self._plans:
            chosen = _decoder(decoder)
            try:
                self._plans[decoder, dtype] = chosen.prepare(self.code, np.sort(self.erasures), dtype)
            except UndecodableError:
                # the decoder's own sentence names erased positions, which are secret here
                raise CipherError(
                    f"The decoder {decoder} cannot restore this key's erasure set in {dtype}: decrypt with "
                    "another decoder, or generate keys for this one."
                ) from None
        return self._plans[decoder, dtype]

    def decrypt(
        self, message: Ciphertext | EncryptedReply | Encoded, decoder: str = "least-squares"
    ) -> Float[np.ndarray, "rows k"]:
        """Return the plaintext of ``message``: all t_tot positions count as erased, whichever supports were used."""
        if not isinstance(message, Ciphertext | EncryptedReply | Encoded):
            raise CipherError(
                f"{capital(message)} cannot be decrypted: give a Ciphertext, an EncryptedReply or an Encoded."
            )
        if message.key != self.key:
            raise CipherError(
                f"The message was made under key {message.key[:12]} and this private key belongs to "
                f"{self.key[:12]}: decrypt it with the private key of its own pair."
            )
        if message.words.shape[1] != self.parameters.n:
            raise CipherError(
                f"The words have length {message.words.shape[1]} and the code {self.parameters.n}: "
                "the message is damaged, ask for it again."
            )
        return self.plan(decoder, message.words.dtype.name).message(message.words)

    def __repr__(self) -> str:
        p = self.parameters
        return f"PrivateKey(n = {p.n}, k = {p.k}, {p.M} supports of {p.t} in {p.t_tot}, key {self.key[:12]})"


@final
@dataclass(frozen=True, eq=False)
class KeyPair:
    """A public key and the private key that belongs to it."""

    public: PublicKey
    private: PrivateKey


def generate_keys(
    parameters: Parameters,
    *,
    dtype: str = "float32",
    decoder: str = "peeling",
    seed: bytes | None = None,
    code: MdpcCode | None = None,
) -> KeyPair:
    """Draw a code, an erasure set that ``decoder`` restores, and the supports inside it.

    The seed comes from the operating system unless a test gives one; the same seed gives the same keys.
    What peeling restores every decoder restores, so the default leaves the choice at decryption open.
    ``code`` is what :func:`draw_code` returns for the seed, where it was drawn before.
    """
    if dtype not in PRECISIONS:
        raise CipherError(f"Messages in {dtype!r} are not offered: choose {' or '.join(PRECISIONS)}.")
    secret = fresh_seed(seed)
    code = draw_code(parameters, secret) if code is None else code
    erasures, redrawn = _draw_erasures(parameters, code, _decoder(decoder), secret)
    supports = _family(parameters, Stream(secret, "family").integer()).sets
    public = PublicKey(parameters, code.generator(dtype))
    return KeyPair(public, PrivateKey(parameters, public.fingerprint, code, erasures, supports, redrawn))


def draw_code(parameters: Parameters, secret: bytes) -> MdpcCode:
    """Draw a code whose parity checks are independent over the reals; with small sizes some draws are not."""
    p, failure = parameters, None
    for attempt in range(ATTEMPTS):
        drawn = Stream(secret, f"code {attempt}").integer(256)
        try:
            return MdpcCode.build(p.n, p.k, p.degree, seed=drawn, weights=p.weights, construction=p.construction)
        except CodeError as error:
            failure = error
    raise CipherError(
        f"None of {ATTEMPTS} parity-check matrices {p.n - p.k} x {p.n} of degree {p.degree} gave a code: "
        f"change the parameters; the last attempt said: {failure}"
    )


def _draw_erasures(
    parameters: Parameters, code: MdpcCode, decoder: ErasureDecoder, secret: bytes
) -> tuple[Int64[np.ndarray, "t_tot"], int]:
    """Random positions in random order, drawn again until the decoder restores them, and how often again."""
    for attempt in range(ATTEMPTS):
        drawn = Stream(secret, f"erasures {attempt}").permutation(code.n)[: parameters.t_tot]
        try:
            decoder.prepare(code, np.sort(drawn))
        except UndecodableError:
            continue
        return drawn, attempt
    raise CipherError(
        f"None of {ATTEMPTS} random sets of {parameters.t_tot} positions can be restored by {decoder.name}: "
        "choose a smaller t_tot or the least-squares decoder."
    )


def _family(parameters: Parameters, seed: int) -> Family:
    length, weight, count = parameters.t_tot, parameters.t, parameters.M
    if parameters.family == "auto":
        return family(length, weight, count, seed=seed)
    if parameters.family == "partition":
        return partition_family(length, weight).first(count)
    if parameters.family == "greedy":
        return greedy_random(length, weight, count, least_overlap(length, weight, count), seed)
    q, m = length // weight, round(math.log(length, max(2, length // weight)))
    if q**m != length or q * weight != length:
        raise CipherError(
            f"Supports of {weight} in {length} positions are no hyperplanes of AG(m, q): take t_tot = q**m "
            "and t = q**(m-1), or another family."
        )
    return affine_hyperplanes(m, q).first(count)


def _decoder(name: str) -> ErasureDecoder:
    if name not in DECODERS:
        raise CipherError(f"There is no decoder {name!r}: choose from {', '.join(DECODERS)}.")
    return DECODERS[name]


def _distinct_below(sets: Int64[np.ndarray, "count size"], limit: int, shape: tuple[int, int]) -> bool:
    if sets.shape != shape or sets.min() < 0 or sets.max() >= limit:
        return False
    ordered = np.sort(sets, axis=1)
    return bool((ordered[:, 1:] > ordered[:, :-1]).all())
