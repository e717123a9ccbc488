"""The verdict table of a scheme: its own statements, with the figures of attacks on it, and the order it implies."""

from collections.abc import Iterable
from typing import Any

from codedfl.schemes.contract import Scheme
from codedfl.schemes.secrecy import (
    BROKEN,
    CLEAR,
    COMBINATIONS,
    COSTS_ONLY,
    REPLIES,
    SUMS,
    WORST_FIRST,
    Secrecy,
)

_ORDER = (SUMS, COMBINATIONS, REPLIES, CLEAR, COSTS_ONLY, BROKEN)


def verdict_table(scheme: Scheme[Any]) -> tuple[Secrecy, ...]:
    """Return all cells of a scheme."""
    return scheme.secrecy()


def by_secrecy(schemes: Iterable[Scheme[Any]]) -> list[Scheme[Any]]:
    """Return schemes, the one that tells least first."""
    return sorted(schemes, key=secrecy_rank)


def secrecy_rank(scheme: Scheme[Any]) -> tuple[Any, ...]:
    """Return what schemes are ordered by."""
    return table_rank(scheme.name, scheme.verdict, verdict_table(scheme))


def table_rank(name: str, verdict: str, cells: Iterable[Secrecy]) -> tuple[Any, ...]:
    """Return the same of a table: what the server sees, then how many cells have the worst verdicts, then the name."""
    found = [cell.verdict for cell in cells]
    kind = _ORDER.index(verdict) if verdict in _ORDER else len(_ORDER)
    return kind, *(found.count(word) for word in WORST_FIRST), name
