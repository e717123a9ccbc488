"""Labels sorted over the devices: whoever is heard less counts less, and its labels are recognised less."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from codedfl.scenario import Scenario
from codedfl.task import Problem
from rundirs import small
from tiny import trained

FLEET = [{"count": 3, "mac_rate": 25e6}, {"count": 2, "mac_rate": 1e4}]
"""Sorted by label, the labels 6 to 9 lie with the two slow devices."""
OPTIONS: dict[str, dict[str, Any]] = {
    "conventional": {},
    "drop-slowest": {"wait_for": 3},
    "deadline": {"share": 0.5},
    "asynchronous": {"buffer": 2},
}


def wanted(name: str, kind: str) -> Scenario:
    changes = {"scheme": name, f"schemes.{name}": OPTIONS[name], "fleet.devices": FLEET, "training.epochs": 60}
    return small({**changes, "partition.kind": kind, "partition.shards_per_device": 1})


@cache
def given(kind: str) -> Problem:
    return Problem.build(wanted("conventional", kind))


@cache
def recognised(name: str, kind: str) -> tuple[float, float]:
    """Shares of the labels below 6, and of those from 6 on, that the model gets right."""
    made = given(kind)
    right = np.argmax(made.x_test @ trained(made, wanted(name, kind)).model, axis=1) == made.y_test
    fast = made.y_test < 6
    return float(right[fast].mean()), float(right[~fast].mean())


def test_only_slow_devices_hold_the_last_labels() -> None:
    held = [set(np.argmax(shard.y, axis=1).tolist()) for shard in given("shards").shards]
    assert set.union(*held[:3]) == {0, 1, 2, 3, 4, 5}
    assert set.union(*held[3:]) >= {6, 7, 8, 9}


@pytest.mark.parametrize("name", ["drop-slowest", "deadline", "asynchronous"])
def test_labels_of_slow_devices_fall_behind(name: str) -> None:
    """At random, nobody's data is missed; sorted, what only slow devices have is."""
    slow = {scheme: recognised(scheme, "shards")[1] for scheme in (name, "conventional")}
    assert slow[name] < slow["conventional"] / 2
    assert recognised(name, "iid")[1] > recognised("conventional", "iid")[1] / 2
