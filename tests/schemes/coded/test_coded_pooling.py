"""Coded products of a simulation that are decoded in one product: bits and costs are those of single replies."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import Work
from codedfl.schemes.coded.coded_padded import CodedPaddedServer
from codedfl.schemes.coded.coded_pooling import CodedPool, CodedReply, pooled_product
from codedfl.schemes.messages import payloads
from codedfl.training import State, train
from tiny import problem, scenario

SIZES = (6, 4, 7, 5, 3)
EPOCHS = 6


def wanted(alpha: int, ring: str, leaving: int | None = None) -> Scenario:
    fleet: list[dict[str, Any]] = [{"count": 1, "mac_rate": rate} for rate in (4e3, 3e3, 2e3, 1e3, 5e2)]
    if leaving is not None:
        fleet[1]["last_epoch"] = leaving
    return scenario(
        {
            "scheme": "coded-padded",
            "schemes.coded-padded": {"alpha": alpha, "ring": ring},
            "training.epochs": EPOCHS,
            "training.learning_rate": 0.1,
            "fleet.devices": fleet,
        }
    )


@pytest.mark.parametrize(
    ("alpha", "ring", "leaving"),
    [(1, "GF(2^48-59)", None), (3, "GF(2^48-59)", None), (3, "GF(2^61-1)", 3), (5, "GF(2^61-1)", None)],
)
def test_a_training_has_the_same_bits_and_costs(
    alpha: int, ring: str, leaving: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a device is lost; and no single product is read."""
    given_data, chosen = problem(SIZES, features=6, outputs=2, dtype="float64"), wanted(alpha, ring, leaving)
    scheme = schemes.create(chosen, given_data)
    together, read = [], []
    total, part = CodedPool.total, CodedPaddedServer.part
    monkeypatch.setattr(CodedPool, "total", lambda *given: together.append(1) or total(*given))
    monkeypatch.setattr(
        CodedPaddedServer, "part", lambda self, name, *given: read.append(name) or part(self, name, *given)
    )
    alone = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
    found = []
    for devices in (alone, scheme.simulated(given_data, EPOCHS)):
        read.clear()
        delays, left = DelayModel.create(chosen.fleet, chosen.links), chosen.fleet.last_epochs
        engine = VirtualEngine(devices, delays, seed=0, draw=0, last_epochs=left)
        found.append(train(given_data, chosen, scheme, engine, State.fresh(given_data)))
    assert len(together) >= EPOCHS - 1
    assert set(read) == {"moments"}, "no product is decoded from single ones"
    one, pooled = found
    assert np.array_equal(one.model, pooled.model)
    assert one.history.columns == pooled.history.columns
    assert [costs.key() for costs in one.history.rounds] == [costs.key() for costs in pooled.history.rounds]
    assert one.checked == pooled.checked
    assert pooled.lost == ({1} if leaving else set())


def test_replies_that_are_read_are_those_of_the_devices() -> None:
    given_data = problem(SIZES, features=6, outputs=2, dtype="float64")
    scheme = schemes.create(wanted(1, "GF(2^61-1)"), given_data)
    model = np.random.default_rng(3).standard_normal(given_data.shape)
    asked = scheme.server().ask(2, model).requests
    told = []
    for devices in (
        [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)],
        scheme.simulated(given_data, EPOCHS),
    ):
        works = [Work() for _ in devices]
        told.append([each.reply(2, asked[i], work) for i, (each, work) in enumerate(zip(devices, works, strict=True))])
        told.append([work.macs for work in works])
    single, macs, pooled, pooled_macs = told
    assert macs == pooled_macs
    assert payloads(single) == payloads(pooled)
    assert all(isinstance(reply, CodedReply) for reply in pooled)
    assert pooled_product(dict(enumerate(pooled))) is not None
    assert pooled_product({**dict(enumerate(pooled)), 0: single[0]}) is None
    for real, promised in zip(single, pooled, strict=True):
        assert np.array_equal(real["product"], promised["product"])
