"""Scenarios by name or from files: the presets of the package, and files that extend one another."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from codedfl.errors import ScenarioError
from codedfl.scenario.scenario import Scenario, parsed
from codedfl.settings import did_you_mean


def preset_names() -> list[str]:
    """Return the names of the scenarios that ship with the package."""
    return sorted(preset_files())


@cache
def preset_files() -> Mapping[str, Traversable]:
    """Return the files of the presets by name."""
    presets = resources.files("codedfl.scenario") / "presets"
    entries = (*presets.iterdir(), *(presets / "tables").iterdir())
    return {entry.name.removesuffix(".toml"): entry for entry in entries if entry.name.endswith(".toml")}


def load(name_or_path: str | PathLike[str]) -> Scenario:
    """Read a scenario.

    Parameters
    ----------
    name_or_path : str or path
        The name of a preset, or the path of a TOML file. A file may begin with ``extends = "NAME OR PATH"`` and then
        say only what differs; paths inside it are relative to it.

    Returns
    -------
    Scenario
        What is to be run; ``scenario.with_settings({"links.loss": 0.2})`` returns a changed copy.

    Raises
    ------
    ScenarioError
        The preset does not exist, the file cannot be read, or a key or value is wrong.

    Examples
    --------
    >>> import codedfl
    >>> codedfl.load("paper-quick").training.epochs
    400
    """
    name = fspath(name_or_path)
    known = name in preset_names() or Path(name).suffix != ".toml"
    return Scenario.from_table(_table(name if known else str(Path(name).resolve()), ()))


def _table(name_or_path: str, above: tuple[str, ...]) -> dict[str, Any]:
    if name_or_path in above:
        raise ScenarioError(f"'{name_or_path}' extends itself ({' -> '.join((*above, name_or_path))}); end the circle")
    if name_or_path in preset_files():
        table, folder = deepcopy(_preset(name_or_path)), None
    else:
        table = parsed(_text(name_or_path), f"'{name_or_path}'")
        folder = Path(name_or_path).parent
        _resolve_paths(table, folder)
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise ScenarioError(f"extends = {base!r} must be the name of a preset or the path of a TOML file")
    if folder is not None and base not in preset_names():
        base = str((folder / base).resolve())
    return _merged(_table(base, (*above, name_or_path)), table)


@cache
def _preset(name: str) -> dict[str, Any]:
    return parsed(preset_files()[name].read_text(encoding="utf-8"), f"preset '{name}'")


def _text(path: str) -> str:
    if Path(path).suffix != ".toml":
        raise ScenarioError(
            f"no preset is called '{path}'; presets are {', '.join(preset_names())}, or give a .toml file"
            f"{did_you_mean(path, preset_names())}"
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ScenarioError(f"cannot read the scenario '{path}' ({reason}); check the path") from None


def _resolve_paths(table: dict[str, Any], folder: Path) -> None:
    for section, keys in (("data", ("source", "test_source")), ("training", ("start",))):
        found = table[section] if isinstance(table.get(section), dict) else {}
        for key, value in found.items():
            if key in keys and isinstance(value, str) and Path(value).suffix:
                found[key] = str((folder / value).resolve())


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
