"""Every error that codedfl raises on purpose.

One sentence each: what was wrong, with which value, and what to do about it. The tree:

    CodedflError               anything below; the command line prints it and exits with 1
    ├── UsageError             the request itself is wrong; the command line exits with 2
    │   └── ScenarioError      a scenario file or ``--set`` holds a wrong key or value
    │       └── NotCountedError    the costs of a scheme are not known yet
    ├── DataError              a data set or a feature file cannot be used
    │   └── DownloadError      no source of a data set answered with the right bytes
    ├── CodeError              a code cannot be built as asked for
    │   └── UndecodableError   a set of erasures cannot be corrected (it says which positions)
    ├── CipherError            keys, ciphertexts or supports that do not fit together
    │   └── KeyFileError       a key or ciphertext file is truncated, altered or of another version
    ├── TrainingError          a run cannot go on (divergence)
    │   └── LostDevicesError   too few devices are left; the run is saved
    │       ├── LyingDeviceError   a device replies wrong numbers, and too few others reply to tell which one
    │       └── ReturnedDevicesError   lost devices are back; the run goes on with them
    ├── EngineError            sites cannot be reached, or answer what cannot be used
    │   ├── NoSessionError     a site knows nothing of the session, because it was started again
    │   ├── ParcelError        a parcel between devices was refused
    │   └── RefusalError       a site refuses what its owner has not agreed to
    ├── RecordError            a site's record is not genuine
    ├── RunDirectoryError      a run directory belongs to another experiment or is damaged
    └── MissingExtraError      an optional dependency is not installed

``CodedflWarning`` is what ``warnings`` shows where a choice is allowed and unsafe.
"""


def printable(text: str) -> str:
    """Return a text without control and formatting characters, which could take over a terminal or forge a log.

    >>> printable("red \\x1b[31m, reversed \\u202e")
    'red ?[31m, reversed ?'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


class CodedflError(Exception):
    """Base of all errors raised on purpose; a sentence may quote what others sent, so it is made printable."""

    def __init__(self, *sentences: object) -> None:
        super().__init__(*(printable(each) if isinstance(each, str) else each for each in sentences))


class UsageError(CodedflError):
    """The request itself is wrong."""


class ScenarioError(UsageError):
    """A scenario holds a wrong key or value."""


class NotCountedError(ScenarioError):
    """The costs of a scheme are not known yet."""


class DataError(CodedflError):
    """A data set or a feature file cannot be used."""


class DownloadError(DataError):
    """No source of a data set answered with the right bytes."""


class CodeError(CodedflError):
    """A code cannot be built as asked for."""


class UndecodableError(CodeError):
    """A set of erasures cannot be corrected."""


class CipherError(CodedflError):
    """Keys, ciphertexts or supports do not fit together."""


class KeyFileError(CipherError):
    """A key or ciphertext file is truncated, altered or of another version."""


class TrainingError(CodedflError):
    """A run cannot go on."""


class LostDevicesError(TrainingError):
    """Too few devices reply for a run to go on; its state is saved."""


class LyingDeviceError(LostDevicesError):
    """A device replies wrong numbers, and too few others reply to tell which one, or to go on without it."""


class ReturnedDevicesError(LostDevicesError):
    """Devices that were lost are back, so that a run begins another session with them."""


class EngineError(CodedflError):
    """Sites cannot be reached, or answer what cannot be used."""


class NoSessionError(EngineError):
    """A site takes part in another session, or in none: it was started again, or has served another server since."""


class ParcelError(EngineError):
    """A parcel between devices was refused."""


class RefusalError(EngineError):
    """A site refuses what its owner has not agreed to."""


class RecordError(CodedflError):
    """A site's record is not genuine."""


class RunDirectoryError(CodedflError):
    """A run directory belongs to another experiment or is damaged."""


class MissingExtraError(CodedflError):
    """An optional dependency is not installed."""


HEAVY = ("numba", "pyarrow", "scipy", "sklearn")
"""Libraries of studies, which a site does without: the extra ``study``."""


def missing_study(library: str) -> MissingExtraError:
    """Say that a library of studies is not installed.

    >>> raise missing_study("scipy")
    Traceback (most recent call last):
    codedfl.errors.MissingExtraError: this needs scipy, which is not installed; pip install 'codedfl[study]'
    """
    return MissingExtraError(f"this needs {library}, which is not installed; pip install 'codedfl[study]'")


class MissingLibrary:
    """Stands for a library that is not installed: whoever uses it is told what to install."""

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        raise missing_study(self._library)


class CodedflWarning(UserWarning):
    """A choice is allowed and unsafe, such as a scheme whose cipher is broken."""
