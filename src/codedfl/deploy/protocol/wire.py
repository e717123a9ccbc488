"""Frames: requests, replies and parcels as bytes. A JSON header, then the arrays; no pickle.

    magic | length of the header | header | array bytes, one array after the other

The header holds the kind of frame, small values, and name, format and shape of every array. Numbers are little-endian.
Decoding validates every byte.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from codedfl.deploy.protocol.fields import one_line
from codedfl.errors import EngineError
from codedfl.schemes.messages import Message

_MAGIC = b"CFL1"
_LENGTH = struct.Struct("<I")
_FORMATS = {name: np.dtype(name) for name in ("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")}
_LARGEST_HEADER = 1 << 22
_MOST_DIMENSIONS = 8
_MOST_ARRAYS = 1 << 14
"""More than any request has; protects against headers that take long to read."""
_LONGEST_NAME = 64
LARGEST_FRAME = 1 << 31
"""Largest frame in bytes."""


@final
@dataclass(frozen=True)
class Frame:
    """The kind of a message, JSON values, and arrays."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Message = field(default_factory=dict, repr=False)


def encode(frame: Frame) -> bytes:
    """Encode a frame."""
    listed, parts = [], []
    for name, array in frame.arrays.items():
        plain = np.asarray(array)
        small = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        if small.dtype.str not in _FORMATS or not 0 < len(name) <= _LONGEST_NAME:
            raise EngineError(f"an array '{name[:_LONGEST_NAME]}' of {array.dtype} cannot be sent; send plain numbers")
        listed.append([name, small.dtype.str, list(small.shape)])
        parts.append(small.tobytes())
    try:
        header = json.dumps(
            {"kind": frame.kind, "fields": dict(frame.fields), "arrays": listed}, allow_nan=False, separators=(",", ":")
        ).encode()
    except (TypeError, ValueError, RecursionError):
        raise EngineError(f"a message '{frame.kind}' holds values that JSON cannot; send finite numbers") from None
    payload = b"".join([_MAGIC, _LENGTH.pack(len(header)), header, *parts])
    if len(header) > _LARGEST_HEADER or len(payload) > LARGEST_FRAME:
        raise EngineError(f"a message of {len(payload)} bytes is too large to be sent; use fewer features or devices")
    return payload


def decode(payload: bytes, *, most: int | None = None) -> Frame:
    """Decode a frame with at most ``most`` bytes of arrays, which are writable copies."""
    start = len(_MAGIC) + _LENGTH.size
    largest = LARGEST_FRAME if most is None else min(LARGEST_FRAME, start + _LARGEST_HEADER + most)
    if len(payload) > largest or payload[: len(_MAGIC)] != _MAGIC or len(payload) < start:
        raise EngineError(f"{len(payload)} bytes are not a message of this program; check that versions agree")
    (length,) = _LENGTH.unpack_from(payload, len(_MAGIC))
    if length > _LARGEST_HEADER or start + length > len(payload):
        raise EngineError(f"a message of {len(payload)} bytes announces a header of {length}; it was cut or altered")
    kind, fields, listed = _header(payload[start : start + length])
    if len(listed) > _MOST_ARRAYS:
        raise EngineError(f"a message lists {len(listed)} arrays, more than {_MOST_ARRAYS}; it was altered")
    arrays: dict[str, Any] = {}
    place = start + length
    for entry in listed:
        name, dtype, shape = _array(entry)
        count = math.prod(shape)
        if name in arrays or place + count * dtype.itemsize > len(payload):
            raise EngineError(
                f"array '{one_line(name)}' of a message comes twice or is longer than it; it was cut or altered"
            )
        try:
            arrays[name] = np.frombuffer(payload, dtype, count, place).reshape(shape).copy()
        except ValueError:  # an empty array with impossible sizes
            raise EngineError(
                f"array '{one_line(name)}' of a message has an impossible shape; it was altered"
            ) from None
        place += count * dtype.itemsize
    if place != len(payload):
        raise EngineError(f"a message has {len(payload) - place} bytes too many; it was altered")
    return Frame(kind, fields, arrays)


def _header(text: bytes) -> tuple[str, dict[str, Any], list[Any]]:
    try:
        found = json.loads(text.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)
        kind, fields, arrays = found["kind"], found["fields"], found["arrays"]
        sound = len(found) == 3 and isinstance(kind, str) and isinstance(fields, dict) and isinstance(arrays, list)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise EngineError("the header of a message cannot be read; it was altered, or versions differ")
    return kind, fields, arrays


def _array(entry: Any) -> tuple[str, "np.dtype[Any]", tuple[int, ...]]:
    name, form, shape = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    if not (
        isinstance(name, str)
        and 0 < len(name) <= _LONGEST_NAME
        and isinstance(form, str)
        and form in _FORMATS
        and isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size <= LARGEST_FRAME for size in shape)
    ):
        raise EngineError("an array of a message has no proper name, format and shape; it was altered")
    return name, _FORMATS[form], tuple(shape)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):  # 1e999, NaN
        raise ValueError(digits)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def pack_messages(messages: Mapping[int, Message]) -> dict[str, Any]:
    """Combine numbered messages into the arrays of one frame."""
    return {f"{number}/{name}": array for number, message in messages.items() for name, array in message.items()}


def unpack_messages(arrays: Message, numbers: Mapping[int, object] | list[int]) -> dict[int, dict[str, Any]]:
    """Return the messages of these numbers; refuse arrays of any other."""
    found: dict[str, dict[str, Any]] = {str(number): {} for number in numbers}
    for name, array in arrays.items():
        number, _, own = name.partition("/")
        if number not in found or not own:
            raise EngineError(f"an array called '{one_line(name)}' belongs to no message that was requested")
        found[number][own] = array
    return {int(number): message for number, message in found.items()}
