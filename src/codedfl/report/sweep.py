"""The figure that ``codedfl sweep`` draws."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from codedfl.errors import UsageError
from codedfl.progress import Progress, silent
from codedfl.report.figures.files import save_if_possible
from codedfl.report.figures.sweeps import grid_of, sweep_figure
from codedfl.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_sweep(rows: Sequence[Row], out: Path, progress: Progress = silent, quantity: str | None = None) -> None:
    """Draw ``sweep.png`` and ``.svg``: times to the last target, final scores without targets, or what is asked for.

    Where nothing can be drawn, one sentence says why.
    """
    try:
        drawings = sweep_drawings(rows, quantity, refuse=True)
    except UsageError as error:
        progress(f"sweep.png left out: {error}", 0, 0)
        return
    save_if_possible(drawings["sweep"][1], out / "sweep.png", progress)


def sweep_drawings(
    rows: Sequence[Row], quantity: str | None = None, *, refuse: bool = False
) -> dict[str, tuple[str, Callable[[], "Figure"]]]:
    """Return the heading of the figure and how it is drawn; nothing where it cannot be, unless that is refused."""
    chosen = quantity or ("time" if any(row["time_to_accuracy"] for row in rows) else "accuracy")
    try:
        grid = grid_of(rows, chosen)
    except UsageError:
        if refuse:
            raise
        return {}
    return {"sweep": (f"{grid.quantity.capitalize()} by setting", partial(sweep_figure, grid))}
