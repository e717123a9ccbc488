"""Which devices were in the sums that a site has opened in a run, also before an interruption.

The difference of two sums of one epoch that differ in one device is that device's reply. So a resumed run may ask for
an epoch again only with the same devices.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import final

from codedfl.errors import RefusalError

FILE = "opened-sums.txt"
"""In ``records/RUN/`` of a site; it stays there."""


@final
class SumMemory:
    """The sums of one run; thread-safe. Without a folder it is in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self._lock = threading.Lock()
        self._path = None if folder is None else folder / FILE
        self._opened: dict[str, str] = {}
        if self._path is not None and self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            self._opened = dict(line.split(" ", 1) for line in lines if " " in line)

    def admit(self, site: str, part: str, epoch: int, members: Sequence[int]) -> None:
        """Refuse a sum of other devices than those whose sum was opened before."""
        with self._lock:
            before = self._opened.get(_key(part, epoch))
        if before is not None and before != _words(members):
            raise RefusalError(
                f"{site} has opened the sum of epoch {epoch} with the devices {before} and refuses one with "
                f"{_words(members)}, because their difference shows single devices; resume with the same devices"
            )

    def opened(self, part: str, epoch: int, members: Sequence[int]) -> None:
        """Remember a sum before its last reply leaves the site."""
        key = _key(part, epoch)
        with self._lock:
            if key in self._opened:
                return
            self._opened[key] = _words(members)
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{key} {self._opened[key]}\n")


def _key(part: str, epoch: int) -> str:
    return f"{part}/{epoch}"


def _words(members: Sequence[int]) -> str:
    return ",".join(str(number) for number in sorted(members))
