"""What is to be run: plain frozen data, TOML in and out, and an id that names the experiment.

A scenario is a tree of tables. The top level names the scheme; ``[schemes.NAME]`` holds the options of each scheme,
so that one file can serve a comparison. Schemes declare their options themselves (:func:`use_options`).
"""

import copy
import dataclasses
import hashlib
import importlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from codedfl.errors import DataError, ScenarioError, UsageError
from codedfl.scenario.privacy import Privacy
from codedfl.scenario.sections import (
    AUTO,
    PATH_SOLVER_NAMES,
    RIDGE_PATH,
    Data,
    Features,
    Fleet,
    Links,
    Partition,
    Task,
    Timing,
    Training,
)
from codedfl.settings import Settings, check_keys, did_you_mean, read_section, setting

_FORMAT = "codedfl-scenario-2"
_MOST_DEVICES = 100_000


class SchemeOptions(Settings):
    """Base of the options of a scheme; a scheme without options uses it as it is."""

    solver: ClassVar[str] = "gradient-descent"
    """What ``training.solver = "auto"`` stands for: the solver that the scheme is made for."""

    @property
    def file_solver(self) -> str:
        """The same for the user's own files; gradient-descent if gradients are not those of all data."""
        return "conjugate-gradients"

    @property
    def others(self) -> tuple[str, ...]:
        """Other schemes whose options count as well, because this one uses them."""
        return ()

    def check_fleet(self, devices: int) -> None:
        """Refuse options that do not fit the number of devices; subclasses say which."""


class InexactOptions(SchemeOptions):
    """Base of the options of a scheme whose gradients are not those of all data."""

    @property
    def file_solver(self) -> str:
        """Gradient descent, the only solver that needs no exact gradients."""
        return "gradient-descent"


_OPTIONS: Mapping[str, type[SchemeOptions]] = {}


def use_options(options: Mapping[str, type[SchemeOptions]]) -> None:
    """Read ``[schemes.NAME]`` by these classes, which the registry of schemes imports on first use."""
    global _OPTIONS
    _OPTIONS = options


def known_options() -> Mapping[str, type[SchemeOptions]]:
    """Return the options of every registered scheme, by its name."""
    importlib.import_module("codedfl.schemes")  # schemes register themselves; imported here, they may import this room
    return _OPTIONS


class Scenario(Settings):
    """Everything that defines an experiment.

    Examples
    --------
    >>> import codedfl
    >>> scenario = codedfl.load("paper-quick")
    >>> scenario.scheme, scenario.fleet.size
    ('minibatch', 25)
    >>> scenario.with_settings({"scheme": "conventional", "links.loss": 0.2}).links.loss
    0.2
    """

    name: str = setting(default="unnamed", help="Name of the scenario, for people; part of the default run directory.")
    scheme: str = setting(default="minibatch", help="The scheme to train with.")
    data: Data = setting(default=Data())
    partition: Partition = setting(default=Partition())
    features: Features = setting(default=Features())
    task: Task = setting(default=Task())
    training: Training = setting(default=Training())
    privacy: Privacy = setting(default=Privacy())
    fleet: Fleet = setting()
    links: Links = setting(default=Links())
    timing: Timing = setting(default=Timing())
    schemes: Mapping[str, SchemeOptions] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def check(self) -> None:
        """Read the options of each scheme, and refuse what does not fit the fleet."""
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.name):
            raise ScenarioError(f"name = '{self.name}' must be made of letters, digits, '-', '_' and '.'")
        known = list(known_options())
        if self.scheme not in known:
            near = did_you_mean(self.scheme, known)
            raise ScenarioError(f"scheme = '{self.scheme}' must be one of {', '.join(known)}{near}")
        if not isinstance(self.schemes, Mapping):
            raise ScenarioError(f"schemes = {self.schemes!r} must hold one table for each scheme")
        check_keys(self.schemes, known, "schemes")
        read = {name: read_section(value, _OPTIONS[name], f"schemes.{name}") for name, value in self.schemes.items()}
        object.__setattr__(self, "schemes", MappingProxyType(read))
        if self.training.solver == AUTO:
            chosen = dataclasses.replace(self.training, solver=self._auto_solver)
            object.__setattr__(self, "training", chosen)
        self._check_path()
        sizes = self.partition.sizes
        if self.partition.kind == "sizes" and len(sizes) != self.fleet.size:
            devices = f"the fleet has {self.fleet.size} devices"
            raise ScenarioError(f"partition.sizes holds {len(sizes)} numbers but {devices}; give one each")

    def _check_path(self) -> None:
        """Refuse several weights where they cannot be solved for at once."""
        several, solver = len(self.ridges) > 1, self.training.solver
        if several and solver not in PATH_SOLVER_NAMES:
            raise ScenarioError(
                f"task.ridge holds {len(self.ridges)} weights, but training.solver = '{solver}' solves for one; "
                f"choose {' or '.join(PATH_SOLVER_NAMES)}, or give one weight"
            )
        if several and self.training.start is not None:
            raise ScenarioError(
                f"task.ridge holds {len(self.ridges)} weights, but training.start = '{self.training.start}' gives each "
                "another first gradient; give one weight or no first model"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # the read-only mapping of options can be neither pickled nor copied
        return type(self).from_table, (self.to_table(),)

    @property
    def _auto_solver(self) -> str:
        return self.options().solver if self.data.named else self.options().file_solver

    @property
    def precision(self) -> str:
        """The format of data, model and replies."""
        given = self.task.precision
        return given if given != AUTO else "float32" if self.data.named and not self.private else "float64"

    @property
    def private(self) -> bool:
        """Whether devices add noise."""
        return self.privacy.epsilon is not None

    @property
    def ridges(self) -> tuple[float, ...]:
        """The weights lambda to choose from; a single one if it is given."""
        given = self.task.ridge
        return given if isinstance(given, tuple) else RIDGE_PATH if isinstance(given, str) else (given,)

    @property
    def ridge(self) -> float:
        """The weight lambda, the smallest of those to choose from."""
        return self.ridges[0]

    @property
    def accuracy(self) -> float:
        """The largest error that number formats may cause in a gradient, relative to its natural size."""
        given = self.task.accuracy
        return given if given is not None else 0.05 if self.data.named else 1e-6

    @property
    def bound_share(self) -> float:
        """The largest error that the bound of one device may cause, relative to the size of typical data."""
        given = self.task.bound_share
        return given if given is not None else self.accuracy

    @property
    def tolerance(self) -> float:
        """The gradient norm at which training stops, relative to that of the first model; 0: never."""
        given = self.training.tolerance
        wanted = not self.data.named and self.training.solver == "conjugate-gradients"
        return given if given is not None else 1e-10 if wanted else 0.0

    @property
    def scaled(self) -> bool:
        """Whether columns are standardised over all devices."""
        given = self.features.scale
        return given == "standard" or (given == AUTO and not self.data.named)

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept."""
        given = self.features.intercept
        return given if given is not None else not self.data.named and not (self.ranged and self.features.kind == "rbf")

    @property
    def ranged(self) -> bool:
        """Whether columns are prepared by their declared ranges (``privacy.columns``), without sums over devices."""
        as_they_are = self.features.scale == "none" and self.features.intercept is False
        return self.private and not self.data.named and not as_they_are

    @property
    def prepared(self) -> bool:
        """Whether devices sum columns before the training."""
        return not self.ranged and (self.scaled or self.intercept or self.features.missing == "mean")

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
        import tomli_w

        return tomli_w.dumps(self.to_table())

    @classmethod
    def from_toml(cls, text: str, origin: str = "scenario") -> Self:
        """Read a scenario from TOML text; ``origin`` names it in errors."""
        return cls.from_table(parsed(text, origin))

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with dotted keys set, e.g. ``{"links.loss": 0.2, "scheme": "conventional"}``.

        A solver that is only the default changes with the scheme and the data.
        """
        table = self.to_table()
        if {"scheme", "data.source"} & changes.keys() and self.training.solver == self._auto_solver:
            table["training"]["solver"] = AUTO
        for key, value in changes.items():
            _set(table, key, copy.deepcopy(value))
        return type(self).from_table(table)

    def with_devices(self, devices: int) -> Self:
        """Return a copy with so many devices, spread evenly over the fleet: groups keep their order and proportions.

        Of N devices wanted, number i is like device floor(i n / N) of the n that there are.
        """
        everyone = [group for group in self.fleet.to_table()["devices"] for _ in range(group["count"])]
        if not 1 <= devices <= _MOST_DEVICES:
            raise UsageError(f"--devices {devices} must be from 1 to {_MOST_DEVICES}; choose a number of devices")
        if devices == len(everyone):
            return self
        chosen = [everyone[number * len(everyone) // devices] for number in range(devices)]
        groups = [group | {"count": len(list(alike))} for group, alike in itertools.groupby(chosen)]
        return self.with_settings({"fleet.devices": groups})

    def id(self) -> str:
        """Return the hash of everything that defines the experiment.

        Neither the name nor the options of schemes that are not used are part of it; a data or model file counts by
        its contents, not by its path.
        """
        table = self.to_table()
        del table["name"]
        if not self.private:
            del table["privacy"]
        if self.task.loss == "squared":
            del table["task"]["loss"]  # an id does not change with settings that are added
        counted = (self.scheme, *self.options().others)
        table["schemes"] = {name: self.options(name).to_table() for name in counted if name in _OPTIONS}
        if not self.data.named:
            by_content = not (self.data.elsewhere or self.data.tabular or self.partition.kind == "files")
            for key in ("source", "test_source") if by_content else ("test_source",):
                table["data"][key] = _digest(table["data"][key])
            if self.partition.kind == "files" and not self.data.elsewhere:
                pattern = Path(self.data.source)
                files = sorted(pattern.parent.glob(pattern.name))
                table["data"]["source"] = [(path.name, _digest(str(path))) for path in files]
        if self.training.start is not None:
            table["training"]["start"] = _digest(self.training.start, "model file", "training.start")
        text = json.dumps([_FORMAT, table], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


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


def _digest(path: str, what: str = "data file", key: str = "[data]") -> str:
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        advice = f"check the path in {key}"
        if set(path) & set("*?[") and what == "data file":
            advice = "set partition.kind = 'files' for a pattern, where each file is an owner's"
        raise DataError(f"cannot read the {what} '{path}' ({error.strerror}); {advice}") from None


def parsed(text: str, origin: str) -> dict[str, Any]:
    """Parse TOML text; ``origin`` names it in errors."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{origin} is not valid TOML: {error}") from None
