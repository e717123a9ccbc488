"""``codedfl plan``: what each scheme would take on a fleet, before any training, and which one to take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.pages import seconds_text
from codedfl.schemes import SCHEMES
from codedfl.studies.epochs_to_target import EpochsToTarget, finished
from codedfl.studies.plan import DRAWS, PRIVACY, Offer, Plan, Shapes, plan


def plan_command(
    names: common.Schemes = None,
    scenario: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    samples: Annotated[int | None, typer.Option(min=1, max=10**8, help="Samples, if the data is not at hand.")] = None,
    outputs: Annotated[int | None, typer.Option(min=1, max=10**5, help="Outputs, given with --samples.")] = None,
    epochs: Annotated[
        list[str] | None,
        typer.Option("--epochs", metavar="SOLVER=N", help="Epochs to the target with a solver (repeatable)."),
    ] = None,
    from_run: Annotated[
        list[Path] | None,
        typer.Option("--from-run", metavar="DIR", help="Take the epochs from a finished run (repeatable)."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=2, max=100_000, help=f"Timing draws behind the bands; {DRAWS}, fewer above 250 devices."),
    ] = None,
    privacy: Annotated[
        str, typer.Option(metavar="|".join(PRIVACY), help="Recommend what encrypts, only what shows sums, or anything.")
    ] = "encrypted",
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Predict the time of each scheme on a fleet, without training, and recommend one.

    The scenario is paper unless named.
    """
    name, schemes = common.split_names(names, scenario)
    chosen = common.chosen_scenario(name or "paper", changes, devices, schemes or list(SCHEMES))
    known = EpochsToTarget(_told(epochs), [finished(path, chosen) for path in from_run or []])
    with common.bars() as progress:
        shapes = Shapes.of(chosen, samples, outputs, progress)
        made = plan(chosen, shapes, names=schemes, epochs=known, draws=draws, privacy=privacy, progress=progress)
    if json:
        common.print_json(made.to_table())
        return
    common.console.print(_times(made))
    common.console.print(_costs(made))
    _print_leaks(made.offers)
    common.print_privacy((offer.scheme.name, privacy_of(offer)) for offer in made.offers)
    _print_sources(made.offers)
    _print_choice(made)


def _told(pairs: Sequence[str] | None) -> dict[str, int]:
    told = {}
    for pair in pairs or []:
        solver, _, count = pair.partition("=")
        if not count.strip().isdecimal():
            raise UsageError(f"--epochs '{pair}' must be SOLVER=N, for example --epochs gradient-descent=500")
        told[solver.strip()] = int(count)
    return told


def _times(made: Plan) -> Table:
    goal = "the target" if made.target is None else f"{made.target:g}"
    table = Table(title=f"predicted time to {goal}, 95% of {made.draws} timing draws", box=SIMPLE)
    for name in ("scheme", "solver", "epochs", "time", "95% band"):
        table.add_column(name, justify="left" if name in ("scheme", "solver") else "right", no_wrap=True)
    for offer in made.offers:
        name = offer.scheme.name
        for found in sorted(offer.predictions, key=lambda entry: entry.time.mean):
            limits = f"{seconds_text(found.time.low)} - {seconds_text(found.time.high)}"
            table.add_row(name, found.solver, f"{found.epochs.count:,}", seconds_text(found.time.mean), limits)
            name = ""
        if not offer.predictions:
            table.add_row(name, "cannot be used", "-", "-", "-")
    return table


def _costs(made: Plan) -> Table:
    table = Table(title="megabytes of a device with the quickest solver: mean, largest; and secrecy", box=SIMPLE)
    noisy = any(privacy_of(offer) for offer in made.offers)
    more = ["epsilon"] if noisy else []
    for name in ("scheme", "sends up", "sends d2d", "receives", "survives\nlosses", *more, "secrecy"):
        table.add_column(name, justify="left" if name in ("scheme", "secrecy") else "right", no_wrap=name != "secrecy")
    for offer in made.offers:
        if offer.best is not None:
            links = [offer.best.bits[link] for link in ("up", "d2d", "down")]
            sizes = ["\n".join(f"{bits[name] / 8e6:.3g}" for name in ("mean", "largest")) for bits in links]
            shown = [common.epsilon_text(privacy_of(offer))] if noisy else []
            table.add_row(offer.scheme.name, *sizes, str(offer.survives_losses), *shown, offer.scheme.verdict)
    return table


def privacy_of(offer: Offer) -> Mapping[str, Any] | None:
    """Return what noise promises under a scheme; None without noise."""
    release = offer.scheme.public.release
    return None if release is None else release.to_table()


def _print_leaks(offers: Sequence[Offer]) -> None:
    """Schemes that give away the same stand together."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for offer in offers:
        if offer.leakage is not None:
            alike.setdefault(tuple(offer.leakage.items()), []).append(offer.scheme.name)
    for words, names in alike.items():
        common.console.print(f"{', '.join(names)}:")
        for party, seen in words:
            common.console.print(f"  {party}: {seen}")


def _print_sources(offers: Sequence[Offer]) -> None:
    common.console.print()
    said: dict[str, list[str]] = {}
    for offer in offers:
        if offer.refused is not None:
            common.console.print(f"{offer.scheme.name} cannot be used: {offer.refused}")
        for found in offer.predictions:
            names = said.setdefault(f"{found.solver}, {found.epochs.count:,} epochs, {found.epochs.source}", [])
            names.append(offer.scheme.name)
    for source, names in said.items():
        common.console.print(f"epochs: {source} ({', '.join(names)})")


def _print_choice(made: Plan) -> None:
    common.console.print()
    offer = made.recommended
    name = "none" if offer is None or offer.best is None else f"{offer.scheme.name} with {offer.best.solver}"
    common.console.print(f"recommended: {name}. {made.reason}")
