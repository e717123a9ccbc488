"""Files are written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from codedfl.errors import RunDirectoryError


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place; on any error nothing is left.

    A ``durable`` file survives a loss of power too.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes private files; these are results to share
        os.replace(name, path)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed :func:`write_whole` left in a folder."""
    for path in folder.glob(".*.*"):
        if path.is_file() and path.name != ".lock":
            path.unlink(missing_ok=True)


def refuse_file(path: Path) -> None:
    """Refuse a place for results that is a file; the folder is made when there is something to write."""
    try:
        wrong = path.exists() and not path.is_dir()
    except OSError as error:
        raise RunDirectoryError(f"cannot use '{path}' ({error.strerror}); choose another --out") from None
    if wrong:
        raise RunDirectoryError(f"'{path}' is a file, not a folder; choose another --out")


def make_folder(path: Path) -> None:
    """Make a folder for results, or say in a sentence why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RunDirectoryError(f"'{path}' is a file, not a folder; choose another --out") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot write to '{path}' ({error.strerror}); choose another --out") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write text in UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()), durable=durable)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write JSON for people and machines; a number that is not finite has no JSON, so there must be none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", durable=durable)


def write_arrays(path: Path, arrays: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write named arrays as .npz, without pickle."""
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays), durable=durable)


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns as Parquet."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(columns))
    write_whole(path, lambda file: pyarrow.parquet.write_table(table, file))
