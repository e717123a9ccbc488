"""Atomic writes of result files, the version that they name, and large arrays that may lie in files."""

import json
import math
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Shaped

from codedfl.errors import RunDirectoryError, missing_study

DAMAGED = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, RuntimeError, MemoryError),
    *(NotImplementedError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy and zipfile raise for damaged or hostile files."""


@cache
def package_version() -> str:
    """Return the version of codedfl, which models, records and sites name; to look it up takes a millisecond."""
    return version("codedfl")


def write_whole(
    path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True, private: bool = False
) -> None:
    """Let ``write`` fill a temporary file, then rename it to ``path``; ``durable`` also survives a loss of power.

    A ``private`` file can be read by its owner only.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if not private:
            os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes private files
        os.replace(name, path)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files that a killed :func:`write_whole` left in a folder."""
    for path in folder.glob(".*.*"):
        if path.is_file() and path.name != ".lock":
            path.unlink(missing_ok=True)


def refuse_file(path: Path) -> None:
    """Refuse an output folder that is a file, before the folder is made."""
    try:
        wrong = path.exists() and not path.is_dir()
    except OSError as error:
        raise RunDirectoryError(f"cannot use '{path}' ({error.strerror}); choose another --out") from None
    if wrong:
        raise RunDirectoryError(f"'{path}' is a file, not a folder; choose another --out")


def make_folder(path: Path) -> None:
    """Make a folder for results."""
    refuse_file(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"cannot write to '{path}' ({error.strerror}); choose another --out") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_text(path: Path, text: str, *, durable: bool = True, private: bool = False) -> None:
    """Write text in UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()), durable=durable, private=private)


def write_json(path: Path, value: Any, *, durable: bool = True, private: bool = False) -> None:
    """Write indented JSON; refuse numbers that are not finite, because JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", durable=durable, private=private)


def write_arrays(path: Path, arrays: Mapping[str, Any], *, durable: bool = True, private: bool = False) -> None:
    """Write named arrays as .npz, without pickle."""
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays), durable=durable, private=private)


def require_parquet() -> None:
    """Refuse work whose results could not be written, before it begins."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise missing_study("pyarrow") from None


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns as Parquet."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(columns))
    write_whole(path, lambda file: pyarrow.parquet.write_table(table, file))


LARGE = 64 << 20
"""Bytes from which on an array may lie in a file."""
_overflow: ContextVar[list[Path] | None] = ContextVar("overflow", default=None)


@contextmanager
def overflow_scope() -> Iterator[None]:
    """Let :func:`overflow_to` hold until the end of the block, and no longer."""
    token = _overflow.set([])
    try:
        yield
    finally:
        _overflow.reset(token)


def overflow_to(folder: Path) -> None:
    """Let large arrays made from now on lie in files without a name, on the disk of a folder.

    Outside of :func:`overflow_scope` it has no effect.
    """
    folders = _overflow.get()
    if folders is not None:
        folders.append(folder)


def roomy(shape: tuple[int, ...], dtype: Any) -> Shaped[np.ndarray, "..."]:
    """Return an array to be filled: in memory, or if it is large and :func:`overflow_to` says so, in a file.

    The system writes such a file out when memory is short, and removes it with the array or the process.
    """
    folders, size = _overflow.get(), math.prod(shape) * np.dtype(dtype).itemsize
    if not folders or size < LARGE:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=folders[-1]) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a write to memory cannot tell that the disk is full
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
    except OSError as error:
        raise RunDirectoryError(
            f"cannot keep an array of {size / 1e9:.1f} GB on the disk of '{folders[-1]}' ({error.strerror}); free "
            "some space or choose another --out"
        ) from None
