"""What devices send and receive, by scheme."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from codedfl.report.figures.curves import Size
from codedfl.report.figures.style import SCREEN, Style, mark_style, plain, spans_decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINKS = {"up": "sent to the server", "down": "received from the server", "d2d": "sent to devices"}
_ROOM = 0.6
"""Share of the width for the name of an axis."""
MEGABYTE = 8e6
"""Bits of a megabyte."""

Sizes = Mapping[str, Mapping[str, float]]
"""Bits per device by link: mean and largest."""


def traffic_figure(sizes: Mapping[str, Sizes], style: Style = SCREEN, size: Size = (None, None)) -> "Figure":
    """Draw megabytes per device and link under each label: a mark at the mean, a line to the device with most."""
    figure = style.figure(size[0], size[1] or 1.1 + 0.42 * len(sizes) * style.font / 10)
    axes = style.dress(figure.add_subplot())
    means = [by[link]["mean"] for by in sizes.values() for link in LINKS]
    logarithmic = spans_decades([mean for mean in means if mean > 0])
    unit, words = (MEGABYTE, "megabytes") if max(means) >= MEGABYTE / 10 else (MEGABYTE / 1000, "kilobytes")
    words += " a device (mean; line: device with most)"
    # names of schemes take much of the width
    style.name_axes(axes, x=f"{words}, logarithmic" if logarithmic else words, share=_ROOM)
    axes.set_xscale("log" if logarithmic else "linear")
    for place, by in enumerate(sizes.values()):
        for number, link in enumerate(LINKS):
            scaled = {name: bits / unit for name, bits in by[link].items()}
            _mark(axes, scaled, place + 0.22 * (number - 1), mark_style(number), style, logarithmic=logarithmic)
    for number, words in enumerate(LINKS.values()):
        axes.plot([], [], linestyle="none", markersize=style.mark, label=words, **mark_style(number))
    if not logarithmic:
        axes.set_xlim(left=0)
    axes.set_yticks(range(len(sizes)), [plain(label) for label in sizes])
    axes.set_ylim(len(sizes) - 0.5, -0.5)
    columns = 3 if (size[0] or style.width) > 5 else 2
    figure.legend(loc="outside upper center", ncols=columns, fontsize=style.small, frameon=False)
    return figure


def _mark(
    axes: "Axes", size: Mapping[str, float], place: float, look: dict[str, Any], style: Style, *, logarithmic: bool
) -> None:
    mean, largest = size["mean"], size["largest"]
    if mean == 0 and logarithmic:  # nothing has no place on a logarithmic axis, so it stands on its left edge
        hollow = {**look, "markerfacecolor": "none", "markersize": style.mark, "clip_on": False}
        axes.plot([0], [place], transform=axes.get_yaxis_transform(), **hollow)
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate("0", (0, place), (style.mark, 0), fontsize=style.small, va="center", ha="left", **beside)
        return
    axes.plot([mean, largest], [place] * 2, color=look["color"], linewidth=style.line * 0.8)
    axes.plot([mean], [place], markersize=style.mark, **look)
