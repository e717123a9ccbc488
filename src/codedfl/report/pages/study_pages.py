"""Reports on studies: ``index.html`` of ``compare``, ``sweep`` and ``reproduce``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codedfl import __version__
from codedfl.errors import RunDirectoryError
from codedfl.report.comparison import compared_runs, comparison_drawings
from codedfl.report.pages import sections
from codedfl.report.pages.document import Document, Section
from codedfl.report.pages.run_page import Charts, common_sections, page_of
from codedfl.report.pages.text import escaped, table_html
from codedfl.report.sweep import sweep_drawings
from codedfl.runs import Run, final_score, load
from codedfl.runs.markup import seconds_text
from codedfl.storage import write_text
from codedfl.studies.reproduce.study import Reproduction
from codedfl.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawings = Mapping[str, tuple[str, Callable[[], "Figure"]]]
"""By file name, the heading of a figure and how it is drawn."""
_CLAIMS = ("claim", "paper", "measured", "low", "high", "verdict", "reason")
_HEADLINES = ("speedup-92", "speedup-128", "speedup-sealed", "speedup-sealed-coded", "speedup-sealed-coded-cg")
"""Claims that open the page, in this order."""
_CURVES = 24
"""Runs of a sweep that a page draws."""


def write_comparison(rows: Sequence[Row], out: Path, command: str) -> None:
    """Write ``index.html`` of a comparison; ``command`` made the rows."""
    write_text(out / "index.html", comparison_document(rows, out, command).to_html())


def write_sweep(rows: Sequence[Row], out: Path, command: str, quantity: str | None = None) -> None:
    """Write ``index.html`` of a sweep; ``command`` made the rows."""
    if rows:
        write_text(out / "index.html", sweep_document(rows, out, command, quantity).to_html())


def comparison_document(rows: Sequence[Row], out: Path, command: str) -> Document:
    """Return the report on a comparison: rows of all fleets, and the runs of the first one below ``out``."""
    fleets = list(dict.fromkeys(row["fleet"] for row in rows))
    groups, _ = compared_runs(rows, out)
    labelled = [(label, runs[0]) for label, runs in groups.items()]
    charts = Charts(labelled)
    parts = [] if len(fleets) == 1 else [_fleet_section(fleet, rows) for fleet in fleets]
    parts += [Section(heading, sections.picture(draw, "")) for heading, draw in comparison_drawings(rows).values()]
    if refused := [row for row in rows if row["refused"] is not None]:
        lines = [[row["scheme"], row["fleet"], row["refused"]] for row in refused]
        parts.append(Section("Where there is no result", table_html(["scheme", "fleet", "why"], lines), "refused"))
    noisy = any(row["privacy"] for row in rows)  # every training has released something, whether it is drawn or not
    released = [(path.name, load(path)) for path in sorted((out / "runs").iterdir())] if noisy else None
    common = common_sections(charts, labelled, groups, command, released)
    title = f"{len({row['scheme'] for row in rows})} schemes on {', '.join(fleets)}"
    return page_of(title, sections.headline(groups), [common[0], *parts, *common[1:]], charts)


def _fleet_section(fleet: str, rows: Sequence[Row]) -> Section:
    own = [row for row in rows if row["fleet"] == fleet]
    targets = next((list(row["time_to_accuracy"]) for row in own if row["time_to_accuracy"]), [])
    header = ["scheme", "how", *(f"time to {target}" for target in targets), "speed-up", "iid", "sorted", "survives"]
    lines = []
    for row in own:
        times = [seconds_text((row["time_to_accuracy"] or {}).get(target)) for target in targets]
        how = "no result" if row["refused"] else "predicted" if row["predicted"] else "trained"
        scores = [row["accuracy_iid"], row["accuracy_sorted"], row["survives_losses"]]
        lines.append([row["scheme"], how, *(["-"] * len(times) if row["refused"] else times), row["speedup"], *scores])
    return Section(f"Fleet {fleet}, {own[0]['devices']} devices", table_html(header, lines))


def sweep_document(rows: Sequence[Row], out: Path, command: str, quantity: str | None = None) -> Document:
    """Return the report on a sweep, from its rows and the runs below ``out``."""
    if not all({"scheme", "scenario_id", "epochs", "verdict"} <= row.keys() for row in rows):
        raise RunDirectoryError(f"'{out / 'sweep.json'}' is damaged; run the same command again")
    keys = list(rows[0]["settings"])
    labelled: dict[str, Run] = {}
    for row in rows:
        label = ", ".join(f"{key} = {value}" for key, value in row["settings"].items())
        labelled[label] = load(out / "runs" / f"{row['scheme']}-{row['scenario_id']}")
    shown = dict(list(labelled.items())[:_CURVES])
    groups = {label: [run] for label, run in shown.items()}
    charts = Charts(list(shown.items()))
    drawings = sweep_drawings(rows, quantity)
    parts = [Section(heading, sections.picture(draw, "")) for heading, draw in drawings.values()]
    if len(labelled) > _CURVES:
        text = f"<p>The first {_CURVES} of {len(labelled)} runs are drawn; the table has all.</p>"
        parts.append(Section("What is left out", text, "left-out"))
    common = common_sections(charts, list(shown.items()), groups, command, list(labelled.items()))
    parts = [_cells(keys, rows), *parts, *common[1:]]
    every = {label: [run] for label, run in labelled.items()}
    return page_of(f"Sweep over {' and '.join(keys)}", sections.headline(every), parts, charts)


def _cells(keys: Sequence[str], rows: Sequence[Row]) -> Section:
    targets = list(dict.fromkeys(target for row in rows for target in row["time_to_accuracy"]))
    header = [*keys, "epochs", "final score", *(f"time to {target}" for target in targets), "secrecy"]
    lines = []
    for row in rows:
        score, times = final_score(row), [row["time_to_accuracy"].get(target) for target in targets]
        shown = "not known" if score is None else f"{score:.4f}"
        settings = [str(row["settings"][key]) for key in keys]
        lines.append([*settings, row["epochs"], shown, *map(seconds_text, times), row["verdict"]])
    return Section("Results", table_html(header, lines))


def reproduction_document(found: Reproduction, drawings: Drawings, command: str = "") -> Document:
    """Return the report on the paper's experiment, its headline claims first."""
    summary = found.summary
    seeds = len(summary["feature_seeds"])
    caption = f"Mean and 95% band over {seeds} feature seeds and {summary['timing_draws']} timing draws."
    groups = {**found.runs, **found.sealed}
    labelled = [(label, runs[0]) for label, runs in found.runs.items()]
    charts = Charts(labelled)
    secrecy = sections.secrecy_section(runs[0].scenario for runs in groups.values())
    single = ("timeline", "handovers", "figure1")  # drawn by scripts, or shown beside their charts
    parts = [
        Section("Every claim", _claims(summary), "claims"),
        Section("Figure 1 of the paper", sections.picture(drawings["figure1"][1], caption), "figure1"),
        charts.curves(groups, caption=caption),
        *(
            Section(heading, sections.picture(draw, caption))
            for name, (heading, draw) in drawings.items()
            if not name.startswith(single)
        ),
        *(Section(heading, _rows(rows)) for heading, rows in _tables(summary)),
        charts.devices(),
        *charts.timelines(),
        *([] if secrecy is None else [secrecy]),
        sections.privacy_section([(label, run.summary.get("privacy")) for label, run in labelled]),
        sections.reproduce_section(labelled, command, __version__),
    ]
    title = "Computational Code-Based Privacy in Coded Federated Learning: claimed and measured"
    return page_of(title, _headlines(summary), parts, charts)


def _headlines(summary: Mapping[str, Any]) -> str:
    """Say in one sentence each what the paper claims and what is measured."""
    known = {claim["name"]: claim for claim in summary["claims"]}
    lines = []
    for claim in (known[name] for name in _HEADLINES if name in known and known[name]["measured"] is not None):
        stated = "not in the paper" if claim["claimed"] is None else f"the paper: {claim['claimed']:g}"
        words = f"{claim['measured']:.3g} times sooner than mini-batch FL ({stated}): {claim['verdict']}"
        lines.append(f"<li><strong>{escaped(claim['name'])}</strong>: {escaped(words)}</li>")
    return f'<ul class="lead">{"".join(lines)}</ul>'


def _claims(summary: Mapping[str, Any]) -> str:
    order = {name: place for place, name in enumerate(_HEADLINES)}
    ranked = sorted(summary["claims"], key=lambda claim: order.get(claim["name"], len(order)))
    return table_html(_CLAIMS, [list(claim.values()) for claim in ranked])


def _tables(summary: Mapping[str, Any]) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    small = "Table I in small; claimed: the levels of the paper's own parameters"
    return [
        ("Every reading of what the paper leaves open, nearest to the paper's numbers first", summary["readings"]),
        ("CodedPaddedFL on both kinds of links", summary["coded_padded"]),
        ("Larger erasure sets by inactivation", summary["larger_supports"]),
        (small if summary["quick"] else "Table I", summary["table1"]),
    ]


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    return table_html(list(rows[0]), [list(row.values()) for row in rows])
