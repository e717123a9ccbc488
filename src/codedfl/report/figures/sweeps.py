"""Figures of sweeps: curves over one setting, families and heat maps over two, dots where settings are no numbers.

A cell that does not reach the target, or was refused, is marked on the axis and never left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.errors import UsageError
from codedfl.report.figures.curves import Size
from codedfl.report.figures.labels import Labelled, label_margin
from codedfl.report.figures.overlay import Series, overlay_look
from codedfl.report.figures.points import time_and_band
from codedfl.report.figures.style import (
    MISSED,
    SCREEN,
    Style,
    curve_style,
    mark_style,
    metric_label,
    metric_word,
    plain,
    plain_ticks,
    spans_decades,
)
from codedfl.runs import final_score
from codedfl.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUANTITIES = ("time", "accuracy", "bits")
_SHADES = 40
"""Colours of a heat map; of more than 50, matplotlib would put the bar as pixels into SVG and PDF."""
_ON_CELL = {True: "#ffffff", False: "#111111"}
"""Colour of a number on a dark or light cell; neither is black, which svg_text gives the colour of the page."""

Value = tuple[float, float, float]
"""Mean, and the ends of its band."""


@dataclass(frozen=True)
class SweepCell:
    """A cell of a grid: its settings, and its value; a miss has none, and says what happened."""

    settings: tuple[Any, ...]
    value: Value | None
    miss: str = ""


@dataclass(frozen=True)
class Grid:
    """What is drawn of a sweep: its keys, its cells in the order of the sweep, and the name of the quantity."""

    keys: tuple[str, ...]
    cells: tuple[SweepCell, ...]
    quantity: str
    banded: bool
    """Whether values have bands."""

    def values(self, place: int) -> list[Any]:
        """Return the values of a key, each once, in order."""
        found: list[Any] = []
        for cell in self.cells:
            if cell.settings[place] not in found:  # settings may be lists, which no set takes
                found.append(cell.settings[place])
        return found

    def numeric(self, place: int) -> bool:
        """Return whether all values of a key are numbers."""
        values = self.values(place)
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)

    def places(self) -> list[str] | None:
        """Return the texts on the axis where settings are no numbers."""
        numeric = any(self.numeric(place) for place in range(len(self.keys)))
        return None if numeric else [setting_text(value) for value in self.values(0)]


def grid_of(rows: Sequence[Row], quantity: str = "time", target: str | None = None) -> Grid:
    """Return what to draw of a sweep's rows: time to a target (the last unless named), final score, or bits sent."""
    keys = tuple(rows[0]["settings"])
    drawn = [key for key in keys if len({repr(row["settings"][key]) for row in rows}) > 1]
    if len(drawn) > 2:
        raise UsageError(
            f"the sweep varies {len(drawn)} keys ({', '.join(drawn)}), and a figure shows two; sweep two of them and "
            "fix the others with --set"
        )
    shown = tuple(drawn) or keys[:1]
    if quantity == "time" and target is None:
        target = next((list(row["time_to_accuracy"])[-1] for row in rows if row["time_to_accuracy"]), None)
        if target is None:
            raise UsageError("the sweep has no target accuracy, so there is no time to draw; give --y accuracy or bits")
    cells = tuple(_cell(row, shown, quantity, target) for row in rows)
    return Grid(shown, cells, _quantity_label(rows, quantity, target), banded=quantity == "time")


def _cell(row: Row, keys: Sequence[str], quantity: str, target: str | None) -> SweepCell:
    settings = tuple(row["settings"][key] for key in keys)
    if row.get("refused"):
        return SweepCell(settings, None, "refused")
    if quantity == "time":
        return SweepCell(settings, time_and_band(row, str(target)), "not reached")
    if quantity == "bits":
        sent = sum(row["bits_per_device"][link]["mean"] for link in ("up", "d2d")) / 1e6
        return SweepCell(settings, (sent, sent, sent))
    score = final_score(row)
    return SweepCell(settings, None if score is None else (score, score, score), "not known")


def _quantity_label(rows: Sequence[Row], quantity: str, target: str | None) -> str:
    metric = next((row["metric"] for row in rows if row.get("metric")), "accuracy")
    if quantity == "time":
        return f"virtual seconds to {metric_word(metric)} {float(str(target)):g}"
    return "megabits sent by a device (mean)" if quantity == "bits" else f"final {metric_label(metric)}"


def sweep_figure(
    grid: Grid, style: Style = SCREEN, size: Size = (None, None), overlay: Sequence[Series] = ()
) -> "Figure":
    """Draw a sweep by the kind of its keys."""
    numeric = [grid.numeric(place) for place in range(len(grid.keys))]
    if all(numeric) and len(numeric) == 2:
        if overlay:
            raise UsageError("--overlay cannot be drawn on a heat map of two keys; sweep one key, or leave it out")
        return heat_map(grid, style, size)
    if not any(numeric):
        return dot_plot(grid, style, size, overlay)
    return family(grid, numeric.index(True), style, size, overlay)


def family(grid: Grid, place: int, style: Style, size: Size, overlay: Sequence[Series] = ()) -> "Figure":
    """Draw a curve over the numeric key at a place; with a second key, one for each of its values, with labels."""
    figure = style.figure(*size)
    axes = style.dress(figure.add_subplot(), grid.keys[place], _with_band(grid, style))
    names = grid.values(1 - place) if len(grid.keys) == 2 else [None]
    labelled = []
    for number, name in enumerate(names):
        own = [cell for cell in grid.cells if len(grid.keys) == 1 or cell.settings[1 - place] == name]
        points = sorted(((cell.settings[place], *cell.value) for cell in own if cell.value), key=lambda point: point[0])
        if not points:
            continue
        x, mean, low, high = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
        look = {**curve_style(number), "marker": mark_style(number)["marker"], "markersize": style.mark}
        bars = np.clip([mean - low, high - mean], 0, None) if grid.banded else None
        axes.errorbar(x, mean, bars, capsize=2, linewidth=style.line, label=setting_text(name), **look)
        labelled.append(Labelled(setting_text(name), x, mean, look))
    for number, series in enumerate(overlay):
        look = overlay_look(series, number, style)
        axes.plot(series.x, series.y, linewidth=style.line, label=series.label, **look)
        labelled.append(Labelled(series.label, np.array(series.x), np.array(series.y), look))
    _scales(axes, grid, place, overlay, style)
    _mark_misses(axes, grid, place, style)
    if len(grid.keys) == 2 or overlay:
        entries = labelled if len(grid.keys) == 2 else labelled[-len(overlay) :]
        label_margin(axes, entries, style)
    return figure


def _with_band(grid: Grid, style: Style) -> str:
    return f"{grid.quantity} (mean, 95% of draws)" if grid.banded and style.titles else grid.quantity


def _scales(axes: "Axes", grid: Grid, place: int, overlay: Sequence[Series], style: Style) -> None:
    """Make axes logarithmic where values span decades; else begin times and bits at zero."""
    x = [float(value) for value in grid.values(place)] + [float(value) for series in overlay for value in series.x]
    y = [cell.value[0] for cell in grid.cells if cell.value] + [value for series in overlay for value in series.y]
    if spans_decades(x):
        axes.set_xscale("log")
        style.name_axes(axes, x=f"{grid.keys[place]} (logarithmic)")
    if len(set(x)) <= 8:
        plain_ticks(axes.xaxis, sorted(set(x)))
    axes.set_xlim(*_wide(min(x), max(x), logarithmic=axes.get_xscale() == "log"))
    if spans_decades(y):
        axes.set_yscale("log")
        style.name_axes(axes, y=f"{_with_band(grid, style)}, logarithmic")
    elif "final" not in grid.quantity and y:
        axes.set_ylim(bottom=0)
    if any(cell.value is None for cell in grid.cells):  # room for what is marked at the top edge
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.35 if axes.get_yscale() == "log" else high + 0.35 * (high - low))


def _wide(low: float, high: float, *, logarithmic: bool) -> tuple[float, float]:
    """Return limits with a margin on both sides."""
    if logarithmic:
        return low / (high / low) ** 0.06, high * (high / low) ** 0.06
    margin = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _mark_misses(axes: "Axes", grid: Grid, place: int, style: Style) -> None:
    """Mark each setting that has no value with a cross at the top edge and words below it."""
    misses: dict[float, list[str]] = {}
    for cell in grid.cells:
        if cell.value is None:
            name = "" if len(grid.keys) == 1 else f"{setting_text(cell.settings[1 - place])}: "
            misses.setdefault(float(cell.settings[place]), []).append(f"{name}{cell.miss}")
    upright: Any = ("data", "axes fraction")
    for x, words in misses.items():
        axes.plot([x], [0.97], "x", transform=axes.get_xaxis_transform(), color=MISSED, markersize=style.mark * 1.4)
        shown = words if len(words) <= 2 else [f"{len(words)} {words[0].rpartition(': ')[2]}"]
        beside: dict[str, Any] = {"xycoords": upright, "textcoords": "offset points", "va": "top", "ha": "center"}
        axes.annotate(
            plain("; ".join(shown)),
            (x, 0.97),
            (0, -style.mark),
            fontsize=style.small,
            rotation=90,
            rotation_mode="default",
            **beside,
        )


def heat_map(grid: Grid, style: Style, size: Size) -> "Figure":
    """Draw a cell for each pair of settings with its value; what has none is hatched and says so."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    columns, lines = (sorted(grid.values(place)) for place in (0, 1))
    figure = style.figure(*size)
    axes = style.dress(figure.add_subplot(), grid.keys[0], grid.keys[1], grid="")
    found = {cell.settings: cell for cell in grid.cells}
    values = np.full((len(lines), len(columns)), np.nan)
    for cell in grid.cells:
        if cell.value is not None:
            values[lines.index(cell.settings[1]), columns.index(cell.settings[0])] = cell.value[0]
    finite = values[np.isfinite(values)].tolist()
    colours = colormaps["cividis"].resampled(_SHADES)
    scale: Any = "log" if spans_decades(finite) else "linear"
    mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=scale, edgecolor="white", linewidth=0.5)
    for line, y in enumerate(lines):
        for column, x in enumerate(columns):
            cell = found.get((x, y), SweepCell((x, y), None, "not run"))
            if cell.value is None:
                look: Any = {"hatch": "////", "facecolor": "none", "edgecolor": MISSED, "linewidth": 0}
                axes.add_patch(Rectangle((column, line), 1, 1, **look))
            middle, text = (
                (column + 0.5, line + 0.5),
                cell.miss.replace(" ", "\n") if cell.value is None else _short(cell.value[0]),
            )
            colour = "black" if cell.value is None else _ON_CELL[_dark(mesh, cell.value[0])]
            axes.annotate(text, middle, fontsize=style.small, ha="center", va="center", color=colour)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{value:g}" for value in columns])
    axes.set_yticks(np.arange(len(lines)) + 0.5, [f"{value:g}" for value in lines])
    axes.tick_params(length=0)
    if finite:
        bar = figure.colorbar(mesh, ax=axes)
        name = grid.quantity + (", logarithmic" if scale == "log" else "")
        bar.set_label(style.lines(name, 0.8 * figure.get_figheight()), fontsize=style.font)
        bar.ax.tick_params(labelsize=style.font, width=0.6)
        if scale == "log":
            ticks = [one * 10.0**power for power in range(-9, 13) for one in (1, 2, 5)]
            plain_ticks(bar.ax.yaxis, [tick for tick in ticks if min(finite) <= tick <= max(finite)])
        bar.outline.set_visible(False)
    return figure


def _dark(mesh: Any, value: float) -> bool:
    """Return whether the cell of a value is dark."""
    red, green, blue, _ = mesh.to_rgba([value])[0]
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.5)


def dot_plot(grid: Grid, style: Style, size: Size, overlay: Sequence[Series] = ()) -> "Figure":
    """Draw a row for each value of a key that has no numbers, a dot with its bar; a second key has marks of its own."""
    names = grid.values(0)
    groups = grid.values(1) if len(grid.keys) == 2 else [None]
    figure = style.figure(size[0], size[1] or 0.8 + (0.28 + 0.1 * len(groups)) * len(names) * style.font / 10)
    axes = style.dress(figure.add_subplot(), y=grid.keys[0])
    style.name_axes(axes, x=_with_band(grid, style), share=0.6)
    for cell in grid.cells:
        number = groups.index(cell.settings[1]) if len(grid.keys) == 2 else 0
        shift = 0.5 * (number - (len(groups) - 1) / 2) / len(groups)
        _dot(axes, cell, names.index(cell.settings[0]) + shift, mark_style(number), style, banded=grid.banded)
    for number, series in enumerate(overlay):
        places = [[setting_text(name) for name in names].index(str(x)) for x in series.x]
        look = {**overlay_look(series, number, style), "linestyle": "none"}
        axes.plot(series.y, places, label=plain(series.label), **look)
    values = [cell.value[0] for cell in grid.cells if cell.value] + [value for series in overlay for value in series.y]
    if spans_decades(values):
        axes.set_xscale("log")
        style.name_axes(axes, x=f"{_with_band(grid, style)}, logarithmic", share=0.6)
    elif values:
        axes.set_xlim(left=0 if "final" not in grid.quantity else None)
    axes.set_yticks(range(len(names)), [plain(setting_text(name)) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    for number, group in enumerate(groups if len(grid.keys) == 2 else ()):
        axes.plot(
            [],
            [],
            linestyle="none",
            markersize=style.mark,
            label=plain(f"{grid.keys[1]} = {setting_text(group)}"),
            **mark_style(number),
        )
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper center", ncols=2, fontsize=style.small, frameon=False)
    return figure


def _dot(axes: "Axes", cell: SweepCell, place: float, look: dict[str, Any], style: Style, *, banded: bool) -> None:
    if cell.value is None:
        axes.plot([0.97], [place], "x", transform=axes.get_yaxis_transform(), color=MISSED, markersize=style.mark * 1.4)
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(
            cell.miss, (0.97, place), (-style.mark * 1.5, 0), fontsize=style.small, ha="right", va="center", **beside
        )
        return
    mean, low, high = cell.value
    bars = np.clip([[mean - low], [high - mean]], 0, None) if banded else None
    axes.errorbar([mean], [place], xerr=bars, capsize=2, linestyle="none", markersize=style.mark, **look)


def setting_text(value: Any) -> str:
    """Write a setting."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(value: float) -> str:
    """Write the number in a cell."""
    return f"{value:.3g}" if 0.001 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"
