"""Figure of real trainings beside their predictions in virtual time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.report.figures import COLOURS, metric_label, new_figure, plain_ticks
from codedfl.runs import Run
from codedfl.training.timing import band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_TICKS = tuple(step * 10.0**power for power in range(-3, 7) for step in (1, 2, 5))


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
    figure = new_figure(10, 4.4)
    times, curves = figure.subplots(1, 2)
    ends = [end for pair in pairs for end in pair.ends]
    _ends_panel(times, pairs, limit, (min(ends) / 2.2, max(ends) * 2.2))  # two ticks at least
    second = min(float(run.epochs["time"][:2].max()) for pair in pairs for run in (pair.predicted, pair.measured))
    _pairs_panel(curves, pairs, (second / 2, max(ends) * 1.3))
    curves.set_ylabel(metric_label(metric))
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
        plain_ticks(axis, [tick for tick in _TICKS if span[0] <= tick <= span[1]])
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
    plain_ticks(axes.xaxis, [tick for tick in _TICKS if span[0] <= tick <= span[1]])
    axes.set_xlabel("training time in seconds (logarithmic);\nline: predicted in the run's own draw, marks: measured")
    axes.legend(fontsize=8, loc="lower right")


def _pair_styles() -> Iterator[dict[str, Any]]:
    return ({"color": colour, "marker": mark} for colour, mark in cycle(zip(COLOURS, _MARKS, strict=True)))
