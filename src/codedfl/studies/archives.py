"""Plain values, arrays and files as bytes, without pickle.

A ZIP archive with ``value.json``, ``arrays/N.npy`` and ``files/PATH``. Who reads one names the record types and the
places that may be in it.
"""

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from codedfl import storage
from codedfl.errors import EngineError

_LAST = "summary.json"
"""Written after all other files: a run that has it is finished."""


def pack(value: Any, folder: Path | None = None, uses: Iterable[str] = ()) -> bytes:
    """Return a value, and the files below some places of a folder.

    >>> unpack(pack({1: [0.1, float("inf")], "two": np.arange(3)}))
    {1: [0.1, inf], 'two': array([0, 1, 2])}
    """
    arrays: list[np.ndarray[Any, Any]] = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("value.json", json.dumps(_to_plain(value, arrays)))
        for number, array in enumerate(arrays):
            with archive.open(f"arrays/{number}.npy", "w", force_zip64=True) as file:
                np.save(file, array, allow_pickle=False)
        if folder is not None:
            for path in files_below(folder, uses):
                archive.write(path, f"files/{path.relative_to(folder).as_posix()}")
    return buffer.getvalue()


def unpack(data: bytes, records: Sequence[type] = ()) -> Any:
    """Return the value of an archive; its records may be of the given types only."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            plain = json.loads(archive.read("value.json"))
            return _from_plain(plain, archive, {kind.__name__: kind for kind in records})
    except storage.DAMAGED as error:
        raise EngineError(f"a result cannot be read ({error}); use workers of the same codedfl") from None


def unpack_files(data: bytes, folder: Path, uses: Sequence[str]) -> None:
    """Write the files of an archive below a folder, and remove what else is at their places.

    A file outside the places is refused before anything is written. ``summary.json`` is written last.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.startswith("files/")]
        found = {PurePosixPath(name.removeprefix("files/")): name for name in names}
        for path in found:
            if not any(path.is_relative_to(place) for place in uses) or ".." in path.parts or path.is_absolute():
                raise EngineError(
                    f"a worker returned the file '{path}', which is not part of its task; check the workers"
                )
        for path in sorted(found, key=lambda path: (path.name == _LAST, -len(path.parts), path)):
            target = folder / path
            storage.make_folder(target.parent)
            content = archive.read(found[path])
            storage.write_whole(target, lambda file, content=content: file.write(content))  # type: ignore[misc]
    kept = {folder / path for path in found}
    for stale in set(files_below(folder, uses)) - kept:
        stale.unlink()


def files_below(folder: Path, uses: Iterable[str]) -> list[Path]:
    """Return the files at some places of a folder, and below them; hidden ones are left out."""
    found = []
    for place in uses:
        chosen = folder / place
        entries = [chosen] if chosen.is_file() else sorted(chosen.rglob("*")) if chosen.is_dir() else []
        found += [path for path in entries if path.is_file() and not path.name.startswith(".")]
    return found


def _to_plain(value: Any, arrays: list[Any]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"record": type(value).__name__, "fields": {k: _to_plain(v, arrays) for k, v in entries.items()}}
    if isinstance(value, Mapping):
        return {"table": [[_to_plain(key, arrays), _to_plain(item, arrays)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_to_plain(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_to_plain(item, arrays) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is no plain value")


def _from_plain(plain: Any, archive: zipfile.ZipFile, records: Mapping[str, type]) -> Any:
    def read(item: Any) -> Any:
        return _from_plain(item, archive, records)

    if isinstance(plain, list):
        return [read(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        content = io.BytesIO(archive.read(f"arrays/{int(plain['array'])}.npy"))
        return np.load(content, allow_pickle=False)
    if "record" in plain:
        return records[plain["record"]](**{name: read(item) for name, item in plain["fields"].items()})
    if "tuple" in plain:
        return tuple(read(item) for item in plain["tuple"])
    return {read(key): read(item) for key, item in plain["table"]}
