"""Replies that are computed when they are read: the same training, and only as many products as are used or check."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes.coded.deferred_replies import DeferredReply
from codedfl.schemes.messages import Work, payloads
from codedfl.training import State, train
from tiny import problem, scenario

SIZES = [9, 6, 8, 7, 5]
EPOCHS = 12
COUNTED = """
import codedfl
from codedfl.schemes.coded.coded_padded import CodedPaddedDevice
reply, replies = CodedPaddedDevice.reply, []
CodedPaddedDevice.reply = lambda self, epoch, *given: replies.append(epoch) or reply(self, epoch, *given)
changes = {"scheme": "coded-padded", "schemes.coded-padded.alpha": 20, "training.epochs": 5, "timing.draws": 10}
run = codedfl.run("paper-quick", "run", changes)
print(run.summary["checked_epochs"], [replies.count(epoch) for epoch in range(1, 6)])
"""


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
def test_a_training_has_the_same_bits_costs_and_checks(alpha: int, ring: str, leaving: int | None) -> None:
    """Also where a device is lost."""
    given_data, chosen = problem(SIZES, features=6, outputs=2, dtype="float64"), wanted(alpha, ring, leaving)
    scheme = schemes.create(chosen, given_data)
    alone = [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)]
    found = []
    for devices in (alone, scheme.simulated(given_data, EPOCHS)):
        delays, left = DelayModel.create(chosen.fleet, chosen.links), chosen.fleet.last_epochs
        engine = VirtualEngine(devices, delays, seed=0, draw=0, last_epochs=left)
        found.append(train(given_data, chosen, scheme, engine, State.fresh(given_data)))
    one, deferred = found
    assert np.array_equal(one.model, deferred.model)
    assert one.history.columns == deferred.history.columns
    assert [costs.key() for costs in one.history.rounds] == [costs.key() for costs in deferred.history.rounds]
    assert one.checked == deferred.checked
    assert deferred.lost == ({1} if leaving else set())


def test_an_epoch_computes_what_it_awaits_and_one_reply_that_checks_it(tmp_path: Path) -> None:
    """K = 6 of 25; in the first epoch all. In a process of its own, because checks of shapes here read messages."""
    words = [sys.executable, "-c", COUNTED]
    found = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.splitlines()[-1] == "5 [25, 7, 7, 7, 7]"


def test_replies_that_are_read_are_those_of_the_devices() -> None:
    given_data = problem(SIZES, features=6, outputs=2, dtype="float64")
    scheme = schemes.create(wanted(1, "GF(2^61-1)"), given_data)
    model = np.random.default_rng(3).standard_normal(given_data.shape)
    asked = scheme.server().ask(2, model).requests
    told, counted = [], []
    for devices in (
        [scheme.device(index, shard) for index, shard in enumerate(given_data.shards)],
        scheme.simulated(given_data, EPOCHS),
    ):
        for each in devices:  # with alpha = 1 a device adds up its data when it is first asked
            each.reply(1, {}, Work())
        works = [Work() for _ in devices]
        told.append([each.reply(2, asked[i], work) for i, (each, work) in enumerate(zip(devices, works, strict=True))])
        counted.append([work.macs for work in works])
    single, deferred = told
    assert counted[0] == counted[1]
    assert payloads(single) == payloads(deferred)
    for real, promised in zip(single, deferred, strict=True):
        assert isinstance(promised, DeferredReply)
        assert np.array_equal(real["product"], promised["product"])
