"""``codedfl settings``: every key of a scenario, from the settings classes themselves."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from textwrap import fill
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.errors import UsageError
from codedfl.report.pages import table_markdown
from codedfl.scenario import Scenario
from codedfl.scenario.scenario import known_options
from codedfl.settings import SettingDescription, describe, did_you_mean

_HEAD = """# Settings

Every key of a scenario, its default, what is allowed and what it means. The same on the command line:
`codedfl settings`, `codedfl settings training`, `codedfl settings schemes.sealed.delta --json`.

Keys are set in a TOML file (`[training]`, then `epochs = 500`), with `--set training.epochs=500` in every command, or
with `scenario.with_settings({"training.epochs": 500})` in Python. A group of devices is one `[[fleet.devices]]` table;
`--set fleet.devices.0.count=3` changes the first. This page is written by `make docs`; the presets are in
[choices.md](choices.md), a file of your own in [data.md](data.md).
"""


def settings_command(
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="A key, or the beginning of several.")] = None,
    plugins: common.Plugin = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/settings.md.")] = False,
    json: common.Json = False,
) -> None:
    """Print every key of a scenario with its type, default and meaning."""
    found = _selected(key)
    if json:
        common.print_json([asdict(setting) for setting in found])
    elif markdown:
        typer.echo(settings_page(found), nl=False)
    else:
        for setting in found:
            typer.echo(f"{setting.key} = {_default(setting)}")
            for text in (setting.type, setting.meaning):
                typer.echo(fill(text, common.console.width, initial_indent="  ", subsequent_indent="  "))


def every_setting() -> list[SettingDescription]:
    """Describe all keys: those of the scenario, then the options of each scheme."""
    found = list(describe(Scenario))
    for name, options in known_options().items():
        found += describe(options, f"schemes.{name}.")
    return found


def _selected(key: str | None) -> list[SettingDescription]:
    known = every_setting()
    if key is None:
        return known
    wanted = ".".join(part for part in key.split(".") if not part.isdecimal())  # fleet.devices.0.count
    found = [setting for setting in known if f"{setting.key}.".startswith(f"{wanted}.")]
    if not found:
        sections = {setting.key.rpartition(".")[0] for setting in known} - {""}
        near = did_you_mean(wanted, [*(setting.key for setting in known), *sections])
        raise UsageError(f"no setting is called '{key}'; `codedfl settings` lists all{near}")
    return found


def settings_page(found: Iterable[SettingDescription]) -> str:
    """Return the settings as a page of tables, one for each section."""
    page = _HEAD
    for section, members in groupby(found, lambda setting: setting.key.rpartition(".")[0]):
        rows = [[f"`{each.key}`", f"`{_default(each)}`", each.type, each.meaning] for each in members]
        page += f"\n## {section or 'scenario'}\n\n" + table_markdown(["key", "default", "allowed", "meaning"], rows)
    return page


def _default(setting: SettingDescription) -> str:
    if setting.required:
        return "(required)"
    value = setting.default
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value).replace("'", '"') if value != "" else '""'
