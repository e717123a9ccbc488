"""Costs that are counted without a run, by hand: each shard's own, and whom the server of each scheme awaits."""

import math
from typing import Any

import pytest

from codedfl import schemes
from codedfl.schemes.contract import CountedCosts
from tiny import problem, scenario

FEATURES, OUTPUTS = 6, 3
BITS = 64 * FEATURES * OUTPUTS
FULL = [108, 72, 108]
"""Multiplications through a Gram matrix, 6 * 6 * 3, or through two rows, 2 * 2 * 6 * 3."""


def counted(name: str, epochs: int, options: dict[str, Any] | None = None) -> CountedCosts:
    """Of three devices, the first and last of which have the same ten rows, the second two."""
    given = problem([10, 2, 10])
    first, second, _ = given.shards
    changes = {"scheme": name, "fleet.devices": [{"count": 3, "mac_rate": 1e6}], f"schemes.{name}": options or {}}
    found = schemes.create(scenario(changes), given).counted([first, second, first], epochs)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "options", "waiting"),
    [
        ("conventional", {}, [(3, 3, math.inf, False)] * 3),
        ("drop-slowest", {"wait_for": 2}, [(2, 2, math.inf, False)] * 3),
        ("deadline", {"seconds": 2.5}, [(3, 1, 2.5, False)] * 3),
        ("asynchronous", {"buffer": 2}, [(3, 3, math.inf, False), *[(2, 2, math.inf, True)] * 2]),
    ],
)
def test_whom_a_server_awaits(name: str, options: dict[str, Any], waiting: list[Any]) -> None:
    found = counted(name, 3, options)
    assert not found.stages
    rounds = [costs for (costs,) in found.epochs]
    assert [(costs.quorum, costs.least, costs.deadline, costs.standing) for costs in rounds] == waiting
    for costs in rounds:
        assert costs.asked.tolist() == [0, 1, 2]
        assert costs.down_bits.tolist() == costs.up_bits.tolist() == [BITS] * 3
        assert costs.macs.tolist() == FULL
        assert costs.server_macs == 0


def test_each_epoch_of_batches_has_its_own_costs() -> None:
    """Ten rows in three parts are 3, 3 and 4, and four rows 1, 1 and 2."""
    given = problem([10, 4])
    fleet = [{"count": 2, "mac_rate": 1e6}]
    chosen = scenario({"scheme": "minibatch", "schemes.minibatch.parts": 3, "fleet.devices": fleet})
    found = schemes.create(chosen, given).counted(given.shards, 4)
    assert found is not None
    assert [costs.macs.tolist() for (costs,) in found.epochs] == [
        [2 * rows * FEATURES * OUTPUTS for rows in batch] for batch in ([3, 1], [3, 1], [4, 2], [3, 1])
    ]
    assert counted("minibatch", 0, {"parts": 1}).epochs == []
