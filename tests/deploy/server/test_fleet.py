"""Fleets of real processes: how many devices, and what their kits say."""

import contextlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="kits are made by NVIDIA FLARE, of the extra 'flare'")

from codedfl.cli import main
from codedfl.deploy.flare.jobs import Job
from codedfl.deploy.flare.kits import load_kits
from codedfl.deploy.flare.names import HOST_NAME, SERVER
from codedfl.deploy.flare.namespaces import Link, Network
from codedfl.deploy.flare.processes import kits_of
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server import fleet
from codedfl.deploy.server.fleet import KEY, clear, fleet_folder, links_of, local_fleet, make_fleet
from codedfl.deploy.server.kit_readme import kit_readme, kit_warnings
from codedfl.deploy.site.configuration import read_settings
from codedfl.errors import EngineError, UsageError
from codedfl.runs import Run
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES
from rundirs import SMALL

FOUR = Scenario.from_toml(SMALL).with_devices(4)


def test_every_kit_names_its_part_and_pins_all_other_keys(tmp_path: Path) -> None:
    kits = make_fleet(tmp_path / "kits", FOUR, time_scale=0.5)
    prints = {name: DeviceKey.read(kits.device(name) / KEY).fingerprint for name in kits.sites}
    assert len(set(prints.values())) == 4
    assert read_site(kits.server)["fingerprints"] == prints
    for part, name in enumerate(kits.sites, start=1):
        settings = read_settings(read_site(kits.device(name)))
        assert settings.site(kits.device(name)).pins == {
            other: shown for other, shown in prints.items() if other != name
        }
        assert (settings.data.source, settings.data.part, settings.data.parts) == ("digits", part, 4)
        assert settings.emulation is not None
        assert settings.emulation.time_scale == 0.5
        assert stat.S_IMODE((kits.device(name) / KEY).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["--site", "anna"], "needs at least 2 devices"),
        (["--devices", "4", "--host", ""], "'' cannot be the server's host"),
        (["--devices", "4", "--host", "two words"], "'two words' cannot be the server's host"),
        (["--devices", "4", "--host", "-fl.example.org"], "'-fl.example.org' cannot be the server's host"),
    ],
)
def test_kits_that_could_not_be_used_are_not_made(
    changes: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "kit", str(tmp_path / "kits"), *changes])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_fleet_that_is_too_small_for_its_scheme_starts_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "local", "--devices", "1", "--out", str(tmp_path / "runs" / "one")])
    assert ended.value.code == 2
    assert "needs at least 2 devices" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["localhost", "fl.example.org", "10.0.0.7", "FL-1.example.org"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert HOST_NAME.fullmatch(host)


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
    text = kit_readme(kits, FOUR, own_keys=True)
    assert "TCP port 8002 of `fl.example.org`" in text
    assert "`codedfl deploy key DIR` makes the key of the device" in text
    assert "`codedfl deploy pin DIR a=sha256:... b=sha256:... c=sha256:... ...`" in text
    assert "Warning" not in text


def test_kits_for_two_owners_or_for_one_machine_warn(tmp_path: Path) -> None:
    kits = make_fleet(tmp_path / "kits", FOUR.with_devices(2), own_keys=True)
    words = kit_warnings(kits)
    assert [text.partition(":")[0] for text in words] == ["2 devices", "server and devices on one machine"]
    text = kit_readme(kits, FOUR, own_keys=True)
    assert all(f"**Warning:** {sentence}." in text for sentence in words)


def test_a_file_of_data_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("a,y\n1,2\n")
    scenario = FOUR.with_settings({"data.source": "mine.csv", "data.target": "y", "data.kind": "regression"})
    kits = make_fleet(tmp_path / "kits", scenario)
    settings = read_settings(read_site(kits.device("device-3")))
    assert (settings.data.source, settings.data.part, settings.data.target) == (str(tmp_path / "mine.csv"), 3, "y")


def test_a_known_table_is_named_by_its_name(tmp_path: Path) -> None:
    kits = make_fleet(tmp_path / "kits", load("watch").with_devices(4))
    data = read_settings(read_site(kits.device("device-2"))).data
    assert (data.source, data.part, data.parts, data.target) == ("watch", 2, 4, "exercise")
    assert data.kind == "classification"


def test_data_of_owners_are_left_to_them(tmp_path: Path) -> None:
    scenario = FOUR.with_settings({"data.source": "sites"})
    kits = make_fleet(tmp_path / "kits", scenario)
    settings = read_settings(read_site(kits.device("device-1")))
    assert (settings.data.source, settings.data.part) == ("data.csv", None)
    assert "put your data beside `site.toml` as `data.csv`" in kit_readme(kits, scenario, own_keys=False)


def test_plugins_are_named_by_owners_and_in_no_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES.files, "quick", tmp_path / "my quick.py")
    kits = make_fleet(tmp_path / "kits", FOUR)
    text = kit_readme(kits, FOUR, own_keys=False)
    assert "Schemes come from `my quick.py`, which is in no kit" in text
    for command in ("start", "train"):
        assert f"`codedfl deploy {command} DIR --plugin 'my quick.py'`" in text
    assert not [path for path in kits.folder.rglob("*") if path.is_file() and b"quick" in path.read_bytes()]


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


def test_links_carry_what_gets_through_in_real_time() -> None:
    """Of 10 Mbit/s down and 5 up a tenth is lost and sent again; a tenth of the time is ten times the rate."""
    paper = load("paper").with_devices(5)
    groups = [group | {"up_rate": 1e6} for group in paper.fleet.to_table()["devices"][:1]]
    slower = paper.with_settings({"fleet.devices": groups + paper.fleet.to_table()["devices"][1:]})
    links = links_of(slower, 0.1)
    assert [link.down for link in links] == pytest.approx([90e6] * 5, rel=1e-15)
    assert [link.up for link in links] == pytest.approx([9e6] * 2 + [45e6] * 3, rel=1e-15)


def test_a_fleet_behind_slow_links_is_started_in_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites emulate their computing only; every process, the server's too, is started where its link is."""
    seen: list[Any] = []

    @contextlib.contextmanager
    def shaped(sites: Sequence[str], links: Sequence[Link]) -> Iterator[Network]:
        seen.append((tuple(sites), links))
        yield Network("198.18.0.1", {name: f"space-of-{name}" for name in (SERVER, *sites)})
        seen.append("removed")

    @contextlib.contextmanager
    def running(kits: Sequence[Path], prefixes: Mapping[Path, Sequence[str]]) -> Iterator[None]:
        seen.append({kit.name: prefixes[kit][-1] for kit in kits})
        yield
        seen.append("ended")

    for name, replaced in {"shaped": shaped, "running": running, "need_namespaces": lambda: None}.items():
        monkeypatch.setattr(fleet, name, replaced)
    with local_fleet(FOUR, tmp_path / "run", time_scale=0.5, kernel_links=True) as kits:
        assert kits.host == "198.18.0.1"
        assert [read_site(kits.device(site))["emulation"] for site in kits.sites] == [
            {"time_scale": 0.5, "links": False}
        ] * 4
    spaces = {path.name: f"space-of-{name}" for name, path in zip((SERVER, *kits.sites), kits_of(kits), strict=True)}
    assert seen == [(kits.sites, links_of(FOUR, 0.5)), spaces, "ended", "removed"]
    assert not fleet_folder(tmp_path / "run").exists()


def test_only_emulated_fleets_have_slow_links(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give a time scale"), local_fleet(FOUR, tmp_path / "run", kernel_links=True):
        pass
    assert not list(tmp_path.iterdir())


def test_the_patience_with_sites_that_share_a_machine_grows_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 s between hosts; with four devices here 16 s more."""
    jobs: list[Job] = []

    class NoAdmin(contextlib.nullcontext[None]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__()

    monkeypatch.setattr(fleet, "Admin", NoAdmin)
    monkeypatch.setattr(fleet, "run_job", lambda admin, job, **options: jobs.append(job) or {})
    monkeypatch.setattr(fleet, "load", lambda run: Run.__new__(Run))
    kits = make_fleet(tmp_path / "kits", FOUR)
    fleet.submit(kits, FOUR)
    fleet.train(kits, FOUR, run=tmp_path / "run")
    fleet.train(kits, FOUR, run=tmp_path / "run", patience=20.0)
    assert [job.arguments["patience"] for job in jobs] == [30.0, 46.0, 20.0]
