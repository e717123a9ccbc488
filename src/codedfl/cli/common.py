"""What all commands share: options, progress bars on the error stream, results on the output stream."""

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from codedfl.errors import UsageError
from codedfl.progress import Progress as Report
from codedfl.report.pages import seconds_text
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES

__all__ = [
    "Json",
    "Out",
    "Set",
    "bars",
    "console",
    "errors",
    "print_json",
    "scenario_with",
    "seconds_text",
    "settings_from",
    "value_from",
    "warn_if_broken",
]

console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, markup=False)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set links.loss=0.2 (repeatable)."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go.")]


def value_from(text: str) -> Any:
    """Read a value as TOML would; what is not TOML is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def settings_from(pairs: list[str] | None) -> dict[str, Any]:
    """Read KEY=VALUE pairs."""
    changes = {}
    for pair in pairs or []:
        key, mark, value = pair.partition("=")
        if not mark or not key:
            raise UsageError(f"--set '{pair}' must be KEY=VALUE, for example --set links.loss=0.2")
        changes[key.strip()] = value_from(value.strip())
    return changes


def scenario_with(name_or_path: str, pairs: list[str] | None) -> Scenario:
    """Load a scenario and change settings."""
    return load(name_or_path).with_settings(settings_from(pairs))


def print_json(value: Any) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def warn_if_broken(scheme: str) -> None:
    """Say in one line that a scheme's cipher is broken, where a user chooses it."""
    if SCHEMES[scheme].verdict == "broken":
        errors.print(
            f"warning: the cipher of '{scheme}' is broken: whoever sees a ciphertext can compute the data under it",
            soft_wrap=True,
        )


@contextmanager
def bars() -> Iterator[Report]:
    """Show a bar with the time left for each stage that reports."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as shown:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if total == 0:  # a sentence, not a stage
                if errors.is_terminal:
                    shown.console.print(stage, soft_wrap=True)
                return
            if stage not in tasks or (done <= 1 and shown.tasks[tasks[stage]].finished):
                if stage in tasks:
                    shown.reset(tasks[stage], total=total)
                else:
                    tasks[stage] = shown.add_task(stage, total=total)
            shown.update(tasks[stage], completed=done, total=total)

        yield report
