"""Tasks of a study: functions of plain values, which other processes or machines can carry out as well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Done = Callable[[int, int], None]
"""Called with how many tasks are finished, and how many there are."""


class StudyPart(NamedTuple):
    """A function of a module and its arguments; what it returns depends on nothing else.

    With a ``folder``, that is its first argument, and ``uses`` are the files and folders in it that the task may read
    and write, ``reads`` those that it only reads: a machine without access to the folder gets copies of all, and the
    new contents of ``uses``, which no other task uses, come back. Results are plain values, arrays, and instances of
    the ``records``.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    folder: Path | None = None
    uses: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    records: tuple[type, ...] = ()

    def carry_out(self, *more: Any) -> Any:
        """Call the function, with further arguments at the end."""
        place = () if self.folder is None else (str(self.folder),)
        return self.function(*place, *self.arguments, *more)
