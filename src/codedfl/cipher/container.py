"""One file format for keys, supports and messages: named arrays and plain fields, nothing that can run.

    bytes 0-7    b"codedfl" and a zero byte
    bytes 8-9    version of the format, little-endian
    bytes 10-13  length of the header, little-endian
    header       JSON: kind, fields, and name, dtype and shape of each array
    arrays       raw, little-endian, row after row, in the order of the header
    last 32      SHA-256 of everything before

The digest finds truncation and damage. It does not say who wrote the file: anyone can compute it. Carry
files over a channel that authenticates, or compare the key's fingerprint by other means.
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from codedfl.errors import KeyFileError

__all__ = ["VERSION", "Container", "read_container", "write_container"]

MAGIC = b"codedfl\x00"
VERSION = 1
_PREFIX = len(MAGIC) + 2 + 4
_DIGEST = hashlib.sha256().digest_size
_DTYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "int64": "<i8"}


@final
@dataclass(frozen=True, eq=False, repr=False)
class Container:
    """What a file holds: its kind, plain fields and named arrays."""

    kind: str
    fields: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def write_container(path: Path, container: Container, *, secret: bool) -> None:
    """Write so that readers see the old file or the whole new one; ``secret`` files are for their owner."""
    try:
        with _replacing(path, 0o600 if secret else 0o666) as file:
            digest = hashlib.sha256()
            for piece in _pieces(container):
                digest.update(piece)
                file.write(piece)
            file.write(digest.digest())
    except OSError as error:
        raise KeyFileError(
            f"Cannot write {path} ({error.strerror}): choose a folder that exists and may be written."
        ) from error


def _pieces(container: Container) -> Iterator[bytes | memoryview]:
    stored = {
        name: np.ascontiguousarray(array, dtype=_DTYPES[array.dtype.name]) for name, array in container.arrays.items()
    }
    header = {
        "kind": container.kind,
        "fields": dict(container.fields),
        "arrays": [
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)} for name, array in stored.items()
        ],
    }
    text = json.dumps(header, sort_keys=True).encode()
    yield MAGIC + VERSION.to_bytes(2, "little") + len(text).to_bytes(4, "little") + text
    for array in stored.values():
        yield array.reshape(-1).view(np.uint8).data


@contextlib.contextmanager
def _replacing(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file beside ``path`` that takes its place once it is safely on disk."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_container(path: Path, kind: str) -> Container:
    """Read a file of the given kind; anything else, older, shorter or altered is refused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"Cannot read {path} ({error.strerror}): check the path.") from error
    header_end = _checked_header_end(path, data)
    try:
        container = _parsed(data, header_end)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeyFileError(
            f"{path} has a sound checksum but its header is not that of a {kind} ({error}): write it again."
        ) from error
    if container.kind != kind:
        raise KeyFileError(f"{path} holds a {container.kind}, not a {kind}: give the file of the {kind}.")
    return container


def _checked_header_end(path: Path, data: bytes) -> int:
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise KeyFileError(f"{path} does not start with the mark of a codedfl file: give a file written by save.")
    if len(data) < _PREFIX + _DIGEST:
        raise KeyFileError(f"{path} is cut short after {len(data)} bytes: copy it again from its source.")
    version = int.from_bytes(data[8:10], "little")
    if version != VERSION:
        raise KeyFileError(
            f"{path} has format version {version} and this program reads version {VERSION}: "
            "write it again with the matching version."
        )
    if hashlib.sha256(memoryview(data)[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise KeyFileError(
            f"{path} ({len(data)} bytes) does not match its checksum, so it was cut short or altered: "
            "copy it again from its source."
        )
    return _PREFIX + int.from_bytes(data[10:14], "little")


def _parsed(data: bytes, header_end: int) -> Container:
    header = json.loads(data[_PREFIX:header_end])
    arrays: dict[str, np.ndarray] = {}
    at, end = header_end, len(data) - _DIGEST
    for entry in header["arrays"]:
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(int(size) for size in entry["shape"])
        count = int(np.prod(shape, dtype=object))
        if min(shape, default=0) < 0 or at + count * dtype.itemsize > end:
            raise ValueError(f"array {entry['name']!r} of shape {shape} does not fit the file")
        values = np.frombuffer(data, dtype=dtype, count=count, offset=at).reshape(shape)
        arrays[str(entry["name"])] = values.astype(dtype.newbyteorder("="))
        at += count * dtype.itemsize
    if at != end:
        raise ValueError(f"{end - at} bytes belong to no array")
    return Container(kind=str(header["kind"]), fields=dict(header["fields"]), arrays=arrays)
