"""Wrong input: commands that must be refused, in tables by what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FOLDER = None
"""The contents of a folder, among those of files."""


@dataclass(frozen=True)
class Wrong:
    """A command that must be refused: exit code, words of the sentence, and files to be there before."""

    command: tuple[str, ...]
    code: int
    says: tuple[str, ...] = ()
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    narrated: bool = False
    """Whether sentences about sources tried may come before."""
