"""The command line: ``codedfl COMMAND --help`` explains each command.

Exit codes: 0 done, 1 failed with one clear sentence, 2 wrong usage, 130 interrupted. ``--debug`` shows the traceback.
"""

import sys
from collections.abc import Sequence

import typer

from codedfl.cli.codes import fer_command
from codedfl.cli.compare import compare_command, sweep_command
from codedfl.cli.data import data_app
from codedfl.cli.deploy.commands import deploy_app
from codedfl.cli.plan import plan_command
from codedfl.cli.reproduce import reproduce_command
from codedfl.cli.run import run_command
from codedfl.cli.security import attack_command, security_command
from codedfl.errors import CodedflError, UsageError

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    name="codedfl",
    help="Train one linear model over many unequal devices, quickly and privately.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("reproduce")(reproduce_command)
app.command("run")(run_command)
app.command("compare")(compare_command)
app.command("plan")(plan_command)
app.command("sweep")(sweep_command)
app.command("security")(security_command)
app.command("attack")(attack_command)
app.command("fer")(fer_command)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


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
    if words in ([], ["data"], ["deploy"]):  # a group without a command explains itself
        words.append("--help")
    sys.exit(_run(words, debug))


def _run(given: list[str], debug: bool) -> int:
    try:
        code = app(given, prog_name="codedfl", standalone_mode=False)
        if code == _INTERRUPTED:
            _complain("interrupted; the same command goes on from here")
        return code if isinstance(code, int) else 0
    except CodedflError as error:
        if debug:
            raise
        _complain(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except typer.TyperException as error:
        _complain(" ".join(error.format_message().split()))
        return error.exit_code
    except MemoryError:
        if debug:
            raise
        _complain("not enough memory; choose fewer features, draws or devices")
        return 1


def _complain(sentence: str) -> None:
    typer.echo(f"codedfl: {sentence}", err=True)
