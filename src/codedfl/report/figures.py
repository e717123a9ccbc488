"""Figures: labelled axes with units, readable in print, safe for the colour-blind."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import MissingExtraError
from codedfl.progress import Progress
from codedfl.runs import Run
from codedfl.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# the palette of Okabe and Ito, and line styles that tell curves apart without colour
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_DRAWS = 200
"""Timing draws of a run behind a curve, at most."""
_POINTS = 400


def new_figure(width: float = 7, height: float = 4.4) -> "Figure":
    """Return an empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib; install it with: pip install 'codedfl[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained", dpi=150)


def curve_style(number: int) -> dict[str, Any]:
    """Return the colour and line style of a curve; further rounds through the colours have other line styles."""
    turn, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": _STYLES[(colour + turn) % len(_STYLES)]}


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG and as SVG beside it."""
    write_whole(path.with_suffix(".png"), lambda file: figure.savefig(file, format="png"))
    write_whole(path.with_suffix(".svg"), lambda file: figure.savefig(file, format="svg"))


def save_if_possible(draw: Callable[[], "Figure"], path: Path, progress: Progress) -> bool:
    """Draw and write a figure; without matplotlib report that it is left out, and return False."""
    try:
        save(draw(), path)
    except MissingExtraError:
        progress(f"{path.name} left out: install codedfl[plots]", 0, 0)
        return False
    return True


def accuracy_at(runs: Sequence[Run], grid: Float[np.ndarray, "points"]) -> Float[np.ndarray, "rows points"]:
    """Return the accuracy at each time of the grid, one row a run and timing draw; nan before the first epoch."""
    rows = []
    for run in (repeat for entry in runs for repeat in entry.repeats):
        done = np.stack([np.searchsorted(times, grid, side="right") for times in run.timings[:_DRAWS]])
        rows.append(np.concatenate([[np.nan], run.epochs["accuracy"]])[done])
    return np.concatenate(rows)


def span(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the time when the first epoch ends, and the mean time when the training does."""
    timings = [repeat.timings for entry in runs for repeat in entry.repeats]
    begin = min(float(times[:, 0].min()) for times in timings)
    all_begun = max(float(times[:_DRAWS, 0].max()) for times in timings)
    return begin, max(float(np.mean([times[:, -1].mean() for times in timings])), all_begun)


def accuracy_against_time(
    curves: Mapping[str, Sequence[Run]], *, targets: Sequence[float], metric: str = "accuracy"
) -> "Figure":
    """Draw accuracy against training time on a logarithmic axis, a curve for the runs under each label.

    A curve is the mean over feature seeds, repetitions and timing draws, its band holds 95% of them.
    """
    figure = new_figure()
    axes = figure.add_subplot()
    best = -np.inf
    for number, (label, runs) in enumerate(curves.items()):
        begin, end = span(runs)
        grid = np.geomspace(begin, end * (1 + 1e-9), _POINTS)  # past rounding, so that the end counts
        values = accuracy_at(runs, grid)
        # a set-up ends at different times: a curve begins when most of its draws have, and those are averaged
        begun = np.isfinite(values).mean(axis=0) > 0.5
        low, high = np.nanquantile(values[:, begun], [0.025, 0.975], axis=0)
        mean = np.nanmean(values[:, begun], axis=0)
        style = curve_style(number)
        axes.plot(grid[begun], mean, label=label, **style)
        axes.fill_between(grid[begun], low, high, color=style["color"], alpha=0.2, linewidth=0)
        best = max(best, float(mean.max()))
    for target in targets:
        axes.axhline(target, color="0.6", linewidth=0.8, linestyle=":")
        where: Any = ("axes fraction", "data")
        axes.annotate(f"{target:g}", (1, target), xycoords=where, fontsize=8, va="bottom", ha="right")
    axes.set(xscale="log", ylim=(min(0.5, best - 0.3), min(1.0, best + 0.04)))
    # the first epoch is computed beforehand and ends at once: nothing happens until the second ends
    second = min(float(run.timings[:, :2].max(axis=1).min()) for runs in curves.values() for run in runs)
    axes.set_xlim(left=second / 2)
    axes.set_xlabel("training time in virtual seconds (logarithmic)")
    axes.set_ylabel(metric_label(metric))
    axes.grid(visible=True, which="major", color="0.9")
    axes.legend(loc="lower right", title="mean and 95% band", fontsize=9, title_fontsize=8)
    return figure


def time_and_band(row: Mapping[str, Any], target: str) -> tuple[float, float, float] | None:
    """Return the mean time of a row to a target and its 95% band, which a single training does not have."""
    seconds = (row["time_to_accuracy"] or {}).get(target)
    if seconds is None:
        return None
    limits = row["time_to_accuracy_band"].get(target)
    return (seconds, *limits) if limits and None not in limits else (seconds, seconds, seconds)


def metric_label(metric: str) -> str:
    """Name the score on an axis."""
    return "test accuracy" if metric == "accuracy" else "R² on the test set"


def plain_ticks(axis: "Axis", places: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers at the given places only."""
    axis.set_ticks(list(places), [f"{place:g}" for place in places])
    axis.set_ticks([], minor=True)
