"""A site's own configuration: ``site.toml`` beside its start-up kit, which no job can change.

``host`` names the function that creates this device's host (``codedfl.deploy.protocol.carrier``); ``patience`` is how
many seconds a parcel to another site may make no progress. All other keys are for the host.

Plug-ins are named by the command that starts the site, and handed to the processes of its jobs in the environment: no
job and no server can name a file to be run.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.deploy.flare.names import resolve
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.errors import EngineError
from codedfl.schemes import load_plugins, plugin_files

FILE = "site.toml"

PLUGINS = "CODEDFL_PLUGINS"
"""In the environment of a site's processes: the plug-ins of the command that started them, a JSON list of paths."""


def plugin_environment() -> dict[str, str]:
    """Return the environment that hands this process's plug-ins to those it starts."""
    return {PLUGINS: json.dumps([str(path) for path in plugin_files()])}


def load_own_plugins() -> None:
    """Load the plug-ins of the command that started this site."""
    load_plugins(map(Path, json.loads(os.environ.get(PLUGINS, "[]"))))


def read_site(folder: Path) -> dict[str, Any]:
    """Read the configuration in a site's folder, and add ``folder`` to it."""
    path = folder / FILE
    try:
        site = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"cannot read '{path}' ({error.strerror}); every site needs its own {FILE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EngineError(f"'{path}' is not valid TOML ({error}); correct it") from None
    return site | {"folder": str(folder)}


def edit_site(folder: Path, table: str, values: Mapping[str, Any]) -> None:
    """Enter values in a table of ``site.toml`` (``""``: above all tables), and leave every other line as it is."""
    path, before = folder / FILE, read_site(folder)
    del before["folder"]
    lines = path.read_text(encoding="utf-8").splitlines()
    heads = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    if table and f"[{table}]" not in [lines[number].strip() for number in heads]:
        lines += ["", f"[{table}]"]
        heads.append(len(lines) - 1)
    first = 0 if not table else [line.strip() for line in lines].index(f"[{table}]") + 1
    last = next((number for number in heads if number >= first), len(lines))
    section = _without(lines[first:last], values)
    while section and not section[-1].strip():
        section.pop()
    entered = [f"{name} = {json.dumps(value)}" for name, value in values.items()]  # such values are the same in TOML
    text = "\n".join([*lines[:first], *section, *entered, *([""] if last < len(lines) else []), *lines[last:]]) + "\n"
    wanted = before | dict(values) if not table else before | {table: {**before.get(table, {}), **values}}
    try:
        same = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise EngineError(f"cannot enter {', '.join(values)} in '{path}' without changing other lines; do it by hand")
    path.write_text(text, encoding="utf-8")  # keeps the file's mode


def _without(lines: list[str], names: Mapping[str, Any]) -> list[str]:
    """Return lines of a table without those of some keys, whose lists may go over several lines."""
    kept, depth = [], 0
    for line in lines:
        if depth or line.partition("=")[0].strip() in names:
            depth += line.count("[") - line.count("]")
        else:
            kept.append(line)
    return kept


def make_host(site: Mapping[str, Any], peers: Peers) -> Host:
    """Create the host that a site's configuration names."""
    reference = site.get("host")
    if not isinstance(reference, str):
        raise EngineError(f"{FILE} of '{site['folder']}' names no host; add host = \"codedfl.module:function\"")
    host = resolve(reference)(site, peers)
    if not isinstance(host, Host):
        raise EngineError(f"'{reference}' returns no host; name a function that does")
    return host
