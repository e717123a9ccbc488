"""Files are written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import storage
from codedfl.errors import RunDirectoryError
from codedfl.storage import write_arrays, write_json, write_parquet, write_text, write_whole
from rundirs import tree


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_a_writer_that_raises_leaves_the_old_file_and_no_other(old: Path, error: type[BaseException]) -> None:
    def write(file):
        file.write(b"half of the n")
        file.flush()
        raise error

    with pytest.raises(error):
        write_whole(old, write)
    assert tree(old.parent) == {"result": b"old"}


def test_a_writer_that_raises_makes_no_file_where_there_was_none(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_whole(tmp_path / "result", lambda file: 1 / 0)
    assert tree(tmp_path) == {}


def test_a_failing_replacement_leaves_the_old_file_and_no_other(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write_text(old, "new")
    assert tree(old.parent) == {"result": b"old"}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_json_refuses_what_json_cannot_say(old: Path, number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(old, {"fine": 1, "wrong": [number]})
    assert tree(old.parent) == {"result": b"old"}


def test_arrays_refuse_objects(old: Path) -> None:
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_arrays(old, {"good": np.ones(2), "bad": np.array([object()])})
    assert tree(old.parent) == {"result": b"old"}


def test_columns_of_unequal_length_are_refused(old: Path) -> None:
    with pytest.raises(ValueError, match="length"):
        write_parquet(old, {"a": [1, 2], "b": [1]})
    assert tree(old.parent) == {"result": b"old"}


def test_whoever_reads_the_old_file_goes_on_reading_the_old_file(old: Path) -> None:
    with old.open("rb") as reader:
        write_text(old, "new, and longer")
        assert reader.read() == b"old"
    assert old.read_bytes() == b"new, and longer"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "result", "x")
        assert os.umask(umask) == umask, "the process's own mask is left as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "result").stat().st_mode) == mode


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("text") / "file"
    write_text(path, text)
    assert path.read_bytes().decode() == text


def test_arrays_come_back_bit_for_bit(tmp_path: Path) -> None:
    arrays = {"a": np.array([0.1, np.nan, -0.0]), "b": np.arange(6, dtype=np.int64).reshape(2, 3), "c": np.float32(0.1)}
    write_arrays(tmp_path / "file.npz", arrays)
    with np.load(tmp_path / "file.npz", allow_pickle=False) as found:
        assert {name: found[name].tobytes() for name in found} == {
            name: np.asarray(value).tobytes() for name, value in arrays.items()
        }
        assert {name: found[name].dtype for name in found} == {
            name: np.asarray(value).dtype for name, value in arrays.items()
        }


def test_columns_come_back(tmp_path: Path) -> None:
    write_parquet(tmp_path / "file.parquet", {"n": np.arange(3), "x": [0.5, 0.25, 0.125]})
    table = pyarrow.parquet.read_table(tmp_path / "file.parquet")
    assert table.to_pydict() == {"n": [0, 1, 2], "x": [0.5, 0.25, 0.125]}


@pytest.fixture
def every_array_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LARGE", 1)


@pytest.mark.usefixtures("every_array_is_large")
def test_large_arrays_lie_in_files_without_a_name_within_a_scope(tmp_path: Path) -> None:
    with storage.overflow_scope():
        assert storage.roomy((3, 4), "float32").base is None
        storage.overflow_to(tmp_path)
        found = storage.roomy((3, 4), "float32")
        found[...] = np.arange(12).reshape(3, 4)
        assert isinstance(found.base, np.memmap)
        assert type(found) is np.ndarray
        assert tree(tmp_path) == {}
    assert found.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert storage.roomy((3, 4), "float32").base is None
    storage.overflow_to(tmp_path)  # no scope
    assert storage.roomy((3, 4), "float32").base is None


@pytest.mark.usefixtures("every_array_is_large")
def test_a_full_disk_is_told_when_the_array_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with storage.overflow_scope(), pytest.raises(RunDirectoryError, match=r"GB on the disk of .*No space left"):
        storage.overflow_to(tmp_path)
        storage.roomy((3, 4), "float32")
