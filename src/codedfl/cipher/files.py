"""Keys, supports and messages on disk; the format is that of ``codedfl.cipher.container``.

Private keys, supports and encoded data are secret: their files are readable by their owner only. The
checksum finds damage, not forgery; whoever can replace a public key file can read what is encrypted with
it.
"""

import contextlib
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix

from codedfl.cipher.container import Container, read_container, write_container
from codedfl.cipher.messages import PRECISIONS, Ciphertext, Encoded, EncryptedReply, capital
from codedfl.cipher.parameters import Parameters
from codedfl.cipher.private_key import PrivateKey
from codedfl.cipher.public_key import PublicKey
from codedfl.cipher.supports import Support
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import CipherError, CodeError, KeyFileError

__all__ = [
    "load_ciphertext",
    "load_encoded",
    "load_private_key",
    "load_public_key",
    "load_reply",
    "load_support",
    "save",
]

Storable = PublicKey | PrivateKey | Support | Encoded | Ciphertext | EncryptedReply

_MESSAGES: dict[type, str] = {
    Encoded: "encoded matrix",
    Ciphertext: "ciphertext",
    EncryptedReply: "encrypted reply",
}


def save(path: str | PathLike[str], thing: Storable) -> None:
    """Write a key, support or message so that a crash leaves the old file or the new one, never a half."""
    write_container(Path(path), _packed(thing), secret=isinstance(thing, PrivateKey | Support | Encoded))


def _packed(thing: Storable) -> Container:
    if isinstance(thing, PublicKey):
        return Container("public key", {"parameters": thing.parameters.to_dict()}, {"G": thing.G})
    if isinstance(thing, PrivateKey):
        return _packed_private_key(thing)
    if isinstance(thing, Support):
        return Container("support", {"key": thing.key, "index": thing.index}, {"positions": thing.positions})
    if type(thing) in _MESSAGES:
        return Container(_MESSAGES[type(thing)], {"key": thing.key}, {"words": thing.words})
    raise CipherError(f"{capital(thing)} cannot be saved: give a key, a support or a message.")


def _packed_private_key(private: PrivateKey) -> Container:
    code = private.code
    arrays = {
        "H_data": code.H.data,
        "H_indices": code.H.indices.astype(np.int64),
        "H_indptr": code.H.indptr.astype(np.int64),
        "G": code.G,
        "information": code.information.astype(np.int64),
        "erasures": private.erasures,
        "family": private.family,
    }
    return Container("private key", {"parameters": private.parameters.to_dict(), "key": private.key}, arrays)


def load_public_key(path: str | PathLike[str]) -> PublicKey:
    """The public key that ``save`` wrote; its fingerprint is computed anew from what the file holds."""
    file = read_container(Path(path), "public key")
    with _sound(path, file):
        return PublicKey(_parameters(file), _finite(file.arrays["G"]))


def load_private_key(path: str | PathLike[str]) -> PrivateKey:
    """The private key that ``save`` wrote."""
    file = read_container(Path(path), "private key")
    with _sound(path, file):
        parameters = _parameters(file)
        code, key = _code(parameters, file), _key(file)
        if all(PublicKey(parameters, code.generator(dtype)).fingerprint != key for dtype in PRECISIONS):
            raise ValueError(f"its code does not generate the public key {key[:12]} that it names")
        return PrivateKey(parameters, key, code, _whole(file.arrays["erasures"]), _whole(file.arrays["family"]))


def load_support(path: str | PathLike[str]) -> Support:
    """The support that ``save`` wrote."""
    file = read_container(Path(path), "support")
    with _sound(path, file):
        return Support(_key(file), int(file.fields["index"]), _whole(file.arrays["positions"]))


def load_encoded(path: str | PathLike[str]) -> Encoded:
    """The encoded matrix that ``save`` wrote."""
    return _load_message(path, Encoded)


def load_ciphertext(path: str | PathLike[str]) -> Ciphertext:
    """The ciphertext that ``save`` wrote."""
    return _load_message(path, Ciphertext)


def load_reply(path: str | PathLike[str]) -> EncryptedReply:
    """The encrypted reply that ``save`` wrote."""
    return _load_message(path, EncryptedReply)


_Message = TypeVar("_Message", Encoded, Ciphertext, EncryptedReply)


def _load_message(path: str | PathLike[str], kind: type[_Message]) -> _Message:
    file = read_container(Path(path), _MESSAGES[kind])
    with _sound(path, file):
        return kind(_key(file), _finite(file.arrays["words"]))


@contextlib.contextmanager
def _sound(path: str | PathLike[str], file: Container) -> Iterator[None]:
    """A file with a sound checksum can still hold nonsense, because anyone can compute a checksum."""
    try:
        yield
    except (CipherError, CodeError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise KeyFileError(
            f"{path} has a sound checksum but holds no usable {file.kind}, do not trust its source: {error}"
        ) from error


def _parameters(file: Container) -> Parameters:
    return Parameters.from_dict(dict(file.fields["parameters"]))


def _key(file: Container) -> str:
    key = file.fields["key"]
    if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{64}", key):
        raise ValueError("the key's fingerprint is not 64 hexadecimal digits")
    return key


def _code(parameters: Parameters, file: Container) -> MdpcCode:
    arrays, p = file.arrays, parameters
    shape = (p.n - p.k, p.n)
    H = csr_matrix((_finite(arrays["H_data"]), arrays["H_indices"], arrays["H_indptr"]), shape=shape)
    H.check_format(full_check=True)
    information = _whole(arrays["information"])
    if information.shape != (p.k,) or np.unique(information).size != p.k or not _within(information, p.n):
        raise ValueError(f"the information set is not {p.k} positions below {p.n}")
    G = _finite(arrays["G"])
    if G.dtype != np.float64 or H.dtype != np.float64:
        raise ValueError("the code is not in float64")
    return MdpcCode(H, G, information)


def _within(values: Int64[np.ndarray, "size"], limit: int) -> bool:
    return bool(values.min() >= 0 and values.max() < limit)


def _finite(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ValueError("an array of reals holds something else")
    return values


def _whole(values: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
    if values.dtype != np.int64:
        raise ValueError("an array of positions holds something else")
    return values
