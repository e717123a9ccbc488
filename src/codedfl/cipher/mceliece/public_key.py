"""The devices' key: the dense generator matrix G, with encoding and encryption."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Float64

from codedfl.cipher.mceliece.error_matrix import draw_error_matrix
from codedfl.cipher.mceliece.messages import PRECISIONS, Ciphertext, Encoded, capital, named
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.supports import Support
from codedfl.cipher.randomness import fresh_seed
from codedfl.errors import CipherError
from codedfl.storage import roomy


@final
@dataclass(frozen=True, eq=False, repr=False)
class PublicKey:
    """The generator G (k x n) in the precision of the messages, and the public parameters.

    ``fingerprint`` is SHA-256 over parameters, precision and the bytes of G; every message carries it.
    """

    parameters: Parameters
    G: Float[np.ndarray, "k n"]
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.parameters.k, self.parameters.n)
        if self.G.shape != shape or self.G.dtype.name not in PRECISIONS:
            raise CipherError(
                f"The generator is {self.G.dtype.name} of shape {self.G.shape}: "
                f"the parameters need float32 or float64 of shape {shape}."
            )
        frozen = np.ascontiguousarray(self.G).view()
        frozen.flags.writeable = False
        public = json.dumps({"parameters": asdict(self.parameters), "dtype": frozen.dtype.name}, sort_keys=True)
        digest = hashlib.sha256(public.encode())
        digest.update(np.ascontiguousarray(frozen, dtype=frozen.dtype.newbyteorder("<")).data)
        object.__setattr__(self, "G", frozen)
        object.__setattr__(self, "fingerprint", digest.hexdigest())

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """The precision of every message under this key."""
        return self.G.dtype

    def encode(self, A: Float[np.ndarray, "d k"]) -> Encoded:
        """Return A G, which every device prepares before training. Law: encode(A) + encode(B) = encode(A + B)."""
        self._check_plaintext(A)
        words = roomy((len(A), self.G.shape[1]), np.result_type(A, self.G))
        return Encoded(self.fingerprint, np.matmul(A, self.G, out=words))

    def add_error(self, message: Encoded | Ciphertext, support: Support, *, seed: bytes | None = None) -> Ciphertext:
        """Add a fresh error matrix on ``support``; on a ciphertext, as for data that is handed on once more.

        Beside the copy of the message the cost is d * t * beta multiplications: only the columns of the support change.
        """
        if not isinstance(message, Encoded | Ciphertext):
            raise CipherError(f"Errors cannot be added to {named(message)}: give what encode or encrypt returned.")
        if message.key != self.fingerprint:
            raise CipherError(
                f"The message was made under key {message.key[:12]} and this is key {self.fingerprint[:12]}: "
                "use the public key it was made under."
            )
        self._check_support(support)
        words = message.words.copy()
        self._disturb(words, support, fresh_seed(seed))
        return Ciphertext(self.fingerprint, words)

    def _disturb(self, words: Float[np.ndarray, "d n"], support: Support, seed: bytes) -> None:
        columns = words[:, support.positions]
        scale = self.parameters.noise * _column_scale(columns)
        error = draw_error_matrix(columns.shape[0], self.parameters.beta, scale, seed)
        words[:, support.positions] = columns + error.dense().astype(self.dtype)

    def _check_plaintext(self, A: Float[np.ndarray, "d k"]) -> None:
        if not isinstance(A, np.ndarray) or A.ndim != 2 or A.shape[1] != self.parameters.k or not A.shape[0]:
            raise CipherError(
                f"A plaintext of shape {getattr(A, 'shape', type(A).__name__)} does not fit the key: "
                f"give a matrix with {self.parameters.k} columns and at least one row."
            )
        if A.dtype != self.dtype:
            raise CipherError(
                f"The plaintext is {A.dtype} and the key {self.dtype}: convert with astype('{self.dtype}')."
            )
        if not np.isfinite(A).all():
            raise CipherError("The plaintext holds NaN or infinity: clean the data before encoding it.")

    def _check_support(self, support: Support) -> None:
        if not isinstance(support, Support):
            raise CipherError(f"{capital(support)} is no support: ask the server for one (PrivateKey.support).")
        if support.key != self.fingerprint:
            raise CipherError(
                f"Support {support.index} belongs to key {support.key[:12]} and this is key "
                f"{self.fingerprint[:12]}: ask the server for a support of this key."
            )
        if support.size != self.parameters.t or support.positions.max() >= self.parameters.n:
            raise CipherError(
                f"Support {support.index} does not hold {self.parameters.t} positions below "
                f"{self.parameters.n}: ask the server for it again."
            )

    def __repr__(self) -> str:
        p = self.parameters
        return f"PublicKey({p.k} x {p.n}, {self.dtype}, key {self.fingerprint[:12]})"


def encrypt(
    public: PublicKey, A: Float[np.ndarray, "d k"], support: Support, *, seed: bytes | None = None
) -> Ciphertext:
    """Return A G + E with E nonzero exactly on ``support``; the operating system draws E unless a test seeds it.

    Law: decrypt(encrypt(A)) = A up to rounding. The error is added in the memory of the product A G.
    """
    if not isinstance(public, PublicKey):
        raise CipherError(f"Encryption takes a PublicKey, not {named(public)}: give the public key.")
    public._check_support(support)
    public._check_plaintext(A)
    words = np.matmul(A, public.G)
    public._disturb(words, support, fresh_seed(seed))
    return Ciphertext(public.fingerprint, words)


def _column_scale(columns: Float[np.ndarray, "d t"]) -> Float64[np.ndarray, "t"]:
    """Return the root mean square of each column; columns without data get the mean of the others, or 1."""
    squares = np.einsum("ij,ij->j", columns, columns, dtype=np.float64)
    scale = np.sqrt(squares / columns.shape[0])
    typical = float(scale.mean()) or 1.0
    return np.where(scale > 1e-3 * typical, scale, typical)
