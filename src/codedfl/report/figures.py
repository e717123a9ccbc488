"""Figures: labelled axes with units, readable in print, safe for the colour-blind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import MissingExtraError
from codedfl.runs import Run
from codedfl.storage import write_whole
from codedfl.training.timing import band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "Curve",
    "Pair",
    "accuracy_against_time",
    "measured_against_predicted",
    "save",
    "speedup_against_delta",
    "time_against_setting",
    "time_by_scheme",
]

# the palette of Okabe and Ito, and line styles that tell curves apart without colour
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_VERDICTS = {"holds": ("#0072B2", "o"), "not encrypted": ("#E69F00", "s"), "broken": ("#D55E00", "X")}
_OTHER_VERDICTS = (("#009E73", "D"), ("#CC79A7", "^"), ("#56B4E9", "v"), ("#000000", "P"))
"""Colours and marks of what is known of a scheme's secrecy; either tells them apart."""
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_TICKS = tuple(step * 10.0**power for power in range(-3, 7) for step in (1, 2, 5))
_NOTHING = 1e-300
"""Stands for zero on a logarithmic axis."""
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


def _figure(width: float = 7, height: float = 4.4) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib; install it with: pip install 'codedfl[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained", dpi=150)


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
    axes.legend(fontsize=8, loc="center right", title="mean and 95% of seeds and draws", title_fontsize=8)
    return figure


def time_by_scheme(rows: Sequence[Mapping[str, Any]], targets: Sequence[float], metric: str = "accuracy") -> "Figure":
    """Draw the time to the first and the last target by scheme, a panel a fleet; the quickest on the first on top.

    ``rows`` are those of ``codedfl compare --all``. Marks say what is known of a scheme's secrecy.
    """
    fleets = {row["fleet"]: row["devices"] for row in rows}
    shown = [repr(target) for target in dict.fromkeys((targets[0], targets[-1]))]
    order = _quickest_first([row for row in rows if row["fleet"] == rows[0]["fleet"]], shown[-1])
    styles = _verdict_styles(row["verdict"] for row in rows)
    figure = _figure(3.2 * len(fleets) + 1.4, 1.7 + 0.3 * len(order))
    panels = figure.subplots(1, len(fleets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (fleet, devices) in zip(panels, fleets.items(), strict=True):
        _time_panel(axes, [row for row in rows if row["fleet"] == fleet], order, shown, styles)
        axes.set_title(f"{fleet} ({devices} devices)", fontsize=10)
    panels[0].set_yticks(range(len(order)), order, fontsize=9)
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    panels[0].set_xlim(*_time_limits(rows, shown))
    figure.supxlabel("training time in virtual seconds (logarithmic): mean and 95% of timing draws", fontsize=9)
    handles = _time_legend(styles, shown, metric)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6), fontsize=8)
    return figure


def _quickest_first(rows: Sequence[Mapping[str, Any]], target: str) -> list[str]:
    times = {row["scheme"]: (row["time_to_accuracy"] or {}).get(target) or np.inf for row in rows}
    return sorted(times, key=lambda name: float(times[name]))


def _verdict_styles(verdicts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Give each verdict a colour and a mark: the known ones always theirs, in their order."""
    found = set(verdicts)
    others = zip(sorted(found - _VERDICTS.keys()), cycle(_OTHER_VERDICTS), strict=False)
    return {verdict: style for verdict, style in _VERDICTS.items() if verdict in found} | dict(others)


def _time_panel(
    axes: "Axes",
    rows: Sequence[Mapping[str, Any]],
    order: Sequence[str],
    targets: Sequence[str],
    styles: Mapping[str, tuple[str, str]],
) -> None:
    axes.set_xscale("log")
    for row in rows:
        place = order.index(row["scheme"])
        _time_marks(axes, row, place, targets, styles[row["verdict"]])
        if row["refused"] or row["time_to_accuracy"][targets[-1]] is None:
            words = "no result" if row["refused"] else f"{float(targets[-1]):g} not reached"
            axes.annotate(words, (0.98, place), xycoords=("axes fraction", "data"), fontsize=7, ha="right", va="center")
    axes.grid(visible=True, axis="x", which="major", color="0.85")
    axes.grid(visible=True, axis="y", color="0.93")
    axes.set_axisbelow(True)


def _time_marks(
    axes: "Axes", row: Mapping[str, Any], place: int, targets: Sequence[str], style: tuple[str, str]
) -> None:
    """Mark the times of one scheme: the last target filled, the first hollow and a little higher."""
    colour, mark = style
    for target, seconds, low, high in _reached(row, targets):
        last = target == targets[-1]
        height = place + (0.13 if last else -0.13)
        axes.plot([max(low, _NOTHING), high], [height] * 2, color=colour, linewidth=4, alpha=0.35)
        axes.plot(seconds, height, mark, color=colour, markerfacecolor=colour if last else "white", markersize=6)


def _reached(row: Mapping[str, Any], targets: Sequence[str]) -> Iterator[tuple[str, float, float, float]]:
    """Go through the targets that a scheme reaches: mean time and band; a single training has none."""
    for target in targets if row["time_to_accuracy"] else ():
        seconds, limits = row["time_to_accuracy"][target], row["time_to_accuracy_band"][target]
        if seconds is not None:
            low, high = limits if limits and None not in limits else (seconds, seconds)
            yield target, seconds, low, high


def _time_limits(rows: Sequence[Mapping[str, Any]], targets: Sequence[str]) -> tuple[float, float]:
    """Return the ends of an axis for all times; a band that begins at nothing runs off it."""
    found = [values for row in rows for _, *values in _reached(row, targets)]
    lows = [max(low, seconds / 10) for seconds, low, _ in found]
    return (min(lows) / 1.5, max(high for *_, high in found) * 1.5) if found else (0.1, 1.0)


def _time_legend(styles: Mapping[str, tuple[str, str]], targets: Sequence[str], metric: str) -> list[Any]:
    from matplotlib.lines import Line2D

    word = "accuracy" if metric == "accuracy" else "R²"
    marks = [
        Line2D([], [], color=colour, marker=mark, linestyle="none", label=f"secrecy: {verdict}")
        for verdict, (colour, mark) in styles.items()
    ]
    grey: dict[str, Any] = {"color": "0.3", "marker": "o", "linestyle": "none"}
    faces = ["white"] * (len(targets) - 1) + ["0.3"]
    fills = [
        Line2D([], [], **grey, markerfacecolor=face, label=f"to {word} {float(target):g}")
        for target, face in zip(targets, faces, strict=True)
    ]
    return [*marks, *fills]


@dataclass(frozen=True, eq=False)
class Pair:
    """A run in virtual time and the same scenario on real processes, under a label."""

    label: str
    predicted: Run
    measured: Run

    @property
    def ends(self) -> tuple[float, float]:
        """When the training ends: as predicted in the run's own draw, and as measured."""
        return float(self.predicted.epochs["time"][-1]), float(self.measured.epochs["time"][-1])


def measured_against_predicted(pairs: Sequence[Pair], *, limit: float, metric: str = "accuracy") -> "Figure":
    """Draw measured against predicted training times with a band of ``limit`` either way, and both in time."""
    figure = _figure(10, 4.4)
    times, curves = figure.subplots(1, 2)
    ends = [end for pair in pairs for end in pair.ends]
    _ends_panel(times, pairs, limit, (min(ends) / 2.2, max(ends) * 2.2))  # two ticks at least
    second = min(float(run.epochs["time"][:2].max()) for pair in pairs for run in (pair.predicted, pair.measured))
    _pairs_panel(curves, pairs, (second / 2, max(ends) * 1.3))
    curves.set_ylabel("test accuracy" if metric == "accuracy" else "R² on the test set")
    for axes in (times, curves):
        axes.grid(visible=True, which="major", color="0.9")
        axes.set_axisbelow(True)
    return figure


def _ends_panel(axes: "Axes", pairs: Sequence[Pair], limit: float, span: tuple[float, float]) -> None:
    both = np.array(span)
    axes.fill_between(both, both * (1 - limit), both * (1 + limit), color="0.85", label=f"within {100 * limit:g}%")
    axes.plot(both, both, color="0.4", linewidth=0.8)
    for pair, style in zip(pairs, _pair_styles(), strict=False):
        predicted, measured = pair.ends
        draws = band(np.concatenate([run.timings[:, -1] for run in pair.predicted.repeats]).astype(np.float64))
        axes.plot([draws.low, draws.high], [measured] * 2, color=style["color"], linewidth=3, alpha=0.35)
        axes.plot(predicted, measured, linestyle="none", markersize=7, label=pair.label, **style)
    axes.set(xscale="log", yscale="log", xlim=span, ylim=span)
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis, [tick for tick in _TICKS if span[0] <= tick <= span[1]])
    axes.set_xlabel("predicted training time in seconds (logarithmic);\nmark: the run's own draw, bar: 95% of draws")
    axes.set_ylabel("measured training time in seconds (logarithmic)")
    axes.legend(fontsize=8, loc="upper left")


def _pairs_panel(axes: "Axes", pairs: Sequence[Pair], span: tuple[float, float]) -> None:
    for pair, style in zip(pairs, _pair_styles(), strict=False):
        line, marks = ((run.epochs["time"], run.epochs["accuracy"]) for run in (pair.predicted, pair.measured))
        axes.step(*line, where="post", color=style["color"], linewidth=1.2)
        axes.plot(*marks, linestyle="none", markersize=5, markerfacecolor="none", label=pair.label, **style)
    best = max(float(pair.predicted.epochs["accuracy"].max()) for pair in pairs)
    axes.set(xscale="log", xlim=span, ylim=(min(0.5, best - 0.3), min(1.0, best + 0.04)))
    _plain_ticks(axes.xaxis, [tick for tick in _TICKS if span[0] <= tick <= span[1]])
    axes.set_xlabel("training time in seconds (logarithmic);\nline: predicted in the run's own draw, marks: measured")
    axes.legend(fontsize=8, loc="lower right")


def _pair_styles() -> Iterator[dict[str, Any]]:
    return ({"color": colour, "marker": mark} for colour, mark in cycle(zip(_COLOURS, _MARKS, strict=True)))


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
