"""The figure accuracy against epsilon: ``python -m benchmarks.private_figure [JSON ...]`` draws docs/privacy.png.

The files hold rows of real runs, each with scheme, epsilon (null without noise), seed and accuracy, as
``python -m benchmarks private`` writes them, or are those of ``python -m benchmarks private_descent``.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.report.figures import COLOURS, new_figure, plain_ticks
from codedfl.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = (Path("out/bench/private.json"), Path("out/bench/private_descent.json"))
PLACE = Path("docs/privacy.png")
_MARKS = ("o", "s", "^", "D", "v")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)))
_APART = 0.045
"""Least distance of two labels, as a share of the height."""


def accuracy_against_epsilon(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the mean over seeds by scheme with the range of all seeds, and the model without noise as a line."""
    figure = new_figure(7, 4.2)
    axes = figure.add_subplot()
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    curves = {scheme: _curve(rows, scheme) for scheme in dict.fromkeys(row["scheme"] for row in rows)}
    curves = {scheme: curve for scheme, curve in curves.items() if curve}
    labels = []
    for number, (scheme, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        low, mean, high = np.array([(min(scores), np.mean(scores), max(scores)) for scores in curve.values()]).T
        style = {"color": colour, "linestyle": _LINES[number % len(_LINES)], "marker": _MARKS[number % len(_MARKS)]}
        axes.plot(list(curve), mean, markersize=5, **style)
        axes.fill_between(list(curve), low, high, color=colour, alpha=0.2, linewidth=0)
        last = max(curve)
        if last == epsilons[-1]:
            labels.append((float(mean[-1]), scheme, colour))
        else:
            beside = {"xytext": (-6, 4), "textcoords": "offset points", "ha": "right", "fontsize": 9}
            axes.annotate(scheme, (last, float(mean[-1])), color=colour, **beside)
    clear = [100 * row["accuracy"] for row in rows if row["epsilon"] is None]
    if clear:
        axes.axhline(float(np.mean(clear)), color="0.35", linewidth=1.2, linestyle=(0, (6, 2)))
        axes.axhspan(min(clear), max(clear), color="0.35", alpha=0.12, linewidth=0)
        labels.append((float(np.mean(clear)), "ridge without noise", "0.35"))
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.15, epsilons[-1] * 1.05)
    plain_ticks(axes.xaxis, epsilons)
    axes.set_xlabel("epsilon (logarithmic), delta = 1e-5, one record added or removed")
    seeds = len({row["seed"] for row in rows})
    axes.set_ylabel(f"test accuracy in percent\nmean and range of {seeds} seeds")
    axes.grid(visible=True, color="0.9")
    axes.set_axisbelow(True)
    _label(axes, labels)
    return figure


def _curve(rows: Sequence[Mapping[str, Any]], scheme: str) -> dict[float, list[float]]:
    """Return the accuracies of a scheme in percent, by epsilon."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row["scheme"] == scheme and row["epsilon"] is not None:
            found.setdefault(row["epsilon"], []).append(100 * row["accuracy"])
    return dict(sorted(found.items()))


def _label(axes: "Axes", labels: Sequence[tuple[float, str, str]]) -> None:
    """Write names beside the right ends of curves, from the bottom up, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    place = -np.inf
    for value, name, colour in sorted(labels):
        place = max((value - low) / (high - low), place + _APART)
        axes.annotate(name, (1.01, place), xycoords="axes fraction", color=colour, va="center", fontsize=9)


def _rows(read: Any) -> list[dict[str, Any]]:
    """Return rows as they are; of gradient descent, those with noise, for its model without noise is another one."""
    if isinstance(read, list):
        return read
    name, scores = (
        "secagg, softmax",
        {key: value for key, value in read.items() if key[0].isdigit()},
    )
    return [
        {"scheme": name, "epsilon": float(key), "seed": seed, "accuracy": value}
        for key, values in scores.items()
        for seed, value in enumerate(values)
    ]


def main(paths: Sequence[str]) -> None:
    """Draw the rows of files."""
    rows = [row for path in paths for row in _rows(json.loads(Path(path).read_text(encoding="utf-8")))]
    figure = accuracy_against_epsilon(rows)
    write_whole(PLACE, lambda file: figure.savefig(file, format="png"))


if __name__ == "__main__":
    main(sys.argv[1:] or [str(path) for path in ROWS])
