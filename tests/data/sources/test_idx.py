import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from codedfl.data.sources.idx import read_idx
from codedfl.errors import DataError


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@given(arrays(np.uint8, array_shapes(max_dims=3, max_side=6)))
def test_reads_back_what_was_written(array):
    np.testing.assert_array_equal(read_idx(idx(array), "file", array.ndim), array)


@given(st.data())
def test_every_truncation_is_refused(data):
    raw = idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DataError, match="some-file"):
        read_idx(raw[:cut], "some-file", 3)


@pytest.mark.parametrize(
    ("raw", "rank", "sentence"),
    [
        (idx(np.zeros(3, np.uint8)) + b"x", 1, "promises 11"),
        (idx(np.zeros(3, np.uint8)), 3, "truncated"),
        (idx(np.zeros((4, 4), np.uint8)), 1, "not an idx file"),
        (b"\x1f\x8b\x08\x00" + bytes(20), 1, "0x1f8b0800"),
        (b"", 9, "idx header alone needs 40"),
    ],
)
def test_wrong_files_are_refused(raw, rank, sentence):
    with pytest.raises(DataError, match=sentence):
        read_idx(raw, "file", rank)
