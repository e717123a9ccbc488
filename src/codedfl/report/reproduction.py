"""The paper's experiment as figures, a table of claims and a page."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.progress import Progress, silent
from codedfl.report.figures.curves import Size, Speedup, accuracy_against_time
from codedfl.report.figures.files import save_if_possible
from codedfl.report.figures.labels import Labelled, label_margin
from codedfl.report.figures.points import mean_seconds
from codedfl.report.figures.style import GUIDE, SCREEN, Style, curve_style, mark_style, plain_ticks
from codedfl.report.pages import table_markdown
from codedfl.report.pages.study_pages import reproduction_document
from codedfl.report.sharing import active_figure, handover_figure, read_timeline, timeline_figure
from codedfl.storage import write_text
from codedfl.studies.reproduce.study import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEADER = ("claim", "paper", "measured", "low", "high", "verdict", "reason")
_TICKS = (0.03, 0.1, 0.3, 1, 2, 3, 4, 5, 6, 10, 30, 100)


def write_reproduction(found: Reproduction, out: Path, progress: Progress = silent, command: str = "") -> None:
    """Write ``claims.md``, ``readings.md``, ``index.html`` and all figures, as PNG and SVG."""
    summary = found.summary
    drawings = reproduction_drawings(found)
    for name, (_, draw) in drawings.items():
        save_if_possible(draw, out / f"{name}.png", progress)
    claims = [list(claim.values()) for claim in summary["claims"]]
    write_text(out / "claims.md", table_markdown(_HEADER, claims))
    readings = summary["readings"]
    write_text(out / "readings.md", table_markdown(list(readings[0]), [list(row.values()) for row in readings]))
    write_text(out / "index.html", reproduction_document(found, drawings, command).to_html())


def reproduction_drawings(found: Reproduction) -> dict[str, tuple[str, Callable[[], "Figure"]]]:
    """Return the heading of each figure and how it is drawn, once for all who ask, by file name."""
    drawings: dict[str, tuple[str, Callable[[], Figure]]] = {
        "figure1": ("Figure 1: accuracy against training time", partial(figure1, found)),
        "delta": ("Which Delta is best", partial(delta_figure, found)),
        "beyond": ("Beyond the paper: sealed sharing on the same fleet and links", partial(beyond_figure, found)),
        "active": ("Active devices and supports left", partial(active_figure, found.summary["active_devices"])),
    }
    for label, runs in list(found.runs.items())[1:]:
        columns, devices = read_timeline(runs[0]), runs[0].scenario.fleet.size
        level = _level(label)
        title = f"{label}, first feature seed, own timing draw"
        draw = partial(timeline_figure, columns, devices, title)
        drawings[f"timeline-{level}"] = f"Until the last hand-over: {label}", draw
        draw = partial(handover_figure, columns, devices, title)
        drawings[f"handovers-{level}"] = f"Who hands over to whom: {label}", draw
    # files and page show the same figures
    return {name: (heading, cache(draw)) for name, (heading, draw) in drawings.items()}


def _level(label: str) -> str:
    """Return the claimed level in the label of a setting."""
    return "".join(filter(str.isdigit, label))


def figure1(found: Reproduction, style: Style = SCREEN, size: Size = (None, None), **more: Any) -> "Figure":
    """Draw Figure 1 of the paper, with claimed and measured speed-ups at the last target."""
    targets = found.runs["minibatch"][0].scenario.training.targets
    gaps = claimed_speedups(found)
    return accuracy_against_time(found.runs, targets=targets, speedups=gaps, style=style, size=size, **more)


def beyond_figure(found: Reproduction, style: Style = SCREEN, size: Size = (None, None), **more: Any) -> "Figure":
    """Draw the schemes of Figure 1 and sealed ones."""
    targets = found.runs["minibatch"][0].scenario.training.targets
    return accuracy_against_time({**found.runs, **found.sealed}, targets=targets, style=style, size=size, **more)


def delta_figure(found: Reproduction, style: Style = SCREEN, size: Size = (None, None)) -> "Figure":
    """Draw the search for the best Delta."""
    return speedup_against_delta(found.summary["delta_sweep"], found.summary["target"], style, size)


def claimed_speedups(found: Reproduction) -> list[Speedup]:
    """Return the gap between mini-batch FL and each of the paper's settings at the last target, as claims have it."""
    target = found.summary["target"]
    claims = {claim["name"]: claim for claim in found.summary["claims"]}
    times = {label: mean_seconds(runs, target) for label, runs in found.runs.items()}
    slow, gaps = times["minibatch"], []
    for label, fast in times.items():
        claim = claims.get(f"speedup-{_level(label)}")
        if slow is not None and fast is not None and claim is not None:
            measured = "not" if claim["measured"] is None else f"{claim['measured']:.1f}x"
            words = f"{_level(label)} bit: {claim['claimed']:.1f}x claimed, {measured} measured"
            gaps.append(Speedup(slow.mean, fast.mean, target, words))
    return gaps


def speedup_against_delta(
    sweeps: Sequence[Mapping[str, Any]], target: float, style: Style = SCREEN, size: Size = (None, None)
) -> "Figure":
    """Draw the speed-up of each setting and supply against Delta, with 95% bars of seeds and draws."""
    figure = style.figure(*size)
    axes = style.dress(figure.add_subplot(), "Delta in seconds (logarithmic)", f"speed-up to {target:g} (logarithmic)")
    labelled = []
    for number, sweep in enumerate(entry for entry in sweeps if entry["points"]):
        columns = {name: np.array([point[name] for point in sweep["points"]]) for name in sweep["points"][0]}
        bars = np.clip([columns["speedup"] - columns["low"], columns["high"] - columns["speedup"]], 0, None)
        look = {**curve_style(number), "marker": mark_style(number)["marker"], "markersize": style.mark}
        # bars of neighbouring curves would hide each other, so each curve is moved a little
        moved, label = columns["delta"] * 1.02**number, f"claimed {sweep['level']} bit, supports {sweep['supply']}"
        axes.errorbar(moved, columns["speedup"], bars, capsize=2, label=label, linewidth=style.line, **look)
        labelled.append(Labelled(label, moved, columns["speedup"], look))
    axes.axhline(1, **GUIDE)
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes.xaxis, sorted({point["delta"] for sweep in sweeps for point in sweep["points"]}))
    low, high = axes.get_ylim()
    plain_ticks(axes.yaxis, [tick for tick in _TICKS if low <= tick <= high])
    if style.titles:
        axes.set_title("mean and 95% of seeds and draws", fontsize=style.small, loc="left")
    label_margin(axes, labelled, style)
    return figure
