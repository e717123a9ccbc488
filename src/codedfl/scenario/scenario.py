"""What is to be run: plain frozen data, TOML in and out, and an id that names the experiment.

A scenario is a tree of tables. The top level names the scheme; ``[schemes.NAME]`` holds the options of each scheme,
so that one file can serve a comparison. Options are declared by the schemes themselves
(:func:`register_options`), which keeps this module free of any scheme.
"""

import copy
import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import tomli_w

from codedfl.data import SOURCES
from codedfl.errors import DataError, ScenarioError
from codedfl.settings import Settings, check_keys, setting
from codedfl.solvers import SOLVERS

__all__ = [
    "Data",
    "DeviceGroup",
    "Features",
    "Fleet",
    "Links",
    "Partition",
    "Scenario",
    "SchemeOptions",
    "Task",
    "Timing",
    "Training",
    "load",
    "preset_names",
    "register_options",
]

_FORMAT = "codedfl-scenario-2"


class Data(Settings, table="data"):
    """Where samples come from: a named data set, or a file of the user's own features.

    ``source = "sites"``: every site of a deployment has its own, the server a test file (``test_source``) at most.
    """

    source: str = setting(default="mnist")
    kind: str = setting(default="auto", choices=("auto", "classification", "regression"))
    target: str = setting(default="")
    test_source: str = setting(default="")
    test_fraction: float = setting(default=0.2, above=0, below=1)
    seed: int = setting(default=0, low=0)

    def check(self) -> None:
        """Refuse a source that is neither a known name nor a file."""
        if not self.named and not self.elsewhere and not Path(self.source).suffix:
            raise ScenarioError(
                f"data.source = '{self.source}' must be one of {', '.join(SOURCES)}, "
                "or a file that ends in .npz, .parquet or .csv"
            )

    @property
    def named(self) -> bool:
        """Whether the source is a data set that codedfl knows by name."""
        return self.source in SOURCES

    @property
    def elsewhere(self) -> bool:
        """Whether only the sites of a deployment have the data."""
        return self.source == "sites"


class Partition(Settings, table="partition"):
    """Which device holds which samples."""

    kind: str = setting(default="iid", choices=("iid", "shards", "dirichlet", "sizes"))
    seed: int = setting(default=0, low=0)
    shards_per_device: int = setting(default=2, low=1)
    alpha: float = setting(default=0.5, above=0)
    sizes: tuple[float, ...] = setting(default=(), above=0)


class Features(Settings, table="features"):
    """The map from raw inputs to the features of the linear model, the same on every device."""

    kind: str = setting(default="rbf", choices=("rbf", "none"))
    dimension: int = setting(default=2000, low=1, high=100_000)
    gamma: float = setting(default=0.02, above=0)
    seed: int = setting(default=0, low=0)


class Task(Settings, table="task"):
    """The loss to minimise and the numbers that are computed and sent."""

    ridge: float = setting(default=9e-6, low=0)
    precision: str = setting(default="float32", choices=("float32", "float64"))


class Training(Settings, table="training"):
    """The solver at the server: an epoch is one gradient.

    The learning rate and its decay are those of gradient descent and of Nesterov's method; other solvers have none.
    ``tolerance`` stops a training at a gradient so small, relative to that of the zero model; 0 is never.
    """

    solver: str = setting(default="gradient-descent", choices=tuple(SOLVERS))
    epochs: int = setting(default=1000, low=1, high=1_000_000)
    learning_rate: float = setting(default=6.0, above=0)
    decay: float = setting(default=0.8, above=0, high=1)
    decay_epochs: tuple[int, ...] = setting(default=(200, 350), low=1)
    targets: tuple[float, ...] = setting(default=(0.9, 0.95), below=1)
    stop_at_last_target: bool = setting(default=False)
    tolerance: float = setting(default=0.0, low=0, below=1)
    first_epoch_offline: bool = setting(default=True)

    def check(self) -> None:
        """Refuse milestones or targets that are out of order."""
        for name, values in (("decay_epochs", self.decay_epochs), ("targets", self.targets)):
            if list(values) != sorted(set(values)):
                raise ScenarioError(f"training.{name} = {list(values)} must increase")


class DeviceGroup(Settings, table="fleet.devices"):
    """Devices that are alike: how fast they multiply, and links of their own where they differ.

    After ``last_epoch``, if there is one, they are gone for good.
    """

    count: int = setting(default=1, low=1)
    mac_rate: float = setting(low=1)
    setup_ratio: float = setting(default=0.5, low=0)
    setup_seconds: float = setting(default=0.0, low=0)
    down_rate: float | None = setting(default=None, low=1)
    up_rate: float | None = setting(default=None, low=1)
    d2d_rate: float | None = setting(default=None, low=1)
    loss: float | None = setting(default=None, low=0, below=1)
    last_epoch: int | None = setting(default=None, low=1)


class Fleet(Settings, table="fleet"):
    """The devices, group by group, and the server."""

    devices: tuple[DeviceGroup, ...] = setting()
    server_mac_rate: float = setting(default=8.24e12, low=1)

    def check(self) -> None:
        """Refuse a fleet without devices."""
        if not self.devices:
            raise ScenarioError("fleet.devices = [] must hold at least one group of devices")

    @property
    def size(self) -> int:
        """Number of devices N."""
        return sum(group.count for group in self.devices)

    @property
    def last_epochs(self) -> dict[int, int]:
        """After which epoch a device is gone for good; those that stay are not in it."""
        groups = [group for group in self.devices for _ in range(group.count)]
        return {number: group.last_epoch for number, group in enumerate(groups) if group.last_epoch is not None}


class Links(Settings, table="links"):
    """Bit rates, packet overhead, and the probability that a transmission fails and is sent again."""

    down_rate: float = setting(default=10e6, low=1)
    up_rate: float = setting(default=5e6, low=1)
    d2d_rate: float = setting(default=5e6, low=1)
    overhead: float = setting(default=0.1, low=0)
    loss: float = setting(default=0.1, low=0, below=1)


class Timing(Settings, table="timing"):
    """Random delays: their seed, how many draws make a band, and which draw the run itself lives in.

    ``repeats`` is the number of trainings that make the band of a scheme whose model depends on the delays.
    """

    seed: int = setting(default=0, low=0)
    draws: int = setting(default=1000, low=2, high=100_000)
    draw: int = setting(default=0, low=0)
    repeats: int = setting(default=5, low=1)


class SchemeOptions(Settings):
    """Base of the options of a scheme; a scheme without options uses it as it is."""

    @property
    def others(self) -> tuple[str, ...]:
        """Other schemes whose options count as well, because this one uses them."""
        return ()

    def check_fleet(self, devices: int) -> None:
        """Refuse options that do not fit the number of devices; subclasses say which."""


_OPTIONS: dict[str, type[SchemeOptions]] = {}


def register_options(scheme: str, options: type[SchemeOptions]) -> None:
    """Make ``[schemes.NAME]`` known; called once for every scheme when it is registered."""
    if options is SchemeOptions or options.table:  # schemes that share a class must not share its name in errors
        options = type(options.__name__, (options,), {})
    options.table = f"schemes.{scheme}"
    _OPTIONS[scheme] = options


class Scenario(Settings):
    """Everything that defines an experiment."""

    name: str = setting(default="unnamed")
    scheme: str = setting(default="minibatch")
    data: Data = setting(default=Data())
    partition: Partition = setting(default=Partition())
    features: Features = setting(default=Features())
    task: Task = setting(default=Task())
    training: Training = setting(default=Training())
    fleet: Fleet = setting()
    links: Links = setting(default=Links())
    timing: Timing = setting(default=Timing())
    schemes: Mapping[str, SchemeOptions] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def check(self) -> None:
        """Read the options of each scheme, and refuse what does not fit the fleet."""
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.name):
            raise ScenarioError(f"name = '{self.name}' must be made of letters, digits, '-', '_' and '.'")
        if self.scheme not in _OPTIONS:
            raise ScenarioError(f"scheme = '{self.scheme}' must be one of {', '.join(_OPTIONS)}")
        if not isinstance(self.schemes, Mapping):
            raise ScenarioError(f"schemes = {self.schemes!r} must hold one table for each scheme")
        check_keys(self.schemes, list(_OPTIONS), "schemes")
        read = {name: _options(name, value) for name, value in self.schemes.items()}
        object.__setattr__(self, "schemes", MappingProxyType(read))
        sizes = self.partition.sizes
        if self.partition.kind == "sizes" and len(sizes) != self.fleet.size:
            raise ScenarioError(
                f"partition.sizes holds {len(sizes)} numbers but the fleet has {self.fleet.size} devices; give one each"
            )

    def options(self, scheme: str | None = None) -> SchemeOptions:
        """Return the options of a scheme: those of the file, else the defaults."""
        name = scheme or self.scheme
        return self.schemes[name] if name in self.schemes else _OPTIONS[name]()

    def to_table(self) -> dict[str, Any]:
        """Write the scenario as nested tables."""
        table = super().to_table()
        table["schemes"] = {name: options.to_table() for name, options in self.schemes.items()}
        return table

    def to_toml(self) -> str:
        """Write the scenario as TOML; reading it back gives an equal scenario."""
        return tomli_w.dumps(self.to_table())

    @classmethod
    def from_toml(cls, text: str, origin: str = "scenario") -> Self:
        """Read a scenario from TOML text; ``origin`` names it in errors."""
        return cls.from_table(_parsed(text, origin))

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with dotted keys set, e.g. ``{"links.loss": 0.2, "scheme": "conventional"}``."""
        table = self.to_table()
        for key, value in changes.items():
            _set(table, key, copy.deepcopy(value))
        return type(self).from_table(table)

    def id(self) -> str:
        """Return the hash of everything that defines the experiment.

        The name and the options of schemes that are not used define nothing; a file of features counts by its
        contents, not by its place.
        """
        table = self.to_table()
        del table["name"]
        counted = (self.scheme, *self.options().others)
        table["schemes"] = {name: self.options(name).to_table() for name in counted if name in _OPTIONS}
        if not self.data.named:
            for key in ("test_source",) if self.data.elsewhere else ("source", "test_source"):
                table["data"][key] = _digest(table["data"][key])
        text = json.dumps([_FORMAT, table], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _options(scheme: str, value: SchemeOptions | Mapping[str, Any]) -> SchemeOptions:
    if isinstance(value, _OPTIONS[scheme]):
        return value
    if not isinstance(value, Mapping):
        raise ScenarioError(f"schemes.{scheme} = {value!r} must be a table")
    return _OPTIONS[scheme].from_table(value)


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    place: Any = table
    *parents, last = key.split(".")
    for depth, part in enumerate(parents):
        if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, dict) and (part in place or parents[:depth] == ["schemes"]):
            place = place.setdefault(part, {})
        else:
            place = None
        if not isinstance(place, (dict, list)):
            raise ScenarioError(f"unknown key '{key}' (value {value!r}); allowed at the top: {', '.join(table)}")
    if isinstance(place, dict):
        place[last] = value
    elif last.isdecimal() and int(last) < len(place):
        place[int(last)] = value
    else:
        raise ScenarioError(f"'{key}' (value {value!r}) must name one of the {len(place)} entries, counted from 0")


def _digest(path: str) -> str:
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read the data file '{path}' ({error.strerror}); check the path in [data]") from None


def _parsed(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{origin} is not valid TOML: {error}") from None


def preset_names() -> list[str]:
    """Return the names of the scenarios that ship with the package."""
    files = (resources.files("codedfl.scenario") / "presets").iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in files if entry.name.endswith(".toml"))


def load(name_or_path: str) -> Scenario:
    """Read a scenario: the name of a preset, or the path of a TOML file.

    A file may begin with ``extends = "NAME OR PATH"`` and then say only what differs. Paths inside a file are relative
    to that file.
    """
    known = name_or_path in preset_names() or Path(name_or_path).suffix != ".toml"
    return Scenario.from_table(_table(name_or_path if known else str(Path(name_or_path).resolve()), ()))


def _table(name_or_path: str, above: tuple[str, ...]) -> dict[str, Any]:
    if name_or_path in above:
        raise ScenarioError(
            f"'{name_or_path}' extends itself ({' -> '.join((*above, name_or_path))}); break the circle"
        )
    if name_or_path in preset_names():
        text = (resources.files("codedfl.scenario") / "presets" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        table = _parsed(text, f"preset '{name_or_path}'")
        folder = None
    else:
        table = _parsed(_text(name_or_path), f"'{name_or_path}'")
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


def _text(path: str) -> str:
    if Path(path).suffix != ".toml":
        raise ScenarioError(
            f"no preset is called '{path}'; presets are {', '.join(preset_names())}, or give a .toml file"
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ScenarioError(f"cannot read the scenario '{path}' ({reason}); check the path") from None


def _resolve_paths(table: dict[str, Any], folder: Path) -> None:
    data = table.get("data")
    if not isinstance(data, dict):
        return
    for key in ("source", "test_source"):
        value = data.get(key)
        if isinstance(value, str) and Path(value).suffix:
            data[key] = str((folder / value).resolve())


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
