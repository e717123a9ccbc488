"""Any figure of results on disk, and the numbers behind it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.errors import RunDirectoryError, UsageError
from codedfl.report import reproduction
from codedfl.report.comparison import time_by_scheme
from codedfl.report.figures.curves import Size, accuracy_against_time
from codedfl.report.figures.overlay import SETTINGS, TIMES, Series, read_overlay
from codedfl.report.figures.points import curve_of, mean_seconds, time_and_band
from codedfl.report.figures.style import PAPER, Style, metric_word
from codedfl.report.figures.sweeps import Grid, grid_of, setting_text, sweep_figure
from codedfl.report.figures.tables import Entry
from codedfl.report.figures.traffic import LINKS, MEGABYTE, traffic_figure
from codedfl.report.results import COMPARE, REPRODUCE, RUNS, SWEEP, Results
from codedfl.report.sharing import (
    active_figure,
    handover_figure,
    handovers,
    read_timeline,
    timeline_end,
    timeline_figure,
)
from codedfl.runs import Run, final_score, target_name
from codedfl.storage import DAMAGED
from codedfl.studies.reproduce.finished import load_reproduction
from codedfl.studies.reproduce.study import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    RUNS: ("accuracy", "traffic", "timeline", "handovers"),
    SWEEP: ("sweep",),
    COMPARE: ("accuracy", "times", "traffic"),
    REPRODUCE: ("accuracy", "beyond", "delta", "active"),
}
"""Figures of each kind of folder; the first is drawn if none is named."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for: the kind of figure, its look, and what to put on it."""

    kind: str | None = None
    style: Style = PAPER
    size: Size = (None, None)
    y: str | None = None
    target: float | None = None
    overlay: Path | None = None


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn, and the numbers behind it."""

    kind: str
    draw: Callable[[], "Figure"]
    entries: Sequence[Entry]


def drawing_of(results: Results, wanted: Wanted) -> Drawing:
    """Return the figure that is asked for; refuse what these results do not have."""
    kinds = KINDS[results.kind]
    several = results.kind == COMPARE and len(results.fleets) > 1
    kind = wanted.kind or ("times" if several else kinds[0])
    if kind not in kinds:
        raise UsageError(f"--kind {kind} is no figure of '{results.path}' ({results.kind}); choose {', '.join(kinds)}")
    for option, given, fits in (
        ("--y", wanted.y, kind == "sweep"),
        ("--overlay", wanted.overlay, kind in ("accuracy", "beyond", "sweep")),
        ("--target", wanted.target, kind in ("accuracy", "times", "sweep") and results.kind != REPRODUCE),
    ):
        if given is not None and not fits:
            raise UsageError(f"{option} {given} has no meaning for --kind {kind} of {results.kind}; leave it out")
    drawers: dict[str, Callable[[Results, Wanted], Drawing]] = {
        **{"accuracy": _accuracy, "traffic": _traffic, "timeline": _timeline, "handovers": _handovers},
        **{"sweep": _sweep, "times": _times},
    }
    if results.kind == REPRODUCE:
        return _reproduced(results, wanted, kind)
    try:
        return drawers[kind](results, wanted)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        if not results.rows:
            raise
        raise RunDirectoryError(
            f"the rows of '{results.path}' are damaged ({error}); run the same command again"
        ) from None


def _times_overlay(wanted: Wanted) -> list[Series]:
    return [] if wanted.overlay is None else read_overlay(wanted.overlay, TIMES)


def _known_target(results: Results, wanted: Wanted) -> str | None:
    """Return the name of the target in rows; refuse one that was not measured."""
    known = results.targets()
    if wanted.target is not None and wanted.target not in known:
        listed = ", ".join(f"{target:g}" for target in known) or "none"
        raise UsageError(f"--target {wanted.target:g} was not measured in '{results.path}'; choose one of {listed}")
    return None if wanted.target is None else target_name(wanted.target)


def _accuracy(results: Results, wanted: Wanted) -> Drawing:
    if not results.runs:
        raise RunDirectoryError(
            f"no run of '{results.path}' is finished, so there is no accuracy to draw; run it again"
        )
    targets = results.targets() if wanted.target is None else [wanted.target]
    overlay = _times_overlay(wanted)
    entries = list(accuracy_entries(results.runs, targets, results.metric))
    draw = partial(accuracy_against_time, results.runs, targets=targets, metric=results.metric)
    return Drawing("accuracy", partial(draw, style=wanted.style, size=wanted.size, overlay=overlay), entries)


def accuracy_entries(runs: Mapping[str, Sequence[Run]], targets: Sequence[float], metric: str) -> Iterator[Entry]:
    """Return times to targets and final scores under each label, and the points of its curve."""
    word = metric_word(metric)
    for label, own in runs.items():
        for target in targets:
            band = mean_seconds(own, target)
            found = None if band is None else (band.mean, band.low, band.high)
            yield Entry.banded(label, f"time to {word} {target:g} (s)", found)
        scores = [score for run in own if (score := final_score(run.summary)) is not None]
        limits = (sum(scores) / len(scores), min(scores), max(scores)) if scores else None
        yield Entry.banded(label, f"final {word}", limits, miss="not known")
    for label, own in runs.items():
        curve = curve_of(label, own)
        for x, *values in np.column_stack([curve.time, curve.mean, curve.low, curve.high]).tolist():
            yield Entry.banded(label, f"{word} at a time (x in s)", values, x=x)


def _traffic(results: Results, wanted: Wanted) -> Drawing:
    sizes = {label: runs[0].summary["bits_per_device"] for label, runs in results.runs.items()}
    if results.kind == COMPARE:
        own = [row for row in results.rows if row["fleet"] == results.fleets[0] and row["refused"] is None]
        sizes = {row["scheme"]: row["bits_per_device"] for row in own}
    if not sizes:
        raise RunDirectoryError(f"no run of '{results.path}' is finished, so there is nothing to draw; run it again")
    entries = [
        Entry(label, f"{words} (MB a device, {which})", bits[link][which] / MEGABYTE)
        for label, bits in sizes.items()
        for link, words in LINKS.items()
        for which in ("mean", "largest")
    ]
    return Drawing("traffic", partial(traffic_figure, sizes, wanted.style, wanted.size), entries)


def _one_timeline(results: Results, kind: str) -> tuple[Run, dict[str, Any], str]:
    if len(results.runs) > 1:
        raise UsageError(f"--kind {kind} shows one run, and {len(results.runs)} are named; name one of them")
    ((label, (run,)),) = results.runs.items()
    if not (run.path / "timeline.parquet").is_file():
        raise RunDirectoryError(
            f"'{run.path}' has no timeline.parquet, which only simulated runs have; draw another --kind"
        )
    import pyarrow

    try:
        columns = read_timeline(run)
        if not len(columns["begin"]):
            raise ValueError
    except (*DAMAGED, pyarrow.ArrowException):
        raise RunDirectoryError(
            f"the timeline.parquet of '{run.path}' is damaged; delete the run and run again"
        ) from None
    return run, columns, f"{run.scenario.name}, {label}, own timing draw"


def _timeline(results: Results, wanted: Wanted) -> Drawing:
    run, columns, title = _one_timeline(results, "timeline")
    last = timeline_end(columns)
    entries = [
        Entry(f"device {device}", f"{activity} of epoch {epoch} (begins at x s, ends at s)", float(end), x=float(begin))
        for device, activity, epoch, begin, end in zip(
            *(columns[name] for name in ("device", "activity", "epoch", "begin", "end")), strict=True
        )
        if begin < last
    ]
    spent: dict[tuple[str, str], float] = {}
    for entry in entries:
        key = entry.label, f"{entry.quantity.partition(' of ')[0]} (s)"
        spent[key] = spent.get(key, 0.0) + float(entry.value or 0) - float(entry.x or 0)
    totals = [Entry(label, quantity, seconds) for (label, quantity), seconds in spent.items()]
    draw = partial(timeline_figure, columns, run.scenario.fleet.size, title, wanted.style, wanted.size)
    return Drawing("timeline", draw, [*totals, *entries])


def _handovers(results: Results, wanted: Wanted) -> Drawing:
    run, columns, title = _one_timeline(results, "handovers")
    moved = handovers(columns)
    if not moved:
        raise UsageError(f"no device of '{run.path}' hands over its data; draw another --kind")
    entries = []
    for number, (epoch, sender, recipient, granted) in enumerate(moved, start=1):
        facts = {"epoch": epoch, "sender": sender, "recipient": recipient, "error matrix": int(granted)}
        entries += [Entry(f"hand-over {number}", name, float(value)) for name, value in facts.items()]
    draw = partial(handover_figure, columns, run.scenario.fleet.size, title, wanted.style, wanted.size)
    return Drawing("handovers", draw, entries)


def _sweep(results: Results, wanted: Wanted) -> Drawing:
    target = _known_target(results, wanted)
    timed = any(row["time_to_accuracy"] for row in results.rows)
    quantity = wanted.y or ("time" if timed else "accuracy")
    if target is not None and quantity != "time":
        raise UsageError(f"--target {wanted.target:g} has no meaning with --y {quantity}; leave it out")
    grid = grid_of(results.rows, quantity, target)
    overlay = [] if wanted.overlay is None else read_overlay(wanted.overlay, SETTINGS, grid.places())
    return Drawing("sweep", partial(sweep_figure, grid, wanted.style, wanted.size, overlay), sweep_entries(grid))


def sweep_entries(grid: Grid) -> list[Entry]:
    """Return the value of each cell."""
    entries = []
    for cell in grid.cells:
        label = ", ".join(f"{key} = {setting_text(value)}" for key, value in zip(grid.keys, cell.settings, strict=True))
        mean, low, high = cell.value or (None, None, None)
        limits = (low, high) if grid.banded else (None, None)
        entries.append(Entry(label, grid.quantity, mean, *limits, miss=cell.miss or "not reached"))
    return entries


def _times(results: Results, wanted: Wanted) -> Drawing:
    _known_target(results, wanted)
    targets = results.targets() if wanted.target is None else [wanted.target]
    if not targets:
        raise UsageError(f"'{results.path}' has no target accuracy, so there is no time to draw; draw another --kind")
    entries = []
    for row in results.rows:
        for target in targets:
            found = time_and_band(row, target_name(target))
            name = f"{row['fleet']}: time to {metric_word(results.metric)} {target:g} (s)"
            miss = "no result" if row["refused"] else "not reached"
            entries.append(Entry.banded(row["scheme"], name, found, miss=miss))
    draw = partial(time_by_scheme, results.rows, targets, results.metric, wanted.style, wanted.size)
    return Drawing("times", draw, entries)


def _reproduced(results: Results, wanted: Wanted, kind: str) -> Drawing:
    found = load_reproduction(results.path, sealed=kind == "beyond")
    look: dict[str, Any] = {"style": wanted.style, "size": wanted.size}
    if kind == "delta":
        return Drawing(kind, partial(reproduction.delta_figure, found, **look), _delta_entries(found))
    if kind == "active":
        tables = found.summary["active_devices"]
        return Drawing(kind, partial(active_figure, tables, **look), list(_active_entries(tables)))
    draw = reproduction.figure1 if kind == "accuracy" else reproduction.beyond_figure
    targets = found.runs["minibatch"][0].scenario.training.targets
    entries = list(accuracy_entries({**found.runs, **found.sealed}, targets, "accuracy"))
    return Drawing(kind, partial(draw, found, overlay=_times_overlay(wanted), **look), entries)


def _delta_entries(found: Reproduction) -> list[Entry]:
    return [
        Entry(
            f"claimed {sweep['level']} bit, supports {sweep['supply']}, Delta = {point['delta']:g} s",
            f"speed-up to {found.summary['target']:g}",
            *(point[name] for name in ("speedup", "low", "high")),
        )
        for sweep in found.summary["delta_sweep"]
        for point in sweep["points"]
    ]


def _active_entries(tables: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    for table in tables:
        label = f"claimed {table['level']} bit, Delta = {table['delta']:g} s, supports {table['supply']}"
        for name, words in (("active", "active devices"), ("supports", "supports left")):
            columns = [table[name + part] for part in ("", "_low", "_high")]
            points = list(zip(*columns, strict=True))
            yield Entry.banded(label, f"{words} at the end", points[-1])
            for epoch, values in enumerate(points, start=1):
                yield Entry.banded(label, f"{words} (x: epoch)", values, x=float(epoch))
