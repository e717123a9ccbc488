"""Labels at the ends of curves, moved so that none hides another."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from codedfl.report.figures.style import Style, lay_out, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLE = 14.0
"""Length of the piece of line before a label, in points."""
_GAP = 3.0
_NEAR = 6.0
"""Distance in points up to which a label needs no line to its curve."""
_ALONE = 5.0
"""Distance in points beyond which two curves do not run together."""
_PLACES = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3)
"""Where along a curve a label may stand, as shares of its points; the end is best."""
_RISES = np.arange(-48.0, 49.0, 3.0)
"""How far above its curve, in points."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """A curve to be labelled: its words, its points in data coordinates, and the look of its line."""

    words: str
    x: Float[np.ndarray, "points"]
    y: Float[np.ndarray, "points"]
    look: dict[str, Any]


Box = tuple[float, float, float, float]
"""Left, bottom, right and top in points."""


def spread(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Move centres of labels apart, as little as possible, so that none overlaps; keep their order and the limits.

    >>> spread([5, 5, 9], [2, 2, 2], 0, 10)
    [4.0, 6.0, 9.0]
    """
    order = sorted(range(len(wanted)), key=lambda number: (wanted[number], number))
    groups: list[tuple[float, list[int]]] = []
    for number in order:
        groups.append((float(wanted[number]), [number]))
        while len(groups) > 1 and _touch(groups[-2], groups[-1], heights):
            (_, first), (_, second) = groups.pop(-2), groups.pop()
            members = first + second
            groups.append((_centre(members, wanted, heights), members))
    found = [0.0] * len(wanted)
    for centre, members in groups:
        size = _size(members, heights)
        at = max(low, min(high - size, centre - size / 2))
        for number in members:
            found[number] = at + heights[number] / 2
            at += heights[number]
    return found if len(groups) < 2 else _within(found, order, heights, low, high)


def _size(members: Sequence[int], heights: Sequence[float]) -> float:
    return float(sum(heights[number] for number in members))


def _touch(first: tuple[float, list[int]], second: tuple[float, list[int]], heights: Sequence[float]) -> bool:
    return first[0] + _size(first[1], heights) / 2 > second[0] - _size(second[1], heights) / 2


def _centre(members: Sequence[int], wanted: Sequence[float], heights: Sequence[float]) -> float:
    """Return the centre of a pile of labels that moves all of them least, by squares."""
    below, moved = 0.0, []
    for number in members:
        moved.append(wanted[number] - below - heights[number] / 2)
        below += heights[number]
    return float(np.mean(moved)) + below / 2


def _within(
    centres: Sequence[float], order: Sequence[int], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Push piles that the limits moved into their neighbours on, upwards and then downwards."""
    found, floor, ceiling = list(centres), low, high
    for number in order:
        found[number] = max(found[number], floor + heights[number] / 2)
        floor = found[number] + heights[number] / 2
    for number in reversed(order):
        found[number] = min(found[number], ceiling - heights[number] / 2)
        ceiling = found[number] - heights[number] / 2
    return found


def label_margin(axes: "Axes", curves: Sequence[Labelled], style: Style) -> None:
    """Write the labels in a column right of the axes, each joined to the end of its curve.

    For curves that all end at the same place. Call it when limits and scales are final.
    """
    words = [wrapped(curve.words, style) for curve in curves]
    heights = [_height(text, style) for text in words]
    lay_out(axes.figure)  # type: ignore[arg-type]
    extent = axes.get_window_extent()
    wide, tall = (length * 72 / axes.figure.dpi for length in (extent.width, extent.height))
    ends = [_fraction(axes, curve.x[-1:], curve.y[-1:])[0] for curve in curves]
    places = spread([float(np.clip(y, 0, 1)) * tall for _, y in ends], heights, 0, max(tall, sum(heights)))
    for curve, text, (x, y), place in zip(curves, words, ends, places, strict=True):
        colour = curve.look.get("color")
        look = {"color": colour, "linestyle": curve.look.get("linestyle", "-"), "linewidth": 0.7}
        line = {"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0, "patchA": None, "relpos": (0, 0.5), **look}
        axes.annotate(
            text,
            (x, float(np.clip(y, 0, 1))),
            (1 + 12 / wide, place / tall),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=style.small,
            va="center",
            ha="left",
            arrowprops=line,
            annotation_clip=False,
        )


def label_ends(
    axes: "Axes",
    curves: Sequence[Labelled],
    style: Style,
    *,
    taken: Sequence[Box] = (),
    guides: Sequence[float] = (),
    avoid: Sequence[tuple[float, float]] = (),
) -> None:
    """Write each label beside its curve, as near to the end as there is room; a piece of line says whose it is.

    ``taken`` are boxes, in points from the corner of the axes, where something else stands, ``guides`` the heights of
    lines and ``avoid`` points, both in data coordinates, that no label should hide. Positions are final: the layout of
    the figure is frozen.
    """
    figure: Any = axes.figure
    lay_out(figure)
    figure.set_layout_engine("none")
    extent = axes.get_window_extent()
    wide, tall = (size * 72 / figure.dpi for size in (extent.width, extent.height))
    scale = np.array([wide, tall])
    lines = [_dense(_fraction(axes, curve.x, curve.y) * scale) for curve in curves]
    heights = [_fraction(axes, np.array([1.0]), np.array([y]))[0, 1] * tall for y in guides]
    ruled = np.array([(x, y) for y in heights for x in np.arange(0, wide, 9.0)]).reshape(-1, 2)
    others = _fraction(axes, *np.array(avoid).reshape(-1, 2).T) * scale
    boxes = list(taken)
    # the curve that ends last first: it has the least room
    for number in sorted(range(len(curves)), key=lambda number: -lines[number][-1, 0]):
        text = wrapped(curves[number].words, style)
        size = (_SAMPLE + _GAP + _width(text, figure, style), _height(text, style))
        foreign = [line for other, line in enumerate(lines) if other != number]
        box = _best(lines[number], size, foreign, np.concatenate([ruled, others]), boxes, (wide, tall))
        boxes.append(box)
        _write(axes, text, box, scale, curves[number].look, style)
        _lead(axes, box, lines[number], scale, curves[number].look["color"])


def _write(axes: "Axes", text: str, box: Box, scale: Any, look: dict[str, Any], style: Style) -> None:
    from matplotlib.lines import Line2D

    left, bottom, _, top = box
    middle = (bottom + top) / 2 / scale[1]
    sample = np.array([left, left + _SAMPLE / 2, left + _SAMPLE]) / scale[0]
    line = Line2D(sample, [middle] * 3, transform=axes.transAxes, linewidth=style.line, markevery=[1], **look)
    axes.add_artist(line)
    x = (left + _SAMPLE + _GAP) / scale[0]
    axes.text(x, middle, text, transform=axes.transAxes, fontsize=style.small, va="center", ha="left")


def _lead(axes: "Axes", box: Box, line: Any, scale: Any, colour: str) -> None:
    """Join a label that stands away from its curve to the nearest point of it."""
    finite = line[np.isfinite(line).all(axis=1)]
    edge, gaps = _gaps(finite, box)
    nearest = int(np.argmin(gaps))
    if gaps[nearest] > _NEAR:
        end = [axis[nearest] for axis in edge]
        x, y = (np.array([end, finite[nearest]]) / scale).T
        axes.plot(x, y, transform=axes.transAxes, color=colour, linewidth=0.5, label="_leader")


def _gaps(points: Any, box: Any) -> tuple[Any, Any]:
    """Return the point of a box that is nearest to each point, and how far it is; a row for each of several boxes."""
    x, y = points.T
    across, upright = np.clip(x, box[0], box[2]), np.clip(y, box[1], box[3])
    return (across, upright), np.hypot(x - across, y - upright)


def _best(
    line: Any,
    size: tuple[float, float],
    foreign: Sequence[Any],
    marks: Any,
    boxes: Sequence[Box],
    limits: tuple[float, float],
) -> Box:
    """Return the box with the least cost: free of labels, then of curves, then near the end of its own curve.

    Where its own curve runs together with another, a label would name both, so such places cost more.
    """
    (width, height), own = size, line[np.isfinite(line).all(axis=1)]
    others = np.concatenate([*foreign, np.empty((0, 2))])
    others = others[np.isfinite(others).all(axis=1)]
    alone = np.array([np.hypot(*(others - point).T).min(initial=np.inf) > _ALONE for point in own])
    hidden = np.concatenate([own, others, marks])
    found: list[tuple[float, Box]] = []
    for share in _PLACES:
        x, y = own[round((len(own) - 1) * share)]
        bottoms = y + _RISES - height / 2
        bottoms = bottoms[(bottoms >= 0) & (bottoms + height <= limits[1])]
        for left in (x + 4, x - width / 2, x - width - 4):
            corner = float(np.clip(left, 1, max(1, limits[0] - width)))
            gaps = _gaps(own, (corner, bottoms[:, None], corner + width, bottoms[:, None] + height))[1]
            inside = _inside(hidden, (corner, bottoms[:, None], corner + width, bottoms[:, None] + height))
            for bottom, gap, nearest, number in zip(bottoms, gaps, np.argmin(gaps, axis=1), inside, strict=True):
                box = (corner, float(bottom), corner + width, float(bottom) + height)
                cost = 25 * (1 - share) + 1.5 * float(gap[nearest]) + (0 if alone[nearest] else 15)
                cost += 1000 * sum(_overlap(box, other) for other in boxes) + 3 * int(number)
                found.append((cost, box))
    return min(found)[1] if found else (1.0, 0.0, 1.0 + width, height)


def _overlap(box: Box, other: Box) -> float:
    """Return the overlap of two boxes as a share of the first, and a little more than nothing if they touch."""
    wide = min(box[2], other[2]) - max(box[0], other[0]) + 2
    tall = min(box[3], other[3]) - max(box[1], other[1]) + 1
    return max(0.0, wide) * max(0.0, tall) / ((box[2] - box[0]) * (box[3] - box[1]))


def _inside(points: Any, boxes: Any) -> Any:
    """Return how many points each of several boxes hides."""
    x, y = points.T
    return np.sum((x > boxes[0] - 1) & (x < boxes[2] + 1) & (y > boxes[1]) & (y < boxes[3]), axis=1)


def _dense(line: Any) -> Any:
    """Return points on a line no farther apart than a few points of print, so that none passes a label unnoticed."""
    steps = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if not np.isfinite(steps[-1]) or steps[-1] == 0:
        return line
    places = np.linspace(0, steps[-1], max(2, int(steps[-1] / 3)))
    return np.column_stack([np.interp(places, steps, line[:, 0]), np.interp(places, steps, line[:, 1])])


def _fraction(axes: "Axes", x: Any, y: Any) -> Any:
    """Return points in fractions of the axes."""
    points = axes.transData.transform(np.column_stack([x, y]))
    return axes.transAxes.inverted().transform(points)


def wrapped(text: str, style: Style) -> str:
    """Break a label into lines."""
    return "\n".join(textwrap.wrap(plain(text), style.wrap))


def _height(text: str, style: Style) -> float:
    return 1.25 * style.small * (text.count("\n") + 1) + 1


def _width(text: str, figure: Any, style: Style) -> float:
    """Return the width of a text in points."""
    shown = figure.text(0, 0, text, fontsize=style.small)
    width = shown.get_window_extent().width
    shown.remove()
    return float(width * 72 / figure.dpi)
