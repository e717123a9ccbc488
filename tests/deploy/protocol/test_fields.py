"""Small values of a message that came from elsewhere."""

import math
from typing import Any

import pytest

from codedfl.deploy.protocol.fields import count, real, real_or_none
from codedfl.errors import EngineError

LARGEST_COUNT = 1 << 53  # what a float holds exactly


@pytest.mark.parametrize("value", [0, 0.0, 5e-324, 2, 1.7e308, 10**308])
def test_a_number_is_finite_and_not_negative(value: float) -> None:
    assert real({"bound": value}, "bound") == float(value)


@pytest.mark.parametrize("value", [-5e-324, math.inf, -math.inf, math.nan, 10**309, True, "1", None, [1.0]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(EngineError, match="'bound' of a message is not a number"):
        real({"bound": value}, "bound")


def test_a_number_may_be_none_but_must_be_there() -> None:
    assert [real_or_none({"bound": value}, "bound") for value in (None, 2, 0.5)] == [None, 2.0, 0.5]
    for fields in ({}, {"bound": -1.0}, {"bound": math.nan}, {"bound": "none"}):
        with pytest.raises(EngineError, match="'bound' of a message is not a number"):
            real_or_none(fields, "bound")


def test_a_count_is_whole_and_has_a_limit() -> None:
    assert [count({"n": value}, "n") for value in (0, LARGEST_COUNT - 1)] == [0, LARGEST_COUNT - 1]
    for value in (-1, LARGEST_COUNT, 1.0, True, None):
        with pytest.raises(EngineError, match="'n' of a message is not a whole number"):
            count({"n": value}, "n")
