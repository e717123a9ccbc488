"""The sections of a report on runs, as HTML: every picture also as a table, every text escaped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from codedfl.errors import CodedflError, MissingExtraError
from codedfl.privacy.promise import rounded_up
from codedfl.report.figures import svg_text
from codedfl.report.pages.chart_data import Columns, activity_seconds, clock_word, device_names
from codedfl.report.pages.document import Section
from codedfl.report.pages.text import escaped, table_html, wide
from codedfl.report.secrecy import DETAIL, OVERVIEW_TITLE, detail_rows, overview_rows, reasons
from codedfl.runs import Run, final_score, metric_name
from codedfl.runs.markup import seconds_text
from codedfl.scenario import Scenario
from codedfl.schemes import Scheme, nominal
from codedfl.schemes.private import with_release
from codedfl.schemes.secrecy import ADVERSARIES, BOUNDED, FALLS, LEAKS, NOT_EXAMINED, NOT_PROTECTED, PROVEN, Secrecy
from codedfl.security.verdicts import condition, verdict_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = {
    PROVEN: ("good", "●"),
    BOUNDED: ("good", "◐"),
    LEAKS: ("warn", "▲"),
    NOT_PROTECTED: ("bad", "○"),
    FALLS: ("bad", "✕"),
    NOT_EXAMINED: ("none", "?"),
}
"""Colour and sign of a verdict; its word always stands beside them."""
_NOTEWORTHY = 1.005
"""Ratio of times from which on it is said."""
NO_PICTURES = "Static pictures are left out, because matplotlib is missing: pip install 'codedfl[plots]'."


def still_picture(draw: Callable[[], "Figure"] | None) -> str:
    """Draw a picture for readers without scripts; without matplotlib say that there is none."""
    if draw is None:
        return ""
    try:
        return f'<div class="static">{svg_text(draw())}</div>'
    except MissingExtraError:
        return f'<p class="static muted">{escaped(NO_PICTURES)}</p>'


def chart(name: str, draw: Callable[[], "Figure"] | None, caption: str) -> str:
    """Return a figure: a static picture, which the script of the named chart replaces."""
    inner = f"{still_picture(draw)}<figcaption>{escaped(caption)}</figcaption>"
    return f'<figure data-chart="{escaped(name)}">{inner}</figure>'


def picture(draw: Callable[[], "Figure"], caption: str) -> str:
    """Return a figure that no script changes."""
    return f"<figure>{still_picture(draw)}<figcaption>{escaped(caption)}</figcaption></figure>"


def headline(groups: Mapping[str, Sequence[Run]]) -> str:
    """Say which run reaches the last common target soonest, and how much sooner than the benchmark or the last.

    Runs are compared only if data, fleet, links and clock are the same.
    """
    if not groups:
        return ""
    first = next(iter(groups.values()))[0]
    common = set.intersection(*(set(run.scenario.training.targets) for runs in groups.values() for run in runs))
    times = {label: _mean_time(runs, max(common)) for label, runs in groups.items()} if common else {}
    reached = {label: seconds for label, seconds in times.items() if seconds is not None}
    if not reached:
        score = final_score(first.summary)
        shown = "not known" if score is None else f"{score:.4f}"
        return (
            f'<p class="lead">{escaped(next(iter(groups)))}: final {escaped(metric_name(first.summary))} {shown}.</p>'
        )
    quickest = min(reached, key=lambda label: reached[label])
    words = (
        f"{quickest} reaches {metric_name(first.summary)} {max(common):g} in "
        f"{seconds_text(reached[quickest])} of {clock_word(groups[quickest][0])} time"
    )
    others = [label for label in reached if label != quickest]
    if len({_circumstances(runs[0]) for runs in groups.values()}) > 1:
        words += "; the runs differ in data, fleet, links or clock, so their times are not compared"
    elif others:
        against = "minibatch" if "minibatch" in others else max(others, key=lambda label: reached[label])
        ratio = reached[against] / reached[quickest]
        words += f", {ratio:.3g} times sooner than {against}" if ratio >= _NOTEWORTHY else ""
    return f'<p class="lead">{escaped(words)}.</p>'


def _circumstances(run: Run) -> tuple[str, ...]:
    """Return what must be equal for times to be comparable."""
    scenario = run.scenario
    parts = (scenario.data, scenario.partition, scenario.fleet, scenario.links)
    return (clock_word(run), *map(repr, parts))


def _mean_time(runs: Sequence[Run], target: float) -> float | None:
    found = [run.seconds_to(target) for run in runs]
    known = [float(seconds.mean()) for seconds in found if seconds is not None]
    return sum(known) / len(known) if len(known) == len(found) else None


def results_section(labelled: Sequence[tuple[str, Run]]) -> Section:
    """List what each run took and reached."""
    targets = list(dict.fromkeys(name for _, run in labelled for name in run.summary["time_to_accuracy"]))
    header = ["run", "solver", "epochs", "final score", *(f"time to {target}" for target in targets)]
    header += ["up MB", "down MB", "d2d MB", "multiplications", "gradient error", "secrecy", "wall time"]
    rows = [_result(label, run, targets) for label, run in labelled]
    note = "<p>Times: mean (95% of timing draws). Megabytes and multiplications: mean of all devices (largest).</p>"
    return Section("Results", note + table_html(header, rows))


def _result(label: str, run: Run, targets: Sequence[str]) -> list[Any]:
    summary, score = run.summary, final_score(run.summary)
    times = [_time(summary, target, known=score is not None) for target in targets]
    links = [_pair(summary["bits_per_device"][link], 8e6) for link in ("up", "down", "d2d")]
    shown = "not known" if score is None else f"{metric_name(summary)} {score:.4f}"
    error = summary.get("gradient_error")
    costs = [*links, _pair(summary["macs_per_device"], 1), "-" if error is None else f"{error:.1e}"]
    known = [label, run.scenario.training.solver, summary["epochs"], shown, *times]
    return [*known, *costs, summary["verdict"], seconds_text(summary["wall_seconds"])]


def _time(summary: Mapping[str, Any], target: str, *, known: bool) -> str:
    if target not in summary["time_to_accuracy"]:
        return "-"
    seconds, band = summary["time_to_accuracy"][target], summary["time_to_accuracy_band"][target]
    if not known:
        return "not known"
    if seconds is None or not band or None in band:
        return seconds_text(seconds)
    return f"{seconds_text(seconds)} ({seconds_text(band[0])} to {seconds_text(band[1])})"


def _pair(values: Mapping[str, float], unit: float) -> str:
    return f"{values['mean'] / unit:.3g} ({values['largest'] / unit:.3g})"


def costs_table(labelled: Sequence[tuple[str, Run, Mapping[str, Sequence[int]]]]) -> str:
    """List what each device sends, receives and multiplies, run by run, folded away."""
    header = ["device", "sent to the server, MB", "received from it, MB", "sent to devices, MB", "multiplications"]
    parts = []
    for label, run, costs in labelled:
        names = device_names(run)
        columns = [[bits / 8e6 for bits in costs[link]] for link in ("up", "down", "d2d")]
        rows = [[name, *each] for name, *each in zip(names, *columns, costs["macs"], strict=True)]
        parts.append(_folded(f"{label}: each device in numbers", table_html(header, rows)))
    return "".join(parts)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{content}</details>"


def timeline_table(label: str, run: Run, columns: Columns) -> str:
    """List how long each device spent on what, folded away."""
    activities, rows = activity_seconds(run, columns)
    return _folded(f"{label}: seconds of each device", table_html(["device", *activities], rows))


def handover_table(handovers: Mapping[str, Any]) -> str:
    """List who hands over to whom, folded away."""
    header = ["after epoch", "from device", "to device", "what"]
    rows = [
        [epoch, sender, recipient, handovers["fresh"] if fresh else "forwards what it holds"]
        for epoch, sender, recipient, fresh in handovers["rows"]
    ]
    return _folded(f"{handovers['label']}: {len(rows)} hand-overs in numbers", table_html(header, rows))


def verdict_html(verdict: str) -> str:
    """Return a verdict as a sign and its word."""
    kind, mark = _MARKS.get(verdict, ("none", "?"))
    return f'<span class="verdict {kind}"><span aria-hidden="true">{mark}</span>{escaped(verdict)}</span>'


def secrecy_section(scenarios: Iterable[Scenario]) -> Section | None:
    """Show who may learn what: an overview of all schemes, and every cell of each with its reason."""
    schemes: dict[Any, Scheme[Any]] = {}
    for scenario in scenarios:
        try:
            scheme = with_release(scenario, nominal(scenario))
            schemes.setdefault((scheme.name, str(scheme.options), scheme.public.release), scheme)
        except CodedflError:  # options that do not fit without the data: nothing can be said
            continue
    if not schemes:
        return None
    tables = [(scheme, verdict_table(scheme)) for scheme in schemes.values()]
    title = OVERVIEW_TITLE[0].upper() + OVERVIEW_TITLE[1:]
    content = f"<p>{escaped(title)}. Nothing here says more than its reason does.</p>"
    content += _verdict_rows(["scheme", *ADVERSARIES], overview_rows((s.name, cells) for s, cells in tables))
    for scheme, cells in tables:
        content += _folded(
            f"{scheme.name}: every adversary and asset, with reasons", _details(condition(scheme), cells)
        )
    return Section("Who may learn what", content, "secrecy")


def _details(allowed_if: str, cells: Sequence[Secrecy]) -> str:
    listed = "".join(f"<li><strong>{escaped(who)}</strong>, {escaped(words)}</li>" for who, words in reasons(cells))
    return f"<p>Allow it if {escaped(allowed_if)}.</p>{_verdict_rows(DETAIL, detail_rows(cells))}<ul>{listed}</ul>"


def _verdict_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in header)
    lines = ""
    for name, *cells in rows:
        marked = ("<br>".join(verdict_html(word) for word in cell.split(" / ")) for cell in cells)
        lines += f'<tr><th scope="row">{escaped(name)}</th>{"".join(f"<td>{cell}</td>" for cell in marked)}</tr>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return wide(table, f"verdicts by {header[0]}")


def privacy_section(labelled: Sequence[tuple[str, Mapping[str, Any] | None]]) -> Section:
    """State epsilon and delta of every run, and of all of them together."""
    private = [(label, promise) for label, promise in labelled if promise]
    if not private:
        text = "<p>No run adds noise: sums and models may tell who is in the data. No epsilon bounds it.</p>"
        return Section("Privacy budget", text, "privacy")
    rows = [
        [label, rounded_up(promise["epsilon"]), f"{promise['delta']:g}", promise["statement"]]
        for label, promise in private
    ]
    content = table_html(["run", "epsilon", "delta", "what it promises"], rows)
    if len(private) > 1:
        epsilon = rounded_up(sum(promise["epsilon"] for _, promise in private))
        delta = sum(promise["delta"] for _, promise in private)
        content += (
            f"<p>Each line is of the run alone. Whoever gets all of them gets at most epsilon {escaped(epsilon)}, "
            f"delta {delta:g} (they add up) if the data are the same.</p>"
        )
    clear = [label for label, promise in labelled if not promise]
    if clear:
        content += f"<p>Without noise, so that nothing bounds it: {escaped(', '.join(clear))}.</p>"
    return Section("Privacy budget", content, "privacy")


def reproduce_section(labelled: Sequence[tuple[str, Run]], command: str, version: str) -> Section:
    """Say which version and command made the page, and hold every scenario as TOML."""
    content = f"<p>Made with codedfl {escaped(version)}:</p><pre>{escaped(command)}</pre>" if command else ""
    content += "<p>A run again, from its scenario saved as <code>scenario.toml</code>:</p>"
    content += "<pre>codedfl run scenario.toml --out runs/again</pre>"
    for label, run in labelled:
        title = f"{label}: scenario {run.scenario.name}, id {run.summary['scenario_id']}"
        content += _folded(title, f"<pre>{escaped(run.scenario.to_toml())}</pre>")
    return Section("How to reproduce it", content, "reproduce")
