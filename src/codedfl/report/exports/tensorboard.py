"""Epochs of a run as an event file of TensorBoard, written without TensorBoard.

The format has been stable since TensorFlow 1: records framed by their length and masked CRC-32C checksums (TFRecord),
each a protocol buffer ``Event`` (field numbers of ``event.proto``, ``summary.proto`` and ``tensor.proto``). The library
would bring a web server, gRPC and protobuf for 60 lines.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from codedfl import storage
from codedfl.report.exports.epochs import ends, origin, series
from codedfl.report.exports.places import check_folder, replace_folder
from codedfl.runs import Run

EVENTS = "events.out.tfevents.0.codedfl"
"""TensorBoard reads files with ``tfevents`` in their names, one a folder."""
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_DT_STRING = 7
_REFLECTED_CASTAGNOLI = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def write_tensorboard(run: Run, out: Path) -> int:
    """Write a folder for ``tensorboard --logdir``; return the number of series.

    The step is the epoch. Relative time is that of the run's own draw: step 0 is the beginning, where values are not
    known yet.
    """
    check_folder(out, lambda folder: {each.name for each in folder.iterdir()} == {EVENTS})
    columns = dict(series(run))
    events = b"".join(map(_record, _events(run, columns)))
    replace_folder(out, lambda folder: storage.write_whole(folder / EVENTS, lambda file: file.write(events)))
    return len(columns)


def _events(run: Run, columns: Mapping[str, Float[np.ndarray, "epochs"]]) -> Iterator[bytes]:
    began, times = origin(run), ends(run)
    yield _double(1, began) + _bytes(3, b"brain.Event:2")
    yield _event(began, 0, [_text("scenario", _description(run)), *(_scalar(name, math.nan) for name in columns)])
    for row, (epoch, time) in enumerate(zip(run.epochs["epoch"].tolist(), times.tolist(), strict=True)):
        values = ((name, float(numbers[row])) for name, numbers in columns.items())
        yield _event(began + time, epoch, [_scalar(name, value) for name, value in values if math.isfinite(value)])


def _description(run: Run) -> str:
    """Return Markdown in which nothing of the scenario is markup: indented lines are code."""
    remark = run.summary.get("without_noise") or ""
    lines = "\n".join(f"    {line}" for line in run.scenario.to_toml().splitlines())
    return f"Scenario id {run.summary['scenario_id']}. {remark}\n\n{lines}\n"


def _event(time: float, step: int, values: list[bytes]) -> bytes:
    summary = b"".join(_bytes(1, value) for value in values)
    return _double(1, time) + _key(2, _VARINT) + _varint(step) + _bytes(5, summary)


def _scalar(tag: str, value: float) -> bytes:
    return _bytes(1, tag.encode()) + _key(2, _FIXED_32) + struct.pack("<f", value)


def _text(tag: str, text: str) -> bytes:
    """Encode a tensor of one string, shown by TensorBoard's plug-in for text."""
    shape = _bytes(2, _key(1, _VARINT) + _varint(1))
    tensor = _key(1, _VARINT) + _varint(_DT_STRING) + _bytes(2, shape) + _bytes(8, text.encode())
    return _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, _bytes(1, _bytes(1, b"text")))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _double(field: int, value: float) -> bytes:
    return _key(field, _FIXED_64) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode seven bits a byte, lowest first; all but the last byte have their highest bit set."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _masked_checksum(length) + content + _masked_checksum(content)


def _checksum_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_REFLECTED_CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _checksum_table()


def _masked_checksum(content: bytes) -> bytes:
    """Return the CRC-32C, rotated and shifted so that the checksum of data with checksums stays a good one."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    checksum ^= 0xFFFFFFFF
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF)
