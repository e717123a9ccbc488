"""``codedfl fleet fit``: a fleet from finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.runs import directory
from codedfl.storage import write_text
from codedfl.studies.fleet_fit import FIRST_LINE, fit_fleet

fleet_app = typer.Typer(
    help="Fleets of devices: estimate one from finished runs.", no_args_is_help=True, rich_markup_mode=None
)


@fleet_app.callback()
def _fleet() -> None:
    """Fleets of devices: estimate one from finished runs."""


@fleet_app.command("fit")
def fit_command(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Run directories of one fleet.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the TOML goes; else it is printed.")
    ] = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Estimate rates, delays and losses of devices from runs, as the fleet and links of a scenario.

    A scenario takes them by extends = "FILE". What the runs cannot tell stays as their scenario declares it, and is
    named.
    """
    if not paths:
        raise UsageError("no run is named; give run directories, for example: codedfl fleet fit runs/mine")
    if out is not None:
        _check(out)
    fitted = fit_fleet([directory.load(path) for path in paths])
    if out is not None:
        try:
            write_text(out, fitted.to_toml())
        except OSError as error:
            raise UsageError(f"--out '{out}' cannot be written ({error.strerror}); choose another file") from None
    if json:
        common.print_json(fitted.to_table() | {"file": None if out is None else str(out)})
    elif out is None:
        typer.echo(fitted.to_toml(), nl=False)
    else:
        for remark in fitted.remarks:
            common.console.print(remark, soft_wrap=True)
        common.console.print(f'fleet: {out}; a scenario takes it by extends = "{out.name}"', soft_wrap=True)


def _check(out: Path) -> None:
    """Refuse a place that holds anything but an earlier fit."""
    try:
        if out.suffix != ".toml":
            raise UsageError(f"--out '{out}' must end in .toml, as files of scenarios do")
        if out.is_dir():
            raise UsageError(f"--out '{out}' is a folder; name a file, for example --out {out / 'fleet.toml'}")
        if not out.absolute().parent.is_dir():
            raise UsageError(f"--out '{out}' is in a folder that does not exist; make it first")
        if out.exists() and not out.read_bytes().startswith(FIRST_LINE.encode()):
            raise UsageError(f"--out '{out}' exists and was not written by this command; choose another file")
    except OSError as error:
        raise UsageError(f"--out '{out}' cannot be written ({error.strerror}); choose another file") from None
