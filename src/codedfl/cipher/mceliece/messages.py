"""Messages, each kind a type of its own: encoded data, ciphertexts and encrypted replies.

    Encoded         A G            codewords without error; as readable as A itself
    Ciphertext      A G + E        what a device hands to another device
    EncryptedReply  theta^T (...)  what a device returns to the server

Laws (``dec`` = ``PrivateKey.decrypt``, up to rounding):

    dec(encrypt(A))  = A
    dec(C1 + C2)     = dec(C1) + dec(C2)          dec(C + Encoded(B)) = dec(C) + B
    dec(theta_T @ C) = theta_T @ dec(C)

Each object carries the fingerprint of its key and nothing of its error support; operands of different keys, shapes or
precisions are refused.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import CipherError

PRECISIONS = ("float32", "float64")


@dataclass(frozen=True, eq=False, repr=False)
class Words(ABC):
    """Rows of length n made under one key. ``key`` is the fingerprint of the public key."""

    key: str
    words: Float[np.ndarray, "rows n"]

    # numpy then leaves ``array @ words`` to __rmatmul__ below instead of looking inside
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if self.words.ndim != 2 or self.words.dtype.name not in PRECISIONS:
            raise CipherError(
                f"{type(self).__name__} needs a matrix of float32 or float64, not "
                f"{self.words.dtype.name} of shape {self.words.shape}: build it with encode or encrypt."
            )
        frozen = self.words.view()
        frozen.flags.writeable = False
        object.__setattr__(self, "words", frozen)

    @property
    def rows(self) -> int:
        """How many words."""
        return int(self.words.shape[0])

    @abstractmethod
    def __rmatmul__(self, theta_T: Float[np.ndarray, "c rows"]) -> "Words":
        """``theta_T @ words``: the same linear combination of plaintext rows."""

    def __repr__(self) -> str:
        rows, n = self.words.shape
        return f"{type(self).__name__}({rows} x {n}, {self.words.dtype}, key {self.key[:12]})"


_Sum = TypeVar("_Sum", bound=Words)


def _added(result: type[_Sum], left: Words, right: Words) -> _Sum:
    if not isinstance(right, Words) or not {type(left), type(right)} <= {result, Encoded}:
        raise CipherError(
            f"{capital(left)} cannot be added to {named(right)}: add ciphertexts to ciphertexts or encoded data, "
            "and replies to replies."
        )
    if left.key != right.key:
        raise CipherError(
            f"{capital(left)} under key {left.key[:12]} cannot be added to {named(right)} "
            f"under key {right.key[:12]}: encrypt both under one public key."
        )
    if left.words.shape != right.words.shape or left.words.dtype != right.words.dtype:
        raise CipherError(
            f"{capital(left)} of shape {left.words.shape} in {left.words.dtype} cannot be added to "
            f"{named(right)} of shape {right.words.shape} in {right.words.dtype}: "
            "bring both to one shape and precision."
        )
    return result(left.key, left.words + right.words)


def capital(thing: object) -> str:
    """Return ``named`` for the beginning of a sentence."""
    words = named(thing)
    return words[:1].upper() + words[1:]


def named(thing: object) -> str:
    """Return the type of a thing with its article, for error messages."""
    name = "array" if isinstance(thing, np.ndarray) else type(thing).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _combined(theta_T: Float[np.ndarray, "c rows"], right: Words) -> Float[np.ndarray, "c n"]:
    if not isinstance(theta_T, np.ndarray) or theta_T.ndim != 2 or theta_T.shape[1] != right.rows:
        shape = getattr(theta_T, "shape", type(theta_T).__name__)
        raise CipherError(
            f"A multiplier of shape {shape} does not fit {right.rows} rows of {named(right)}: "
            f"give a matrix of shape (c, {right.rows})."
        )
    if theta_T.dtype != right.words.dtype:
        raise CipherError(
            f"The multiplier is {theta_T.dtype} and the {type(right).__name__} {right.words.dtype}: "
            f"convert the multiplier with astype('{right.words.dtype}')."
        )
    return np.asarray(theta_T @ right.words)


@final
@dataclass(frozen=True, eq=False, repr=False)
class EncryptedReply(Words):
    """theta^T (A G + E), or a sum of such: what the server decrypts to theta^T A."""

    def __add__(self, other: "EncryptedReply | Encoded") -> "EncryptedReply":
        return _added(EncryptedReply, self, other)

    def __rmatmul__(self, theta_T: Float[np.ndarray, "c rows"]) -> "EncryptedReply":
        return EncryptedReply(self.key, _combined(theta_T, self))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Ciphertext(Words):
    """A G + E. Neither the support nor its number is stored: only the private key's holder knows it."""

    def __add__(self, other: "Ciphertext | Encoded") -> "Ciphertext":
        return _added(Ciphertext, self, other)

    def __rmatmul__(self, theta_T: Float[np.ndarray, "c rows"]) -> EncryptedReply:
        return EncryptedReply(self.key, _combined(theta_T, self))


_Any = TypeVar("_Any", "Encoded", Ciphertext, EncryptedReply)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Encoded(Words):
    """A G without error: whoever holds it can compute A, so it stays on its device or goes to the server."""

    def __add__(self, other: _Any) -> _Any:
        return _added(type(other), self, other)

    def __rmatmul__(self, theta_T: Float[np.ndarray, "c rows"]) -> "Encoded":
        return Encoded(self.key, _combined(theta_T, self))
