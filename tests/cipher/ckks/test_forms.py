"""How SEAL writes objects: headers, compression, words; and the largest numbers that are decrypted."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from cipher.ckks.test_keys import LATTICE, keys, needs_tenseal
from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import LIMIT
from codedfl.errors import CipherError

COMPRESSED = {0: lambda body: body, 1: zlib.compress, 2: lambda body: pyarrow.compress(body, "zstd", asbytes=True)}
WORDS = np.array([1, 2**64 - 1, 258], np.uint64)
BODY = b"form" + struct.pack("<3Q", 1, 2**64 - 1, 258)


def saved(kind: int, body: bytes = BODY) -> bytes:
    """Sixteen bytes of header, the sixth of which says how the rest is compressed."""
    return b"SEAL!" + bytes([kind]) + b"ab" + struct.pack("<Q", 999) + COMPRESSED[kind](body)


class Saved:
    """An object of SEAL that is a file."""

    def __init__(self, contents: bytes = b"", refused: bool = False) -> None:
        self.contents, self.refused = contents, refused

    def save(self, path: str) -> None:
        Path(path).write_bytes(self.contents)

    def load(self, context: Any, path: str) -> None:
        if self.refused:
            raise RuntimeError(f"no words of {context}")
        self.contents = Path(path).read_bytes()


@pytest.mark.parametrize("kind", COMPRESSED)
def test_contents_are_read_however_they_are_compressed(kind: int) -> None:
    assert ckks._read(saved(kind)) == BODY


@pytest.mark.parametrize("kind", COMPRESSED)
def test_words_are_written_uncompressed_and_come_back(kind: int, tmp_path: Path) -> None:
    path, thing = tmp_path / "words", Saved()
    form = ckks._Form(Saved(saved(kind)), 3, path)
    assert form.words(Saved(saved(kind)), path).tolist() == WORDS.tolist()
    assert form.fill(thing, "a context", WORDS[::-1].copy(), path) is thing
    size = struct.pack("<Q", 16 + 4 + 24)
    assert thing.contents == b"SEAL!\0ab" + size + b"form" + struct.pack("<3Q", 258, 2**64 - 1, 1)
    assert form.words(thing, path).tolist() == WORDS[::-1].tolist()


def test_another_form_and_words_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "words"
    form = ckks._Form(Saved(saved(0)), 3, path)
    with pytest.raises(CipherError, match="SEAL wrote a ciphertext of another form"):
        form.words(Saved(saved(0, b"frm " + BODY[4:])), path)
    with pytest.raises(CipherError, match=r"no key or ciphertext \(no words of a context\)"):
        form.fill(Saved(refused=True), "a context", WORDS, path)


@needs_tenseal
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_below_2_to_the_31_are_decrypted(row: int, sign: int) -> None:
    secret, public = keys()
    rows = np.zeros((2, 3), np.int64)
    rows[row, 1] = sign * (LIMIT - 1)
    assert np.array_equal(secret.decrypt(public.encrypt(rows))[0, :, :3], rows)
    rows[row, 1] = sign * LIMIT
    with pytest.raises(CipherError, match="larger than any sum can be"):
        secret.decrypt(public.encrypt(rows))


@needs_tenseal
def test_keys_are_as_long_as_the_lattice_says() -> None:
    secret, public = keys()
    assert secret.public_words.shape == (LATTICE.key_words,)
    assert secret.q == public.q == ckks._tools(LATTICE.degree).q
    assert public.encrypt(np.zeros((0, 3), np.int64)).shape == (0, LATTICE.words)
