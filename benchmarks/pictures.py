"""Pictures of what an attack saw, readable in print; ``codedfl.report.figures`` draws runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from benchmarks.reconstruction import Ranked, Rebuilt
from codedfl.errors import MissingExtraError
from codedfl.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["membership_picture", "save"]

# members and strangers, from the palette of Okabe and Ito
_MEMBER, _STRANGER = "#D55E00", "#0072B2"
_BINS = 60


def membership_picture(rebuilt: Rebuilt, ranked: Ranked, points: int) -> "Figure":
    """Draw rebuilt images beside the true ones (top), and a ranking of candidates for a device of ``points`` images."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("pictures need matplotlib; install it with: pip install 'codedfl[plots]'") from None
    figure = Figure(figsize=(7.5, 8.6), layout="constrained", dpi=150)
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.05])[:, 0]
    _draw_rebuilt(top, rebuilt)
    _draw_ranked(bottom, ranked, points)
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write a picture as PNG."""
    write_whole(path, lambda file: figure.savefig(file, format="png"))


def _draw_rebuilt(part: "SubFigure", rebuilt: Rebuilt) -> None:
    part.suptitle(
        f"(a) Images rebuilt from the recovered Gram matrix of a device with {rebuilt.points} images", size=10
    )
    rows = (
        ("public image\nto start from", rebuilt.starts, None, "0.5"),
        ("rebuilt", rebuilt.images, None, "black"),
        ("nearest of\nthe device", rebuilt.members, rebuilt.member_distances, _MEMBER),
        ("nearest of as\nmany others", rebuilt.strangers, rebuilt.stranger_distances, _STRANGER),
    )
    grid = part.subplots(len(rows), len(rebuilt.images), squeeze=False)
    for (label, images, distances, colour), row in zip(rows, grid, strict=True):
        _label(row[0], label, colour)
        for number, axes in enumerate(row):
            _show(axes, images[number], colour)
            if distances is not None:
                axes.set_xlabel(f"{distances[number]:.2f}", size=8, color=colour, labelpad=2)
    part.supxlabel("numbers: Euclidean distance to the rebuilt image, pixels in [0, 1]", size=8)


def _draw_ranked(part: "SubFigure", ranked: Ranked, points: int) -> None:
    count = ranked.member_scores.size + ranked.stranger_scores.size
    part.suptitle(f"(b) {count:,} candidates for a device with {points} images, ranked by the attack", size=10)
    upper, lower = part.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.1])[:, 0]
    grid = upper.subplots(2, len(ranked.most), squeeze=False)
    halves = (
        ("most surely\nmembers", ranked.most, ranked.most_are_members),
        ("least likely\nmembers", ranked.least, ranked.least_are_members),
    )
    for (label, images, truths), row in zip(halves, grid, strict=True):
        _label(row[0], label, "black")
        for image, inside, axes in zip(images, truths, row, strict=True):
            _show(axes, image, _MEMBER if inside else _STRANGER)
            axes.set_xlabel("member" if inside else "stranger", size=7, labelpad=2)
    _draw_scores(lower.subplots(), ranked)


def _draw_scores(axes: "Axes", ranked: Ranked) -> None:
    everything = np.concatenate([ranked.member_scores, ranked.stranger_scores])
    low, high = np.quantile(everything, [0.0005, 0.9995])
    edges = np.linspace(low, high, _BINS + 1).tolist()
    strangers, members = ranked.stranger_scores, ranked.member_scores
    axes.hist(np.clip(strangers, low, high), edges, color=_STRANGER, alpha=0.6, label=f"{strangers.size:,} test images")
    axes.hist(
        np.clip(members, low, high), edges, color=_MEMBER, alpha=0.6, hatch="//", label=f"{members.size:,} members"
    )
    axes.set(yscale="log", xlabel="score of a candidate: its weight in the Gram matrix", ylabel="candidates")
    axes.legend(fontsize=8, loc="upper center")  # looking for the best place may take long, and is warned of
    axes.grid(visible=True, color="0.9")
    axes.set_axisbelow(True)


def _label(axes: "Axes", text: str, colour: str) -> None:
    axes.set_ylabel(text, size=8, rotation=0, ha="right", va="center", labelpad=6, color=colour)


def _show(axes: "Axes", image: Float[np.ndarray, "p"], colour: str) -> None:
    side = round(image.size**0.5)
    axes.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for edge in axes.spines.values():
        edge.set(color=colour, linewidth=1.2)
