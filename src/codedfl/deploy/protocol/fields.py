"""Validation of the small values of a received message."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codedfl.errors import EngineError, printable

_LARGEST_COUNT = 1 << 53
"""Counts are below this, so that sums of a thousand of them fit 64 bits."""
_LONGEST_LINE = 300

Fields = Mapping[str, Any]


def is_count(value: object) -> bool:
    """Return whether a value is a whole number that is not negative."""
    return type(value) is int and 0 <= value < _LARGEST_COUNT


def is_real(value: object) -> bool:
    """Return whether a value is a finite number that is not negative."""
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def count(fields: Fields, name: str) -> int:
    """Return a whole number that is not negative."""
    return int(_checked(fields, name, is_count, "a whole number"))


def counts(fields: Fields, name: str) -> list[int]:
    """Return a list of whole numbers that are not negative."""
    return list(_checked(fields, name, _list_of(is_count), "a list of whole numbers"))


def real(fields: Fields, name: str) -> float:
    """Return a finite number that is not negative."""
    return float(_checked(fields, name, is_real, "a number"))


def reals(fields: Fields, name: str) -> list[float]:
    """Return a list of finite numbers that are not negative."""
    return list(_checked(fields, name, _list_of(is_real), "a list of numbers"))


def flags(fields: Fields, name: str) -> list[bool]:
    """Return a list of truth values."""
    return list(_checked(fields, name, _list_of(lambda value: type(value) is bool), "a list of truth values"))


def real_or_none(fields: Fields, name: str) -> float | None:
    """Return a finite number that is not negative, or None."""
    return None if name in fields and fields[name] is None else real(fields, name)


def flag(fields: Fields, name: str) -> bool:
    """Return true or false."""
    return bool(_checked(fields, name, lambda value: type(value) is bool, "true or false"))


def text(fields: Fields, name: str) -> str:
    """Return a text that can be encoded in UTF-8."""
    return str(_checked(fields, name, _is_text, "a text"))


def names(fields: Fields, name: str) -> list[str]:
    """Return a list of texts."""
    return list(_checked(fields, name, _list_of(_is_text), "a list of names"))


def rows(fields: Fields, name: str, kinds: Sequence[tuple[type, ...]]) -> list[list[Any]]:
    """Return a list of rows, whose entries have these types; whole numbers in them are not negative."""

    def is_entry(entry: object, kind: tuple[type, ...]) -> bool:
        number, text = type(entry) is int, type(entry) is str
        return type(entry) in kind and (is_count(entry) or not number) and (_is_text(entry) or not text)

    def is_row(row: object) -> bool:
        return isinstance(row, list) and len(row) == len(kinds) and all(map(is_entry, row, kinds))

    return list(_checked(fields, name, _list_of(is_row), "a list of proper rows"))


def one_line(value: object) -> str:
    """Return what another party sent as one short line that can be logged."""
    line = printable(" ".join(str(value).encode("utf-8", "replace").decode().split()))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


def _checked(fields: Fields, name: str, is_valid: Callable[[object], bool], what: str) -> Any:
    value = fields.get(name)
    if not is_valid(value):
        raise EngineError(f"the field '{name}' of a message is not {what}; check that versions agree")
    return value


def _list_of(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
