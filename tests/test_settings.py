"""Settings check themselves: types, limits at their borders, keys that do not exist."""

import dataclasses
import math
from typing import Any

import pytest

from codedfl.errors import ScenarioError
from codedfl.settings import Settings, check_keys, setting
from tiny import is_one_sentence


class Inner(Settings, table="outer.inner"):
    size: int = setting(low=1)


class Outer(Settings, table="outer"):
    whole: int = setting(default=5, low=1, high=9)
    share: float = setting(default=0.5, above=0, below=1)
    word: str = setting(default="red", choices=("red", "green"))
    flag: bool = setting(default=False)
    many: tuple[float, ...] = setting(default=(), low=0)
    perhaps: float | None = setting(default=None, above=0)
    inner: Inner = setting(default=Inner(size=1))
    rows: tuple[Inner, ...] = setting(default=())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("whole", 1),
        ("whole", 9),
        ("share", math.nextafter(0, 1)),
        ("share", math.nextafter(1, 0)),
        ("word", "green"),
        ("flag", True),
        ("many", (0.0, 7.5)),
        ("perhaps", 2.5),
        ("perhaps", None),
        ("inner", Inner(size=3)),
        ("rows", (Inner(size=3), Inner(size=4))),
    ],
)
def test_values_within_the_limits_are_kept(key: str, value: Any) -> None:
    assert getattr(Outer(**{key: value}), key) == value


@pytest.mark.parametrize(
    ("key", "value", "shown", "allowed"),
    [
        ("whole", 0, "0", "a whole number at least 1 and at most 9"),
        ("whole", 10, "10", "a whole number at least 1 and at most 9"),
        ("whole", 5.5, "5.5", "a whole number"),
        ("whole", math.inf, "inf", "a whole number"),
        ("whole", True, "True", "a whole number"),
        ("whole", "5", "'5'", "a whole number"),
        ("whole", None, "None", "a whole number"),
        ("share", 0, "0.0", "a number above 0 and below 1"),
        ("share", 1.0, "1.0", "a number above 0 and below 1"),
        ("share", math.nan, "nan", "a number above 0 and below 1"),
        ("share", False, "False", "a number"),
        ("word", "blue", "'blue'", "one of red, green"),
        ("word", 3, "3", "one of red, green"),
        ("flag", 1, "1", "true or false"),
        ("flag", "true", "'true'", "true or false"),
        ("many", 3.0, "3.0", "a list"),
        ("many", "123", "'123'", "a list"),
        ("many", [1.0, -1.0], "-1.0", "a number at least 0"),
        ("many", [math.inf], "inf", "a number at least 0"),
        ("perhaps", 0.0, "0.0", "a number above 0"),
        ("inner", 3, "3", "a table with the keys of [outer.inner]"),
        ("rows", [3], "3", "a table with the keys of [outer.inner]"),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(key: str, value: Any, shown: str, allowed: str) -> None:
    with pytest.raises(ScenarioError) as error:
        Outer(**{key: value})
    text = str(error.value)
    assert f"outer.{key} = {shown} must be" in text
    assert allowed in text
    assert is_one_sentence(text)


def test_a_whole_number_will_do_where_a_number_is_asked_for() -> None:
    settings = Outer(many=[1, 2])
    assert settings.many == (1.0, 2.0)
    assert all(type(value) is float for value in settings.many)


def test_a_whole_number_beyond_every_float_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"outer\.many = 1000"):
        Outer(many=[10**400])


def test_settings_are_frozen_and_take_keywords_only() -> None:
    settings = Outer()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.whole = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Outer(3)  # type: ignore[misc]


def test_tables_are_read_and_written_and_unset_keys_left_out() -> None:
    table = {"whole": 2, "many": [1.0], "inner": {"size": 3}, "rows": [{"size": 4}, {"size": 5}]}
    settings = Outer.from_table(table)
    assert settings == Outer(whole=2, many=(1.0,), inner=Inner(size=3), rows=(Inner(size=4), Inner(size=5)))
    written = settings.to_table()
    assert written == {"share": 0.5, "word": "red", "flag": False, **table}
    assert Outer.from_table(written) == settings
    assert Outer(perhaps=1.0).to_table()["perhaps"] == 1.0


def test_a_missing_key_is_named_with_its_table() -> None:
    with pytest.raises(ScenarioError, match=r"^\[outer\.inner\] lacks the key 'size'; add it$"):
        Outer.from_table({"inner": {}})


def test_an_unknown_key_is_named_with_its_value_and_a_suggestion() -> None:
    with pytest.raises(ScenarioError) as error:
        Outer.from_table({"inner": {"sizes": 3}})
    expected = "unknown key 'outer.inner.sizes' (value 3); allowed: size (did you mean 'size'?)"
    assert str(error.value) == expected


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    with pytest.raises(ScenarioError, match=r"^unknown key 'zzz' \(value 1\); allowed: size, colour$"):
        check_keys({"size": 2, "zzz": 1}, ["size", "colour"], "")
    with pytest.raises(ScenarioError, match="allowed: no keys at all"):
        check_keys({"size": 2}, [], "empty")
    check_keys({"size": 2}, ["size"], "")


def test_a_long_value_is_shown_in_short() -> None:
    with pytest.raises(ScenarioError) as error:
        Outer(whole="x" * 1000)
    assert "'xxx" in str(error.value)
    assert len(str(error.value)) < 200
