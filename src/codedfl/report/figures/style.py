"""Looks of figures: sizes for paper and screen, colours and lines that stay apart for the colour-blind and in grey."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codedfl.errors import MissingExtraError, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# the palette of Okabe and Ito, and line styles and marks that tell curves apart without colour
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "h", "*")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

# black that shines through instead of grey: svg_text turns black into the colour of the page's text
GRID: dict[str, Any] = {"color": "black", "alpha": 0.1, "linewidth": 0.6}
GUIDE: dict[str, Any] = {"color": "black", "alpha": 0.45, "linewidth": 0.8, "linestyle": ":"}
MISSED = "#D55E00"
"""Colour of what was not reached."""


@dataclass(frozen=True)
class Style:
    """Sizes of a figure: fonts and lines in points, width and height in inches unless asked for otherwise."""

    name: str
    width: float
    height: float
    font: float
    small: float
    line: float
    mark: float
    dpi: int
    titles: bool
    """Whether titles stand inside the figure; a paper has captions."""
    wrap: int
    """Letters of a label in one line."""

    def figure(self, width: float | None = None, height: float | None = None) -> "Figure":
        """Return an empty figure of a size in inches; the style's own where none is given."""
        return new_figure(width or self.width, height or self.height, dpi=self.dpi)

    def dress(self, axes: "Axes", x: str = "", y: str = "", *, grid: str = "both") -> "Axes":
        """Label axes and set the sizes of everything on them; sizes are explicit, so that saving needs no context."""
        self.name_axes(axes, x, y)
        axes.tick_params(which="major", labelsize=self.font, width=0.6, length=3)
        axes.tick_params(which="minor", labelsize=self.font, width=0.4, length=1.8)
        for spine in axes.spines.values():
            spine.set_linewidth(0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if grid:
            axes.grid(visible=True, which="major", axis=grid, **GRID)  # type: ignore[arg-type]
        axes.set_axisbelow(True)
        return axes

    def name_axes(self, axes: "Axes", x: str | None = None, y: str | None = None, *, share: float = 0.85) -> None:
        """Write the names of axes, in as many lines as a share of the figure's width, or its height, needs."""
        width, height = axes.figure.get_size_inches()  # type: ignore[union-attr]
        if x is not None:
            axes.set_xlabel(self.lines(x, share * width), fontsize=self.font)
        if y is not None:
            axes.set_ylabel(self.lines(y, 0.8 * height), fontsize=self.font)

    def lines(self, text: str, inches: float) -> str:
        """Break a text into lines of a length in inches; a letter is about half as wide as its size."""
        return "\n".join(textwrap.wrap(text, max(10, int(inches * 72 / (0.53 * self.font)))))


PAPER = Style("paper", 3.5, 2.6, 8, 7, 1.0, 3.5, 300, titles=False, wrap=24)
SCREEN = Style("screen", 7, 4.4, 10, 8, 1.6, 5, 150, titles=True, wrap=36)
STYLES = {style.name: style for style in (PAPER, SCREEN)}


def new_figure(width: float = 7, height: float = 4.4, *, dpi: int = 150) -> "Figure":
    """Return an empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib; install it with: pip install 'codedfl[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained", dpi=dpi)


def lay_out(figure: "Figure") -> None:
    """Place the axes so that everything around them fits, without drawing, which takes several times as long."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)


def curve_style(number: int) -> dict[str, Any]:
    """Return the colour and line style of a curve; further rounds through the colours have other line styles."""
    turn, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": _LINES[(colour + turn) % len(_LINES)]}


def mark_style(number: int) -> dict[str, Any]:
    """Return the colour and mark of a series of points; further rounds through the colours have other marks."""
    turn, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "marker": MARKS[(colour + turn) % len(MARKS)]}


def plain(text: str) -> str:
    """Return a text that is drawn as it is: without control characters, dollar signs not read as mathematics."""
    return printable(" ".join(text.split())).replace("$", r"\$")


def metric_label(metric: str) -> str:
    """Name the score on an axis."""
    return "test accuracy" if metric == "accuracy" else "R² on the test set"


def metric_word(metric: str) -> str:
    """Name the score in a sentence."""
    return "accuracy" if metric == "accuracy" else "R²"


def plain_ticks(axis: "Axis", places: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers at the given places only."""
    axis.set_ticks(list(places), [f"{place:g}" for place in places])
    axis.set_ticks([], minor=True)


def spans_decades(values: Sequence[float]) -> bool:
    """Return whether values need a logarithmic axis: all above zero, the largest at least 30 times the smallest."""
    return len(values) > 1 and min(values) > 0 and max(values) / min(values) >= 30
