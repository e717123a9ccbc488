"""Parity data of a simulation: the bits and costs of those that devices send, made once for several trainings."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.schemes.coded.parity_data import ParityData, ParityPool
from codedfl.testing.small import PAPER_FLEET
from codedfl.training import State, train
from tiny import problem, scenario

PARTS = 2


@pytest.mark.parametrize("rows", ["summed", "own"])
@pytest.mark.parametrize("charged", [False, True])
def test_repetitions_have_the_same_bits_and_costs_and_add_parity_data_once(
    rows: str, charged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a training with other generators in between, whose parity data are others."""
    given_data = problem([10] * 15 + [11] * 10, features=12, outputs=3, dtype="float32")
    added: list[int] = []
    add = ParityData._add
    monkeypatch.setattr(ParityData, "_add", lambda *given: added.append(1) or add(*given))

    def trained(seed: int, draw: int, *, simulated: bool) -> tuple[Any, int]:
        options = {"parts": PARTS, "rows": rows, "charge_encoding": charged, "seed": seed}
        training = {"training.epochs": 5, "training.learning_rate": 0.1}
        chosen = scenario(
            {"scheme": "parity", "schemes.parity": options, "fleet.devices": list(PAPER_FLEET), **training}
        )
        scheme = schemes.create(chosen, given_data)
        alone = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
        devices = scheme.simulated(given_data, 5) if simulated else alone
        engine = VirtualEngine(devices, DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=draw)
        added.clear()
        return train(given_data, chosen, scheme, engine, State.fresh(given_data)), len(added)

    _, every = trained(0, 0, simulated=False)
    for seed, draw, expected in ((0, 0, every), (0, 1, 0), (1, 0, None), (0, 1, every), (0, 0, 0)):
        single, _ = trained(seed, draw, simulated=False)
        pooled, count = trained(seed, draw, simulated=True)
        assert expected is None or count == expected
        assert np.array_equal(single.model, pooled.model)
        for column in ("time", "replies", "up_bits", "down_bits", "device_macs", "server_macs"):
            assert single.history.columns[column] == pooled.history.columns[column]
        assert [stage.costs for stage in single.history.stages] == [stage.costs for stage in pooled.history.stages]


def test_a_pool_belongs_to_one_problem_and_one_way_to_make_parity_data() -> None:
    one, other = (problem([5, 5], features=3, outputs=2) for _ in range(2))
    first = ParityPool.of(one, "a")
    assert ParityPool.of(one, "a") is first
    assert ParityPool.of(other, "a") is not first
    assert ParityPool.of(one, "b") is not first
    assert ParityPool.of(one, "a") is not first, "only the newest is kept"
