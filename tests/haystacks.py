"""Looks for bytes that must not be there: at every offset of a stream, for rows, neighbouring numbers and secrets."""

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.masks import pairwise as masks
from codedfl.cipher.mceliece import private_key, public_key
from codedfl.cipher.seals import pads
from codedfl.deploy.protocol import envelopes
from codedfl.deploy.protocol.envelopes import DeviceKey, SessionKey
from codedfl.deploy.site.parcels import Parcel
from codedfl.schemes import Message
from codedfl.schemes.aggregated import masker
from codedfl.schemes.sharing import sealed

HEAD = 8
"""What is looked for is at least so many bytes long; shorter ones would turn up by chance."""

LATTICE_BYTES = 1024
"""So many bytes of a secret key of CKKS."""
MOST = 4096
"""So many bytes of an array of a parcel are looked for: ciphertexts of CKKS are long."""
OPEN_TO_ALL = {
    ("codedfl.deploy.site.session", "__init__"),
    ("codedfl.cipher.masks.pairwise", "close_envelope"),
    ("secrets", "token_hex"),
}
"""Who draws numbers that are no secrets: for a run, for an envelope, for names of files and sessions."""


class Needles:
    """What is looked for, by its kind."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[bytes]] = {}

    def add(self, kind: str, *patterns: bytes) -> None:
        self.kinds.setdefault(kind, set()).update(pattern for pattern in patterns if len(pattern) >= HEAD)

    def add_matrix(self, kind: str, matrix: np.ndarray, *, pairs: bool) -> None:
        """Every row; with ``pairs`` any two neighbours too, in a row or in a column.

        A third dimension holds the words of one number.
        """
        self.add(kind, *(row.tobytes() for row in matrix))
        if pairs:
            along = (matrix[i, j : j + 2] for i in range(len(matrix)) for j in range(matrix.shape[1] - 1))
            down = (matrix[i : i + 2, j] for i in range(len(matrix) - 1) for j in range(matrix.shape[1]))
            self.add(kind, *(pair.tobytes() for pair in (*along, *down)))

    def add_secret(self, kind: str, secret: bytes) -> None:
        """Any eight bytes of it."""
        self.add(kind, *(secret[start : start + HEAD] for start in range(len(secret) - HEAD + 1)))

    def found_in(self, payloads: Iterable[bytes]) -> set[str]:
        """The kinds of which anything is in one of these, at whatever offset."""
        heads: dict[int, list[tuple[str, bytes]]] = {}
        for kind, patterns in self.kinds.items():
            for pattern in patterns:
                heads.setdefault(int.from_bytes(pattern[:HEAD], "little"), []).append((kind, pattern))
        known, found = np.array(sorted(heads), "<u8"), set[str]()
        for stream in payloads:
            for start in _places(stream, known):
                head = int.from_bytes(stream[start : start + HEAD], "little")
                found |= {kind for kind, text in heads[head] if kind not in found and stream.startswith(text, start)}
        return found


def _places(stream: bytes, known: np.ndarray) -> Iterator[int]:
    """Where any of the known words begins."""
    for offset in range(min(HEAD, len(stream) - HEAD + 1) if len(known) else 0):
        words = np.frombuffer(stream, "<u8", (len(stream) - offset) // HEAD, offset)
        nearest = known[np.minimum(np.searchsorted(known, words), len(known) - 1)]
        yield from (HEAD * np.flatnonzero(nearest == words) + offset).tolist()


class Drawn:
    """Every secret that is drawn or made from one, and every parcel before it is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets: list[bytes] = []
        self.granted: list[bytes] = []
        self.shares: list[bytes] = []
        self.parcels: list[Message] = []
        token_bytes, write = secrets.token_bytes, Parcel.to_bytes

        def token(count: int | None = None) -> bytes:
            caller, text = sys._getframe(1), token_bytes(count)
            if (caller.f_globals["__name__"], caller.f_code.co_name) not in OPEN_TO_ALL:
                self.secrets.append(text)
            return text

        def written(parcel: Parcel) -> bytes:
            self.parcels.append(parcel.contents)
            return write(parcel)

        monkeypatch.setattr(secrets, "token_bytes", token)
        monkeypatch.setattr(Parcel, "to_bytes", written)
        for module in (sealed, masker, pads, private_key, public_key):
            self._note(monkeypatch, module, "fresh_seed")
        self._note(monkeypatch, sealed, "fresh_seed", self.granted)
        for owner, name in ((SessionKey, "agree"), (masks.AgreementKey, "agree"), (pads.Seed, "derive")):
            self._note(monkeypatch, owner, name)
        self._note(monkeypatch, envelopes, "_derived")
        self._keys(monkeypatch)

    def _note(self, monkeypatch: Any, owner: Any, name: str, kept: list[bytes] | None = None) -> None:
        made, where = getattr(owner, name), self.secrets if kept is None else kept

        def noted(*given: Any, **named: Any) -> bytes:
            text = made(*given, **named)
            where.append(text)
            return text

        monkeypatch.setattr(owner, name, noted)

    def _keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        close = masks.close_envelope

        def noting(begin: Callable[..., None]) -> Callable[..., None]:
            def noted(key: Any, *given: Any) -> None:
                begin(key, *given)
                self.secrets.append(key._private.private_bytes_raw())

            return noted

        def closed(key: bytes, contents: bytes, address: bytes) -> bytes:
            self.shares.append(contents)
            return close(key, contents, address)

        for owner in (DeviceKey, SessionKey):
            monkeypatch.setattr(owner, "__init__", noting(owner.__init__))
        monkeypatch.setattr(masker, "close_envelope", closed)

    def lattice(self, monkeypatch: pytest.MonkeyPatch, degree: int) -> None:
        """Note the words of secret keys of CKKS, which are SEAL's own."""
        tools, noted = ckks._tools(degree), self.secrets

        class Generator:
            def __init__(self, context: Any) -> None:
                self._own = seal.KeyGenerator(context)
                self.create_public_key = self._own.create_public_key

            def secret_key(self) -> Any:
                key = self._own.secret_key()
                with tempfile.TemporaryDirectory() as folder:
                    key.save(f"{folder}/key")
                    noted.append(ckks._read(Path(folder, "key").read_bytes())[-LATTICE_BYTES:])
                return key

        class Seal:
            KeyGenerator = Generator

            def __getattr__(self, name: str) -> Any:
                return getattr(seal, name)

        seal = tools.seal
        monkeypatch.setattr(tools, "seal", Seal())

    def add_to(self, found: Needles) -> Needles:
        """Let all of it be looked for."""
        for text in self.secrets + self.granted:
            found.add_secret("secrets", text)
        for contents in self.parcels:
            for array in contents.values():
                text = array.tobytes()[:MOST]
                found.add("parcels", *(text[at : at + 2 * HEAD] for at in range(0, len(text) - 2 * HEAD + 1, HEAD)))
        return found
