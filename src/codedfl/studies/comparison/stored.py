"""What was worked out before is read, not worked out again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codedfl.storage import make_folder, write_json

__all__ = ["stored"]


def stored(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the JSON value of a file; where there is none, or a damaged one, compute it and write it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        value = compute()
    make_folder(path.parent)
    write_json(path, value)
    return value
