"""Figures: labelled axes with units, readable in print, safe for the colour-blind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import MissingExtraError
from codedfl.files import write_whole
from codedfl.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["Curve", "accuracy_against_time", "save", "speedup_against_delta", "time_against_setting"]

# the palette of Okabe and Ito, and line styles that tell curves apart without colour
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_ROWS = 200
_POINTS = 400


@dataclass(frozen=True, eq=False)
class Curve:
    """One line: the runs of a scheme (several feature seeds, several repetitions) under a label."""

    label: str
    runs: Sequence[Run]

    def accuracy_at(self, grid: Float[np.ndarray, "points"]) -> Float[np.ndarray, "rows points"]:
        """Return the accuracy at each time of the grid, one row a run and timing draw; nan before the first epoch."""
        rows = [_steps(run, grid) for entry in self.runs for run in entry.repeats]
        return np.concatenate(rows)

    @property
    def span(self) -> tuple[float, float]:
        """The time when the first epoch ends, and the mean time when the training does."""
        entries = [run for entry in self.runs for run in entry.repeats]
        begin = min(float(run.timings[:, 0].min()) for run in entries)
        all_begun = max(float(run.timings[:_ROWS, 0].max()) for run in entries)
        end = float(np.mean([run.timings[:, -1].mean() for run in entries]))
        return begin, max(end, all_begun)


def _steps(run: Run, grid: Float[np.ndarray, "points"]) -> Float[np.ndarray, "rows points"]:
    chosen = run.timings[:_ROWS]
    done = np.stack([np.searchsorted(times, grid, side="right") for times in chosen])
    accuracy = np.concatenate([[np.nan], run.epochs["accuracy"]])
    return np.asarray(accuracy[done])


def _figure() -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib; install it with: pip install 'codedfl[plots]'") from None
    return Figure(figsize=(7, 4.4), layout="constrained", dpi=150)


def accuracy_against_time(curves: Sequence[Curve], *, targets: Sequence[float], metric: str = "accuracy") -> "Figure":
    """Draw accuracy against training time on a logarithmic axis: mean and 95% band over seeds and timing draws."""
    figure = _figure()
    axes = figure.add_subplot()
    tops = []
    for number, curve in enumerate(curves):
        begin, end = curve.span
        grid = np.geomspace(begin, end * (1 + 1e-9), _POINTS)  # past rounding, so that the end counts
        values = curve.accuracy_at(grid)
        # a set-up ends at different times: a curve begins when most of its draws have, and those are averaged
        begun = np.isfinite(values).mean(axis=0) > 0.5
        low, high = np.nanquantile(values[:, begun], [0.025, 0.975], axis=0)
        mean = np.nanmean(values[:, begun], axis=0)
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(grid[begun], mean, color=colour, linestyle=_STYLES[number % len(_STYLES)], label=curve.label)
        axes.fill_between(grid[begun], low, high, color=colour, alpha=0.2, linewidth=0)
        tops.append(float(mean.max()))
    for target in targets:
        axes.axhline(target, color="0.6", linewidth=0.8, linestyle=":")
        axes.annotate(
            f"{target:g}",
            (1, target),
            xycoords=("axes fraction", "data"),
            fontsize=8,
            va="bottom",
            ha="right",
        )
    best = max(tops)
    axes.set(xscale="log", ylim=(min(0.5, best - 0.3), min(1.0, best + 0.04)))
    # the first epoch is computed beforehand and over at once: nothing happens until the second ends
    second = min(float(run.timings[:, :2].max(axis=1).min()) for curve in curves for run in curve.runs)
    axes.set_xlim(left=second / 2)
    axes.set_xlabel("training time in virtual seconds (logarithmic)")
    axes.set_ylabel("test accuracy" if metric == "accuracy" else "R² on the test set")
    axes.grid(visible=True, which="major", color="0.9")
    axes.legend(loc="lower right", title="mean and 95% band", fontsize=9, title_fontsize=8)
    return figure


def time_against_setting(
    key: str, values: Sequence[float], bands: Sequence[tuple[float, float, float] | None], target: float
) -> "Figure":
    """Draw time to a target against one setting, with 95% bars; a value that never gets there is left out."""
    figure = _figure()
    axes = figure.add_subplot()
    reached = [(value, *found) for value, found in zip(values, bands, strict=True) if found]
    if reached:
        x, mean, low, high = (np.array(column) for column in zip(*reached, strict=True))
        bars = np.clip([mean - low, high - mean], 0, None)
        axes.errorbar(x, mean, bars, fmt="o-", color=_COLOURS[0], capsize=3)
    axes.set_xlabel(key)
    axes.set_ylabel(f"virtual seconds to {target:g} (mean, 95% of draws)")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="0.9")
    return figure


def speedup_against_delta(sweeps: Sequence[dict[str, Any]], target: float) -> "Figure":
    """Draw the speed-up of each setting and supply against Delta, with 95% bars."""
    figure = _figure()
    axes = figure.add_subplot()
    for number, sweep in enumerate(entry for entry in sweeps if entry["points"]):
        columns = {name: np.array([point[name] for point in sweep["points"]]) for name in sweep["points"][0]}
        bars = np.clip([columns["speedup"] - columns["low"], columns["high"] - columns["speedup"]], 0, None)
        label = f"claimed {sweep['level']} bit, supports {sweep['supply']}"
        style: dict[str, Any] = {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _STYLES[number % len(_STYLES)]}
        # bars of neighbouring curves would hide each other, so each curve is moved a little
        axes.errorbar(
            columns["delta"] * 1.02**number, columns["speedup"], bars, marker="o", capsize=2, label=label, **style
        )
    axes.axhline(1, color="0.6", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log")
    _plain_ticks(axes.xaxis, sorted({point["delta"] for sweep in sweeps for point in sweep["points"]}))
    _plain_ticks(axes.yaxis, [tick for tick in (0.03, 0.1, 0.3, 1, 2, 3, 4, 5, 6, 10, 30, 100) if _inside(axes, tick)])
    axes.set_xlabel("Delta in seconds (logarithmic): replying later than this after the fastest is straggling")
    axes.set_ylabel(f"speed-up to {target:g} (logarithmic)")
    axes.grid(visible=True, color="0.9")
    axes.legend(fontsize=8, title="mean and 95% of seeds and draws", title_fontsize=8)
    return figure


def _inside(axes: "Axes", height: float) -> bool:
    low, high = axes.get_ylim()
    return bool(low <= height <= high)


def _plain_ticks(axis: "Axis", places: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers at the given places only."""
    axis.set_ticks(list(places), [f"{place:g}" for place in places])
    axis.set_ticks([], minor=True)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG and as SVG beside it."""
    write_whole(path.with_suffix(".png"), lambda file: figure.savefig(file, format="png"))
    write_whole(path.with_suffix(".svg"), lambda file: figure.savefig(file, format="svg"))
