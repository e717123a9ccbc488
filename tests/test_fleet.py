"""Fleets of real processes: how many devices, and what their kits say."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nvflare", reason="kits are made by NVIDIA FLARE, of the extra 'flare'")

from codedfl.engines.envelopes import DeviceKey
from codedfl.engines.flare import kits_of, load_kits
from codedfl.engines.flare.sites import read_site
from codedfl.errors import EngineError, UsageError
from codedfl.fleet import KEY, clear, fleet_folder, fleet_of, make_fleet
from codedfl.guide import guide
from codedfl.scenario import Scenario, load
from codedfl.site import load_site
from rundirs import SMALL

FOUR = fleet_of(Scenario.from_toml(SMALL), 4)


def rates(scenario: Scenario) -> list[float]:
    return [group.mac_rate for group in scenario.fleet.devices for _ in range(group.count)]


@given(st.integers(1, 25))
def test_fewer_devices_are_spread_evenly_over_the_fleet(devices: int) -> None:
    """Every class of speed has its share, rounded to a device, and nothing else of the scenario changes."""
    paper = load("paper")
    small = fleet_of(paper, devices)
    assert small.fleet.size == devices
    for rate in set(rates(paper)):
        assert abs(rates(small).count(rate) - rates(paper).count(rate) * devices / 25) < 1
    assert rates(small) == sorted(rates(small), reverse=True), "in the order of the fleet"
    assert small.with_settings({"fleet.devices": paper.fleet.to_table()["devices"]}) == paper


@pytest.mark.parametrize("devices", [0, -1, 26])
def test_no_fleet_of_another_size_can_be_made(devices: int) -> None:
    with pytest.raises(UsageError, match=f"--devices {devices} must be from 1 to 25"):
        fleet_of(load("paper"), devices)


def test_every_kit_names_its_part_and_pins_all_other_keys(tmp_path: Path) -> None:
    kits = make_fleet(tmp_path / "kits", FOUR, time_scale=0.5)
    prints = {name: DeviceKey.read(kits.device(name) / KEY).fingerprint for name in kits.sites}
    assert len(set(prints.values())) == 4
    assert read_site(kits.server)["fingerprints"] == prints
    for part, name in enumerate(kits.sites, start=1):
        site, settings = load_site(kits.device(name) / "site.toml")
        assert site.pins == {other: shown for other, shown in prints.items() if other != name}
        assert (settings.data.source, settings.data.part, settings.data.parts) == ("digits", part, 4)
        assert settings.emulation is not None
        assert settings.emulation.time_scale == 0.5
        assert stat.S_IMODE((kits.device(name) / KEY).stat().st_mode) == 0o600


def test_owners_may_make_their_own_keys(tmp_path: Path) -> None:
    kits = make_fleet(
        tmp_path / "kits", FOUR, sites=["a", "b", "c", "d"], host="fl.example.org", port=8002, own_keys=True
    )
    assert "fingerprints" not in read_site(kits.server)
    for name in "abcd":
        settings = read_site(kits.device(name))
        assert not (kits.device(name) / KEY).exists()
        assert settings["peers"] == {}, "nothing is exchanged until owners have entered prints"
        assert "trust_server" not in settings
    text = guide(kits, FOUR, own_keys=True)
    assert "port 8002 of `fl.example.org`" in text
    assert "[peers]" in text


def test_a_file_of_data_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("a,y\n1,2\n")
    scenario = FOUR.with_settings({"data.source": "mine.csv", "data.target": "y", "data.kind": "regression"})
    kits = make_fleet(tmp_path / "kits", scenario)
    _, settings = load_site(kits.device("device-3") / "site.toml")
    assert (settings.data.source, settings.data.part, settings.data.target) == (str(tmp_path / "mine.csv"), 3, "y")


def test_data_of_owners_are_left_to_them(tmp_path: Path) -> None:
    scenario = FOUR.with_settings({"data.source": "sites"})
    kits = make_fleet(tmp_path / "kits", scenario)
    _, settings = load_site(kits.device("device-1") / "site.toml")
    assert (settings.data.source, settings.data.part) == ("data.csv", None)
    assert "put the file of your data beside `site.toml`" in guide(kits, scenario, own_keys=False)


def test_as_many_names_as_devices(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 sites were named for the 4 devices"):
        make_fleet(tmp_path / "kits", FOUR, sites=["a", "b"])
    assert not (tmp_path / "kits").exists()


def test_only_kits_are_cleared_away(tmp_path: Path) -> None:
    folder = fleet_folder(tmp_path / "run")
    clear(folder)
    make_fleet(folder, FOUR)
    assert len(kits_of(load_kits(folder))) == 5
    clear(folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="holds no start-up kits"):
        clear(folder)
    assert (folder / "notes.txt").exists()
