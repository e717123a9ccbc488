"""Accuracy against time: curves with bands and labels at their ends, or a panel for each where there are many."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.report.figures.labels import Box, Labelled, label_ends
from codedfl.report.figures.overlay import Series, overlay_look
from codedfl.report.figures.points import Curve, curve_of, thinned
from codedfl.report.figures.style import COLOURS, GUIDE, SCREEN, Style, curve_style, lay_out, metric_label, plain
from codedfl.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 6
"""More curves than this stand in panels of their own."""
_TIME = "training time in virtual seconds (logarithmic)"
_FAINT_POINTS, _PANEL_POINTS = 40, 150
"""Points of a curve behind others, and of a curve in a small panel; SVG files stay small."""
_BEHIND: dict[str, Any] = {"color": "black", "alpha": 0.18, "linewidth": 0.6}
"""The look of other panels' curves."""

Size = tuple[float | None, float | None]
"""Width and height in inches; None: as the style has it."""


@dataclass(frozen=True)
class Speedup:
    """The gap between two curves at a target: both times in seconds, and what is written beside it."""

    slow: float
    fast: float
    target: float
    words: str


def accuracy_against_time(
    curves: Mapping[str, Sequence[Run]],
    *,
    targets: Sequence[float],
    metric: str = "accuracy",
    style: Style = SCREEN,
    size: Size = (None, None),
    overlay: Sequence[Series] = (),
    speedups: Sequence[Speedup] = (),
) -> "Figure":
    """Draw accuracy against training time on a logarithmic axis, a curve for the runs under each label.

    A curve is the mean over feature seeds, repetitions and timing draws, its band holds 95% of them. Up to six curves
    are drawn together; of more, each has a panel where the others stand behind it in grey.
    """
    drawn = [curve_of(label, runs) for label, runs in curves.items()]
    limits = _limits(drawn, curves, overlay, targets)
    if len(drawn) > MANY:
        return _panels(drawn, limits, targets, metric, style, size, overlay)
    figure = style.figure(*size)
    axes = style.dress(figure.add_subplot(), _TIME, metric_label(metric))
    labelled = [_draw(axes, curve, curve_style(number), style) for number, curve in enumerate(drawn)]
    labelled += [_overlay(axes, series, number, style) for number, series in enumerate(overlay)]
    _frame(axes, limits, targets, style)
    if style.titles:
        axes.set_title("mean and 95% band", fontsize=style.small, loc="right")
    taken = _draw_speedups(axes, speedups, style)
    avoid = [point for curve in drawn for point in _bars(curve)]
    label_ends(axes, labelled, style, taken=taken, guides=targets, avoid=avoid)
    return figure


def _draw(axes: "Axes", curve: Curve, look: dict[str, Any], style: Style) -> Labelled:
    """Draw a curve with its band, or with a mark and bars for each of few epochs."""
    if curve.time_limits is None:
        axes.plot(curve.time, curve.mean, label=curve.label, linewidth=style.line, **look)
        axes.fill_between(curve.time, curve.low, curve.high, color=look["color"], alpha=0.2, linewidth=0)
        return Labelled(curve.words, curve.time, curve.mean, look)
    marked = {**look, "marker": "o", "markersize": style.mark * 0.8}
    axes.plot(curve.time, curve.mean, label=curve.label, linewidth=style.line, **marked)
    across = np.clip([curve.time - curve.time_limits[0], curve.time_limits[1] - curve.time], 0, None)
    upright = np.clip([curve.mean - curve.low, curve.high - curve.mean], 0, None)
    bars = {"color": look["color"], "alpha": 0.45, "elinewidth": style.line * 0.6}
    axes.errorbar(curve.time, curve.mean, upright, across, fmt="none", **bars)
    return Labelled(curve.words, curve.time, curve.mean, marked)


def _bars(curve: Curve) -> Iterator[tuple[float, float]]:
    """Return points on the bars of a training of few epochs, so that no label hides them."""
    if curve.time_limits is not None:
        for low, high, height in zip(*curve.time_limits, curve.mean, strict=True):
            yield from ((float(x), float(height)) for x in np.linspace(low, high, 30))


def _overlay(axes: "Axes", series: Series, number: int, style: Style) -> Labelled:
    look = overlay_look(series, number, style)
    axes.plot(series.x, series.y, label=series.label, linewidth=style.line, **look)
    return Labelled(series.label, np.array(series.x), np.array(series.y), look)


def _limits(
    drawn: Sequence[Curve], curves: Mapping[str, Sequence[Run]], overlay: Sequence[Series], targets: Sequence[float]
) -> tuple[float, float, float, float]:
    """Return the ends of both axes: everything that is reached, from a bit before the second epoch."""
    best = max(float(curve.mean.max()) for curve in drawn)
    # the first epoch is computed beforehand and ends at once: nothing happens until the second ends
    second = min(float(run.timings[:, :2].max(axis=1).min()) for runs in curves.values() for run in runs)
    x = [second, *(float(curve.time[-1]) for curve in drawn), *(value for series in overlay for value in series.x)]
    y = [value for series in overlay for value in series.y]
    near = [target for target in targets if target <= best + 0.1]
    top = max([best, *near, *y])
    worst = min(float(curve.mean.min()) for curve in drawn)
    low = min([max(worst - 0.03, best - 0.45), best - 0.15, *(value - 0.02 for value in y)])
    return min(x) / 2, max(x) * 1.25, low, min(max(1.0, *y, 0.0) if y else 1.0, top + 0.04)


def _frame(axes: "Axes", limits: tuple[float, float, float, float], targets: Sequence[float], style: Style) -> None:
    """Set scales and limits, and mark the targets on the right edge."""
    left, right, low, high = limits
    axes.set(xscale="log", xlim=(left, right), ylim=(low, high))
    for target in targets:
        axes.axhline(target, **GUIDE)
        if low <= target <= high:
            axes.annotate(
                f"{target:g}",
                (1, target),
                (2, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                fontsize=style.small,
                va="center",
                ha="left",
                annotation_clip=False,
            )


def _draw_speedups(axes: "Axes", speedups: Sequence[Speedup], style: Style) -> list[Box]:
    """Draw a double arrow between the times of two curves, above where they cross the target; return what it covers."""
    if not speedups:
        return []
    lay_out(axes.figure)  # type: ignore[arg-type]
    extent, scale = axes.get_window_extent(), 72 / axes.figure.dpi
    words = [gap.words if len(gap.words) <= style.wrap else gap.words.replace(", ", ",\n") for gap in speedups]
    row = max(text.count("\n") + 1 for text in words) * 1.25 * style.small + 3
    _make_room(axes, max(gap.target for gap in speedups), (row * len(speedups) + 4) / (extent.height * scale))
    taken: list[Box] = []
    upright: Any = ("data", "axes fraction")
    for number, (gap, text) in enumerate(zip(speedups, words, strict=True)):
        base = axes.transAxes.inverted().transform(axes.transData.transform((gap.fast, gap.target)))[1]
        height = base + (row * (number + 0.5) + 4) / (extent.height * scale)
        for seconds in (gap.slow, gap.fast):
            axes.plot([seconds] * 2, [base, height], transform=axes.get_xaxis_transform(), **GUIDE)
        look = {"arrowstyle": "<|-|>", "linewidth": 0.8, "color": "black", "shrinkA": 0, "shrinkB": 0}
        ends: Any = {"xycoords": upright, "textcoords": upright, "arrowprops": look}
        axes.annotate("", (gap.fast, height), (gap.slow, height), **ends)
        first, last = sorted((gap.slow, gap.fast))
        beside: dict[str, Any] = {"xycoords": upright, "textcoords": "offset points", "va": "center", "ha": "right"}
        box = axes.annotate(text, (first, height), (-4, 0), fontsize=style.small, **beside).get_window_extent()
        right = axes.transData.transform((last, gap.target))[0]
        middle = height * extent.height * scale
        taken.append(((box.x0 - extent.x0) * scale, middle - row / 2, (right - extent.x0) * scale, middle + row / 2))
    return taken


def _make_room(axes: "Axes", above: float, share: float) -> None:
    """Raise the upper end of the axis, so that a share of it lies above a value; no tick stands above 1."""
    low, _ = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= 1]
    axes.set_ylim(low, (above - low * share) / (1 - share))
    axes.set_yticks(ticks)


def _panels(
    drawn: Sequence[Curve],
    limits: tuple[float, float, float, float],
    targets: Sequence[float],
    metric: str,
    style: Style,
    size: Size,
    overlay: Sequence[Series],
) -> "Figure":
    """Draw a panel for each curve, in its colour, before all others in grey; axes are shared."""
    width = size[0] or (style.width if style.titles else 7.0)
    most = max(2, min(len(drawn), int(width / 1.35)))
    columns = min(range(max(2, most - 1), most + 1), key=lambda number: (-len(drawn) % number, -number))
    lines = math.ceil(len(drawn) / columns)
    figure = style.figure(width, size[1] or 0.6 + 1.15 * lines)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place >= len(drawn):
            axes.set_visible(False)
            continue
        _panel(style.dress(axes), drawn, place, style)
        _frame(axes, limits, targets, style)
        for number, series in enumerate(overlay):
            _overlay(axes, series, number, style)
        if (place + 1) % columns:
            for text in list(axes.texts):  # targets are named once a row, outside the last panel
                text.remove()
        axes.tick_params(labelbottom=place + columns >= len(drawn))
    figure.supxlabel(_TIME, fontsize=style.font)
    figure.supylabel(metric_label(metric), fontsize=style.font)
    if overlay:
        own = panels[0, 0].get_lines()[-len(overlay) :]
        names = [plain(series.label) for series in overlay]
        figure.legend(own, names, loc="outside upper center", fontsize=style.small, frameon=False, ncols=3)
    return figure


def _panel(axes: "Axes", drawn: Sequence[Curve], own: int, style: Style) -> None:
    for number, curve in enumerate(drawn):
        if number != own:
            few = thinned(curve, _FAINT_POINTS)
            axes.plot(few.time, few.mean, label="_behind", **_BEHIND)
    _draw(axes, thinned(drawn[own], _PANEL_POINTS), {"color": COLOURS[0], "linestyle": "-"}, style)
    axes.set_title(plain(drawn[own].words), fontsize=style.small, pad=3)
