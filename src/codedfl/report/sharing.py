"""Pictures of sharing: who does what when, who hands over to whom, and how many devices and supports are left."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from codedfl.report.figures.curves import Size
from codedfl.report.figures.labels import Labelled, label_margin
from codedfl.report.figures.points import POINTS
from codedfl.report.figures.style import COLOURS, SCREEN, Style, curve_style, plain_ticks
from codedfl.runs import Run
from codedfl.training.timeline import ROUND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Affine2D

_DEVICES = "device (fastest at the top)"
_HANDED = "epoch after which devices hand over (dot: sender, head: recipient)"
_LEFT = ("active devices K(e)", "supports left L(e)")
_HATCHES = {
    "receive model": (COLOURS[5], ""),
    "compute": ("0.75", ""),
    "send reply": (COLOURS[0], ""),
    "encrypt": (COLOURS[4], ""),
    "send": (COLOURS[1], "////"),
    "absorb": (COLOURS[2], "\\\\\\\\"),
}
"""Colour and hatching of an activity, so that they can be told apart in print; grants are too short to see."""


_TOO_THIN = 1 / 4000
"""Share of the picture below which a bar cannot be seen; leaving it out keeps SVG files small."""


def read_timeline(run: Run) -> dict[str, Any]:
    """Read the timeline of a run's own draw as columns."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(FilePath(run.path) / "timeline.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def timeline_figure(
    columns: Mapping[str, Any], devices: int, title: str, style: Style = SCREEN, size: Size = (None, None)
) -> "Figure":
    """Draw what each device does until the last hand-over is done, or in the first epochs if there is none."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    wide, tall = (9.0, 5.6) if style.titles else (7.0, 1.1 + 0.12 * devices)
    figure = style.figure(size[0] or wide, size[1] or tall)
    axes = style.dress(figure.add_subplot(), "virtual seconds since the beginning", _DEVICES, grid="x")
    activity, begin, end, device = (np.asarray(columns[name]) for name in ("activity", "begin", "end", "device"))
    last = timeline_end(columns)
    for name, (colour, hatch) in _HATCHES.items():
        chosen = (activity == name) & (begin < last) & (end - begin > last * _TOO_THIN)
        steps = (begin[chosen].tolist(), end[chosen].tolist(), device[chosen].tolist())
        bars = [Path.unit_rectangle().transformed(_onto(*bar)) for bar in zip(*steps, strict=True)]
        if bars:  # one path for all bars of an activity keeps SVG files small
            look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
            axes.add_patch(PathPatch(Path.make_compound_path(*bars), label=name, **look))
    axes.set(xlim=(0, last), ylim=(devices - 0.5, -0.5))
    axes.locator_params(axis="y", integer=True)
    _legend(figure, style, title, 6 if (size[0] or wide) > 5 else 3)
    return figure


def _onto(begin: float, end: float, device: int) -> "Affine2D":
    """Return what moves a unit square onto the bar of a step."""
    from matplotlib.transforms import Affine2D

    return Affine2D().scale(end - begin, 0.8).translate(begin, device - 0.4)


def timeline_end(columns: Mapping[str, Any]) -> float:
    """Return where a picture ends: a bit after the last hand-over, or after the third epoch if there is none."""
    end, epoch = (np.asarray(columns[name]) for name in ("end", "epoch"))
    absorbed = end[np.asarray(columns["activity"]) == "absorb"]
    return float(absorbed.max()) * 1.02 if len(absorbed) else float(end[epoch <= 3].max())


def _legend(figure: "Figure", style: Style, title: str, columns: int) -> None:
    handles, names = figure.axes[0].get_legend_handles_labels()
    look: dict[str, Any] = {"fontsize": style.small, "frameon": False, "handlelength": 3}
    legend = figure.legend(handles, names, loc="outside upper center", ncols=columns, **look)
    if style.titles:
        legend.set_title(title)
        legend.get_title().set_fontsize(style.font)


def handover_figure(
    columns: Mapping[str, Any], devices: int, title: str, style: Style = SCREEN, size: Size = (None, None)
) -> "Figure":
    """Draw each hand-over as an arrow from sender to recipient, in the epoch after which it happens.

    An epoch is as wide as it has hand-overs, so that arrows stand apart.
    """
    wide, tall = (7.0, 5.2) if style.titles else (style.width, 1.2 + 0.1 * devices)
    figure = style.figure(size[0] or wide, size[1] or tall)
    axes = style.dress(
        figure.add_subplot(), _HANDED if style.titles else _HANDED.replace(" (", "\n("), _DEVICES, grid="y"
    )
    moved = handovers(columns)
    epochs = sorted({epoch for epoch, *_ in moved})
    counts = [sum(epoch == other for other, *_ in moved) for epoch in epochs]
    ends = np.concatenate([[0.0], np.cumsum([count + 1.5 for count in counts])])
    for place, epoch in enumerate(epochs):
        if place % 2:
            axes.axvspan(ends[place], ends[place + 1], facecolor="black", alpha=0.05, linewidth=0)
        for number, step in enumerate(entry for entry in moved if entry[0] == epoch):
            _arrow(axes, ends[place] + 1.25 + number, step, style)
    for label, colour, line in (("adds an error matrix", COLOURS[1], "-"), ("forwards", COLOURS[0], "--")):
        axes.plot([], [], marker="o", markersize=style.mark * 0.8, color=colour, linestyle=line, label=label)
    axes.set(xlim=(0, max(ends[-1], 1)), ylim=(devices - 0.5, -0.5))
    axes.set_xticks((ends[:-1] + ends[1:]) / 2, [str(epoch) for epoch in epochs])
    axes.tick_params(axis="x", length=0)
    axes.locator_params(axis="y", integer=True)
    _legend(figure, style, title, 2)
    return figure


def _arrow(axes: "Axes", x: float, step: tuple[int, int, int, bool], style: Style) -> None:
    _, sender, recipient, granted = step
    colour, line = (COLOURS[1], "-") if granted else (COLOURS[0], "--")
    look = {
        "arrowstyle": "-|>",
        "color": colour,
        "linestyle": line,
        "lw": style.line * 0.75,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", (x, recipient), (x, sender), arrowprops=look)
    axes.plot([x], [sender], marker="o", markersize=style.mark * 0.8, color=colour)


def handovers(columns: Mapping[str, Any]) -> list[tuple[int, int, int, bool]]:
    """Return epoch, sender, recipient and whether an error was added, in the order of sending.

    Parcels of the set-up and of repairs are sent before the epoch they stand with begins, hand-overs after it.
    """
    names = ("epoch", "device", "activity", "peer", "begin")
    rows = list(zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True))
    granted = {(epoch, device) for epoch, device, activity, *_ in rows if activity == "encrypt"}
    began: dict[int, float] = {}
    for epoch, _, activity, _, begin in rows:
        if activity in ROUND:
            began[epoch] = min(begin, began.get(epoch, np.inf))
    sent = [row for row in rows if row[2] == "send" and row[3] >= 0 and row[4] >= began.get(row[0], 0.0)]
    ordered = sorted(sent, key=lambda row: (row[0], row[4], row[1]))
    return [(epoch, device, peer, (epoch, device) in granted) for epoch, device, _, peer, _ in ordered]


def active_figure(tables: Sequence[Mapping[str, Any]], style: Style = SCREEN, size: Size = (None, None)) -> "Figure":
    """Draw active devices K(e) and supports left L(e) against the epoch, with 95% bands of timing draws."""
    figure = style.figure(size[0], size[1] or style.height * (1.35 if style.titles else 1.6))
    panels: Sequence[Axes] = figure.subplots(2, 1, sharex=True)
    last = max(len(table["active"]) for table in tables)
    epochs = np.unique(np.geomspace(1, last, POINTS).round().astype(int)) if last > POINTS else np.arange(1, last + 1)
    for name, label, axes in zip(("active", "supports"), _LEFT, panels, strict=True):
        style.dress(axes, "" if name == "active" else "epoch e (logarithmic), at its beginning", label)
        labelled = []
        for number, table in enumerate(tables):
            words = (
                f"claimed {table['level']} bit, Delta\u00a0=\u00a0{table['delta']:g}\u00a0s, supports {table['supply']}"
            )
            mean, low, high = (_prolonged(table[name + part], last)[epochs - 1] for part in ("", "_low", "_high"))
            look = curve_style(number)
            axes.step(epochs, mean, where="mid", label=words, linewidth=style.line, **look)
            axes.fill_between(epochs, low, high, step="mid", color=look["color"], alpha=0.15, linewidth=0)
            labelled.append(Labelled(words, epochs.astype(np.float64), mean, look))
        axes.set(xscale="log", xlim=(1, last), ylim=(0, None))
        axes.locator_params(axis="y", integer=True)
        ticks = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if style.titles else (1, 3, 10, 30, 100, 300, 1000)
        plain_ticks(axes.xaxis, [tick for tick in ticks if tick <= last])
        label_margin(axes, labelled, replace(style, wrap=30 if style.titles else 18))
    if style.titles:
        panels[0].set_title("mean and 95% of timing draws", fontsize=style.small, loc="left")
    return figure


def _prolonged(values: Sequence[float], length: int) -> Float[np.ndarray, "epochs"]:
    return np.array([*values, *[values[-1]] * (length - len(values))], dtype=np.float64)
