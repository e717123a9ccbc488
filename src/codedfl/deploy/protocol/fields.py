"""Small values of a message that came from elsewhere: each is what it should be, or the message is refused in words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.errors import EngineError

__all__ = ["MOST_COUNTED", "count", "counts", "flag", "names", "real", "rows", "text", "words"]

MOST_COUNTED = 1 << 53
"""Counts are below this, so that sums of a thousand of them fit 64 bits."""
_LONGEST_WORDS = 300

Fields = Mapping[str, Any]


def count(fields: Fields, name: str) -> int:
    """Return a whole number that is not negative."""
    value = fields.get(name)
    if type(value) is not int or not 0 <= value < MOST_COUNTED:
        raise _refused(name, "a whole number")
    return value


def counts(fields: Fields, name: str) -> list[int]:
    """Return a list of whole numbers that are not negative."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < MOST_COUNTED for each in value):
        raise _refused(name, "a list of whole numbers")
    return value


def real(fields: Fields, name: str) -> float:
    """Return a finite number that is not negative."""
    value = fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise _refused(name, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _refused(name, "a number") from None


def flag(fields: Fields, name: str) -> bool:
    """Return true or false."""
    value = fields.get(name)
    if type(value) is not bool:
        raise _refused(name, "true or false")
    return value


def text(fields: Fields, name: str) -> str:
    """Return a text that can be written in UTF-8."""
    value = fields.get(name)
    if not isinstance(value, str) or not _writable(value):
        raise _refused(name, "a text")
    return value


def names(fields: Fields, name: str) -> list[str]:
    """Return a list of texts."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) and _writable(each) for each in value):
        raise _refused(name, "a list of names")
    return value


def rows(fields: Fields, name: str, kinds: Sequence[tuple[type, ...]]) -> list[list[Any]]:
    """Return a list of rows, whose entries have these types; whole numbers in them are not negative."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(_is_row(row, kinds) for row in value):
        raise _refused(name, "a list of proper rows")
    return value


def words(value: object) -> str:
    """Return what somebody else said as one short line, which can be logged and kept."""
    line = " ".join(str(value).encode("utf-8", "replace").decode().split())
    return line if len(line) <= _LONGEST_WORDS else f"{line[:_LONGEST_WORDS]}..."


def _is_row(row: object, kinds: Sequence[tuple[type, ...]]) -> bool:
    if not isinstance(row, list) or len(row) != len(kinds):
        return False
    return all(
        type(entry) in kind
        and (type(entry) is not int or 0 <= entry < MOST_COUNTED)
        and (not isinstance(entry, str) or _writable(entry))
        for entry, kind in zip(row, kinds, strict=True)
    )


def _writable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(name: str, what: str) -> EngineError:
    return EngineError(f"the field '{name}' of a message is not {what}; check that versions agree")
