"""``codedfl security`` and ``codedfl attack``: what is claimed, what is estimated, and what an attacker really gets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.secrecy import DETAIL, OVERVIEW, OVERVIEW_TITLE, detail_rows, overview_rows, page_markdown, reasons
from codedfl.scenario import Scenario, load, preset_names
from codedfl.schemes import SCHEMES, nominal
from codedfl.schemes.secrecy import BROKEN, CLEAR
from codedfl.security import MARGIN
from codedfl.security.attacks import ATTACKS
from codedfl.security.attempts import GRADIENT, UNION, Outcome
from codedfl.security.audit import Statement, attack_scenario, statement
from codedfl.security.figures import FULL, SMALL, Case, figures_of, kept_in, store
from codedfl.security.verdicts import secrecy_rank
from codedfl.settings import did_you_mean
from codedfl.task.shared import SharedProblem

Presets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO", help="Presets, files or schemes; all if none.", autocompletion=common.complete_scenario
    ),
]


def security_command(
    presets: Presets = None,
    scenario: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/secrecy.md.")] = False,
) -> None:
    """Print what each adversary may learn under each scheme, and when to allow it; nothing is run.

    With names: every verdict with its reason, and of ciphers the claimed level and the estimated cost of decoding.
    """
    named = bool(presets or scenario)
    settings, schemes = common.settings_from(changes), () if named else SCHEMES
    alone = [_with_devices(load("paper").with_settings({"scheme": name, **settings}), devices) for name in schemes]
    ordered = [statement(entry) for entry in sorted(alone, key=lambda entry: secrecy_rank(nominal(entry)))]
    if markdown:
        entries = [statement(entry) for entry in _chosen(presets, scenario, changes, devices)] if named else ordered
        typer.echo(page_markdown((entry.scheme, entry.secrecy, entry.allowed_if) for entry in entries), nl=False)
        return
    statements = [statement(entry) for entry in _chosen(presets, scenario, changes, devices)]
    if json:
        known = {entry.scheme for entry in statements}
        rest = [entry for entry in ordered if entry.scheme not in known]
        common.print_json([entry.to_table() for entry in (*statements, *rest)])
        return
    if not named:
        _print_overview(ordered)
    for entry in statements if named else []:
        _print_statement(entry)
        _print_secrecy(entry)
        if entry.estimates:
            common.console.print(_estimates(entry))
    if any(entry.verdict == BROKEN for entry in statements):
        common.console.print("to run the attack: codedfl attack SCENARIO", soft_wrap=True)


def attack_command(
    presets: Presets = None,
    scenario: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", metavar="NAME", help="One attack (repeatable).")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=4,
            help=f"Epochs whose messages the attackers see; unset: features / outputs + {MARGIN}, which decide the "
            "matter, or those of the training if they are fewer.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Attack every case of the stored figures: all schemes, on digits (minutes)."),
    ] = False,
    full_size: Annotated[
        bool,
        typer.Option("--full-size", help="With --all: the cases of the paper's size as well (an hour or more)."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Write the figures to this file as they are found; figures of the same commands are replaced.",
        ),
    ] = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Run schemes, attack what they really sent, and score the attackers on the least hidden device."""
    unknown = [name for name in attacks or [] if name not in ATTACKS]
    if unknown:
        near = did_you_mean(unknown[0], ATTACKS)
        raise UsageError(f"no attack is called '{unknown[0]}'; attacks are {', '.join(ATTACKS)}{near}")
    cases = _cases(presets, scenario, changes, devices, epochs, everything=everything, full_size=full_size)
    if record is not None and (attacks or devices is not None):
        raise UsageError("--record keeps the figures of all attacks on all devices; leave out --attack and --devices")
    if record is not None:
        kept_in(record)  # attacks take minutes, so a wrong place is refused before them
    found: list[tuple[Statement, list[Outcome]]] = []
    with common.bars() as progress:
        shared = SharedProblem(progress)
        for case in cases:
            problem = shared.get(case.scenario)()
            outcomes = attack_scenario(
                case.scenario, problem, names=attacks or (), epochs=case.epochs, progress=progress
            )
            found.append((statement(case.scenario), outcomes))
            if record is not None:
                store(record, figures_of(case, outcomes))
    if json:
        common.print_json([outcome.to_table() for _, outcomes in found for outcome in outcomes])
        return
    for judged, outcomes in found:
        _print_statement(judged)
        common.console.print(_outcomes(outcomes))


def _cases(
    presets: Sequence[str] | None,
    scenario: str | None,
    changes: list[str] | None,
    devices: int | None,
    epochs: int | None,
    *,
    everything: bool,
    full_size: bool,
) -> Sequence[Case]:
    """Return what is attacked: the named scenarios, or the cases of the stored figures."""
    if everything:
        if presets or scenario or changes or devices is not None:
            raise UsageError("--all attacks the cases of the stored figures; leave out scenarios and settings")
        return [Case.preset(*each) for each in (*SMALL, *(FULL if full_size else ()))]
    if full_size:
        raise UsageError("--full-size adds cases to --all; give --all as well")
    settings = common.settings_from(changes)
    return [Case.of(entry, settings, epochs) for entry in _chosen(presets, scenario, changes, devices)]


def _chosen(
    presets: Sequence[str] | None, scenario: str | None, changes: list[str] | None, devices: int | None
) -> list[Scenario]:
    """Return the named scenarios, or the presets whose scheme encrypts."""
    settings = common.settings_from(changes)
    names = [*(presets or []), *([] if scenario is None else [scenario])]
    known = [_named(name) for name in names or preset_names()]
    wanted = [entry for entry in known if names or nominal(entry).verdict != CLEAR]
    chosen = [entry.with_settings(settings) for entry in wanted]
    common.warn_unused(settings, chosen)
    return [_with_devices(entry, devices) for entry in chosen]


def _named(name: str) -> Scenario:
    """Return a preset or file, or a scheme on the fleet and data of the paper."""
    if name in SCHEMES and name not in preset_names() and not Path(name).exists():
        return load("paper").with_settings({"scheme": name})
    return load(name)


def _with_devices(scenario: Scenario, devices: int | None) -> Scenario:
    return scenario if devices is None else scenario.with_devices(devices)


def _print_overview(entries: Sequence[Statement]) -> None:
    """Print one line a scheme, the one that tells least first; in two tables, to fit a narrow terminal."""
    rows = overview_rows((entry.scheme, entry.secrecy) for entry in entries)
    for first in (1, 5):
        table = Table(*(OVERVIEW[0], *OVERVIEW[first : first + 4]), title=OVERVIEW_TITLE, box=SIMPLE)
        for row in rows:
            table.add_row(row[0], *row[first : first + 4])
        common.console.print(table)
    for entry in entries:
        common.console.print(f"{entry.scheme}: allow it if {entry.allowed_if}.", soft_wrap=True)
        _print_refusal(entry)
    common.console.print(
        "every verdict with its reason: codedfl security SCHEME; the figures again: codedfl attack SCENARIO",
        soft_wrap=True,
    )


def _print_secrecy(entry: Statement) -> None:
    """Print every cell, the reasons, and when to allow the scheme."""
    table = Table(*DETAIL, title="who may learn what", box=SIMPLE)
    for row in detail_rows(entry.secrecy):
        table.add_row(*row)
    common.console.print(table)
    for adversary, words in reasons(entry.secrecy):
        common.console.print(f"  {adversary}, {words}", soft_wrap=True)
    common.console.print(f"Allow it if {entry.allowed_if}.", soft_wrap=True)
    _print_refusal(entry)


def _print_refusal(entry: Statement) -> None:
    if entry.refused is not None:
        common.console.print(f"{entry.scheme} is shown without noise: {entry.refused}", soft_wrap=True)


def _print_statement(entry: Statement) -> None:
    claimed = "claims no level" if entry.claimed_bits is None else f"claims {entry.claimed_bits} bits"
    if entry.bits_after_overlap is not None and entry.bits_after_overlap != entry.claimed_bits:
        claimed += f" (at most {entry.bits_after_overlap} against a device that knows its own error support)"
    known = [estimate for estimate in entry.estimates if estimate.bits is not None]
    least = min(known, key=lambda estimate: estimate.bits or 0.0, default=None)
    estimated = "" if least is None else f", lowest estimate {least.shown} ({least.name})"
    level = f"{claimed}{estimated}. Verdict: {entry.verdict}."
    common.console.print(f"{entry.preset} ({entry.scheme}) {level}\n  {entry.sentence}", soft_wrap=True)


def _estimates(entry: Statement) -> Table:
    columns = ("algorithm", Column("log2 of operations", justify="right"), "tuned to, or why not evaluated")
    table = Table(*columns, title="estimated work of decoding, which nobody needs to do", box=SIMPLE)
    for estimate in entry.estimates:
        tuned = ", ".join(f"{name} = {value}" for name, value in estimate.choices.items())
        table.add_row(estimate.name, estimate.shown, tuned if estimate.bits is not None else estimate.reason)
    return table


def _outcomes(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="attacks on what was really sent", box=SIMPLE)
    for name in ("attack, and what it was given", "what it got", "cost", "verdict"):
        table.add_column(name, justify="right" if name == "cost" else "left", no_wrap=name in ("cost", "verdict"))
    for outcome in outcomes:
        given = f"{outcome.view}, {outcome.assumption}" if outcome.assumption else outcome.view
        cost = f"{outcome.seconds:.2f} s {outcome.peak_bytes / 1e6:4.0f} MB"
        table.add_row(f"{outcome.attack}: {given}", _result(outcome), cost, outcome.score.verdict)
    return table


def _result(outcome: Outcome) -> str:
    score, found = outcome.score, []
    if score.relative_error is not None:
        what = {GRADIENT: "gradient", UNION: "sum"}.get(outcome.asset, "A")
        found.append(f"{what} to {score.relative_error:.1e}")
    if score.support_found is not None:
        found.append("all of the support" if score.support_recovered else f"{score.support_found:.0%} of the support")
    if score.auc is not None:
        found.append(f"AUC {score.auc:.4f}")
    whose = "all devices" if outcome.device is None else f"device {outcome.device}"
    return f"{', '.join(found)} ({whose})" if found else "nothing"
