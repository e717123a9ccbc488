"""``codedfl figure``: a figure for a paper or a screen, or the numbers behind it."""

import dataclasses
import math
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.drawings import Drawing, Wanted, drawing_of
from codedfl.report.figures.files import save_as, save_or_refuse
from codedfl.report.figures.style import STYLES
from codedfl.report.figures.sweeps import QUANTITIES
from codedfl.report.figures.tables import csv_table, tex_table
from codedfl.report.results import open_results
from codedfl.settings import did_you_mean
from codedfl.storage import write_text

_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
"""Units of lengths; a point is that of LaTeX."""
_LIMITS = (1.5, 40.0)
_FORMATS = ("pdf", "svg", "png", "tex", "csv")
_KINDS = ("accuracy", "traffic", "timeline", "handovers", "sweep", "times", "beyond", "delta", "active")


def figure_command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Run directories, or one folder of sweep, compare, reproduce."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help=f"{', '.join(_KINDS)}; by the folder if not given.")
    ] = None,
    style: Annotated[str, typer.Option("--style", metavar="STYLE", help="paper or screen.")] = "paper",
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="pdf, svg, png, or numbers: tex, csv.")
    ] = None,
    width: Annotated[str | None, typer.Option("--width", metavar="LENGTH", help="Such as 3.5in, 89mm, 8.9cm.")] = None,
    height: Annotated[str | None, typer.Option("--height", metavar="LENGTH", help="Such as 2.5in, 60mm.")] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="QUANTITY", help="Of a sweep: time, accuracy, bits.")] = None,
    target: Annotated[
        float | None, typer.Option("--target", metavar="X", help="Target accuracy, such as 0.95.")
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option("--overlay", metavar="CSV", help="Own numbers: label,time,accuracy; on a sweep label,x,y."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="figure.FORMAT if not given.")] = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Draw a figure of finished runs for a paper or a screen, or write the numbers behind it.

    Curves have 95% bands and labels at their ends; more than six stand in panels of their own.
    """
    if not runs:
        raise UsageError(
            "no run is named; give run directories or an output folder, for example: codedfl figure runs/mine"
        )
    form, place = _chosen_file(form, out)
    for name, given, known in (("--kind", kind, _KINDS), ("--style", style, tuple(STYLES)), ("--y", y, QUANTITIES)):
        _check(name, given, known)
    if target is not None and not (math.isfinite(target) and target <= 1):
        raise UsageError(f"--target {target:g} must be a number up to 1, for example 0.95")
    size = (_inches("--width", width), _inches("--height", height))
    wanted = Wanted(kind, STYLES[style], size, y, target, overlay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # matplotlib's, of letters that no font has
        drawing = drawing_of(open_results(runs), wanted)
        made = _write(drawing, place, form)
    if json:
        numbers = [dataclasses.asdict(entry) for entry in drawing.entries if entry.x is None]
        common.print_json({"file": str(place), "kind": drawing.kind, "format": form, **made, "numbers": numbers})
        return
    common.console.print(f"figure of {drawing.kind}: {place}", soft_wrap=True)


def _check(option: str, given: str | None, known: tuple[str, ...]) -> None:
    if given is not None and given not in known:
        raise UsageError(f"{option} '{given}' must be one of {', '.join(known)}{did_you_mean(given, list(known))}")


def _chosen_file(form: str | None, out: Path | None) -> tuple[str, Path]:
    """Return the format and the file: each follows from the other if only one is given."""
    _check("--format", form, _FORMATS)
    suffix = "" if out is None else out.suffix.lower().lstrip(".")
    if out is not None and suffix not in _FORMATS:
        raise UsageError(f"--out '{out}' must end with one of .{', .'.join(_FORMATS)}")
    if form is not None and out is not None and suffix != form:
        raise UsageError(f"--out '{out}' and --format {form} do not fit; give one of them")
    chosen = form or suffix or "pdf"
    return chosen, out or Path(f"figure.{chosen}")


def _inches(option: str, text: str | None) -> float | None:
    """Read a length."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(in|cm|mm|pt)\s*", text)
    if found is None:
        raise UsageError(f"{option} '{text}' must be a length in in, cm, mm or pt, for example 3.5in")
    inches = float(found[1]) * _INCHES[found[2]]
    if not _LIMITS[0] <= inches <= _LIMITS[1]:
        raise UsageError(f"{option} '{text}' must be from {_LIMITS[0]:g} to {_LIMITS[1]:g} inches, for example 3.5in")
    return inches


def _write(drawing: Drawing, place: Path, form: str) -> dict[str, Any]:
    """Write the file; return its size in inches if it is a picture."""
    if form in ("tex", "csv"):
        text = tex_table(drawing.entries) if form == "tex" else csv_table(drawing.entries)
        save_or_refuse(lambda: write_text(place, text), place)
        return {}
    drawn = drawing.draw()
    save_or_refuse(lambda: save_as(drawn, place, form), place)
    width, height = (float(length) for length in drawn.get_size_inches())
    return {"width_in": width, "height_in": height}
