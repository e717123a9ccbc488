"""Shared by all commands: options, the chosen scenario, progress on the error stream, results on the output stream."""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from codedfl.errors import UsageError
from codedfl.front import broken_ciphers
from codedfl.privacy.promise import rounded_up
from codedfl.progress import Progress as Report
from codedfl.progress import dated_lines
from codedfl.scenario import Scenario, load, preset_names
from codedfl.schemes import SCHEMES, load_plugin
from codedfl.settings import did_you_mean

if TYPE_CHECKING:
    from codedfl.studies.cluster import Cluster

console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, markup=False)


def complete_scenario(incomplete: str) -> list[str]:
    """Complete the name of a preset or of a file in the working directory."""
    files = [path.name for path in Path().glob("*.toml")]
    return [name for name in (*preset_names(), *files) if name.startswith(incomplete)]


def _complete_scheme(incomplete: str) -> list[str]:
    return [name for name in SCHEMES if name.startswith(incomplete)]


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    for path in paths or ():
        load_plugin(path)
    return paths


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set links.loss=0.2 (repeatable)."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go.")]
Devices = Annotated[
    int | None,
    typer.Option("--devices", metavar="N", help="Number of devices, spread evenly over the fleet."),
]
Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        callback=_load_plugins,
        is_eager=True,
        help="Load schemes from FILE (repeatable).",
    ),
]
_WHAT = "Preset name or TOML file"
ScenarioArgument = Annotated[
    str | None,
    typer.Argument(metavar="SCENARIO", help=f"{_WHAT}.", autocompletion=complete_scenario, show_default=False),
]
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario", "-s", metavar="NAME|FILE", help=f"{_WHAT}, or first argument.", autocompletion=complete_scenario
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many processes; one a core if not given.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="tcp://HOST:PORT", help="Work on the machines of a Dask scheduler you trust."),
]
LocalCluster = Annotated[
    int | None,
    typer.Option("--cluster", metavar="N", min=1, max=1000, help="Work on a Dask cluster of N processes here."),
]
Schemes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO|SCHEME",
        help=f"{_WHAT} first, unless --scenario names it; then schemes, all if none.",
        autocompletion=_complete_scheme,
    ),
]


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


def chosen_name(first: str | None, option: str | None, default: str | None = None) -> str:
    """Return the scenario that is named, by the first argument or by ``--scenario``."""
    if first is not None and option is not None:
        raise UsageError(f"the scenario is named twice, '{first}' and --scenario '{option}'; name it once")
    name = first if first is not None else option
    if name is None and default is None:
        raise UsageError("no scenario is named; give a preset or a TOML file, for example: codedfl run paper-quick")
    return name if name is not None else str(default)


def split_names(names: Sequence[str] | None, scenario: str | None) -> tuple[str | None, list[str]]:
    """Return the scenario, if one is named, and the schemes.

    The first argument is a scenario if ``--scenario`` is not given and it is a preset or a file, but no scheme.
    """
    wanted = list(names or [])
    first = wanted[0] if wanted and scenario is None and wanted[0] not in SCHEMES else ""
    if first in preset_names() or first.endswith(".toml"):
        scenario = wanted.pop(0)
    for name in wanted:
        if name not in SCHEMES:
            near = did_you_mean(name, [*SCHEMES, *(preset_names() if scenario is None else [])])
            raise UsageError(f"no scheme is called '{name}'; schemes are {', '.join(SCHEMES)}{near}")
    return scenario, wanted


def chosen_scenario(
    name: str,
    pairs: list[str] | None = None,
    devices: int | None = None,
    schemes: Iterable[str] = (),
    check: Callable[[Scenario], None] = lambda _: None,
) -> Scenario:
    """Load a scenario, change settings and size, and name settings of schemes that are not among those used.

    ``check`` may refuse it before its data are read to count owners.
    """
    changes = settings_from(pairs)
    chosen = load(name).with_settings(changes)
    check(chosen)
    if chosen.partition.by_owner:
        from codedfl.task import with_owners  # slow to import

        if devices is not None:
            raise UsageError(f"--devices {devices} has no meaning here: the data have one device for each owner")
        chosen = with_owners(chosen)
    elif devices is not None:
        chosen = chosen.with_devices(devices)
    warn_unused(changes, [chosen], schemes)
    return chosen


def given_words(
    name: str, pairs: Sequence[str] | None, devices: int | None, plugins: Sequence[Path] | None
) -> list[str]:
    """Return the options of a command that name its scenario again."""
    words = ["--scenario", name, *(word for pair in pairs or () for word in ("--set", pair))]
    words += [] if devices is None else ["--devices", str(devices)]
    return words + [word for path in plugins or () for word in ("--plugin", str(path))]


def warn_unused(changes: Mapping[str, Any], scenarios: Sequence[Scenario], schemes: Iterable[str] = ()) -> None:
    """Name the changed options of schemes that no scenario uses (each its own, unless schemes are given)."""
    pairs = [(scenario, name) for scenario in scenarios for name in (list(schemes) or [scenario.scheme])]
    used = {name for _, name in pairs}
    used.update(*(scenario.options(name).others for scenario, name in pairs if name in SCHEMES))
    for key in changes:
        table, _, rest = key.partition(".")
        scheme = rest.partition(".")[0]
        if table == "schemes" and scheme and scheme not in used:
            warn(f"{key} is not used: the scheme is {', '.join(sorted(used))}")


def warn(sentence: str) -> None:
    """Print a warning on the error stream."""
    errors.print(f"warning: {sentence}", soft_wrap=True)


def warn_if_broken(scenario: Scenario, schemes: Iterable[str] = ()) -> None:
    """Print one line for each scheme (the scenario's own, unless told) whose cipher is broken."""
    for sentence in broken_ciphers(scenario, schemes or [scenario.scheme]):
        warn(sentence)


def print_json(value: Any) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def cluster(scheduler: str | None, processes: int | None, workers: int | None, out: Path) -> Iterator["Cluster | None"]:
    """Connect to the cluster that is asked for, if one is, once it is known that results can be written."""
    given = {"--scheduler": scheduler, "--cluster": processes, "--workers": workers}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} exclude each other; give one of them")
    if scheduler is None and processes is None:
        yield None
        return
    from codedfl.storage import refuse_file
    from codedfl.studies.cluster import connected

    refuse_file(out)
    with connected(scheduler, processes) as found:
        yield found


def on_terminal() -> bool:
    """Tell whether errors go to a terminal; notebooks force colours, and are none."""
    return errors.is_terminal and errors.file.isatty()


@contextmanager
def bars() -> Iterator[Report]:
    """Show a bar with the time left for each stage; a dated line for each where there is no terminal."""
    if not on_terminal():
        yield dated_lines(lambda line: errors.print(line, soft_wrap=True))
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=errors) as shown:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if total == 0:  # a sentence, not a stage
                shown.console.print(stage, soft_wrap=True)
                return
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total)
            elif done <= 1 and shown.tasks[tasks[stage]].finished:
                shown.reset(tasks[stage], total=total)
            shown.update(tasks[stage], completed=done, total=total)

        yield report


def epsilon_text(privacy: Mapping[str, Any] | None) -> str:
    """Write the epsilon of a run for people; none without noise."""
    if privacy is None:
        return "-"
    return f"{rounded_up(privacy['epsilon'])}{' (known seed)' if privacy['known_seed'] else ''}"


def print_privacy(promises: Iterable[tuple[str, Mapping[str, Any] | None]]) -> None:
    """Print what noise promises; schemes that promise the same stand together."""
    alike: dict[str, list[str]] = {}
    for name, privacy in promises:
        if privacy is not None:
            alike.setdefault(privacy["statement"], []).append(name)
    for statement, names in alike.items():
        console.print(f"noise of {', '.join(names)}: {statement}", soft_wrap=True)
