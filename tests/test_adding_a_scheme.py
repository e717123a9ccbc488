"""The example of docs/adding-a-scheme.md is a scheme like any other: it keeps the contract and its own promises."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from codedfl.schemes import SCHEMES
from codedfl.security.audit import attack_scenario
from codedfl.task import Shard
from codedfl.testing.schemes import SchemeContract, registered
from contracts.test_schemes import EPOCHS, SIZES, tiny, wanted
from rundirs import small, small_problem
from tiny import plain_gradient, spied, trained

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-scheme.md"
MOST_LINES = 50


def example() -> str:
    """The only block of Python on the page."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(block)


MODULE = ModuleType("half_precision")
sys.modules[MODULE.__name__] = MODULE
exec(compile(example(), str(PAGE), "exec"), vars(MODULE))


class TestContract(SchemeContract):
    scheme = MODULE.HalfPrecision


@pytest.fixture
def name() -> Iterator[str]:
    with registered(MODULE.HalfPrecision):
        yield MODULE.HalfPrecision.name


def test_it_is_short() -> None:
    assert len(example().splitlines()) <= MOST_LINES


def test_nothing_of_it_stays() -> None:
    before = list(SCHEMES)
    with registered(MODULE.HalfPrecision):
        assert SCHEMES["half-precision"] is MODULE.HalfPrecision
    assert before == list(SCHEMES)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_gradient_is_off_by_what_half_precision_rounds(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry below 1 is rounded by at most 2^-12, half the distance of float16 numbers there; scales are exact."""
    given, chosen = tiny(name, precision), wanted(name, {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    trained(given, chosen)
    assert len(seen) == EPOCHS
    coarser = 0
    for epoch in seen:
        expected, bound = plain_gradient(given.shards, epoch.model)
        scales = [float(np.ldexp(1.0, reply["exponent"])) for reply in epoch.replies.values()]
        assert all(np.abs(reply["words"].view(np.float16)).max() <= 1 for reply in epoch.replies.values())
        difference = abs(epoch.gradient - expected)
        assert np.all(difference <= bound + sum(scales) * 2.0**-12 / sum(SIZES[name]))
        coarser += bool(np.any(difference > bound))
    assert coarser == EPOCHS, "half precision is seen in every epoch"


def test_a_device_without_anything_to_say_says_so() -> None:
    """A gradient of zeros has no largest entry."""
    shard = Shard(np.zeros((4, 3)), np.zeros((4, 2)))
    reply = MODULE.HalfDevice(shard).reply(1, {"model": np.zeros((3, 2))}, MODULE.Work())
    assert np.array_equal(MODULE.unpacked(reply), np.zeros((3, 2)))


def test_replies_take_half_the_bits_and_an_exponent(name: str) -> None:
    given = tiny(name, "float32")
    half, full = (trained(given, wanted(scheme)).history.columns for scheme in (name, "conventional"))
    assert half["up_bits"] == [bits / 2 + 32 * len(SIZES[name]) for bits in full["up_bits"]]
    assert half["down_bits"] == full["down_bits"]
    assert half["device_macs"] == full["device_macs"]


def test_the_server_learns_from_its_replies(name: str) -> None:
    """The zero matrix has error 1; its view is of rounded replies that an attack can read."""
    (outcome,) = attack_scenario(small({"scheme": name}), small_problem(), names=["server-replies"], epochs=24)
    assert outcome.holder == "the server"
    assert outcome.score.relative_error < 0.5
