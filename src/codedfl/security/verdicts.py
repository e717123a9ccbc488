"""The verdict table of a scheme: its own statements, with the figures of attacks on it, and the order it implies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from codedfl.schemes.contract import Scheme
from codedfl.schemes.private import stated_secrecy
from codedfl.schemes.secrecy import (
    BROKEN,
    CLEAR,
    COMBINATIONS,
    COSTS_ONLY,
    FALLS,
    LEAKS,
    NOT_EXAMINED,
    PROVEN,
    REPLIES,
    SUMS,
    WORST_FIRST,
    Secrecy,
)
from codedfl.security.attempts import SECOND_RUN
from codedfl.security.figures import AREA, ERROR, Figure, stored_figures

_DECISIVE = ("inner", "alpha", "delta", "masks")
"""Options that decide what parties see."""
_STRONGER_THAN = {
    "devices": ("device",),
    "server and devices": ("server",),
    "deviating server": ("server",),
    "deviating device": ("device",),
}
"""Adversaries that can do whatever others can."""
_READS_RELAYED = "a server that reads the parcel it relays"
_ORDER = (SUMS, COMBINATIONS, REPLIES, CLEAR, COSTS_ONLY, BROKEN)


def verdict_table(scheme: Scheme[Any], figures: Sequence[Figure] | None = None) -> tuple[Secrecy, ...]:
    """Return all cells of a scheme, with what attacks got (by default the stored figures).

    What a scheme says leaks falls where an attack gets it. A second run, and what only a server without end-to-end
    encryption could do, change no verdict. Figures are of runs without noise, so with noise they are left out.
    """
    if scheme.public.release is not None:
        return stated_secrecy(scheme)
    known = [figure for figure in (stored_figures() if figures is None else figures) if _applies(figure, scheme)]
    return tuple(_with_figures(cell, known) for cell in scheme.secrecy())


def condition(scheme: Scheme[Any]) -> str:
    """Return when to allow a scheme: the rest of "allow it if", and what noise promises beside that."""
    release = scheme.public.release
    return scheme.allowed_if if release is None else f"{scheme.allowed_if}; all of it with noise: {release.statement}"


def _applies(figure: Figure, scheme: Scheme[Any]) -> bool:
    """Tell whether a figure is of this scheme, with the options that decide what parties see."""
    if figure.scheme != scheme.name or _READS_RELAYED in figure.given:
        return False
    usual = scheme.options_type()
    return all(
        getattr(scheme.options, name) == figure.options.get(f"schemes.{scheme.name}.{name}", getattr(usual, name))
        for name in _DECISIVE
        if hasattr(usual, name)
    )


def _with_figures(cell: Secrecy, figures: Iterable[Figure]) -> Secrecy:
    """Return a cell with the worst figure on it, and the worst of those that take a second run."""
    able = (cell.adversary, *_STRONGER_THAN.get(cell.adversary, ()))
    own = [figure for figure in figures if figure.adversary in able and figure.asset == cell.asset]
    if cell.verdict == NOT_EXAMINED or not own:
        return cell
    words, verdict = cell.reason, cell.verdict
    if cell.asset.startswith("membership"):  # errors are those of the sum that the attack on membership starts from
        if started := [figure for figure in own if figure.unit == ERROR]:
            words += f"; the sum of Gram matrices: {_figure_words(min(started, key=_exposure))}"
        own = [figure for figure in own if figure.unit == AREA]
    single = [figure for figure in own if SECOND_RUN not in figure.given]
    if single and verdict != PROVEN:
        # of equal verdicts, attacks of this adversary stand before those of weaker ones
        worst = min(
            single, key=lambda figure: (_exposure(figure)[0], figure.adversary != cell.adversary, _exposure(figure))
        )
        words += f"; measured: {_figure_words(worst)}"
        verdict = FALLS if verdict == LEAKS and worst.verdict == FALLS else verdict
    if twice := [figure for figure in own if SECOND_RUN in figure.given]:
        words += f"; from two runs, with the device and without: {_figure_words(min(twice, key=_exposure))}"
    return replace(cell, verdict=verdict, reason=words)


def _exposure(figure: Figure) -> tuple[Any, ...]:
    """Return the order of figures: the worst verdict first, then the larger data, then the figure."""
    word = figure.verdict if figure.verdict in (FALLS, LEAKS) else PROVEN
    features = [int(part) for part in figure.data.split() if part.isdecimal()]
    return WORST_FIRST.index(word), [-number for number in features], figure.unit, figure.value


def _figure_words(figure: Figure) -> str:
    error = f"error {figure.value:.1e} (guessed: {figure.guess:.1e})"
    what = f"AUC {figure.value:.2f}" if figure.unit == AREA else error
    where = "" if figure.device is None else f"device {figure.device}, "
    chance = "" if figure.verdict in (FALLS, LEAKS) else ", no better than guessing"
    return f"`{figure.attack}` {what}{chance}, {where}{figure.epochs} epochs, {figure.data}"


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
