"""The command line: ``codedfl COMMAND --help`` explains each command.

Exit codes: 0 done, 1 failed with one clear sentence, 2 wrong usage, 130 interrupted. ``--debug`` shows the traceback.
Modules of commands are imported when their command is used: ``codedfl --help`` imports no numerical library.
"""

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from codedfl.errors import HEAVY, CodedflError, UsageError, missing_study

__all__ = ["COMMANDS", "app", "main"]

_INTERRUPTED = 130


class _Command(NamedTuple):
    """What a command does, how it is used, and its module if that has another name."""

    summary: str
    examples: tuple[str, ...]
    module: str | None = None


COMMANDS = {
    "reproduce": _Command(
        "Run the paper's experiment and compare its claims with what is measured.",
        ("reproduce --quick", "reproduce --out out/reproduce --seeds 5"),
    ),
    "run": _Command(
        "Train once, in virtual time; a run that was stopped is resumed.",
        (
            "run paper-quick",
            "run paper-quick --live",
            "run paper-quick --set scheme=sealed-coded --set training.epochs=1e3",
            "run -s mine.toml --devices 10 --out runs/mine --json",
        ),
    ),
    "compare": _Command(
        "Train schemes on the same data, fleet and links, side by side.",
        ("compare", "compare paper-quick conventional sealed-coded", "compare --all -s paper --no-attacks"),
    ),
    "plan": _Command(
        "Predict the time of each scheme on a fleet, without training, and recommend one.",
        ("plan", "plan paper-quick sealed sealed-coded", "plan -s mine.toml --samples 60000 --outputs 10"),
    ),
    "fleet": _Command(
        "Fleets of devices: estimate one from finished runs.",
        ("fleet fit runs/mine", "fleet fit runs/a runs/b --out fleet.toml"),
        "fleet.commands",
    ),
    "sweep": _Command(
        "Run a grid of scenarios on all cores, with bands from repeated timing draws.",
        (
            "sweep paper-quick --over links.loss=0,0.1,0.2",
            "sweep -s paper-quick --over scheme=minibatch,sealed --over timing.seed=1,2",
        ),
    ),
    "figure": _Command(
        "Draw a figure of finished runs for a paper or a screen, or write the numbers behind it.",
        (
            "figure runs/mine runs/other --width 3.5in --out figure.pdf",
            "figure out/compare-paper-quick --style screen --format png",
            "figure out/sweep-paper-quick --y accuracy --format tex",
            "figure out/reproduce --overlay mine.csv",
        ),
        "results.figure",
    ),
    "security": _Command(
        "Print what each adversary may learn under each scheme, and when to allow it; nothing is run.",
        ("security", "security sealed-coded", "security paper-92 --json"),
    ),
    "attack": _Command(
        "Run schemes, attack what they really sent, and score the attackers on the least hidden device.",
        ("attack paper-92", "attack paper-quick --set scheme=sealed --attack null"),
        "security",
    ),
    "fer": _Command(
        "Estimate the frame error rate of a decoder by Monte Carlo on all cores.",
        ("fer --erasures 256 --precision 0.1",),
        "codes",
    ),
    "predict": _Command(
        "Predict rows of a file with the model of a run.",
        ("predict runs/mine rows.csv", "predict runs/mine rows.parquet --out predicted.csv --scores"),
        "models.predict",
    ),
    "export": _Command(
        "Write the model of a run as ONNX, or the run for trace viewers, TensorBoard or MLflow.",
        (
            "export runs/mine model.onnx",
            "export runs/mine trace.json.gz",
            "export runs/mine logs/mine --to tensorboard",
            "export runs/mine tracking --to mlflow",
        ),
        "models.export",
    ),
    "owners": _Command(
        "Compare each owner alone, federated and pooled models on rows that are held out.",
        (
            "owners chem97",
            "owners chem97 --owner lea --set scheme=conventional",
            "owners own-data --set data.source=rows.csv --set data.target=price --owner clinic",
        ),
        "models.owners",
    ),
    "report": _Command(
        "Write runs, or a study, as one HTML page that works without a network.",
        ("report runs/mine", "report runs/a runs/b runs/c --out report.html", "report out/compare-paper-quick"),
        "results.report",
    ),
    "explore": _Command(
        "Ask what-if questions of a fleet on a local page: sliders, and a ranking of schemes.",
        ("explore", "explore -s mine.toml --samples 60000 --outputs 10", "explore runs/mine"),
        "results.explore",
    ),
    "settings": _Command(
        "Print every key of a scenario with its type, default and meaning.",
        ("settings", "settings training", "settings schemes.sealed.delta --json"),
    ),
    "data": _Command("Data sets, their source and checksum.", ("data list", "data fetch mnist")),
    "deploy": _Command(
        "The same scenario on real processes or hosts (NVIDIA FLARE).",
        ("deploy local paper-quick --devices 3", "deploy kit kits -s paper-quick --host server.example.org"),
        "deploy.commands",
    ),
    "site": _Command(
        "For the owner of a site: agree to the terms of a run, see what was released with noise, and check records.",
        (
            "site terms mine.toml",
            "site agree kits/anna mine.toml --least 3",
            "site verify records/RUN/site-record.json",
        ),
        "site.commands",
    ),
}


@cache
def _load(name: str) -> Any:
    """Import the function ``NAME_command`` or the group ``NAME_app``."""
    command = COMMANDS[name]
    module = importlib.import_module(f"codedfl.cli.{command.module or name}")
    found = getattr(module, f"{name}_app", None) or getattr(module, f"{name}_command")
    epilog = "\b\nExamples:\n" + "\n".join(f"  codedfl {example}" for example in command.examples)
    if isinstance(found, typer.Typer):
        found.info.epilog, found.info.cls = epilog, _WholeLines
        loaded = typer.main.get_command(found)
    else:
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        single.command(name, epilog=epilog)(found)
        loaded = typer.main.get_command(single)
    loaded.name = name
    return loaded


class _WholeLines(typer.core.TyperGroup):
    """A group that lists its commands with the whole first paragraph of their help."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write a paragraph for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (each.help or "").partition("\n\n")[0]) for name, each in self.commands.items()])


class _Group(typer.core.TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Import a command on first use."""
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write one whole line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        """Complete the names of commands without importing them, and options."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found: list[Any] = [typer.core.CompletionItem(name, help=COMMANDS[name].summary) for name in names]  # type: ignore[attr-defined]
        return found + (super().shell_complete(ctx, incomplete) if incomplete.startswith("-") else [])


app = typer.Typer(
    name="codedfl",
    cls=_Group,
    help="Train one linear model over many unequal devices, quickly and privately.",
    epilog="\b\nExamples:\n  codedfl run paper-quick\n  codedfl compare\n  codedfl plan --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from codedfl import __version__

        typer.echo(f"codedfl {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Train one linear model over many unequal devices, quickly and privately."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    words = [word for word in given if word != "--debug"]
    if words in ([], ["data"], ["deploy"], ["fleet"], ["site"]):  # a group without a command explains itself
        words.append("--help")
    sys.exit(_run(words, debug))


def _run(given: list[str], debug: bool) -> int:
    try:
        code = app(given, prog_name="codedfl", standalone_mode=False)
        if code == _INTERRUPTED:
            _complain("interrupted; the same command goes on from here")
        return code if isinstance(code, int) else 0
    except (CodedflError, MemoryError) as error:
        if debug:
            raise
        memory = "not enough memory; choose fewer features, draws or devices"
        _complain(memory if isinstance(error, MemoryError) else str(error))
        return 2 if isinstance(error, UsageError) else 1
    except ModuleNotFoundError as error:
        if debug or error.name not in HEAVY:
            raise
        _complain(str(missing_study(error.name)))
        return 1
    except typer.TyperException as error:
        _complain(" ".join(error.format_message().split()))
        return error.exit_code


def _complain(sentence: str) -> None:
    typer.echo(f"codedfl: {sentence}", err=True)
