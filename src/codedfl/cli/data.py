"""``codedfl data``: which data sets there are, and how to get them."""

from typing import Annotated

import typer
from rich.table import Table

from codedfl import data
from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.settings import did_you_mean

data_app = typer.Typer(help="Data sets, their source and checksum.", no_args_is_help=True, rich_markup_mode=None)


@data_app.command("list")
def list_command(json: common.Json = False) -> None:
    """List the data sets, where they come from, and the checksums of their files."""
    rows = []
    for source in (*data.SOURCES.values(), *(table.source for table in data.TABLES.values())):
        cached = all((source.folder / file.name).exists() for file in source.files)
        checksums = {file.name: file.sha256 for file in source.files}
        names = {"name": source.name, "title": source.title, "sources": list(source.places)}
        rows.append({**names, "cached": cached, "files": checksums})
        if not json:
            table = Table(title=f"{source.name}: {source.title}", title_justify="left", show_header=False)
            table.add_row("from", "\n".join(source.places))
            for name, checksum in checksums.items():
                table.add_row(name, f"SHA-256 {checksum}")
            common.console.print(table)
    if json:
        common.print_json(rows)


@data_app.command("fetch")
def fetch_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Data sets; all if none.")] = None,
    json: common.Json = False,
) -> None:
    """Bring data sets into the cache and verify them."""
    known = [*data.SOURCES, *data.TABLES]
    wanted = names or known
    for name in wanted:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(f"no data set is called '{name}'; data sets are {', '.join(known)}{near}")
    places = {}
    with common.bars() as progress:
        for name in wanted:
            places[name] = str(data.fetch(name, progress))
    if json:
        common.print_json(places)
    else:
        for name, place in places.items():
            common.console.print(f"{name}: verified, in {place}", soft_wrap=True)
