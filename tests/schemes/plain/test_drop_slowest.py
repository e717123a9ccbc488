"""Ignore stragglers: exactly the fastest F count, and the average is over their data."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from tiny import is_one_sentence, plain_gradient, problem, scenario, spied, trained

FLEET = [{"count": 3, "mac_rate": 1e4}, {"count": 3, "mac_rate": 1e3}, {"count": 2, "mac_rate": 1e2}]
SIZES = [4, 5, 6, 7, 8, 9, 10, 11]


def wanted(wait_for: int, changes: dict[str, Any] | None = None) -> Scenario:
    settings = {"scheme": "drop-slowest", "schemes.drop-slowest.wait_for": wait_for, "fleet.devices": FLEET}
    return scenario({**settings, **(changes or {})})


@pytest.mark.parametrize("wait_for", [1, 3, 5, 8])
@pytest.mark.parametrize("draw", [0, 7])
def test_the_fastest_count_and_nobody_else(wait_for: int, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is fastest follows from the random numbers of the draw, added up here by hand."""
    made = problem(SIZES)
    chosen = wanted(wait_for, {"timing.draw": draw})
    seen = spied(monkeypatch, chosen)
    trained(made, chosen)
    rates = np.repeat([1e4, 1e3, 1e2], [3, 3, 2])
    delays = DelayModel.create(chosen.fleet, chosen.links)
    bits = 6 * 3 * 32 * (1 if made.dtype == np.float32 else 2) * 1.1
    work = 6 * 6 * 3 / rates  # every shard has at least d/2 = 3 samples, so all go through the Gram matrix
    assert len(seen) == 5
    for epoch in seen:
        luck = delays.chance(0, epoch.epoch, draw, 1)
        seconds = luck.up_tries[0] * bits / 5e6
        if epoch.epoch > 1:
            seconds = seconds + luck.down_tries[0] * bits / 10e6 + work * (1 + luck.setup[0] / 2)
        order = np.argsort(seconds, kind="stable")
        if epoch.epoch > 1:
            assert set(epoch.replies) == set(order[:wait_for].tolist())
        else:  # uploads of equally many tries tie
            tries = luck.up_tries[0]
            assert all(tries[device] <= np.sort(tries)[wait_for - 1] for device in epoch.replies)
        assert len(epoch.replies) == wait_for
        fastest = [made.shards[device] for device in sorted(epoch.replies)]
        expected, bound = plain_gradient(fastest, epoch.model)
        assert np.all(abs(epoch.gradient - expected) <= bound)


def test_waiting_for_all_is_conventional_to_the_last_bit() -> None:
    made = problem(SIZES)
    everyone, conventional = (trained(made, wanted(8, {"scheme": name})) for name in ("drop-slowest", "conventional"))
    assert np.array_equal(everyone.model, conventional.model)
    assert everyone.history.columns["time"] == conventional.history.columns["time"]


def test_waiting_for_fewer_is_never_slower() -> None:
    made = problem(SIZES)
    times = [trained(made, wanted(f)).history.columns["time"] for f in (2, 5, 8)]
    assert all(a <= b <= c for a, b, c in zip(*times, strict=True))


def test_all_but_the_awaited_may_be_lost() -> None:
    assert schemes.create(wanted(5), problem(SIZES)).survives_losses == 3


def test_more_than_there_are_cannot_be_awaited() -> None:
    with pytest.raises(ScenarioError) as error:
        schemes.create(wanted(9), problem(SIZES))
    assert "schemes.drop-slowest.wait_for = 9 must be at most 8" in str(error.value)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(("devices", "awaited"), [(1, 1), (2, 1), (5, 4), (24, 19), (25, 20)])
def test_four_fifths_are_awaited_unless_told_otherwise(devices: int, awaited: int) -> None:
    chosen = scenario({"scheme": "drop-slowest", "fleet.devices": [{"count": devices, "mac_rate": 1e3}]})
    scheme = schemes.create(chosen, problem([4] * devices))
    assert scheme.server().ask(1, np.zeros((6, 3))).quorum == awaited
    assert scheme.survives_losses == devices - awaited
