"""Frames: what is written is read, and whatever was cut, altered or made up is refused in one sentence."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from codedfl.deploy.protocol import wire
from codedfl.deploy.protocol.wire import Frame, decode, encode, pack_messages, unpack_messages
from codedfl.errors import EngineError
from tiny import is_one_sentence

FORMATS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
fields = st.dictionaries(st.text(), st.recursive(plain, st.lists, max_leaves=5), max_size=4)
shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
messages = st.dictionaries(
    st.text(min_size=1, max_size=20),
    st.sampled_from(FORMATS).flatmap(lambda name: arrays.arrays(np.dtype(name), shapes)),
    max_size=4,
)
frames = st.builds(Frame, st.text(), fields, messages)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@settings(max_examples=30)
@given(frames)
def test_what_is_written_is_read(frame: Frame) -> None:
    found = decode(encode(frame))
    assert (found.kind, found.fields) == (frame.kind, frame.fields)
    assert list(found.arrays) == list(frame.arrays)
    assert all(same(found.arrays[name], array) for name, array in frame.arrays.items())
    assert all(array.flags.writeable and array.flags.aligned for array in found.arrays.values())


def test_the_layout_is_what_the_description_says() -> None:
    """Magic, a length of four bytes, JSON, and the numbers, little-endian whatever they were."""
    payload = encode(Frame("k", {"a": 1}, {"x": np.array([[1, 2]], ">u2"), "y": np.array(1.0)[()]}))
    (length,) = struct.unpack("<I", payload[4:8])
    header = json.loads(payload[8 : 8 + length])
    assert payload[:4] == b"CFL1"
    assert header == {"kind": "k", "fields": {"a": 1}, "arrays": [["x", "<u2", [1, 2]], ["y", "<f8", []]]}
    assert payload[8 + length :] == b"\x01\x00\x02\x00" + struct.pack("<d", 1.0)


@settings(max_examples=40)
@given(frames, st.data())
def test_a_cut_or_lengthened_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    payload = encode(frame)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    for broken in (cut, payload + b"\0"):
        with pytest.raises(EngineError) as error:
            decode(broken)
        assert is_one_sentence(str(error.value))


@settings(max_examples=40)
@given(frames, st.data())
def test_an_altered_frame_is_refused_or_read_as_another_never_more(frame: Frame, data: st.DataObject) -> None:
    """A frame protects nothing by itself; but no bytes make the reader fail in another way."""
    payload = bytearray(encode(frame))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(payload))
    except EngineError as error:
        assert is_one_sentence(str(error))


@given(st.binary(max_size=200))
def test_garbage_is_refused(payload: bytes) -> None:
    with pytest.raises(EngineError):
        decode(payload)


def raw(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"CFL1" + struct.pack("<I", len(text)) + text + body


ARRAY = ["x", "<f8", [1]]


@pytest.mark.parametrize(
    "payload",
    [
        raw({"kind": "k", "fields": {}}),
        raw({"kind": "k", "fields": {}, "arrays": [], "more": 1}),
        raw({"kind": 3, "fields": {}, "arrays": []}),
        raw({"kind": "k", "fields": [], "arrays": []}),
        raw({"kind": "k", "fields": {}, "arrays": {}}),
        raw(b'{"kind":"k","kind":"l","fields":{},"arrays":[]}'),
        raw(b'{"kind":"k","fields":{"a":NaN},"arrays":[]}'),
        raw(b'{"kind":"k","fields":{"a":1e999},"arrays":[]}'),
        raw(b"[" * 100_000),
        raw(b"\xff"),
        raw({"kind": "k", "fields": {}, "arrays": [ARRAY, ARRAY]}, bytes(16)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "|O", [1]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", ">f8", [1]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8", [-1]]]}),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8", [True]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8", [2**40, 2**40]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8", [1] * 9]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8", [2**31, 0, 2**31, 2**31]]]}),
        raw({"kind": "k", "fields": {}, "arrays": [["", "<f8", [1]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x" * 65, "<f8", [1]]]}, bytes(8)),
        raw({"kind": "k", "fields": {}, "arrays": [["x", "<f8"]]}, bytes(8)),
        b"CFL1" + struct.pack("<I", 2**31) + b"{}",
    ],
)
def test_a_header_that_says_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(EngineError) as error:
        decode(payload)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([None]), np.array([1j])])
def test_only_plain_numbers_are_sent(array: np.ndarray) -> None:
    with pytest.raises(EngineError, match="plain numbers"):
        encode(Frame("k", {}, {"x": array}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, np.float64(1).dtype])
def test_only_values_that_json_can_hold_are_sent(value: Any) -> None:
    with pytest.raises(EngineError, match="JSON cannot") as error:
        encode(Frame("k", {"a": value}))
    assert is_one_sentence(str(error.value))


def test_no_more_is_taken_than_was_to_come() -> None:
    """Arrays of 800 bytes, and a header of its largest size."""
    payload = encode(Frame("k", {}, {"x": np.zeros(100)}))
    assert decode(payload, most=800).arrays["x"].shape == (100,)
    longer = encode(Frame("k", {}, {"x": np.zeros(wire._LARGEST_HEADER // 8 + 101)}))
    with pytest.raises(EngineError):
        decode(longer, most=800)


def test_too_large_a_frame_is_neither_sent_nor_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = encode(Frame("k", {}, {"x": np.zeros(100)}))
    monkeypatch.setattr(wire, "LARGEST_FRAME", len(payload) - 1)
    with pytest.raises(EngineError, match="too large"):
        encode(Frame("k", {}, {"x": np.zeros(100)}))
    with pytest.raises(EngineError):
        decode(payload)


@settings(max_examples=30)
@given(st.dictionaries(st.integers(0, 10**6), messages, max_size=3))
def test_numbered_messages_come_out_as_they_went_in(numbered: dict[int, dict[str, np.ndarray]]) -> None:
    found = unpack_messages(decode(encode(Frame("k", {}, pack_messages(numbered)))).arrays, list(numbered))
    assert found.keys() == numbered.keys()
    for number, message in numbered.items():
        assert list(found[number]) == list(message)
        assert all(same(found[number][name], array) for name, array in message.items())


@pytest.mark.parametrize("name", ["x", "3", "03/x", "-1/x", "4/x", "3/", "²/x"])
def test_an_array_of_no_asked_message_is_refused(name: str) -> None:
    with pytest.raises(EngineError):
        unpack_messages({name: np.zeros(1)}, [3])
