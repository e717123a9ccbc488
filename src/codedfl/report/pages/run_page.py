"""The report on runs: ``codedfl report RUN...``, and the parts that reports on studies share with it."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from codedfl import __version__
from codedfl.report.figures import accuracy_against_time, has_scores
from codedfl.report.figures.traffic import traffic_figure
from codedfl.report.pages import sections
from codedfl.report.pages.chart_data import (
    clock_word,
    curves_data,
    device_costs,
    handover_data,
    timeline_columns,
    timeline_data,
)
from codedfl.report.pages.document import Document, Section
from codedfl.report.pages.text import escaped
from codedfl.report.sharing import handover_figure, timeline_figure
from codedfl.runs import Run

SCRIPTS = ("charts.js", "timeline.js", "report.js")
_TIMELINES = 8
"""Runs whose timelines a page holds."""
_SINGLE = "One run, its own timing draw."


class Charts:
    """Sections with charts of runs, and the data behind them."""

    def __init__(self, labelled: Sequence[tuple[str, Run]]) -> None:
        self._labelled = labelled
        self.data: dict[str, Any] = {}

    def curves(self, groups: Mapping[str, Sequence[Run]], *, caption: str = "") -> Section:
        """Draw the score against time; runs without test data have none."""
        known = {label: runs for label, runs in groups.items() if has_scores(runs)}
        unknown = [label for label in groups if label not in known]
        note = f"<p>Without test data, so not known: {escaped(', '.join(unknown))}.</p>" if unknown else ""
        if not known:
            return Section("Score against time", note, "score")
        first = next(iter(known.values()))[0]
        metric, targets = first.summary["metric"], first.scenario.training.targets
        self.data |= {"curves": curves_data(known), "targets": list(targets)}
        self.data["metric"] = "test accuracy" if metric == "accuracy" else "R² on the test set"
        draw = partial(accuracy_against_time, known, targets=targets, metric=metric)
        words = caption or f"Mean and 95% band of timing draws, in {clock_word(first)} seconds."
        heading = "Accuracy against time" if metric == "accuracy" else "R² against time"
        return Section(heading, note + sections.chart("curves", draw, words), "score")

    def devices(self) -> Section:
        """Draw what each device sends, receives and multiplies."""
        found = [(label, run, device_costs(run)) for label, run in self._labelled]
        known = [(label, costs) for label, _, costs in found if costs is not None]
        older = [label for label, _, costs in found if costs is None]
        note = "<p>What each device spends in the run's own timing draw.</p>"
        if before := [label for label, run in self._labelled if run.summary.get("preparation")]:
            words = f"Sums of columns before the training are not among them, nor in timelines: {', '.join(before)}."
            note += f"<p>{escaped(words)}</p>"
        if older:
            words = f"Runs of an earlier version keep no costs of single devices: {', '.join(older)}."
            note += f"<p>{escaped(words)}</p>"
        if not known:
            return Section("Traffic and multiplications", note, "costs")
        self.data["devices"] = [{"label": label, **costs} for label, costs in known]
        sizes = {label: run.summary["bits_per_device"] for label, run in self._labelled}
        draw = partial(traffic_figure, sizes)
        content = sections.chart("devices", draw, "Bits of payload, without overhead and repetitions.")
        tables = sections.costs_table([(label, run, costs) for label, run, costs in found if costs is not None])
        return Section("Traffic and multiplications", note + content + tables, "costs")

    def timelines(self) -> list[Section]:
        """Draw who does what when, and who hands over to whom."""
        found = [(label, run, timeline_columns(run)) for label, run in self._labelled[:_TIMELINES]]
        known = [(label, run, columns) for label, run, columns in found if columns is not None]
        if not known:
            return []
        self.data["timelines"] = [timeline_data(*each) for each in known]
        label, run, columns = known[0]
        draw = partial(timeline_figure, columns, run.scenario.fleet.size, f"{label}, own timing draw")
        simulated = clock_word(run) == "virtual"
        words = _SINGLE if simulated else "Durations are measured; when in its epoch a request began is estimated."
        cut = [each for each in self.data["timelines"] if each["epochs"] < len(_epochs(known, each["label"]))]
        for each in cut:
            words += f" {each['label']}: up to epoch {each['epochs']}, to keep the page small."
        if len(self._labelled) > _TIMELINES:
            words += f" The first {_TIMELINES} runs."
        content = sections.chart("timeline", draw if simulated else None, words)
        content += "".join(sections.timeline_table(*each) for each in known)
        parts = [Section("Timeline of devices", content, "timeline")]
        handed = [rows for each in known if (rows := handover_data(*each)) is not None]
        if handed:
            self.data["handovers"] = handed
            label, run, columns = next(each for each in known if each[1].summary.get("handovers"))
            draw = partial(handover_figure, columns, run.scenario.fleet.size, f"{label}, own timing draw")
            content = sections.chart("handovers", draw, _SINGLE) + "".join(map(sections.handover_table, handed))
            parts.append(Section("Hand-overs", content, "handovers"))
        return parts


def _epochs(known: Sequence[tuple[str, Run, Any]], label: str) -> Any:
    return next(run.epochs["epoch"] for name, run, _ in known if name == label)


def common_sections(
    charts: Charts,
    labelled: Sequence[tuple[str, Run]],
    groups: Mapping[str, Sequence[Run]],
    command: str,
    released: Sequence[tuple[str, Run]] | None = None,
) -> list[Section]:
    """Return what every report on runs has: results, charts, secrecy, privacy and how to reproduce it.

    ``released`` are all runs that were made, where charts show only some.
    """
    every = labelled if released is None else released
    secrecy = sections.secrecy_section(run.scenario for _, run in every)
    return [
        sections.results_section(labelled),
        charts.curves(groups),
        charts.devices(),
        *charts.timelines(),
        *([] if secrecy is None else [secrecy]),
        sections.privacy_section([(label, run.summary.get("privacy")) for label, run in every]),
        sections.reproduce_section(labelled, command, __version__),
    ]


def runs_document(groups: Mapping[str, Sequence[Run]], command: str = "") -> Document:
    """Return the report on some runs, by label."""
    labelled = [(label, run) for label, runs in groups.items() for run in runs]
    charts, names = Charts(labelled), list(dict.fromkeys(run.scenario.name for _, run in labelled))
    parts = common_sections(charts, labelled, groups, command or report_command([run.path for _, run in labelled]))
    listed = ", ".join(groups) if len(groups) < 5 else f"{len(groups)} runs"
    return page_of(f"{', '.join(names)}: {listed}", sections.headline(groups), parts, charts)


def page_of(title: str, lead: str, parts: Sequence[Section], charts: Charts) -> Document:
    """Return a page with charts."""
    footer = f"<p>codedfl {escaped(__version__)}. Nothing on this page is loaded from elsewhere.</p>"
    return Document(title, parts, lead=lead, data=charts.data, scripts=SCRIPTS, footer=footer)


def report_command(paths: Sequence[Path]) -> str:
    """Return the command that makes the report on some runs."""
    return shlex.join(["codedfl", "report", *map(str, paths)])
