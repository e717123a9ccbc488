"""Plain settings: frozen dataclasses that check themselves and read themselves from nested tables.

A settings class lists its fields with :func:`setting`; the limits stand beside the default. Wrong values are
refused when the object is made, unknown keys when a table is read, each with one sentence that names the key, the
value and what is allowed.
"""

import dataclasses
import difflib
import sys
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from codedfl.errors import ScenarioError

_Section = TypeVar("_Section", bound="Settings")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def setting(
    *,
    default: Any = MISSING,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    help: str = "",  # noqa: A002 - what command lines call it
) -> Any:
    """Declare a field: default, limits (``low``/``high`` included, ``above``/``below`` not) and meaning."""
    facts = {"low": low, "above": above, "high": high, "below": below, "choices": choices, "help": help}
    return dataclasses.field(default=default, metadata={k: v for k, v in facts.items() if v is not None})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, dataclasses.field))
class Settings:
    """Base of every settings class; subclasses become frozen keyword-only dataclasses."""

    table: ClassVar[str] = ""

    def __init_subclass__(cls, table: str = "") -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.__init__.__annotations__.clear()  # values are judged here, in words, not by a checker of annotations
        cls.table = table

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            key = f"{self.table}.{field.name}" if self.table else field.name
            value = _converted(getattr(self, field.name), hints[field.name], key, field.metadata)
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Refuse values that are wrong only together; subclasses say which."""

    @classmethod
    def from_table(cls, values: Mapping[str, Any]) -> Self:
        """Read the settings from a nested table, refusing keys that do not exist."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        check_keys(values, [field.name for field in fields], cls.table)
        for field in fields:
            optional = field.default is not MISSING or field.default_factory is not MISSING
            if field.name not in values and not optional:
                where = f"[{cls.table}]" if cls.table else "the scenario"
                raise ScenarioError(f"{where} lacks the key '{field.name}'; add it")
        return cls(**values)

    def to_table(self) -> dict[str, Any]:
        """Write the settings as a nested table of plain values; what is unset (None) is left out."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: _plain(value) for name, value in pairs if value is not None}


_known_hints: dict[int, tuple[type, dict[str, Any]]] = {}


def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a class's settings; each is looked up once, because that takes long."""
    if id(kind) not in _known_hints:
        _known_hints[id(kind)] = kind, typing.get_type_hints(kind)
    return _known_hints[id(kind)][1]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the known word nearest to a wrong one, for the end of an error sentence; nothing if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def check_keys(values: Mapping[str, Any], allowed: Collection[str], table: str) -> None:
    """Refuse the first key of ``values`` that is not allowed, and suggest the nearest one that is."""
    for key, value in values.items():
        if key not in allowed:
            name = f"{table}.{key}" if table else key
            listed = (", ".join(allowed) or "no keys at all") + did_you_mean(key, allowed)
            raise ScenarioError(f"unknown key '{name}' (value {_shown(value)}); allowed: {listed}")


@dataclasses.dataclass(frozen=True)
class SettingDescription:
    """One key: its type and limits in words, its default and its meaning."""

    key: str
    type: str
    default: Any
    required: bool
    meaning: str


def describe(settings: type[Settings], prefix: str = "") -> Iterator[SettingDescription]:
    """Describe each key of a settings class and of its sections, in order; ``prefix`` stands before every key."""
    hints = _hints(settings)
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        hint, key = hints[field.name], prefix + field.name
        section = next((a for a in (hint, *typing.get_args(hint)) if _is_section(a)), None)
        if not _is_section(hint) and field.metadata:
            required = field.default is MISSING
            default = None if required else _plain(field.default)
            meaning = field.metadata["help"]
            yield SettingDescription(key, _type_in_words(hint, field.metadata), default, required, meaning)
        if section is not None:
            yield from describe(section, f"{key}.")


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Settings)


def _type_in_words(hint: Any, limits: Mapping[str, Any]) -> str:
    arguments = [a for a in typing.get_args(hint) if a not in (types.NoneType, ...)]
    if _is_section(hint):
        return "a table"
    if typing.get_origin(hint) is tuple:
        return f"a list, each {_type_in_words(arguments[0], limits)}"
    if arguments:
        return ", or ".join(_type_in_words(argument, limits) for argument in arguments)
    return _allowed(_KINDS[hint], limits)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_table()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _converted(value: Any, hint: Any, key: str, limits: Mapping[str, Any]) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        chosen = _alternative(value, arguments)
        if chosen is str and not _within(value, limits):
            raise ScenarioError(f"{key} = {_shown(value)} must be {_type_in_words(hint, limits)}")
        return _converted(value, chosen, key, limits)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ScenarioError(f"{key} = {_shown(value)} must be a list")
        return tuple(_converted(item, arguments[0], key, limits) for item in value)
    if _is_section(hint):
        return read_section(value, hint, key)
    if origin is not None:
        return value
    return _scalar(value, hint, key, limits)


def _alternative(value: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the member of a union that a value belongs to: a list, a text, else the first."""
    first, *others = (argument for argument in arguments if argument is not types.NoneType)
    for other in others:
        if isinstance(value, (list, tuple)) and typing.get_origin(other) is tuple:
            return other
        if isinstance(value, str) and other is str:
            return other
    return first


def read_section(value: Any, kind: type[_Section], key: str) -> _Section:
    """Return settings that are given as such or as a table."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ScenarioError(f"{key} = {_shown(value)} must be a table with the keys of [{kind.table}]")
    return kind.from_table(value)


def _scalar(value: Any, hint: type, key: str, limits: Mapping[str, Any]) -> Any:
    generic: Any = getattr(sys.modules.get("numpy"), "generic", ())
    if isinstance(value, generic):  # a number of numpy, without importing numpy
        value = value.item()
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e3 is a whole number
    fits = isinstance(value, (int, float) if hint is float else hint) and (hint is bool or not isinstance(value, bool))
    if fits and hint is float:
        fits = abs(value) <= sys.float_info.max  # neither infinite nor nan nor an integer beyond floats
        value = float(value) + 0.0 if fits else value  # -0.0 is 0.0, also for the id of a scenario
    if not fits or not _within(value, limits):
        raise ScenarioError(f"{key} = {_shown(value)} must be {_allowed(_KINDS[hint], limits)}")
    return value


def _within(value: Any, limits: Mapping[str, Any]) -> bool:
    if isinstance(value, str):
        return "choices" not in limits or value in limits["choices"]
    return not (
        ("low" in limits and value < limits["low"])
        or ("above" in limits and value <= limits["above"])
        or ("high" in limits and value > limits["high"])
        or ("below" in limits and value >= limits["below"])
    )


def _allowed(kind: str, limits: Mapping[str, Any]) -> str:
    if "choices" in limits and kind == _KINDS[str]:
        return "one of " + ", ".join(limits["choices"])
    words = {"low": "at least", "above": "above", "high": "at most", "below": "below"}
    parts = [f"{words[name]} {limits[name]}" for name in words if name in limits]
    return f"{kind} {' and '.join(parts)}".strip()
