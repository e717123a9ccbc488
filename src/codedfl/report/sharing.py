"""Pictures of sharing: who does what when, who hands over to whom, and how many devices and supports are left."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.report.figures import COLOURS, curve_style, new_figure, plain_ticks
from codedfl.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = {
    "receive model": (COLOURS[5], ""),
    "compute": ("0.75", ""),
    "send reply": (COLOURS[0], ""),
    "encrypt": (COLOURS[4], ""),
    "send": (COLOURS[1], "////"),
    "absorb": (COLOURS[2], "...."),
}
"""Colour and hatching of an activity, so that they can be told apart in print; grants are too short to see."""


def read_timeline(run: Run) -> dict[str, Any]:
    """Read the timeline of a run's own draw as columns."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(Path(run.path) / "timeline.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def timeline_figure(columns: Mapping[str, Any], devices: int, title: str) -> "Figure":
    """Draw what each device does until the last hand-over is done, or in the first epochs if there is none."""
    figure = new_figure(9, 5.6)
    axes = figure.add_subplot()
    activity, begin, end = (np.asarray(columns[name]) for name in ("activity", "begin", "end"))
    absorbed = end[activity == "absorb"]
    last = float(absorbed.max()) * 1.02 if len(absorbed) else float(end[np.asarray(columns["epoch"]) <= 3].max())
    for name, (colour, hatch) in _HATCHES.items():
        chosen = (activity == name) & (begin < last) & (end > begin)
        for device in np.unique(np.asarray(columns["device"])[chosen]):
            own = chosen & (np.asarray(columns["device"]) == device)
            bars = np.column_stack([begin[own], end[own] - begin[own]])
            axes.broken_barh(
                bars.tolist(), (device - 0.4, 0.8), facecolor=colour, hatch=hatch, edgecolor="white", lw=0.2
            )
        axes.broken_barh([], (0, 0), facecolor=colour, hatch=hatch, edgecolor="white", lw=0.2, label=name)
    axes.set(xlim=(0, last), ylim=(devices - 0.5, -0.5))
    axes.set_xlabel("virtual seconds since the beginning")
    axes.set_ylabel("device (fastest at the top)")
    figure.legend(loc="outside upper center", ncols=6, fontsize=8, title=title, title_fontsize=9)
    return figure


def handover_figure(columns: Mapping[str, Any], devices: int, title: str) -> "Figure":
    """Draw each hand-over as an arrow from sender to recipient, in the epoch after which it happens."""
    figure = new_figure(7, 5.2)
    axes = figure.add_subplot()
    moved = _handovers(columns)
    epochs = sorted({epoch for epoch, *_ in moved})
    places = {epoch: number for number, epoch in enumerate(epochs)}
    beside: dict[int, int] = {}
    for epoch, sender, recipient, granted in moved:
        beside[epoch] = beside.get(epoch, -1) + 1
        total = sum(other == epoch for other, *_ in moved)
        x = places[epoch] + 0.8 * (beside[epoch] + 0.5) / total - 0.4
        colour, style = (COLOURS[1], "-") if granted else (COLOURS[0], "--")
        arrow = {"arrowstyle": "-|>", "color": colour, "linestyle": style, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, recipient), (x, sender), arrowprops=arrow)
        axes.plot([x], [sender], marker="o", markersize=4, color=colour)
    for label, colour, style in (("adds an error matrix", COLOURS[1], "-"), ("forwards", COLOURS[0], "--")):
        axes.plot([], [], marker="o", color=colour, linestyle=style, label=label)
    axes.set(xlim=(-0.5, max(len(epochs), 1) - 0.5), ylim=(devices - 0.5, -0.5))
    axes.set_xticks(range(len(epochs)), [str(epoch) for epoch in epochs])
    axes.set_xlabel("epoch after which devices hand over (dot: sender, head of the arrow: recipient)")
    axes.set_ylabel("device (fastest at the top)")
    axes.grid(visible=True, axis="y", color="0.93")
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, title=title, title_fontsize=9)
    return figure


def _handovers(columns: Mapping[str, Any]) -> list[tuple[int, int, int, bool]]:
    """Return epoch, sender, recipient and whether an error was added, in the order of sending."""
    names = ("epoch", "device", "activity", "peer", "begin")
    rows = list(zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True))
    granted = {(epoch, device) for epoch, device, activity, *_ in rows if activity == "encrypt"}
    sent = sorted((row for row in rows if row[2] == "send" and row[3] >= 0), key=lambda row: (row[0], row[4], row[1]))
    return [(epoch, device, peer, (epoch, device) in granted) for epoch, device, _, peer, _ in sent]


def active_figure(tables: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw active devices K(e) and supports left L(e) against the epoch, with 95% bands."""
    figure = new_figure(7, 6)
    panels: Sequence[Axes] = figure.subplots(2, 1, sharex=True)
    last = max(len(table["active"]) for table in tables)
    labels = (("active", "active devices K(e)"), ("supports", "supports left L(e)"))
    for (name, label), axes in zip(labels, panels, strict=True):
        for number, table in enumerate(tables):
            words = f"claimed {table['level']} bit, Delta = {table['delta']:g} s, supports {table['supply']}"
            mean, low, high = (_prolonged(table[name + part], last) for part in ("", "_low", "_high"))
            epochs, style = np.arange(1, last + 1), curve_style(number)
            axes.step(epochs, mean, where="mid", label=words, **style)
            axes.fill_between(epochs, low, high, step="mid", color=style["color"], alpha=0.15, linewidth=0)
        axes.set(xscale="log", ylim=(0, None))
        axes.set_ylabel(label)
        axes.locator_params(axis="y", integer=True)
        axes.grid(visible=True, color="0.9")
    plain_ticks(panels[1].xaxis, [tick for tick in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= last])
    panels[1].set_xlabel("epoch e (logarithmic), at its beginning")
    handles, names = panels[0].get_legend_handles_labels()
    title = "mean and 95% of timing draws"
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=8, title=title, title_fontsize=8)
    return figure


def _prolonged(values: Sequence[float], length: int) -> list[float]:
    return [*values, *[values[-1]] * (length - len(values))]
