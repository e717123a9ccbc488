"""Questions to the explorer: sliders make scenarios, the newest question wins, what is too much is left out."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from codedfl.errors import UsageError
from codedfl.report.explorer import ExplorerSession, session
from codedfl.report.explorer.parameters import PARAMETERS, initial_values, scenario_of, sliders, told_epochs
from codedfl.scenario import load

QUICK = load("paper-quick").with_settings({"features.dimension": 40})
NAMES = ["conventional", "sealed-coded"]


@pytest.fixture
def explorer() -> Iterator[ExplorerSession]:
    made = ExplorerSession(QUICK, names=NAMES, samples=1000, outputs=10)
    yield made
    made.close()


def answered(explorer: ExplorerSession, values: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Ask until everything is counted."""
    page = uuid.uuid4().hex
    for number in range(1, 1000):
        found = explorer.answer({"values": values or {}, "draws": 4, "number": number, "page": page, **more})
        if not found["counting"]:
            return found
        time.sleep(0.05)
    raise AssertionError("the costs are never counted")


def test_costs_are_counted_in_the_background(explorer: ExplorerSession) -> None:
    first = explorer.answer({"values": {}, "number": 0})
    assert first["plan"] is None
    assert first["counting"] == NAMES
    assert {row["scheme"] for row in answered(explorer)["plan"]["schemes"]} == set(NAMES)


def test_a_question_that_is_overtaken_is_not_answered(explorer: ExplorerSession) -> None:
    explorer.answer({"values": {}, "number": 7, "page": "a"})
    assert explorer.answer({"values": {}, "number": 6, "page": "a"})["overtaken"]
    assert not explorer.answer({"values": {}, "number": 1, "page": "b"})["overtaken"], "another page"


def test_what_would_take_minutes_waits_until_it_is_asked_for(explorer: ExplorerSession, monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "_UNASKED_DEVICES", 10)
    found = answered(explorer)
    assert list(found["asleep"]) == ["sealed-coded"]
    assert "square" in found["asleep"]["sealed-coded"]
    found = answered(explorer, count=["sealed-coded", "nonsense"])
    assert found["asleep"] == {}
    assert len(found["plan"]["schemes"]) == 2


def test_what_does_not_fit_into_memory_is_never_counted(explorer: ExplorerSession, monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "_memory", lambda: 1000.0)
    found = answered(explorer, count=["sealed-coded"])
    assert "more than is free" in found["asleep"]["sealed-coded"]
    assert [row["scheme"] for row in found["plan"]["schemes"]] == ["conventional"]


def test_closing_ends_the_thread() -> None:
    made = ExplorerSession(QUICK, names=NAMES, samples=1000, outputs=10)
    assert made._thread in threading.enumerate()
    made.close()
    made._thread.join(60)
    assert not made._thread.is_alive()


@pytest.mark.parametrize("name", [each.name for each in PARAMETERS])
def test_every_slider_takes_its_range_and_nothing_else(name: str) -> None:
    initial = initial_values(QUICK)
    (slider,) = [each for each in sliders(initial) if each.name == name]
    for value in (slider.low, slider.high):
        if name != "devices":
            scenario_of(QUICK, initial, {name: value})
    for wrong in (slider.low - 1, slider.high * 2 + 1, float("nan"), "many", True, None):
        with pytest.raises(UsageError, match=name):
            told_epochs(initial, {name: wrong})
            scenario_of(QUICK, initial, {name: wrong})


def test_sliders_that_stand_still_change_nothing() -> None:
    initial = initial_values(QUICK)
    assert scenario_of(QUICK, initial, {}) is QUICK
    assert scenario_of(QUICK, initial, dict(initial)) is QUICK
    assert told_epochs(initial, initial) == {}


def test_speed_and_spread_by_hand() -> None:
    initial = initial_values(QUICK)
    rates = [group.mac_rate for group in QUICK.fleet.devices]
    equal = scenario_of(QUICK, initial, {"spread": 0.0})
    assert {group.mac_rate for group in equal.fleet.devices} == {max(rates)}
    twice = scenario_of(QUICK, initial, {"speed": 2.0})
    assert [group.mac_rate for group in twice.fleet.devices] == pytest.approx([2 * rate for rate in rates])


def test_noise_comes_and_goes() -> None:
    noisy = QUICK.with_settings({"privacy.epsilon": 2.0})
    initial = initial_values(noisy)
    assert initial["epsilon"] == 2.0
    assert scenario_of(noisy, initial, {"epsilon": 0.0}) == QUICK
    assert scenario_of(QUICK, initial_values(QUICK), {"epsilon": 3.0}).privacy.epsilon == 3.0
