"""Plain values, arrays and files as bytes: what comes back is what was packed, and nothing else is taken."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from codedfl.errors import EngineError
from codedfl.studies.archives import pack, unpack, unpack_files
from rundirs import tree

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.floats(allow_nan=False)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner),
    max_leaves=8,
)


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


@given(VALUES)
def test_plain_values_come_back(value: Any) -> None:
    found = unpack(pack(Pair(value, [value])), (Pair,))
    assert found == Pair(value, [value])
    assert repr(found.left) == repr(value), "equal types, signs of zeros and last bits, too"


@given(arrays(st.sampled_from([np.float32, np.float64, np.int64, np.bool_]), array_shapes(max_dims=3, max_side=4)))
def test_arrays_come_back_bit_by_bit(array: np.ndarray) -> None:
    found = unpack(pack({"a": [array]}))["a"][0]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_only_known_records_are_made() -> None:
    with pytest.raises(EngineError, match="Pair"):
        unpack(pack(Pair(1, 2)))


def test_objects_are_neither_packed_nor_unpacked() -> None:
    with pytest.raises(TypeError, match="object"):
        pack([object()])
    pickled = io.BytesIO()
    with zipfile.ZipFile(pickled, "w") as archive:
        archive.writestr("value.json", '{"array": 0}')
        with archive.open("arrays/0.npy", "w") as file:
            np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(EngineError, match="cannot be read"):
        unpack(pickled.getvalue())


@pytest.mark.parametrize("damage", [b"", b"PK", b"no archive at all"])
def test_damaged_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        unpack(damage)


def test_files_of_the_places_travel_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for name in ("runs/a/checkpoint.npz", "runs/a/.lock", "runs/b/summary.json", "one.json"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text(name)
    uses = ("runs/a", "one.json", "not/there")
    unpack_files(pack(None, mine, uses), theirs, uses)
    assert set(tree(theirs)) >= {"runs/a/checkpoint.npz", "one.json"}
    assert not (theirs / "runs/b").exists()
    (theirs / "runs/a/checkpoint.npz").unlink()
    (theirs / "runs/a/summary.json").write_text("finished")
    unpack_files(pack(None, theirs, uses), mine, uses)
    assert not (mine / "runs/a/checkpoint.npz").exists()
    assert (mine / "runs/a/summary.json").read_text() == "finished"
    assert (mine / "runs/b/summary.json").read_text() == "runs/b/summary.json", "another place is left alone"


@pytest.mark.parametrize("name", ["runs/b/model.npz", "runs/a/../../etc", "/etc/passwd", "runs"])
def test_files_outside_the_places_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr("value.json", "null")
        archive.writestr("files/runs/a/model.npz", "mine")
        archive.writestr(f"files/{name}", "not mine")
    with pytest.raises(EngineError, match="not part of its task"):
        unpack_files(forged.getvalue(), tmp_path / "out", ("runs/a",))
    assert tree(tmp_path) == {}
