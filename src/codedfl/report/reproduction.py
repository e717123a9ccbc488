"""The paper's experiment as figures, a table of claims and a page."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.progress import Progress, silent
from codedfl.report.figures import accuracy_against_time, curve_style, new_figure, plain_ticks, save_if_possible
from codedfl.report.pages import figure_html, page, table_html, table_markdown
from codedfl.report.secrecy import OVERVIEW, OVERVIEW_TITLE, overview_rows
from codedfl.report.sharing import active_figure, handover_figure, read_timeline, timeline_figure
from codedfl.schemes import nominal
from codedfl.security.verdicts import by_secrecy, verdict_table
from codedfl.storage import write_text
from codedfl.studies.reproduce.study import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEADER = ("claim", "paper", "measured", "low", "high", "verdict", "reason")
_TICKS = (0.03, 0.1, 0.3, 1, 2, 3, 4, 5, 6, 10, 30, 100)


def write_reproduction(found: Reproduction, out: Path, progress: Progress = silent) -> None:
    """Write ``claims.md``, ``readings.md``, ``index.html`` and all figures, as PNG and SVG."""
    summary = found.summary
    drawings = _drawings(found)
    drawn = [save_if_possible(draw, out / f"{name}.png", progress) for name, (_, draw) in drawings.items()]
    claims = [list(claim.values()) for claim in summary["claims"]]
    write_text(out / "claims.md", table_markdown(_HEADER, claims))
    readings = summary["readings"]
    write_text(out / "readings.md", table_markdown(list(readings[0]), [list(row.values()) for row in readings]))
    headings = {name: heading for name, (heading, _) in drawings.items()} if all(drawn) else {}
    chosen = {runs[0].scenario.scheme: runs[0].scenario for runs in (*found.runs.values(), *found.sealed.values())}
    ranked = by_secrecy(map(nominal, chosen.values()))
    rows = overview_rows((scheme.name, verdict_table(scheme)) for scheme in ranked)
    learned = (f"Who may learn what: {OVERVIEW_TITLE}", table_html(OVERVIEW, rows))
    write_text(out / "index.html", _page(out, summary, claims, headings, learned))


def _drawings(found: Reproduction) -> dict[str, tuple[str, Callable[[], "Figure"]]]:
    """Return the heading of each figure and how it is drawn, by file name."""
    summary, targets = found.summary, found.runs["minibatch"][0].scenario.training.targets
    drawings: dict[str, tuple[str, Callable[[], Figure]]] = {
        "figure1": (
            "Figure 1: accuracy against training time",
            lambda: accuracy_against_time(found.runs, targets=targets),
        ),
        "delta": ("Which Delta is best", lambda: speedup_against_delta(summary["delta_sweep"], targets[-1])),
        "beyond": (
            "Beyond the paper: sealed sharing on the same fleet and links",
            lambda: accuracy_against_time({**found.runs, **found.sealed}, targets=targets),
        ),
        "active": ("Active devices and supports left", lambda: active_figure(summary["active_devices"])),
    }
    for label, runs in list(found.runs.items())[1:]:
        columns, devices = read_timeline(runs[0]), runs[0].scenario.fleet.size
        level = "".join(filter(str.isdigit, label))
        title = f"{label}, first feature seed, own timing draw"
        draw = partial(timeline_figure, columns, devices, title)
        drawings[f"timeline-{level}"] = f"Until the last hand-over: {label}", draw
        draw = partial(handover_figure, columns, devices, title)
        drawings[f"handovers-{level}"] = f"Who hands over to whom: {label}", draw
    return drawings


def _page(
    out: Path,
    summary: Mapping[str, Any],
    claims: Sequence[Sequence[Any]],
    headings: Mapping[str, str],
    last: tuple[str, str],
) -> str:
    seeds, table = len(summary["feature_seeds"]), summary["table1"]
    caption = f"Mean and 95% band over {seeds} feature seeds and {summary['timing_draws']} timing draws."
    heading = "Table I in small; claimed: the levels of the paper's own parameters" if summary["quick"] else "Table I"
    sections = [("Every claim", table_html(_HEADER, claims))]
    for name, each in headings.items():
        single = name.startswith(("timeline", "handovers"))
        sections.append(
            (each, figure_html(out / f"{name}.svg", "One run, its own timing draw." if single else caption))
        )
    for each, rows in (
        ("Every reading of what the paper leaves open, nearest to the paper's numbers first", summary["readings"]),
        ("CodedPaddedFL on both kinds of links", summary["coded_padded"]),
        ("Larger erasure sets by inactivation", summary["larger_supports"]),
        (heading, table),
    ):
        sections.append((each, table_html(list(rows[0]), [list(row.values()) for row in rows])))
    sections.append(last)
    return page("Computational Code-Based Privacy in Coded Federated Learning: claimed and measured", sections)


def speedup_against_delta(sweeps: Sequence[Mapping[str, Any]], target: float) -> "Figure":
    """Draw the speed-up of each setting and supply against Delta, with 95% bars."""
    figure = new_figure()
    axes = figure.add_subplot()
    for number, sweep in enumerate(entry for entry in sweeps if entry["points"]):
        columns = {name: np.array([point[name] for point in sweep["points"]]) for name in sweep["points"][0]}
        bars = np.clip([columns["speedup"] - columns["low"], columns["high"] - columns["speedup"]], 0, None)
        label = f"claimed {sweep['level']} bit, supports {sweep['supply']}"
        # bars of neighbouring curves would hide each other, so each curve is moved a little
        moved = columns["delta"] * 1.02**number
        axes.errorbar(moved, columns["speedup"], bars, marker="o", capsize=2, label=label, **curve_style(number))
    axes.axhline(1, color="0.6", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes.xaxis, sorted({point["delta"] for sweep in sweeps for point in sweep["points"]}))
    low, high = axes.get_ylim()
    plain_ticks(axes.yaxis, [tick for tick in _TICKS if low <= tick <= high])
    axes.set_xlabel("Delta in seconds (logarithmic): replying later than this after the fastest is straggling")
    axes.set_ylabel(f"speed-up to {target:g} (logarithmic)")
    axes.grid(visible=True, color="0.9")
    title = "mean and 95% of seeds and draws"
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, title=title, title_fontsize=8)
    return figure
