"""Parity data that are made when they are read, and their Gram matrices: which are made, used, and how often."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import Device, Message, Work
from codedfl.schemes.coded import parity_data
from codedfl.schemes.coded.parity import Parity
from codedfl.schemes.coded.parity_data import ParityData, ParityPool, PooledParity, PooledParityDevice
from codedfl.schemes.messages import Deferred, payloads
from codedfl.schemes.plain import pooling
from codedfl.schemes.plain.pooling import pooled_total
from codedfl.task import Problem
from tiny import gamma, problem, scenario

D, C = 4, 2


class Told(Device):
    """Exports known parity data, and counts how often; replies what it is asked."""

    def __init__(self, rows: Sequence[int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.made = [
            {
                "batch": np.array(number, np.int32),
                "features": rng.standard_normal((count, D)).astype("f4"),
                "targets": rng.standard_normal((count, C)).astype("f4"),
            }
            for number, count in enumerate(rows)
        ]
        self.exports = 0

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        work.add(epoch)
        return request

    def export(self, grant: Message, work: Work) -> Message:
        self.exports += 1
        work.add(1000)
        return self.made[int(grant["batch"])]


ROWS = (3, 2)


def received(pool: ParityPool, devices: Sequence[Told], batch: int, senders: Sequence[int]) -> ParityData:
    """A server's parity data of two batches, of which one has been promised by some senders."""
    data = ParityData(ROWS, (D, C), np.dtype("f4"), [[slice(0, count)] * len(devices) for count in ROWS])
    for sender in senders:
        grant = {"batch": np.array(batch, np.int32)}
        data.receive(sender, PooledParity(devices[sender], pool, grant, {}))
    return data


def test_a_device_of_a_pool_promises_and_counts() -> None:
    inside, pool = Told(ROWS, 0), ParityPool("key")
    device = PooledParityDevice(inside, pool, [{"batch": (np.dtype("i4"), ())}, {}], [70, 80])
    for batch, macs in ((0, 70), (1, 80)):
        work = Work()
        parcel: Any = device.export({"batch": np.array(batch, np.int32)}, work)
        assert (work.macs, parcel.batch, parcel.pool) == (macs, batch, pool)
        assert np.array_equal(parcel.compute()["features"], inside.made[batch]["features"])
        assert work.macs == macs
    work = Work()
    assert device.reply(7, {"model": np.ones(1)}, work)["model"] == 1
    assert work.macs == 7


def test_parity_data_are_made_once_for_the_same_senders() -> None:
    devices, pool = [Told(ROWS, seed) for seed in range(3)], ParityPool("key")
    for batch, senders, exports in ((1, (0, 2), [1, 0, 1]), (1, (0, 2), [1, 0, 1]), (1, (2,), [1, 0, 2])):
        data = received(pool, devices, batch, senders)
        features, targets = data.of(batch)
        np.testing.assert_allclose(features, sum(devices[each].made[1]["features"] for each in senders), rtol=1e-6)
        np.testing.assert_allclose(targets, sum(devices[each].made[1]["targets"] for each in senders), rtol=1e-6)
        assert [each.exports for each in devices] == exports
        assert data.of(batch)[0] is features
        assert [each.exports for each in devices] == exports, "also if they are read again"
        assert not features.flags.writeable and not targets.flags.writeable, "other trainings will use them"
        assert not data.of(0)[0].any(), "of the other batch nobody has sent any"
    received(pool, devices, 0, (0, 2)).of(0)
    assert [each.exports for each in devices] == [2, 0, 3], "another batch has others"


def test_own_rows_stand_below_each_other() -> None:
    data = ParityData((5,), (D, C), np.dtype("f4"), [[slice(0, 3), slice(3, 5)]])
    for sender, count in ((1, 2), (0, 3)):
        (parcel,) = Told((count,), sender).made
        data.receive(sender, parcel)
    features, targets = data.of(0)
    assert np.array_equal(features, np.vstack([Told((3,), 0).made[0]["features"], Told((2,), 1).made[0]["features"]]))
    assert np.array_equal(targets, np.vstack([Told((3,), 0).made[0]["targets"], Told((2,), 1).made[0]["targets"]]))


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("least", ["as many", "one more"])
@pytest.mark.parametrize("summed", [True, False])
def test_a_gram_matrix_is_used_where_it_is_worth_it(
    batch: int, least: str, summed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From as many multiplications on as are worth it, and not more than the rows need: at least d / 2 rows.

    Either way it is X^T (X Theta - Y), and as many are counted.
    """
    rows, model = ROWS[batch], np.random.default_rng(4).standard_normal((D, C)).astype("f4")
    monkeypatch.setattr(parity_data, "LEAST_MACS", 2 * rows * D * C + (least == "one more"))
    devices, pool = [Told(ROWS, seed) for seed in range(2)], ParityPool("key")
    pool.summed = summed
    used = summed and least == "as many"
    for _ in range(2):
        data, work = received(pool, devices, batch, (0, 1)), Work()
        found = data.gradient(batch, model, work)
        x, y = (sum(each.made[batch][name].astype(float) for each in devices) for name in ("features", "targets"))
        bound = gamma(D + rows + 6, np.float32) * (abs(x).T @ (abs(x) @ abs(model) + abs(y)))
        assert np.all(abs(found - x.T @ (x @ model - y)) <= 2 * bound)
        assert found.dtype == np.float64
        assert work.macs == 2 * rows * D * C
        assert set(pool.parity_sums) == ({(batch, (0, 1))} if used else set())
    if used:
        assert pool.parity_sums[batch, (0, 1)].samples == rows


def test_few_rows_need_no_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of four features: 2 d c multiplications are fewer than d d c."""
    monkeypatch.setattr(parity_data, "LEAST_MACS", 0)
    pool, device = ParityPool("key"), Told((1,), 0)
    pool.summed = True
    data = ParityData((1,), (D, C), np.dtype("f4"), [[slice(0, 1)]])
    data.receive(0, PooledParity(device, pool, {"batch": np.array(0, np.int32)}, {}))
    work = Work()
    data.gradient(0, np.ones((D, C), "f4"), work)
    assert work.macs == 2 * D * C
    assert pool.parity_sums == {}


PARTS = 3
FLEET = [{"count": 2, "mac_rate": 1e4}, {"count": 2, "mac_rate": 2e2}]


def wanted(**options: Any) -> Scenario:
    table = {"parts": PARTS, "redundancy": 0.3, **options}
    return scenario({"scheme": "parity", "schemes.parity": table, "fleet.devices": FLEET})


def created(chosen: Scenario, given: Problem) -> Parity:
    scheme = schemes.create(chosen, given)
    assert isinstance(scheme, Parity)
    return scheme


@pytest.mark.parametrize("rows", ["summed", "own"])
@pytest.mark.parametrize("charged", [True, False])
def test_a_pool_replies_and_sends_what_devices_do(rows: str, charged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches of four devices: messages, their work, and the gradients of five epochs."""
    monkeypatch.setattr(parity_data, "LEAST_MACS", 0)
    monkeypatch.setattr(pooling, "LEAST_MACS", 0)
    given = problem([20, 17, 14, 11], features=D, outputs=C)
    scheme = created(wanted(rows=rows, charge_encoding=charged), given)
    alone = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    pooled = scheme.simulated(given, 100)
    servers = scheme.server(), scheme.server()
    (stage,) = servers[0].set_up()
    for transfer in stage.transfers:
        works = Work(), Work()
        parcels = [
            fleet[transfer.sender].export(transfer.grant, work)
            for fleet, work in zip((alone, pooled), works, strict=True)
        ]
        assert works[0].macs == works[1].macs
        assert (works[0].macs > 0) == charged
        assert payloads(parcels)[0] == payloads(parcels)[1]
        assert isinstance(parcels[1], Deferred)
        for server, parcel in zip(servers, parcels, strict=True):
            server.receive(transfer.sender, parcel)
    for epoch in (1, 2, 3, 4, 5):
        model = np.random.default_rng(epoch).standard_normal((D, C))
        gradients, counted = [], []
        for server, fleet in zip(servers, (alone, pooled), strict=True):
            question, work = server.ask(epoch, model), Work()
            replies, macs = {}, []
            for device, request in question.requests.items():
                reply_work = Work()
                replies[device] = fleet[device].reply(epoch, request, reply_work)
                macs.append(reply_work.macs)
            assert (pooled_total(replies) is not None) == (fleet is pooled)
            gradients.append(server.combine(epoch, replies, work))
            counted.append((macs, work.macs))
        assert counted[0] == counted[1]
        np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("epochs", "summed"), [(1, False), (2, True)])
def test_batches_are_summed_if_there_are_epochs_enough(epochs: int, summed: bool) -> None:
    """4 c epochs against three batches of d features: 8 or 16 against 12."""
    given = problem([20, 17, 14, 11], features=D, outputs=C)
    scheme = created(wanted(), given)
    fleet = scheme.simulated(given, epochs)
    for request in scheme.server().ask(1, np.ones((D, C))).requests.values():
        assert isinstance(fleet[0].reply(1, request, Work()), Deferred) == summed
    parcel = fleet[3].export({"batch": np.array(0, np.int32)}, Work())
    assert isinstance(parcel, PooledParity)
    assert parcel.pool.summed == summed


def test_pools_of_other_options_are_others() -> None:
    """Seed, redundancy, kind of rows and delays decide; the same options have the same pool."""
    given = problem([20, 17, 14, 11], features=D, outputs=C)

    def pool(chosen: Scenario) -> ParityPool:
        parcel = created(chosen, given).simulated(given, 5)[3].export({"batch": np.array(0, np.int32)}, Work())
        assert isinstance(parcel, PooledParity)
        return parcel.pool

    first = pool(wanted())
    assert pool(wanted()) is first
    slower = wanted().with_settings({"links.up_rate": 1e3})
    assert DelayModel.create(slower.fleet, slower.links).up_rate[0] == 1e3
    for other in (wanted(seed=1), wanted(redundancy=0.2), wanted(rows="own"), slower):
        assert pool(other) is not first
        first = pool(wanted())
