"""Safe downloads: pinned by checksum, bounded in size and time, written atomically."""

import gzip
import hashlib
import http.client
import io
import os
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codedfl.errors import DataError, DownloadError
from codedfl.progress import Progress
from codedfl.storage import write_whole

STALL_SECONDS = 10.0
DEADLINE_SECONDS = 600.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, pinned by the size and SHA-256 of its uncompressed bytes."""

    name: str
    sha256: str
    size: int

    @property
    def spellings(self) -> tuple[str, ...]:
        """Usual names of this file: with '-' or '.' before idx, plain or gzip."""
        dotted = self.name.replace("-idx", ".idx")
        return tuple(dict.fromkeys((self.name, dotted, f"{self.name}.gz", f"{dotted}.gz")))

    def matches(self, content: bytes) -> bool:
        """Whether these are the pinned bytes."""
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256


def cache_directory() -> Path:
    """Return the folder of verified files: ``$CODEDFL_CACHE``, else the platform's cache folder."""
    chosen = os.environ.get("CODEDFL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # the XDG specification asks to ignore a relative path
    root = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "codedfl"


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` completely or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(content))
    except OSError as error:
        raise DataError(
            f"the cache folder {path.parent} cannot be written ({error.strerror or error});"
            " set CODEDFL_CACHE to a writable folder with enough space."
        ) from error


def gunzip(compressed: bytes, limit: int) -> bytes:
    """Decompress at most ``limit`` bytes; refuse a longer content without expanding it."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(compressed)).read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DownloadError(f"the gzip data is broken ({error})") from error
    if len(content) > limit:
        raise DownloadError(f"the gzip data expands beyond the {limit} bytes expected")
    return content


class BoundedReader(io.RawIOBase):
    """A stream of at most ``limit`` bytes, against archives that expand without end."""

    def __init__(self, source: Callable[[int], bytes], limit: int) -> None:
        super().__init__()
        self._source = source
        self._left = limit

    def read(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes."""
        content = self._source(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise DownloadError("the archive expands far beyond the size expected")
        return content


def http_get(address: str, limit: int, progress: Progress) -> bytes:
    """Download ``address`` into memory; fail when it stalls, takes too long or exceeds ``limit`` bytes."""
    if not address.startswith(("https://", "http://")):
        raise DownloadError(f"{address} is not a web address")
    give_up = time.monotonic() + DEADLINE_SECONDS
    content = bytearray()
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "codedfl"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=STALL_SECONDS) as response:  # noqa: S310
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(CHUNK_BYTES):
                content += chunk
                progress(f"fetching {address.rpartition('/')[2]}", len(content), total)
                if len(content) > limit:
                    raise DownloadError(f"it sends more than the {limit} bytes expected")
                if time.monotonic() > give_up:
                    raise DownloadError(f"it took longer than {DEADLINE_SECONDS:.0f} s")
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"it answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DownloadError(f"it could not be reached ({error.reason})") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(f"it broke off ({error})") from error
    if total and len(content) != total:
        raise DownloadError(f"it broke off after {len(content)} of {total} bytes")
    return bytes(content)
