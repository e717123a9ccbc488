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
    """Return what schemes are ordered by: what the server sees, then how many cells have the worst verdicts."""
    verdicts = [cell.verdict for cell in verdict_table(scheme)]
    kind = _ORDER.index(scheme.verdict) if scheme.verdict in _ORDER else len(_ORDER)
    return kind, *(verdicts.count(word) for word in WORST_FIRST), scheme.name
