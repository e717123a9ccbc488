"""Emulated slowness: the seconds are those of the delay model, and no reply comes sooner."""

from pathlib import Path

import numpy as np
import pytest

from codedfl.delays import DelayModel, RoundCosts
from codedfl.engines.emulation import Emulation
from codedfl.scenario import DeviceGroup, Links
from contracts.test_engines import DEVICES, chosen, given
from fleets import fleet
from tiny import scenario

SCALE = 0.5


def wanted(**changes: object) -> object:
    return scenario({"fleet.devices": DEVICES, "timing.seed": 3, "timing.draw": 5, **changes})


@pytest.mark.parametrize("question", [0, 2])
@pytest.mark.parametrize("device", [0, 5])
def test_a_reply_takes_what_virtual_time_says(device: int, question: int) -> None:
    """All three parts, in the scenario's own draw; a power of two as scale changes no bit of them."""
    setting = wanted()
    delays = DelayModel.create(setting.fleet, setting.links)
    number = [np.array([value], np.int64) for value in (device, 1000, 10**6, 3000)]
    costs = RoundCosts(*number, quorum=1, server_macs=0)
    expected = delays.reply_parts(costs, delays.chance(3, 7, 5, 1, question))
    slow = Emulation.of_scenario(setting, device, time_scale=SCALE)
    found = slow.reply(7, question, down_bits=1000, macs=10**6, up_bits=3000)
    assert found == tuple(float(part[0, 0]) * SCALE for part in expected)
    assert min(found) > 0


def test_parcels_take_what_their_bits_take() -> None:
    """Without chance: 1.1 * bits / rate, and multiplications over their rate."""
    slow = Emulation.alone(
        DeviceGroup(mac_rate=2e6, setup_ratio=0.0),
        Links(down_rate=8e6, up_rate=2e6, d2d_rate=4e6, overhead=0.1, loss=0.0),
    )
    assert slow.parcel(4000, 1) == pytest.approx(1.1e-3)
    assert slow.upload(4000, 1) == pytest.approx(2.2e-3)
    assert slow.download(4000, 1) == pytest.approx(0.55e-3)
    assert slow.work(4000, 1) == pytest.approx(2e-3)
    assert (slow.parcel(0, 1), slow.work(0, 1)) == (0.0, 0.0)


def test_chance_has_addresses() -> None:
    """The same address, the same tries and setup; the mean of many is that of the distributions."""
    group, links = DeviceGroup(mac_rate=1.0, setup_ratio=0.5), Links(d2d_rate=1.0, overhead=0.0, loss=0.5)
    slow, same = (Emulation.alone(group, links, seed=4) for _ in range(2))
    assert [slow.parcel(1, 2, n) for n in range(9)] == [same.parcel(1, 2, n) for n in range(9)]
    assert [slow.parcel(1, 2, n) for n in range(9)] != [slow.parcel(1, 3, n) for n in range(9)]
    tries = [slow.parcel(1, 0, n) for n in range(2000)]  # geometric: mean 2, variance 2
    assert abs(np.mean(tries) - 2) < 5 * np.sqrt(2 / 2000)
    setups = [slow.work(1, 1, n) - 1 for n in range(2000)]  # exponential: mean and deviation 0.5
    assert abs(np.mean(setups) - 0.5) < 5 * 0.5 / np.sqrt(2000)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_time_must_pass(scale: float) -> None:
    with pytest.raises(ValueError, match="time_scale"):
        Emulation.of_scenario(wanted(), 0, time_scale=scale)


def test_an_emulated_fleet_is_never_faster_than_the_delay_model(tmp_path: Path) -> None:
    """Every reply, in the seconds of the scenario; and the model is that of devices that do not sleep."""
    slowly = [{"count": 6, "mac_rate": 5e3}]  # 432 multiplications and more, so that overhead is small beside them
    setting, made = chosen("conventional", **{"fleet.devices": slowly, "training.epochs": 3}), given()

    def slow(scenario: object, device: int) -> Emulation:
        return Emulation.of_scenario(setting, device, time_scale=SCALE)

    with fleet(made, slow=slow) as sites:
        run = sites.deploy(setting, tmp_path / "slow", time_scale=SCALE)
    with fleet(made) as sites:
        quick = sites.deploy(setting, tmp_path / "quick")
    theta = [np.load(each.path / "model.npz")["theta"] for each in (run, quick)]
    assert np.array_equal(*theta)
    delays = DelayModel.create(setting.fleet, setting.links)
    table = devices(run.path)
    for epoch in range(1, 4):
        rows = table["epoch"] == epoch
        order = np.argsort(table["device"][rows])
        payload = 64 * made.shape[0] * made.shape[1]
        bits = np.full(6, payload, np.int64)
        macs = table["macs"][rows][order]
        down, work = (np.zeros(6, np.int64), np.zeros(6, np.int64)) if epoch == 1 else (bits, macs)
        costs = RoundCosts(np.arange(6), down, work, bits, quorum=6, server_macs=0)
        least = delays.reply_seconds(costs, delays.chance(0, epoch, 0, 1))[0]
        assert np.all(table["seconds"][rows][order] >= least * (1 - 1e-9))


def devices(path: Path) -> dict[str, np.ndarray]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path / "devices.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}
