"""Comparisons of schemes: a figure of one fleet, or a page and a figure of several fleets."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.privacy.promise import KNOWN_SEED, rounded_up
from codedfl.progress import Progress, silent
from codedfl.report.figures.curves import Size, accuracy_against_time
from codedfl.report.figures.files import save_if_possible
from codedfl.report.figures.points import has_scores, time_and_band
from codedfl.report.figures.style import MISSED, SCREEN, Style, metric_word
from codedfl.report.pages import seconds_text, table_markdown
from codedfl.report.secrecy import OVERVIEW_TITLE, overview_markdown
from codedfl.runs import Run, load, target_name
from codedfl.scenario import Scenario
from codedfl.schemes.secrecy import BROKEN, CLEAR, COMBINATIONS, COSTS_ONLY, REPLIES, SUMS, Secrecy
from codedfl.security.verdicts import table_rank
from codedfl.storage import write_text
from codedfl.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_VERDICTS = {
    SUMS: ("#0072B2", "o"),
    COMBINATIONS: ("#56B4E9", "v"),
    REPLIES: ("#009E73", "D"),
    CLEAR: ("#E69F00", "s"),
    COSTS_ONLY: ("#000000", "P"),
    BROKEN: ("#D55E00", "X"),
}
_OTHER_VERDICTS = (("#CC79A7", "^"), ("#F0E442", "*"), ("#999999", "h"))
"""Colours and marks of a scheme's secrecy; either tells verdicts apart."""
_ALMOST_ZERO = 1e-300
"""Stands for zero on a logarithmic axis."""


def draw_accuracies(scenario: Scenario, rows: Sequence[Row], out: Path, progress: Progress = silent) -> None:
    """Draw accuracy against time into ``compare.png`` and ``.svg``, from the runs below ``out``."""
    runs, metric = compared_runs(rows, out)
    scored = {label: own for label, own in runs.items() if has_scores(own)}
    if not scored:
        progress("compare.png left out: without test data there is no accuracy to draw", 0, 0)
        return
    goals = scenario.training.targets
    save_if_possible(lambda: accuracy_against_time(scored, targets=goals, metric=metric), out / "compare.png", progress)


def compared_runs(rows: Sequence[Row], out: Path) -> tuple[dict[str, list[Run]], str]:
    """Return the runs on the first fleet by scheme, as far as there are any, and their metric."""
    own = [row for row in rows if row["fleet"] == rows[0]["fleet"] and row["refused"] is None and not row["predicted"]]
    runs = {row["scheme"]: [load(out / "runs" / f"{row['scheme']}-{row['scenario_id']}")] for row in own}
    return runs, next((str(row["metric"]) for row in own if row["metric"]), "accuracy")


def write_page(
    scenario: Scenario, rows: Sequence[Row], out: Path, progress: Progress = silent, *, command: str = ""
) -> None:
    """Write ``compare.md`` and, if there are targets, ``compare.png`` and ``.svg``; ``command`` made the rows.

    The page has a table for each fleet, what each party sees, and which schemes have no result.
    """
    targets = scenario.training.targets
    metric = next((row["metric"] for row in rows if row["metric"]), "accuracy")
    fleets, schemes = (list(dict.fromkeys(row[key] for row in rows)) for key in ("fleet", "scheme"))
    parts = [f"# {len(schemes)} schemes on {len(fleets)} fleets\n", _opening(scenario, command)]
    if targets and save_if_possible(lambda: time_by_scheme(rows, targets, metric), out / "compare.png", progress):
        parts.append("![Time to accuracy by scheme and fleet](compare.png)\n")
    for fleet in fleets:
        own = [row for row in rows if row["fleet"] == fleet]
        parts.append(f"## Fleet `{fleet}`, {own[0]['devices']} devices\n")
        parts.append(_fleet(own, [target_name(target) for target in targets], metric))
    parts += [_secrecy(rows), _leaks(rows), _refusals(rows)]
    write_text(out / "compare.md", "\n".join(part for part in parts if part))


def comparison_drawings(rows: Sequence[Row]) -> dict[str, tuple[str, Callable[[], "Figure"]]]:
    """Return the heading of the figure of several fleets and how it is drawn; that of one fleet has no need of it."""
    targets = sorted({float(target) for row in rows for target in row["time_to_accuracy"] or ()})
    if len({row["fleet"] for row in rows}) < 2 or not targets:
        return {}
    metric = next((row["metric"] for row in rows if row["metric"]), "accuracy")
    return {"compare": ("Time to accuracy by scheme and fleet", partial(time_by_scheme, rows, targets, metric))}


def _opening(scenario: Scenario, command: str) -> str:
    made, timing = f"Made by `{command}`. " if command else "", scenario.timing
    return (
        f"{made}Scenario `{scenario.name}`, id {scenario.id()}; {timing.draws} timing draws, seed {timing.seed}. "
        "Times are virtual: mean (95% of draws). A scheme whose model follows the timing is trained several times "
        "instead (`timing_draws` in compare.json). `trained`: times, costs and accuracies of real trainings on this "
        "fleet. `predicted`: a scheme that gives the gradient of all data trains the same model on every fleet, so "
        "its epochs are those of the first fleet, and its times, bits and multiplications follow from the sizes of "
        "its messages. Costs are those of a training that ends with the last target, or with the last epoch if that "
        "is not reached; megabytes and multiplications: mean of all devices (largest). The accuracy at its end is "
        "under iid (data dealt at random) / sorted (by label, one run a device). The attacks ran on the first fleet.\n"
    )


def _fleet(rows: Sequence[Row], targets: Sequence[str], metric: str) -> str:
    score = "accuracy" if metric == "accuracy" else "R²"
    header = ["scheme", "solver", "how", "epochs", *(f"time to {target}" for target in targets), "speed-up"]
    header += ["up MB", "down MB", "d2d MB", "multiplications", f"{score} iid / sorted", "survives"]
    header += ["secrecy: the server sees", "strongest attack"]
    lines = [_line(row, targets) for row in rows]
    if any(row["epsilon"] is not None for row in rows):
        header.append("epsilon, delta of the run alone")
        lines = [[*line, _budget(row)] for line, row in zip(lines, rows, strict=True)]
    return table_markdown(header, lines)


def _budget(row: Row) -> str:
    if row["epsilon"] is None:
        return "no noise"
    return f"{rounded_up(row['epsilon'])}, {row['delta']:g}" + (
        f" ({KNOWN_SEED})" if row["privacy"]["known_seed"] else ""
    )


def _line(row: Row, targets: Sequence[str]) -> list[str]:
    name, accuracies = f"`{row['scheme']}`", f"{_share(row['accuracy_iid'])} / {_share(row['accuracy_sorted'])}"
    if row["refused"] is not None:
        filler = ["-"] * (len(targets) + 6)
        return [name, row["solver"], "no result", *filler, accuracies, "-", row["verdict"], _attack(row)]
    times = [_time(row["time_to_accuracy"][target], row["time_to_accuracy_band"][target]) for target in targets]
    costs = [_pair(row["bits_per_device"][link], 8e6) for link in ("up", "down", "d2d")]
    costs.append(_pair(row["macs_per_device"], 1))
    how, speedup = "predicted" if row["predicted"] else "trained", row["speedup"]
    trained = [name, row["solver"], how, f"{row['epochs']:,}", *times, "-" if speedup is None else f"{speedup:.3g}"]
    secrecy = f"{row['verdict']}: {row['leakage']['server']}"
    return [*trained, *costs, accuracies, str(row["survives_losses"]), secrecy, _attack(row)]


def _time(seconds: float | None, limits: Sequence[float | None] | None) -> str:
    if seconds is None or not limits or None in limits:
        return seconds_text(seconds)
    return f"{seconds_text(seconds)} ({seconds_text(limits[0])} to {seconds_text(limits[1])})"


def _pair(values: Mapping[str, float], unit: float) -> str:
    return f"{values['mean'] / unit:.3g} ({values['largest'] / unit:.3g})"


def _share(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.4f}"


def _attack(row: Row) -> str:
    attack = row["attack"]
    if attack is None:
        return "not attacked"
    if attack["verdict"] is None:
        return "no view to attack"
    if attack["verdict"] == "holds":
        return f"holds ({attack['tried']} attacks)"
    return f"{attack['verdict']} ({attack['attack']}: {attack['view']})"


def _secrecy(rows: Sequence[Row]) -> str:
    """Write the verdict tables on the first fleet, the scheme that tells least first."""
    first = [row for row in rows if row["fleet"] == rows[0]["fleet"] and row["secrecy"] is not None]
    tables = [(row["scheme"], row["verdict"], [Secrecy(**cell) for cell in row["secrecy"]]) for row in first]
    ranked = sorted(tables, key=lambda entry: table_rank(*entry))
    table = overview_markdown((name, cells) for name, _, cells in ranked)
    return f"## Who may learn what\n\n{OVERVIEW_TITLE[0].upper() + OVERVIEW_TITLE[1:]}:\n\n{table}"


def _leaks(rows: Sequence[Row]) -> str:
    """Group schemes by what each party sees; that may differ from fleet to fleet."""
    alike: dict[tuple[str, ...], dict[str, None]] = {}
    for row in rows:
        if row["leakage"] is not None:
            alike.setdefault(tuple(row["leakage"].values()), {})[f"`{row['scheme']}`"] = None
    lines = [[", ".join(names), *words] for words, names in alike.items()]
    return "## Who sees what\n\n" + table_markdown(["schemes", "server", "devices", "eavesdropper"], lines)


def _refusals(rows: Sequence[Row]) -> str:
    kinds = (("refused", "data dealt at random"), ("refused_sorted", "data sorted by label"))
    lines = [
        f"- `{row['scheme']}` on fleet `{row['fleet']}`, {words}: {row[key]}\n"
        for row in rows
        for key, words in kinds
        if row[key] is not None
    ]
    return "## Where there is no result\n\n" + "".join(lines) if lines else ""


def time_by_scheme(
    rows: Sequence[Row],
    targets: Sequence[float],
    metric: str = "accuracy",
    style: Style = SCREEN,
    size: Size = (None, None),
) -> "Figure":
    """Draw the time to the first and the last target by scheme, a panel a fleet; the quickest on the first on top.

    Marks show the verdict on a scheme's secrecy.
    """
    fleets = {row["fleet"]: row["devices"] for row in rows}
    shown = [target_name(target) for target in dict.fromkeys((targets[0], targets[-1]))]
    order = _quickest_first([row for row in rows if row["fleet"] == rows[0]["fleet"]], shown[-1])
    styles = _verdict_styles(row["verdict"] for row in rows)
    wide, step = (3.2 * len(fleets) + 1.4, 0.3) if style.titles else (style.width if len(fleets) == 1 else 7.0, 0.22)
    figure = style.figure(size[0] or wide, size[1] or 1.7 + step * len(order))
    panels = figure.subplots(1, len(fleets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (fleet, devices) in zip(panels, fleets.items(), strict=True):
        style.dress(axes)
        axes.set_xscale("log")
        for row in (row for row in rows if row["fleet"] == fleet):
            _draw_times(axes, row, order.index(row["scheme"]), shown, styles[row["verdict"]], style)
        axes.set_title(f"{fleet} ({devices} devices)", fontsize=style.font)
    panels[0].set_yticks(range(len(order)), order)
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    panels[0].set_xlim(*_time_limits(rows, shown))
    words = "training time in virtual seconds (logarithmic): mean and 95% of timing draws"
    figure.supxlabel(style.lines(words, 0.9 * figure.get_figwidth()), fontsize=style.font)
    handles = list(_time_legend(styles, shown, metric, style))
    columns = max(1, min(len(handles), int(figure.get_figwidth() / 1.9)))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, fontsize=style.small, frameon=False)
    return figure


def _quickest_first(rows: Sequence[Row], target: str) -> list[str]:
    times = {row["scheme"]: (row["time_to_accuracy"] or {}).get(target) or np.inf for row in rows}
    return sorted(times, key=lambda name: float(times[name]))


def _verdict_styles(verdicts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Give each verdict a colour and a mark: the known ones always theirs, in their order."""
    found = set(verdicts)
    others = zip(sorted(found - _VERDICTS.keys()), cycle(_OTHER_VERDICTS), strict=False)
    return {verdict: style for verdict, style in _VERDICTS.items() if verdict in found} | dict(others)


def _draw_times(
    axes: "Axes", row: Row, place: int, targets: Sequence[str], look: tuple[str, str], style: Style
) -> None:
    """Mark the times of one scheme: the last target filled, the first hollow and a little higher."""
    colour, mark = look
    for target in targets:
        last, found = target == targets[-1], time_and_band(row, target)
        if found is not None:
            seconds, low, high = found
            height = place + (0.13 if last else -0.13)
            axes.plot(
                [max(low, _ALMOST_ZERO), high], [height] * 2, color=colour, linewidth=style.mark * 0.7, alpha=0.35
            )
            face = colour if last else "white"
            axes.plot(seconds, height, mark, color=colour, markerfacecolor=face, markersize=style.mark * 1.1)
        elif last:
            words = "no result" if row["refused"] else f"{float(target):g} not reached"
            axes.plot(
                [0.97], [place + 0.13], "x", transform=axes.get_yaxis_transform(), color=MISSED, markersize=style.mark
            )
            beside: Any = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
            axes.annotate(words, (0.93, place + 0.13), fontsize=style.small, **beside)


def _time_limits(rows: Sequence[Row], targets: Sequence[str]) -> tuple[float, float]:
    """Return the ends of an axis for all times; a band that begins at zero runs off it."""
    found = [times for row in rows for target in targets if (times := time_and_band(row, target))]
    lows = [max(low, seconds / 10) for seconds, low, _ in found]
    return (min(lows) / 1.5, max(high for *_, high in found) * 1.5) if found else (0.1, 1.0)


def _time_legend(
    styles: Mapping[str, tuple[str, str]], targets: Sequence[str], metric: str, style: Style
) -> Iterator[Any]:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "none", "markersize": style.mark * 1.1}

    for verdict, (colour, mark) in styles.items():
        yield Line2D([], [], color=colour, marker=mark, label=f"secrecy: {verdict}", **look)
    for target in targets:
        face = "0.3" if target == targets[-1] else "white"
        label = f"to {metric_word(metric)} {float(target):g}"
        yield Line2D([], [], color="0.3", marker="o", markerfacecolor=face, label=label, **look)
