"""Follows a deployed training by the status file of its server."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_EVERY = 0.3
"""Seconds between looks at the file."""


@contextmanager
def followed_status(path: Path, show: Callable[[dict[str, Any]], object]) -> Iterator[None]:
    """Give every new content of a status file to ``show``, in a thread; what was there before is of an earlier job."""
    over, earlier = threading.Event(), _stamp(path)

    def follow() -> None:
        seen = earlier
        while True:
            last = over.wait(_EVERY)  # look once more after the end
            found = _stamp(path)
            table = _read(path) if found not in (None, seen) else None
            if table is not None:
                seen = found
                show(table)
            if last:
                return

    thread = threading.Thread(target=follow, name="codedfl-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes whenever a file is replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("devices"), list) else None
