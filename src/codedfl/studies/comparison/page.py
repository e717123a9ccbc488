"""The comparison as a Markdown page: one table a fleet, who sees what, where there is no result."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codedfl.report.pages import seconds_text, table_markdown
from codedfl.scenario import Scenario

__all__ = ["page"]

Row = Mapping[str, Any]


def page(scenario: Scenario, rows: Sequence[Row], *, command: str = "", figure: str | None = None) -> str:
    """Write the page; ``command`` made it, ``figure`` stands beside it."""
    fleets, schemes = (list(dict.fromkeys(row[key] for row in rows)) for key in ("fleet", "scheme"))
    parts = [f"# {len(schemes)} schemes on {len(fleets)} fleets\n", _opening(scenario, command)]
    metric = _metric(rows)
    if figure is not None:
        parts.append(f"![Time to accuracy by scheme and fleet]({figure})\n")
    for fleet in fleets:
        own = [row for row in rows if row["fleet"] == fleet]
        parts.append(f"## Fleet `{fleet}`, {own[0]['devices']} devices\n")
        parts.append(_fleet(own, [repr(target) for target in scenario.training.targets], metric))
    parts += [_leaks(rows), _refusals(rows)]
    return "\n".join(part for part in parts if part)


def _opening(scenario: Scenario, command: str) -> str:
    made = f"Made by `{command}`. " if command else ""
    timing = scenario.timing
    return (
        f"{made}Scenario `{scenario.name}`, id {scenario.id()}; {timing.draws} timing draws, seed {timing.seed}. "
        "Times are virtual: mean (95% of draws). A scheme whose model "
        "follows the timing is trained several times instead (`timing_draws` in compare.json). `trained`: times, costs "
        "and accuracies of real trainings on this fleet. `predicted`: a scheme that gives the gradient of all data "
        "trains the same model on every fleet, so its epochs are those of the first fleet, and its times, bits and "
        "multiplications follow from the sizes of its messages. Costs are those of a training that ends with the last "
        "target, or with the last epoch if that is not reached; megabytes and multiplications: mean of all devices "
        "(largest). What is reached at its end stands under iid (data dealt at random) / sorted (by label, one run a "
        "device). The attacks ran on the first fleet.\n"
    )


def _metric(rows: Sequence[Row]) -> str:
    return "R²" if any(row["metric"] == "r2" for row in rows) else "accuracy"


def _fleet(rows: Sequence[Row], targets: Sequence[str], metric: str) -> str:
    header = ["scheme", "solver", "how", "epochs", *(f"time to {target}" for target in targets), "speed-up"]
    header += ["up MB", "down MB", "d2d MB", "MACs", f"{metric} iid / sorted", "survives", "secrecy: the server sees"]
    header += ["strongest attack"]
    return table_markdown(header, [_line(row, targets) for row in rows])


def _line(row: Row, targets: Sequence[str]) -> list[str]:
    name, accuracies = f"`{row['scheme']}`", f"{_share(row['accuracy_iid'])} / {_share(row['accuracy_sorted'])}"
    if row["refused"] is not None:
        filler = ["-"] * (len(targets) + 7)
        return [name, row["solver"], "no result", *filler[:-1], accuracies, "-", row["verdict"], _attack(row)]
    times = [_time(row["time_to_accuracy"][target], row["time_to_accuracy_band"][target]) for target in targets]
    sizes = [_pair(row["bits_per_device"][link], 8e6) for link in ("up", "down", "d2d")]
    return [
        name,
        row["solver"],
        "predicted" if row["predicted"] else "trained",
        f"{row['epochs']:,}",
        *times,
        "-" if row["speedup"] is None else f"{row['speedup']:.3g}",
        *sizes,
        _pair(row["macs_per_device"], 1),
        accuracies,
        str(row["survives_losses"]),
        f"{row['verdict']}: {row['leakage']['server']}",
        _attack(row),
    ]


def _time(seconds: float | None, limits: Sequence[float | None] | None) -> str:
    if seconds is None or not limits or limits[0] is None or limits[1] is None:
        return seconds_text(seconds)
    return f"{seconds_text(seconds)} ({seconds_text(limits[0])} to {seconds_text(limits[1])})"


def _pair(values: Mapping[str, float], unit: float) -> str:
    return f"{values['mean'] / unit:.3g} ({values['largest'] / unit:.3g})"


def _share(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.4f}"


def _attack(row: Row) -> str:
    """Say in a few words how the attack suite fared."""
    attack = row["attack"]
    if attack is None:
        return "not attacked"
    if attack["verdict"] is None:
        return "no view to attack"
    if attack["verdict"] == "holds":
        return f"holds ({attack['tried']} attacks)"
    return f"{attack['verdict']} ({attack['attack']}: {attack['view']})"


def _leaks(rows: Sequence[Row]) -> str:
    """Schemes that give away the same stand together; it may differ from fleet to fleet."""
    alike: dict[tuple[str, ...], dict[str, None]] = {}
    for row in rows:
        if row["leakage"] is not None:
            alike.setdefault(tuple(row["leakage"].values()), {})[f"`{row['scheme']}`"] = None
    lines = [[", ".join(names), *words] for words, names in alike.items()]
    return "## Who sees what\n\n" + table_markdown(["schemes", "server", "devices", "eavesdropper"], lines)


def _refusals(rows: Sequence[Row]) -> str:
    lines = list(_refused(rows))
    return "## Where there is no result\n\n" + "".join(f"- {line}\n" for line in lines) if lines else ""


def _refused(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for key, words in (("refused", "data dealt at random"), ("refused_sorted", "data sorted by label")):
            if row[key] is not None:
                yield f"`{row['scheme']}` on fleet `{row['fleet']}`, {words}: {row[key]}"
