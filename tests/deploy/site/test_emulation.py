"""Emulated slowness: the seconds are those of the delay model, and no reply comes sooner."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, encode
from codedfl.deploy.site import reception
from codedfl.deploy.site.emulation import Emulation, TransferEvent
from codedfl.deploy.site.parcels import ChannelFree, Parcel, Transit, read_peer_message
from codedfl.errors import EngineError, ParcelError
from codedfl.network import DelayModel, RoundCosts
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
    """Without chance: 1.1 * bits / rate of the slower link, and multiplications over their rate."""
    group = DeviceGroup(mac_rate=2e6, setup_ratio=0.0)
    rates = Links(down_rate=8e6, up_rate=2e6, d2d_rate=4e6, overhead=0.1, loss=0.0)
    for event in (TransferEvent(epoch=2, parcels=3), TransferEvent(stage=1, parcels=3)):
        slow = Emulation.alone(group, rates)
        delays = slow.transfers(event)
        assert (delays.rate, delays.tries(2)) == (4e6, 1.0)
        assert slow.parcel(4000, 1.0, 9e6) == pytest.approx(1.1e-3)
        assert slow.parcel(4000, 3.0, 1e6) == pytest.approx(3 * 4.4e-3)
        assert delays.upload(4000, 1) == pytest.approx(2.2e-3)
        assert delays.download(4000, 1) == pytest.approx(0.55e-3)
        assert delays.prepare(8000, 4000) == pytest.approx(1.1e-3 + 2e-3)
        assert delays.absorb(4000) == pytest.approx(2e-3)
        assert (slow.parcel(0, 1.0, 1.0), delays.prepare(0, 0), delays.absorb(0)) == (0.0, 0.0, 0.0)


def test_where_the_network_is_slow_by_itself_only_computing_is_emulated() -> None:
    """All links take no time, and computing takes what it took."""
    group, rates = DeviceGroup(mac_rate=2e6), Links(loss=0.3)
    slow, bare = (Emulation.alone(group, rates, seed=1, links=links) for links in (True, False))
    whole, part = (each.reply(3, 0, down_bits=800, macs=1000, up_bits=900) for each in (slow, bare))
    assert part == (0.0, whole[1], 0.0)
    errands = [each.transfers(TransferEvent(stage=0, parcels=2)) for each in (slow, bare)]
    assert errands[1].prepare(500, 1000) == errands[0].prepare(0, 1000) > 0
    assert errands[1].absorb(1000) == errands[0].absorb(1000) > 0
    assert (errands[1].upload(500, 0), errands[1].download(500, 0), bare.parcel(500, 1.0, 5.0)) == (0, 0, 0)
    assert min(errands[0].upload(500, 0), errands[0].download(500, 0), slow.parcel(500, 1.0, 5.0)) > 0


def test_chance_has_addresses() -> None:
    """The same event, the same tries and setup; the mean of many is that of the distributions."""
    group, rates = DeviceGroup(mac_rate=1.0, setup_ratio=0.5), Links(down_rate=1.0, overhead=0.0, loss=0.5)
    slow, same = (Emulation.alone(group, rates, seed=4) for _ in range(2))
    delays, other = (each.transfers(TransferEvent(stage=2, parcels=2000)) for each in (slow, same))
    tries, again = ([each.tries(number) for number in range(2000)] for each in (delays, other))
    assert tries == again
    assert tries != [slow.transfers(TransferEvent(stage=3, parcels=2000)).tries(number) for number in range(2000)]
    assert abs(np.mean(tries) - 2) < 5 * np.sqrt(2 / 2000)  # geometric: mean 2, variance 2
    relayed = [delays.download(1, number) for number in range(2000)]
    assert relayed != tries
    assert abs(np.mean(relayed) - 2) < 5 * np.sqrt(2 / 2000)
    for step in ("prepare", "absorb"):  # exponential setup: mean and deviation 0.5
        errands = [slow.transfers(TransferEvent(epoch=epoch, parcels=1)) for epoch in range(2000)]
        setups = [(each.prepare(0, 1) if step == "prepare" else each.absorb(1)) - 1 for each in errands]
        assert abs(np.mean(setups) - 0.5) < 5 * 0.5 / np.sqrt(2000)


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        {"epoch": 1, "stage": 1, "parcels": 1},
        {"epoch": None, "stage": None, "parcels": 1},
        {"epoch": -1, "stage": None, "parcels": 1},
        {"epoch": True, "stage": None, "parcels": 1},
        {"epoch": 1, "stage": None, "parcels": None},
        {"epoch": 1, "stage": None, "parcels": 1, "more": 1},
        {"epoch": 1, "stage": None, "parcels": 10**9},
    ],
)
def test_a_transfer_event_is_one_of_two(table: object) -> None:
    with pytest.raises(EngineError, match="when parcels are sent"):
        TransferEvent.from_table(table)


TRAVEL = Transit(TransferEvent(stage=1, parcels=2), 1, relayed=False, tries=2.0, rate=5e6)


def test_a_parcel_says_how_it_travels() -> None:
    for transit in (None, TRAVEL, dataclasses.replace(TRAVEL, turn=None, event=TransferEvent(epoch=3, parcels=1))):
        parcel = read_peer_message(Parcel(4, 1, {"x": np.arange(3)}, transit).to_bytes())
        assert isinstance(parcel, Parcel)
        assert (parcel.stage, parcel.number, parcel.transit) == (4, 1, transit)


@pytest.mark.parametrize(
    "change",
    [{"turn": -1}, {"turn": 1.0}, {"tries": 0.0}, {"rate": float("inf")}, {"rate": 5}, {"relayed": 1}, {"more": 1}],
)
def test_a_parcel_that_travels_strangely_is_none(change: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="not a parcel"):
        Transit.from_table(TRAVEL.to_table() | change)


def test_a_turn_on_the_channel_names_stage_and_parcel() -> None:
    assert read_peer_message(ChannelFree(3, 7).to_bytes()) == ChannelFree(3, 7)
    for table in ({}, {"stage": 1}, {"stage": -1, "number": 0}, {"stage": 1, "number": "0"}):
        with pytest.raises(EngineError, match="whole number"):
            read_peer_message(encode(Frame("free", table)))
    with pytest.raises(EngineError, match="not a parcel"):
        read_peer_message(encode(Frame("other", {"stage": 1, "number": 0})))


def test_turns_that_nobody_takes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an abandoned stage are dropped and make room."""
    monkeypatch.setattr(reception, "_MOST_TURNS", 2)
    own = reception.Reception()
    for number in range(2):
        own.set_free(1, number)
    with pytest.raises(ParcelError, match="not taken"):
        own.set_free(1, 2)
    own.release(1)
    own.set_free(1, 3)
    own.set_free(2, 0)
    own.set_free(2, 1)
    own.await_free(2, 1)
    own.await_free(1, 9)


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
