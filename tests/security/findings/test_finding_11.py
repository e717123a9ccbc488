"""Finding 11: the released model tells members by a loss threshold, all of them where points are as few as features."""

import dataclasses

import pytest

from codedfl.scenario import Scenario, load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem


@pytest.fixture(scope="module")
def chosen() -> Scenario:
    return load("paper-quick").with_settings({"scheme": "one-shot"})


@pytest.mark.parametrize(("devices", "low", "high"), [(25, 0.6, 0.9), (5, 1.0, 1.0)])
def test_a_loss_threshold_tells_members(chosen: Scenario, devices: int, low: float, high: float) -> None:
    """300 features, and 1,442 points of digits on all devices or 290 on five."""
    whole = Problem.build(chosen)
    problem = dataclasses.replace(whole, shards=whole.shards[:devices])
    found = attack_scenario(chosen.with_devices(devices), problem, names=["loss-threshold"], epochs=4)
    areas = {entry.asset: entry.score.auc for entry in found}
    assert {(entry.adversary, entry.view) for entry in found} == {("model reader", "the released model")}
    assert low <= round(areas["membership in the union"], 2) <= high
    assert areas["membership of a device"] < 0.7, "it does not tell whose a record is"
