"""Where an export may be written: what other programs or people have made is never overwritten."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from codedfl.errors import UsageError


def check_file(path: Path, is_own: Callable[[Path], bool]) -> None:
    """Refuse a folder, and a file that is neither empty nor an earlier export."""
    if path.is_dir():
        raise UsageError(f"'{path}' is a folder; choose a file")
    if path.exists() and path.stat().st_size > 0 and not is_own(path):
        raise UsageError(f"'{path}' exists and is not what this command writes; choose another file")


def check_folder(path: Path, is_own: Callable[[Path], bool]) -> None:
    """Refuse a file, and a folder that is neither empty nor an earlier export."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"'{path}' is a file; choose a folder")
    if path.is_dir() and any(path.iterdir()) and not is_own(path):
        raise UsageError(f"'{path}' exists and is not what this command writes; choose another folder")


def replace_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Let ``fill`` change a copy of a folder, or an empty one, and put it in the place of ``path``.

    If it fails, everything is as it was before.
    """
    path = path.absolute()
    missing = [each for each in path.parents if not each.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}."))
    try:
        new = work / "new"
        if path.is_dir():
            shutil.copytree(path, new)
        else:
            new.mkdir()
        fill(new)
        _swap(path, new, work / "old")
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        for parent in missing:  # innermost first; one that another process has filled meanwhile stays
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        raise
    shutil.rmtree(work, ignore_errors=True)


def _swap(path: Path, new: Path, old: Path) -> None:
    """Rename twice; if something takes the name in between, undo the first."""
    there = path.is_dir()
    if there:
        path.rename(old)
    try:
        new.rename(path)
    except OSError:
        if there:
            old.rename(path)
        raise
