"""Facts about batches, what devices draw, and the server of parity data alone, all by hand."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import ScenarioError
from codedfl.network import Allocation, DelayModel
from codedfl.scenario import Fleet, Links
from codedfl.schemes import SERVER, Public, Work
from codedfl.schemes.coded.parity import Batch, Parity, ParityDevice, ParityOptions, ParityServer, Secrets
from codedfl.task import Shard
from tiny import is_one_sentence

D, C = 3, 2


@pytest.mark.parametrize(
    ("batch", "squares", "weighted", "mass"),
    [
        (Batch(slice(4, 14), 4, 0.75), (0.25, 1.0), 10, 4 * 0.25 + 6),
        (Batch(slice(4, 14), 4, 1.0), (0.0, 1.0), 6, 6.0),
        (Batch(slice(4, 14), 4, 1.0 + 2**-52), (0.0, 1.0), 6, 6.0),
        (Batch(slice(4, 14), 10, 1.0), (0.0, 1.0), 0, 0.0),
        (Batch(slice(4, 14), 0, 0.5), (0.5, 1.0), 10, 10.0),
        (Batch(slice(4, 14)), (1.0, 1.0), 10, 10.0),
    ],
)
def test_weights_of_a_batch(batch: Batch, squares: tuple[float, float], weighted: int, mass: float) -> None:
    """A point that is worked on weighs 1 - P(reply); by rounding, a probability may exceed 1 a little."""
    assert batch.points == 10
    assert batch.squares == squares
    assert batch.weighted == weighted
    assert batch.mass == mass


def test_rows_of_a_batch_in_the_parity_data() -> None:
    assert Batch(slice(0, 5), first_row=7, parity_rows=3).parity == slice(7, 10)
    assert Batch(slice(0, 5)).parity == slice(0, 0)


@pytest.mark.parametrize(("load", "chance", "weighted"), [(3, 0.5, 8), (3, 1.0, 5), (0, 1.0, 8), (8, 1.0, 0)])
def test_what_a_device_draws(load: int, chance: float, weighted: int) -> None:
    """As many points as its load, in order; the others, and those that may be late, enter the parity data."""
    batch = Batch(slice(20, 28), load, chance, 0, 6)
    secrets = Secrets(5, 2, 1, batch)
    worked = np.arange(40)[secrets.worked].tolist()
    assert worked == sorted(set(worked))
    assert len(worked) == load
    assert set(worked) <= set(range(20, 28))
    assert isinstance(secrets.worked, slice) == (load == 8), "a slice copies nothing"
    entering = set(range(20, 28)) - (set(worked) if chance == 1.0 else set())
    assert secrets.weighted.tolist() == sorted(entering)
    assert len(entering) == weighted
    work = Work()
    assert secrets.generator(np.dtype("float64"), work).shape == (6, weighted)
    assert work.macs == 6 * weighted
    draws = {tuple(np.arange(40)[Secrets(5, 2, number, batch).worked].tolist()) for number in range(30)}
    assert len(draws) > 10 or load in (0, 8), "batches draw different points"


def public(devices: int, samples: int = 4) -> Public:
    return Public((samples,) * devices, D, C, np.dtype("float32"))


def allocation(deadline: float, *loads: int) -> Allocation:
    return Allocation(deadline, np.array(loads), np.array([0.5 if load else 0.0 for load in loads]))


def made() -> ParityServer:
    """Three devices and three batches; device 1 has no load in the first, device 2 is certain in the second.

    In the third batch, device 0 has one point, which is the only one of the batch with a positive weight.
    """
    first = [Batch(slice(0, 2), 1, 0.5, 0, 4), Batch(slice(0, 2), 0, 0.0, 0, 4), Batch(slice(0, 2), 2, 0.5, 0, 4)]
    second = [Batch(slice(2, 4), 1, 0.5, 0, 3), Batch(slice(2, 4), 1, 1.0, 3, 2), Batch(slice(2, 4), 2, 1.0, 5, 0)]
    third = [Batch(slice(4, 5), 1, 0.5, 0, 1), Batch(slice(4, 6), 2, 1.0, 0, 1), Batch(slice(4, 6), 2, 1.0, 0, 1)]
    loads = allocation(2.5, 1, 0, 2), allocation(3.5, 1, 1, 2), allocation(4.5, 1, 2, 2)
    return ParityServer(public(3), loads, [first, second, third])


def test_who_uploads_which_batches() -> None:
    """One point with a positive weight is enough; of device 2 the second batch has none."""
    (stage,) = made().set_up()
    assert [(each.sender, each.recipient, int(each.grant["batch"])) for each in stage.transfers] == [
        *((0, SERVER, 0), (1, SERVER, 0), (2, SERVER, 0)),
        *((0, SERVER, 1), (1, SERVER, 1)),
        (0, SERVER, 2),
    ]


def test_epochs_take_turns_with_batches_and_their_deadlines() -> None:
    server = made()
    model = np.full((D, C), 1 / 3)
    first, second, third = ({0, 2}, 2.5), ({0, 1, 2}, 3.5), ({0, 1, 2}, 4.5)
    for epoch, (asked, deadline) in enumerate((first, second, third, first, second), start=1):
        question = server.ask(epoch, model)
        assert set(question.requests) == asked
        assert question.deadline == deadline
        assert (question.quorum, question.least) == (len(asked), 1)
        sent = question.requests[0]["model"]
        assert sent.dtype == np.float32 and np.array_equal(sent, model.astype(np.float32))
        assert question.expected is not None
        assert question.expected[0] == {"gradient": (np.dtype("float32"), (D, C))}


def test_the_lost_are_not_asked_and_count_as_losses() -> None:
    server = made()
    assert server.losses_left(2, set()) == 2
    assert server.losses_left(2, {0}) == 1
    server.after_epoch(1, {}, [2])
    server.after_epoch(2, {}, [])
    assert set(server.ask(3, np.zeros((D, C))).requests) == {0, 1}
    assert set(server.ask(4, np.zeros((D, C))).requests) == {0}
    assert server.losses_left(2, set()) == 1
    assert server.losses_left(2, {2}) == 1
    assert server.losses_left(2, {0}) == 0
    assert server.losses_left(1, {0}) == 0
    server.after_epoch(4, {}, [0])
    assert server.state()["gone"].tolist() == [0, 2]
    again = made()
    assert again.restore(server.state()).stages == ()
    assert set(again.ask(5, np.zeros((D, C))).requests) == {1}
    assert again.losses_left(5, {2}) == 3


def test_parity_data_of_a_batch_are_added_at_their_rows_and_used_in_its_epochs() -> None:
    """Summed in the first batch; one below the other in the second. Replies are added, and divided by the points."""
    server, rng = made(), np.random.default_rng(3)
    parts = {
        (device, number): (rng.standard_normal((rows, D)), rng.standard_normal((rows, C)))
        for device, number, rows in ((0, 0, 4), (1, 0, 4), (0, 1, 3), (1, 1, 2), (0, 2, 1))
    }
    for (device, number), (x, y) in parts.items():
        parcel = {"batch": np.array(number, np.int32), "features": x.astype("f4"), "targets": y.astype("f4")}
        server.receive(device, parcel)
    parity = [
        [parts[0, 0][place] + parts[1, 0][place] for place in (0, 1)],
        [np.vstack([parts[0, 1][place], parts[1, 1][place]]) for place in (0, 1)],
        parts[0, 2],
    ]
    model, replies = rng.standard_normal((D, C)), {2: rng.standard_normal((D, C)), 0: rng.standard_normal((D, C))}
    for epoch in (1, 2, 3, 4, 5):
        server.ask(epoch, model)
        (x, y), points, work = parity[(epoch - 1) % 3], (6, 6, 5)[(epoch - 1) % 3], Work()
        told = {device: {"gradient": reply.astype("f4")} for device, reply in replies.items()}
        gradient = server.combine(epoch, told, work)
        expected = (x.T @ (x @ model - y) + replies[0] + replies[2]) / points
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
        assert gradient.dtype == np.float64
        assert work.macs == 2 * len(x) * D * C


def test_a_device_replies_about_its_points_of_the_batch() -> None:
    batches = [Batch(slice(0, 3), 3, 0.5), Batch(slice(3, 6), 1, 0.5), Batch(slice(6, 9), 0, 0.0)]
    rng = np.random.default_rng(0)
    shard = Shard(rng.standard_normal((9, D)), rng.standard_normal((9, C)))
    device = ParityDevice(1, shard, batches, 4)
    theta = rng.standard_normal((D, C))
    for epoch in (1, 2, 3, 4, 5):
        number = (epoch - 1) % 3
        worked, work = Secrets(4, 1, number, batches[number]).worked, Work()
        x, y = shard.x[worked], shard.y[worked]
        found = device.reply(epoch, {"model": theta}, work)["gradient"]
        np.testing.assert_allclose(found, x.T @ (x @ theta - y), rtol=1e-12, atol=1e-12)
        assert work.macs == 2 * batches[number].load * D * C


def scheme(samples: tuple[int, ...], rates: tuple[float, ...] | None = None, **options: Any) -> Parity:
    rates = rates or (1e3,) * len(samples)
    fleet = Fleet(devices=[{"count": 1, "mac_rate": rate} for rate in rates])
    delays = DelayModel.create(fleet, Links())
    return Parity(Public(samples, D, C, np.dtype("float32"), delays=delays), ParityOptions(**options))


@pytest.mark.parametrize(
    ("points", "redundancy", "rows"),
    [(4, 0.1, 1), (20, 0.1, 2), (25, 0.3, 8), (3, 0.99, 2), (2, 0.99, 1), (2, 0.01, 1)],
)
def test_rows_of_parity_data(points: int, redundancy: float, rows: int) -> None:
    """The share of the points that was asked for, rounded; one at least, and one point at least is left to devices."""
    (batches,) = scheme((points - 1, 1), parts=1, redundancy=redundancy).batches
    assert [batch.parity for batch in batches] == [slice(0, rows)] * 2


def test_two_points_in_each_batch_of_all_devices() -> None:
    scheme((2, 2), parts=2).check()
    for samples, fewest in (((1, 2), 1), ((3, 3, 1), 0)):
        with pytest.raises(ScenarioError, match=f"leaves a batch with {fewest} data points") as error:
            scheme(samples, parts=4 if fewest == 0 else 2).check()
        assert is_one_sentence(str(error.value))


def test_own_rows_are_shared_out_by_squared_weights() -> None:
    """Whoever is certain to reply about all of its points makes none, and of the others each makes one at least."""
    found = scheme((20, 20, 1, 20), (1e7, 4e2, 1e2, 2e2), parts=1, redundancy=0.3, rows="own")
    (batches,) = found.batches
    masses = [batch.mass for batch in batches]
    expected = [
        max(1, round(18 * mass / sum(masses))) if batch.weighted else 0
        for mass, batch in zip(masses, batches, strict=True)
    ]
    assert [batch.parity_rows for batch in batches] == expected
    assert [batch.first_row for batch in batches] == [sum(expected[:device]) for device in range(4)]
    assert len(set(expected)) > 2


def test_batches_follow_each_other() -> None:
    """Of nine points and of seven, which are not divided evenly."""
    found = scheme((9, 7), parts=3)
    assert [[batch.rows for batch in each] for each in found.batches] == [
        [slice(0, 3), slice(0, 2)],
        [slice(3, 6), slice(2, 4)],
        [slice(6, 9), slice(4, 7)],
    ]


def test_numbers_that_follow_from_loads() -> None:
    """Losses: all devices with a load but one, in the batch with the fewest; two triangles of bytes for each batch.

    A device with one point has none in the first of two batches.
    """
    rates = (1e4, 1e4, 1e4)
    found = scheme((20, 20, 1), rates, parts=2, redundancy=0.1)
    assert [np.count_nonzero(each.loads) for each in found.allocations] == [2, 3]
    assert found.survives_losses == 1
    assert found.memory == 2 * 4 * D * 2 * D
    same, other = (scheme((20, 20, 1), rates, parts=2, redundancy=0.1) for rates in (rates, (1e4, 9e2, 1e4)))
    assert found.chosen_by_delays == same.chosen_by_delays != other.chosen_by_delays
    assert found.parcels(0) == ()
    assert found.server().losses_left(3, set()) == 3


def test_what_it_says_of_parity_data() -> None:
    found = scheme((20, 20))
    cells = {(cell.adversary, cell.asset): cell for cell in found.secrecy()}
    for who in ("server", "server and devices", "deviating server"):
        assert cells[who, "gram"].verdict == "leaks"
        assert "an estimate of its Gram matrix" in cells[who, "gram"].reason
        for asset in ("membership of a device", "membership in the union"):
            assert cells[who, asset].verdict == "falls"
            assert "as many rows as points" in cells[who, asset].reason
    assert cells["device", "gram"].verdict == "leaks"
    said = found.leakage()
    assert "parity data of every device" in said.server
    assert "summed gradients" in said.devices
    assert "all parity data" in said.eavesdropper
