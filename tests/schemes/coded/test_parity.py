"""Parity data at the server: costs, deadlines, weights and rows, by hand and by laws."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.errors import EngineError, ScenarioError
from codedfl.network import DelayModel
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import Work, message_bits
from codedfl.schemes.coded.parity import Batch, Parity, ParityDevice, Secrets
from codedfl.task import Problem, Shard
from codedfl.training import State, train
from rundirs import Stopped, results, small_run, stop_at
from tiny import gamma, is_one_sentence, placed, problem, scenario, spied, trained

FLEET = [{"count": 3, "mac_rate": 1e4}, {"count": 3, "mac_rate": 1e3}, {"count": 2, "mac_rate": 2e2}]
SIZES = [20, 21, 22, 23, 24, 19, 18, 17]
LINKS = {"links.down_rate": 1e5, "links.up_rate": 5e4}


def wanted(changes: dict[str, Any] | None = None) -> Scenario:
    settings = {"scheme": "parity", "schemes.parity.parts": 2, "schemes.parity.redundancy": 0.3, "fleet.devices": FLEET}
    return scenario({**settings, **LINKS, **(changes or {})})


def created(chosen: Scenario, given: Problem) -> Parity:
    scheme = schemes.create(chosen, given)
    assert isinstance(scheme, Parity)
    return scheme


def test_replies_cost_what_the_allocation_assumes() -> None:
    """2 d c multiplications a point, a model down, a gradient up: counted from what is really done and sent."""
    given = problem(SIZES, dtype="float32")
    scheme = created(wanted(), given)
    server, devices = placed(scheme, given.shards)
    assert scheme.allocations[0].loads.min() < scheme.allocations[0].loads.max()
    for epoch in (1, 2):
        question = server.ask(epoch, np.ones(given.shape))
        allocation = scheme.allocations[(epoch - 1) % 2]
        assert question.deadline == allocation.deadline
        assert set(question.requests) == set(np.flatnonzero(allocation.loads).tolist())
        for device, request in question.requests.items():
            work = Work()
            reply = devices[device].reply(epoch, request, work)
            assert work.macs == 2 * 6 * 3 * allocation.loads[device]
            assert message_bits(request) == message_bits(reply) == 6 * 3 * 32


def test_deadlines_are_the_least_by_hand() -> None:
    """Without loss and setup, every reply is certain: one device, half of the points in parity data.

    10 of 20 points: 1.1 * 18 * 64 * (1e-5 + 2e-5) s on the links and 10 * 36 / 1e3 s of work.
    """
    chosen = wanted(
        {
            "fleet.devices": [{"count": 1, "mac_rate": 1e3, "setup_ratio": 0.0}],
            "links.loss": 0.0,
            "schemes.parity.parts": 1,
            "schemes.parity.redundancy": 0.5,
        }
    )
    given = problem([20])
    (allocation,) = created(chosen, given).allocations
    assert allocation.deadline == pytest.approx(1.1 * 18 * 64 * 3e-5 + 0.36, rel=1e-8)
    assert (allocation.loads.tolist(), allocation.chances.tolist()) == ([10], [1.0])
    times = trained(given, chosen).history.columns["time"]
    np.testing.assert_allclose(np.diff(times), allocation.deadline, rtol=1e-6)


def test_what_is_certain_is_not_in_the_parity_data() -> None:
    """Points that surely arrive weigh nothing; a device that works on all of its points uploads nothing."""
    fleet = [{"count": 2, "mac_rate": 1e4, "setup_ratio": 0.0}, {"count": 1, "mac_rate": 2e2, "setup_ratio": 0.0}]
    chosen = wanted({"fleet.devices": fleet, "links.loss": 0.0, "schemes.parity.parts": 1})
    given = problem([20, 20, 20])
    scheme = created(chosen, given)
    (batches,) = scheme.batches
    assert [batch.load for batch in batches] == [20, 20, 2]
    assert [batch.weighted for batch in batches] == [0, 0, 18]
    assert [batch.mass for batch in batches] == [0.0, 0.0, 18.0]
    server = scheme.server()
    (stage,) = server.set_up()
    assert [transfer.sender for transfer in stage.transfers] == [2]


def generators(batches: Sequence[Batch], seed: int, index: int, dtype: str) -> list[np.ndarray]:
    """What a device multiplies its points with: its parity data if its points are the identity matrix."""
    total = batches[-1].rows.stop
    device = ParityDevice(index, Shard(np.eye(total, dtype=dtype), np.zeros((total, 1), dtype)), batches, seed)
    return [
        np.asarray(device.export({"batch": np.array(number)}, Work())["features"]) for number in range(len(batches))
    ]


@pytest.mark.parametrize("rows", ["summed", "own"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parity_data_are_the_points_times_a_generator(rows: str, dtype: str) -> None:
    """Linear in features and targets, zero outside the batch; counted as (d + c + 1) multiplications an entry of G."""
    given = problem(SIZES, dtype=dtype)
    charged = {"schemes.parity.charge_encoding": True}
    scheme = created(wanted({**charged, "schemes.parity.rows": rows, "task.precision": dtype}), given)
    for index, shard in enumerate(given.shards):
        batches = [each[index] for each in scheme.batches]
        device = scheme.device(index, shard)
        assert isinstance(device, ParityDevice)
        for number, G in enumerate(generators(batches, 0, index, dtype)):
            batch, work = batches[number], Work()
            parcel = device.export({"batch": np.array(number)}, work)
            assert parcel["features"].dtype == np.dtype(dtype)
            assert np.count_nonzero(G.any(axis=0)) == batch.weighted
            assert not G[:, : batch.rows.start].any()
            assert not G[:, batch.rows.stop :].any()
            assert work.macs == batch.parity_rows * batch.weighted * (6 + 3 + 1)
            for name, part in (("features", shard.x), ("targets", shard.y)):
                exact = G.astype(float) @ part.astype(float)
                bound = gamma(len(part), dtype) * (abs(G.astype(float)) @ abs(part.astype(float)))
                assert np.all(abs(parcel[name] - exact) <= bound)


def test_generators_are_normal_with_the_weights() -> None:
    """Entries over weight times sqrt(c): mean 0 and variance 1, six deviations of 64,000 numbers; two weights only."""
    batch = Batch(slice(10, 50), load=15, chance=0.75, parity_rows=1600)
    (G,) = generators([batch], 3, 1, "float64")
    scale = np.sqrt(np.mean(G[:, 10:] ** 2, axis=0) * 1600)
    worked = Secrets(3, 1, 0, batch).worked
    assert isinstance(worked, np.ndarray)
    weights = np.where(np.isin(np.arange(10, 50), worked), 0.5, 1.0)
    assert np.sum(weights == 0.5) == 15
    # a mean of 1600 squares strays by sqrt(2/1600), its root by half of that
    np.testing.assert_allclose(scale, weights, rtol=6 * math.sqrt(2 / 1600) / 2)
    normal = G[:, 10:] / weights * 40
    assert abs(normal.mean()) < 6 / math.sqrt(normal.size)
    assert abs(np.mean(normal**2) - 1) < 6 * math.sqrt(2 / normal.size)
    assert abs(np.mean(normal**4) - 3) < 6 * math.sqrt(96 / normal.size)


def test_every_device_batch_and_seed_has_a_generator_of_its_own() -> None:
    batches = [Batch(slice(0, 5), 2, 0.5, 0, 4), Batch(slice(5, 10), 2, 0.5, 0, 4)]
    one, two = generators(batches, 0, 0, "float64")
    assert not np.isin(one[:, :5], two).any()
    for other in (generators(batches, 0, 1, "float64"), generators(batches, 1, 0, "float64")):
        assert not np.isin(one[:, :5], other[0]).any()
    assert np.array_equal(one, generators(batches, 0, 0, "float64")[0]), "and it can be made again"


@pytest.mark.parametrize("rows", ["summed", "own"])
def test_the_gradient_is_that_of_replies_and_parity_data(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put together from the generators and the points: sum of X_l^T (X_l Theta - Y_l), and the same of X~, Y~."""
    given = problem(SIZES)
    chosen = wanted({"schemes.parity.rows": rows, "training.epochs": 6})
    seen = spied(monkeypatch, chosen)
    trained(given, chosen)
    scheme = created(chosen, given)
    made = [
        generators([each[index] for each in scheme.batches], 0, index, "float64") for index in range(len(given.shards))
    ]
    assert any(len(epoch.replies) < len(epoch.round.requests) for epoch in seen), "somebody was late"
    for epoch in seen:
        number = (epoch.epoch - 1) % 2
        parts = [made[index][number] @ np.hstack([s.x, s.y]) for index, s in enumerate(given.shards)]
        parity = sum(parts) if rows == "summed" else np.vstack(parts)
        assert parity.shape[0] == scheme.batches[number][-1].parity.stop
        x, y = parity[:, :6], parity[:, 6:]
        total = x.T @ (x @ epoch.model - y)
        size = abs(x).T @ (abs(x) @ abs(epoch.model) + abs(y))
        for device in epoch.replies:
            worked = Secrets(0, device, number, scheme.batches[number][device]).worked
            x, y = given.shards[device].x[worked], given.shards[device].y[worked]
            total = total + x.T @ (x @ epoch.model - y)
            size = size + abs(x).T @ (abs(x) @ abs(epoch.model) + abs(y))
        points = sum(batch.points for batch in scheme.batches[number])
        # parity data are sums of 24 products, added up over 8 devices; products of at most 6 and 60 numbers follow
        assert np.all(abs(epoch.gradient - total / points) <= 2 * gamma(200, np.float64) * size / points)


def test_rows_of_ones_own_are_shared_out_by_weight() -> None:
    given = problem(SIZES)
    scheme = created(wanted({"schemes.parity.rows": "own"}), given)
    for each in scheme.batches:
        points = sum(batch.points for batch in each)
        mass = sum(batch.mass for batch in each)
        assert abs(each[-1].parity.stop - round(0.3 * points)) <= len(each), "rounding of each, and at least one"
        covered = [row for batch in each for row in range(batch.parity.start, batch.parity.stop)]
        assert covered == list(range(each[-1].parity.stop))
        for batch in each:
            assert abs(batch.parity_rows - round(0.3 * points) * batch.mass / mass) <= 1


def test_nobody_waits_longer_than_the_deadline() -> None:
    """And less, if everyone who was asked has replied."""
    given, chosen = problem(SIZES), wanted({"training.epochs": 40})
    scheme = created(chosen, given)
    history = trained(given, chosen).history
    seconds = np.diff(history.columns["time"])
    delays = DelayModel.create(chosen.fleet, chosen.links)
    for epoch, lasted in enumerate(seconds.tolist(), start=2):
        server = history.rounds[history.round_of_epoch[epoch - 1]].server_macs / delays.server_mac_rate
        deadline = scheme.allocations[(epoch - 1) % 2].deadline + server
        asked = len(history.rounds[history.round_of_epoch[epoch - 1]].asked)
        if history.columns["replies"][epoch - 1] < asked:
            assert lasted == pytest.approx(deadline, rel=1e-9)
        else:
            assert lasted <= deadline * (1 + 1e-9)


def test_parity_data_alone_make_a_gradient() -> None:
    """If nobody is in time: that of the parity data; the server's work is counted."""
    given = problem(SIZES)
    server, _ = placed(created(wanted(), given), given.shards)
    server.ask(1, np.ones(given.shape))
    work = Work()
    alone = server.combine(1, {}, work)
    assert np.linalg.norm(alone) > 0
    rows = round(0.3 * sum(size // 2 for size in SIZES))
    assert work.macs == 2 * rows * 6 * 3


def test_the_lost_are_asked_no_more_also_after_an_interruption() -> None:
    """Two devices leave after epoch 3; a run that is resumed after epoch 5 ends with the same bits."""
    given, chosen = problem(SIZES), wanted({"training.epochs": 9})
    leaving = {1: 3, 4: 3}
    kept: dict[int, Any] = {}
    whole = trained(given, chosen, None, lambda state: kept.update({state.epoch: state.to_arrays()}), leaving)
    rounds = [whole.history.rounds[number] for number in whole.history.round_of_epoch]
    assert {1, 4} <= set(rounds[2].asked.tolist())
    for costs in rounds[4:]:
        assert not {1, 4} & set(costs.asked.tolist())
        assert costs.quorum == len(costs.asked)
    resumed = trained(given, chosen, State.from_arrays(kept[5]), last_epochs=leaving)
    assert np.array_equal(resumed.model, whole.model)
    for name, column in whole.history.columns.items():
        np.testing.assert_array_equal(resumed.history.columns[name], column)


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parity data are uploaded again, and are the same; the repetition with other delays is stopped, too."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    changes = {"scheme": "parity", "timing.repeats": 2, "training.epochs": 8}
    whole = small_run(tmp_path / "whole", changes)
    for report in (3, 8):
        with suppress(Stopped):
            small_run(tmp_path / "run", changes, progress=stop_at(report))
    assert results(small_run(tmp_path / "run", changes).path) == results(whole.path)


def test_a_run_of_nobody_stops() -> None:
    given, chosen = problem(SIZES), wanted()
    with pytest.raises(Exception, match="epoch 4 got 0 of the 1 replies") as error:
        trained(given, chosen, last_epochs=dict.fromkeys(range(8), 3))
    assert is_one_sentence(str(error.value))


def test_parity_data_are_made_beforehand_unless_they_are_to_be_charged() -> None:
    given = problem(SIZES)
    plain, charged = (
        created(wanted({"schemes.parity.charge_encoding": charged}), given).device(0, given.shards[0])
        for charged in (False, True)
    )
    assert isinstance(plain, ParityDevice)
    assert isinstance(charged, ParityDevice)
    works = Work(), Work()
    parcels = [d.export({"batch": np.array(0)}, work) for d, work in zip((plain, charged), works, strict=True)]
    assert np.array_equal(parcels[0]["features"], parcels[1]["features"])
    assert works[0].macs == 0 < works[1].macs


def test_the_set_up_is_charged() -> None:
    """Encoding and uploading take time before the first epoch, and count as work and bits of it."""
    given, chosen = problem(SIZES), wanted({"schemes.parity.charge_encoding": True})
    scheme = created(chosen, given)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    engine = VirtualEngine(devices, DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=0)
    state = train(given, chosen, scheme, engine, State.fresh(given))
    ((number, stage),) = state.history.stages_after(0)
    assert number == 0
    batches = {(number, device): b for number, each in enumerate(scheme.batches) for device, b in enumerate(each)}
    weighted = {key: batch for key, batch in batches.items() if batch.weighted}
    assert len(stage) == len(weighted)
    assert sum(entry.export_macs for entry in stage) == sum(10 * b.parity_rows * b.weighted for b in weighted.values())
    assert sum(entry.parcel_bits for entry in stage) == sum(64 * 9 * b.parity_rows + 32 for b in weighted.values())
    slowest = sum(10 * b.parity_rows * b.weighted / 2e2 for (_, device), b in weighted.items() if device == 7)
    assert state.history.columns["time"][0] > slowest


@pytest.mark.parametrize("changes", [{"redundancy": 0.0}, {"redundancy": 1.0}, {"parts": 0}, {"rows": "none"}])
def test_options_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=next(iter(changes))) as error:
        wanted({f"schemes.parity.{name}": value for name, value in changes.items()})
    assert is_one_sentence(str(error.value))


def test_more_parts_than_points_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"schemes\.parity\.parts = 30 leaves a batch with 0") as error:
        created(wanted({"schemes.parity.parts": 30}), problem([2] * 8))
    assert is_one_sentence(str(error.value))


def test_a_fleet_of_unknown_delays_is_refused() -> None:
    known = created(wanted(), problem(SIZES))
    unknown = type(known.public)(known.public.samples, 6, 3, known.public.dtype)
    with pytest.raises(ScenarioError, match="delays") as error:
        Parity(unknown, known.options).check()
    assert is_one_sentence(str(error.value))


def test_devices_take_no_parcels() -> None:
    given = problem(SIZES)
    device = created(wanted(), given).device(0, given.shards[0])
    assert isinstance(device, ParityDevice)
    with pytest.raises(EngineError, match="takes no parcels"):
        device.absorb({}, Work())
