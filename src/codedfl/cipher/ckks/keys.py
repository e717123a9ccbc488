"""CKKS keys, encryption and decryption through TenSEAL's bindings of Microsoft SEAL (``pip install 'codedfl[he]'``).

The server draws a ``CkksSecretKey`` and sends its public words to devices, which make a ``CkksPublicKey`` of them.
Ciphertexts are arrays of words (``codedfl.cipher.ckks.lattice``); randomness is SEAL's own, from the operating system.

    secret = CkksSecretKey(Lattice.holding(2000))                   # server
    public = CkksPublicKey(secret.lattice, secret.public_words)     # device
    C = public.encrypt(rows)                                        # device: 1000 ciphertexts of 2000 rows
    reply = public.multiply(theta, C)                               # another device, on encrypted rows
    secret.decrypt(reply)[:, 0]                                     # server: theta @ rows, exactly
"""

import importlib
import importlib.util
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Complex128, Int64, UInt64

from codedfl.cipher.ckks.lattice import KEY_PEAK, LIMIT, PRIME_BITS, SCALE, SECOND_PRIME_BITS, Lattice
from codedfl.errors import CipherError, MissingExtraError

_HEADER = 16
_COMPRESSION = 5
"""Where a header of SEAL says how the rest is compressed: 0 not, 1 zlib, 2 zstd."""
_MAX_KEY_DRAWS = 100


def installed() -> bool:
    """Tell whether TenSEAL is installed."""
    return importlib.util.find_spec("tenseal") is not None


def _seal() -> Any:
    try:
        return importlib.import_module("tenseal.sealapi")
    except ImportError:
        raise MissingExtraError(
            "homomorphic encryption needs TenSEAL; install it with: pip install 'codedfl[he]'"
        ) from None


def _read(saved: bytes) -> bytes:
    """Return the contents of a file of SEAL without its header."""
    kind, body = saved[_COMPRESSION], saved[_HEADER:]
    if kind == 2:
        import pyarrow

        return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(body), "zstd").read())
    return zlib.decompress(body) if kind == 1 else body


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a temporary file, because SEAL reads and writes through files; no secret is ever written."""
    with tempfile.TemporaryDirectory(prefix="codedfl-ckks-") as folder:
        yield Path(folder) / "words"


@final
class _Form:
    """How SEAL serialises an object: some fixed bytes, then its words."""

    def __init__(self, example: Any, words: int, path: Path) -> None:
        self._bytes = 8 * words
        example.save(str(path))
        saved = path.read_bytes()
        self._before = _read(saved)[: -self._bytes]
        size = _HEADER + len(self._before) + self._bytes
        self._header = saved[:_COMPRESSION] + b"\0" + saved[_COMPRESSION + 1 : 8] + struct.pack("<Q", size)

    def words(self, thing: Any, path: Path) -> UInt64[np.ndarray, "words"]:
        """Return the words of an object."""
        thing.save(str(path))
        body = _read(path.read_bytes())
        if body[: -self._bytes] != self._before:
            raise CipherError("SEAL wrote a ciphertext of another form: install the TenSEAL this version was made for.")
        return np.frombuffer(body[-self._bytes :], "<u8").astype(np.uint64)

    def fill(self, thing: Any, context: Any, words: UInt64[np.ndarray, "words"], path: Path) -> Any:
        """Load words into an object; SEAL refuses words that are no residues."""
        path.write_bytes(self._header + self._before + words.astype("<u8").tobytes())
        try:
            thing.load(context, str(path))
        except RuntimeError as error:
            raise CipherError(f"These words are no key or ciphertext ({error}): check who sent them.") from None
        return thing


@final
class _Tools:
    """SEAL's objects for a degree, all of them public."""

    def __init__(self, degree: int) -> None:
        self.seal = seal = _seal()
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(degree)
        primes = seal.CoeffModulus.Create(degree, [PRIME_BITS, SECOND_PRIME_BITS])
        parameters.set_coeff_modulus(primes)
        # SEAL itself refuses parameters beyond the table for 128 bits
        self.context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():
            raise CipherError(f"SEAL refuses degree {degree}: {self.context.parameters_error_message()}.")
        self.degree = degree
        self.q = int(primes[0].value())  # words of ciphertexts are residues of it
        self.encoder = seal.CKKSEncoder(self.context)
        self.iota: Complex128[np.ndarray, "slots"] = 1j * (-1.0) ** np.arange(degree // 2)
        # an unused key shows how SEAL serialises keys and ciphertexts
        public = seal.PublicKey()
        seal.KeyGenerator(self.context).create_public_key(public)
        sample = seal.Ciphertext()
        seal.Encryptor(self.context, public).encrypt(self.encode(np.zeros(1, np.complex128)), sample)
        with _scratch() as path:
            self.keys = _Form(public, 4 * degree, path)
            self.ciphertexts = _Form(sample, 2 * degree, path)

    def encode(self, slots: Complex128[np.ndarray, "slots"], scale: float = SCALE) -> Any:
        plain = self.seal.Plaintext()
        self.encoder.encode(slots.tolist(), float(scale), plain)
        return plain

    @cached_property
    def unit(self) -> UInt64[np.ndarray, "degree"]:
        """The words of X^(N/2)."""
        plain = self.encode(self.iota, 1.0)
        return np.array([plain[place] for place in range(self.degree)], np.uint64)


@lru_cache(maxsize=2)
def _tools(degree: int) -> _Tools:
    return _Tools(degree)


@final
class CkksPublicKey:
    """The devices' key: it encrypts, and computes on ciphertexts."""

    def __init__(self, lattice: Lattice, words: UInt64[np.ndarray, "words"]) -> None:
        if words.shape != (lattice.key_words,):
            raise CipherError(f"A public key has {lattice.key_words} words, not {words.shape}: check who sent it.")
        self._lattice = lattice
        self._tools = tools = _tools(lattice.degree)
        self.q = tools.q
        with _scratch() as path:
            key = tools.keys.fill(tools.seal.PublicKey(), tools.context, words, path)
        self._encryptor = tools.seal.Encryptor(tools.context, key)

    def encrypt(self, rows: Int64[np.ndarray, "rows entries"]) -> UInt64[np.ndarray, "count words"]:
        """Encrypt integers, two rows a ciphertext."""
        if rows.shape[1] > self._lattice.degree // 2:
            raise CipherError(f"Rows of {rows.shape[1]} entries have no room in {self._lattice}: take a larger one.")
        found = np.empty((self._lattice.count(len(rows)), self._lattice.words), np.uint64)
        iota = self._tools.iota[: rows.shape[1]]
        with _scratch() as path:
            for number in range(len(found)):
                slots = rows[2 * number].astype(np.complex128)
                if 2 * number + 1 < len(rows):
                    slots += iota * rows[2 * number + 1]
                ciphertext = self._tools.seal.Ciphertext()
                self._encryptor.encrypt(self._tools.encode(slots), ciphertext)
                found[number] = self._tools.ciphertexts.words(ciphertext, path)
        return found

    def add(
        self, left: UInt64[np.ndarray, "count words"], right: UInt64[np.ndarray, "count words"]
    ) -> UInt64[np.ndarray, "count words"]:
        """Return the ciphertexts of the sums."""
        return self._lattice.add(left, right, self.q)

    def multiply(
        self, left: Int64[np.ndarray, "outputs rows"], ciphertexts: UInt64[np.ndarray, "count words"]
    ) -> UInt64[np.ndarray, "outputs words"]:
        """Return the ciphertexts of left @ rows, in the first part of what is decrypted."""
        return self._lattice.multiply(left, ciphertexts, self._tools.unit, self.q)


@final
class CkksSecretKey:
    """The server's key."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self._tools = tools = _tools(lattice.degree)
        self.q = tools.q
        for _ in range(_MAX_KEY_DRAWS):
            generator = tools.seal.KeyGenerator(tools.context)
            self._decryptor = tools.seal.Decryptor(tools.context, generator.secret_key())
            if self.peak <= KEY_PEAK:
                break
        else:
            raise CipherError("No key of small peak was found: SEAL draws keys in another way than expected.")
        public = tools.seal.PublicKey()
        generator.create_public_key(public)
        with _scratch() as path:
            self.public_words = tools.keys.words(public, path)

    @property
    def peak(self) -> float:
        """The largest |s(zeta_k)|^2 over all slots, as a multiple of its mean 2N/3; about 1 key in 80 exceeds 12."""
        words = np.zeros((2, self.lattice.degree), np.uint64)
        words[1] = 1  # (0, 1) decrypts to the secret polynomial itself
        with _scratch() as path:
            slots = self._slots(words.reshape(-1), path) * SCALE
        return float(np.max(np.abs(slots)) ** 2 / (2 * self.lattice.degree / 3))

    def decrypt(self, ciphertexts: UInt64[np.ndarray, "count words"]) -> Int64[np.ndarray, "count 2 slots"]:
        """Return the two rows in each ciphertext, rounded to the exact integers."""
        found = np.empty((len(ciphertexts), 2, self.lattice.degree // 2), np.int64)
        with _scratch() as path:
            for number, words in enumerate(ciphertexts):
                slots = self._slots(words, path)
                parts = np.rint(np.stack([slots.real, (slots / self._tools.iota).real]))
                if not np.all(np.abs(parts) < LIMIT):
                    raise CipherError("Decrypted numbers are larger than any sum can be: check the key and the bounds.")
                found[number] = parts.astype(np.int64)
        return found

    def _slots(self, words: UInt64[np.ndarray, "words"], path: Path) -> Complex128[np.ndarray, "slots"]:
        tools, plain = self._tools, self._tools.seal.Plaintext()
        ciphertext = tools.ciphertexts.fill(tools.seal.Ciphertext(), tools.context, words, path)
        self._decryptor.decrypt(ciphertext, plain)
        return np.array(tools.encoder.decode_complex(plain))
