"""A site's own file: keys, data that the owner names, fingerprints, slowness; and a run of sites made of files."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.data import TABLES, load_rows
from codedfl.data.sources import tables
from codedfl.data.sources.download import DataFile
from codedfl.data.sources.origins import EnvironmentFolder
from codedfl.deploy.flare.names import site_names
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.configuration import SiteSettings, make_host, read_settings
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import Site
from codedfl.errors import DataError, KeyFileError, ScenarioError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario, load
from codedfl.task import Problem, with_owners
from codedfl.testing.in_process import InProcessCarrier, StillClock
from rundirs import small
from tiny import is_one_sentence

PIN = "sha256:" + "0" * 64


def write(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load_site(path: Path) -> tuple[Site, SiteSettings]:
    """Read a site's file as its adapter does."""
    settings = read_settings(read_site(path.parent))
    return settings.site(path.parent), settings


def make_key(path: Path) -> str:
    """Write a key file; return its fingerprint."""
    key = DeviceKey()
    key.write(path)
    return key.fingerprint


SMALL = 'name = "device-1"\n[data]\nsource = "digits"\npart = 1\nparts = 5\n'


def test_a_part_of_a_named_set_is_the_shard_of_the_problem(tmp_path: Path) -> None:
    scenario = small()
    whole = Problem.build(scenario)
    for device, name in enumerate(site_names(scenario.fleet.size)):
        text = f'name = "{name}"\n[data]\nsource = "digits"\npart = {device + 1}\nparts = 5\n'
        site, _ = load_site(write(tmp_path, text))
        held = site.load(scenario)
        assert np.array_equal(held.shard.x, whole.shards[device].x)
        assert np.array_equal(held.shard.y, whole.shards[device].y)
        assert (held.kind, held.classes) == ("classification", tuple("0123456789"))
    assert site.name == "device-5"


def test_parts_must_be_as_many_as_devices(tmp_path: Path) -> None:
    site, _ = load_site(write(tmp_path, SMALL.replace("parts = 5", "parts = 4")))
    with pytest.raises(DataError, match="part 1 of 4, but the fleet has 5") as error:
        site.load(small())
    assert is_one_sentence(str(error.value))


def table(folder: Path, name: str, rows: int, labels: list[Any], seed: int = 0) -> tuple[np.ndarray, list[Any]]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3)).round(3)
    y = [labels[number % len(labels)] for number in range(rows)]
    lines = ["a,b,c,what"] + [",".join(map(str, [*values, label])) for values, label in zip(x, y, strict=True)]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return x, y


def plain() -> Scenario:
    return small({"features.kind": "none", "task.precision": "float64", "data.source": "sites"})


def test_all_rows_of_an_own_file_are_held(tmp_path: Path) -> None:
    x, y = table(tmp_path, "mine.csv", 7, ["cat", "dog"])
    text = 'name = "device-1"\n[data]\nsource = "mine.csv"\nclasses = ["dog", "cow", "cat"]\n'
    site, _ = load_site(write(tmp_path, text))
    held = site.load(plain())
    assert np.array_equal(held.shard.x, x)
    assert (held.kind, held.classes) == ("classification", ("dog", "cow", "cat"))
    assert np.array_equal(held.shard.y, [[label == name for name in held.classes] for label in y])


def test_a_server_never_says_where_data_lie(tmp_path: Path) -> None:
    """A scenario that names another file and another test file changes nothing for a site with its own."""
    x, _ = table(tmp_path, "mine.csv", 7, [0, 1])
    site, _ = load_site(write(tmp_path, 'name = "device-1"\n[data]\nsource = "mine.csv"\n'))
    curious = plain().with_settings({"data.source": "/etc/secret.csv", "data.test_source": "/etc/other.csv"})
    assert np.array_equal(site.load(curious).shard.x, x)
    shared, _ = load_site(write(tmp_path, 'name = "device-1"\n[data]\nsource = "mine.csv"\npart = 1\nparts = 5\n'))
    with pytest.raises(DataError, match="either both or none"):
        shared.load(curious)


def test_a_file_cut_into_parts_is_that_of_the_problem(tmp_path: Path) -> None:
    table(tmp_path, "all.csv", 40, [0, 1])
    scenario = plain().with_settings({"data.source": str(tmp_path / "all.csv")})
    whole = Problem.build(scenario)
    text = 'name = "device-2"\n[data]\nsource = "all.csv"\npart = 2\nparts = 5\n'
    held = load_site(write(tmp_path, text))[0].load(scenario)
    assert whole.raw is not None
    assert np.array_equal(held.shard.x, whole.raw.device(1).x)


def test_a_part_of_a_known_table_is_that_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Students 1, 2 and 3 of a small table insteval, which the site fetches by its name."""
    ratings = b"s,d,studage,lectage,service,dept,y\n" + b"".join(
        f"{row % 3 + 1},{row},{row % 4},{row % 5},{row % 2},{row % 2},{row % 5 + 1}\n".encode() for row in range(18)
    )
    (tmp_path / "InstEval.csv").write_bytes(ratings)
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path))
    monkeypatch.setenv("CODEDFL_CACHE", str(tmp_path / "cache"))
    pinned = DataFile("InstEval.csv", hashlib.sha256(ratings).hexdigest(), len(ratings))
    source = replace(TABLES["insteval"].source, files=(pinned,), origins=(EnvironmentFolder("insteval"),))
    monkeypatch.setattr(tables, "TABLES", {"insteval": replace(TABLES["insteval"], source=source)})
    scenario = with_owners(load("insteval").with_settings({"data.test_fraction": 0}))
    text = 'name = "device-2"\n[data]\nsource = "insteval"\nkind = "regression"\ntarget = "y"\npart = 2\nparts = 3\n'
    held = load_site(write(tmp_path, text))[0].load(scenario)
    rows = range(1, 18, 3)
    assert held.shard.y[:, 0].tolist() == [row % 5 + 1 for row in rows]
    assert held.shard.x[:, :3].tolist() == [[row % 4, row % 5, row % 2] for row in rows]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nsource = 'digits'\npart = 1\nparts = 5", "lacks the key 'name'"),
        ('name = "a"', "lacks the key 'data'"),
        (SMALL + "nonsense = 1", "unknown key 'data.nonsense'"),
        (SMALL.replace("part = 1\n", ""), "which part of how many"),
        (SMALL.replace("part = 1\n", "part = 6\n"), "which part of how many"),
        (SMALL.replace("part = 1\nparts = 5\n", ""), "is for all sites"),
        ('name = "a"\n[data]\nsource = "chem97"\n', "'chem97' is for all sites"),
        (SMALL + '[peers]\ndevice-2 = "md5:0"', "must be a fingerprint"),
        (f'trust_server = true\n{SMALL}[peers]\ndevice-2 = "{PIN}"', "keep one of them"),
        (SMALL + "[emulation]\ntime_scale = 0", "emulation.time_scale"),
    ],
)
def test_a_wrong_file_is_refused_in_words(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        load_site(write(tmp_path, text))
    assert words in str(error.value)
    assert is_one_sentence(str(error.value).replace("\n", " "))


def test_keys_and_pins_are_read(tmp_path: Path) -> None:
    shown = make_key(tmp_path / "own.key")
    site, _ = load_site(write(tmp_path, f'key = "own.key"\n{SMALL}[peers]\ndevice-2 = "{PIN}"\n'))
    assert site.key is not None
    assert site.key.fingerprint == shown
    assert site.pins == {"device-2": PIN}
    assert load_site(write(tmp_path, SMALL))[0].pins == {}
    assert load_site(write(tmp_path, f"trust_server = true\n{SMALL}"))[0].pins is None
    with pytest.raises(KeyFileError):
        load_site(write(tmp_path, f'key = "none.key"\n{SMALL}'))


class Nobody(Peers):
    def send(self, site: str, payload: bytes) -> bytes:
        raise AssertionError("nothing is sent")


def test_an_adapter_makes_a_host_from_the_table(tmp_path: Path) -> None:
    """With the keys that are the adapter's own."""
    values = {"name": "device-1", "data": {"source": "digits", "part": 1, "parts": 5}, "emulation": {}}
    host = make_host(
        values | {"folder": str(tmp_path), "host": "codedfl.deploy.site.configuration:make_host", "patience": 5.0},
        Nobody(),
    )
    assert isinstance(host, DeviceHost)


def test_emulation_is_of_the_scenario_or_of_own_rates(tmp_path: Path) -> None:
    _, settings = load_site(write(tmp_path, SMALL + "[emulation]\ntime_scale = 0.5\n"))
    assert settings.emulation is not None
    slow = settings.emulation.of(small(), 4)
    quick = settings.emulation.of(small(), 0)
    assert slow.time_scale == 0.5
    assert (
        slow.reply(2, 0, down_bits=0, macs=10**6, up_bits=0)[1] > quick.reply(2, 0, down_bits=0, macs=1, up_bits=0)[1]
    )
    assert min(slow.reply(2, 0, down_bits=9, macs=9, up_bits=9)) > 0
    _, settings = load_site(write(tmp_path, SMALL + "[emulation]\nlinks = false\n"))
    assert settings.emulation is not None
    assert [part > 0 for part in settings.emulation.of(small(), 4).reply(2, 0, down_bits=9, macs=9, up_bits=9)] == [
        *(False, True, False)
    ]
    own = SMALL + "[emulation]\nmac_rate = 1e3\nsetup_ratio = 0.0\n"
    _, settings = load_site(write(tmp_path, own))
    assert settings.emulation is not None
    assert settings.emulation.of(small(), 4).reply(2, 0, down_bits=0, macs=10**6, up_bits=0) == (0.0, 1000.0, 0.0)


def test_a_fleet_of_files_trains_the_model_of_virtual_time(tmp_path: Path) -> None:
    """Keys, pins, site.toml, hosts by their adapter's door, and the server's test set from the scenario's source."""
    scenario = small({"scheme": "sealed", "schemes.sealed.delta": 1e9, "training.epochs": 9})
    sites = site_names(scenario.fleet.size)
    pins = {site: make_key(tmp_path / f"{site}.key") for site in sites}
    clock = StillClock()
    carrier = InProcessCarrier(clock=clock)
    for number, site in enumerate(sites, start=1):
        (tmp_path / site).mkdir()
        values: dict[str, Any] = {
            "name": site,
            "key": f"../{site}.key",
            "agreement": {"cohort": list(sites), "terms": [terms_of(scenario).digest]},
            "data": {"source": "digits", "part": number, "parts": 5},
            "peers": pins,
            "folder": str(tmp_path / site),
        }
        carrier.attach(site, make_host(values, carrier.peers(site)))
    try:
        run = deploy(scenario, carrier, sites, tmp_path / "run", options=DeploymentOptions(pins=pins, clock=clock))
    finally:
        carrier.close()
    virtual = runs.execute(scenario, tmp_path / "virtual")
    assert np.array_equal(*(np.load(each.path / "model.npz")["theta"] for each in (run, virtual)))
    assert np.array_equal(run.epochs["accuracy"], virtual.epochs["accuracy"]), "the server has the test set"
    assert np.isnan(run.epochs["loss"]).all()


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (["cat", "dog"], {"classes": ["cat"]}, "the class 'dog' is none of cat"),
        (["cat", "dog"], {"kind": "regression"}, "needs numbers"),
        (["1.5", "nan"], {}, "the target 'what' is missing in 3 of 6 rows"),
        (["1.5", "inf"], {}, "targets holds 3 missing or infinite values, the first in row 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    labels: list[Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    table(tmp_path, "mine.csv", 6, labels)
    with pytest.raises(DataError, match=words):
        load_rows(tmp_path / "mine.csv", **options)


def test_rows_of_a_regression_have_their_targets(tmp_path: Path) -> None:
    table(tmp_path, "mine.csv", 4, ["0.5", "1.25"])
    rows = load_rows(tmp_path / "mine.csv", dtype="float64")
    assert (rows.kind, rows.classes) == ("regression", ())
    assert rows.targets.tolist() == [[0.5], [1.25], [0.5], [1.25]]
    np.savez(tmp_path / "both.npz", x_train=np.ones((2, 3)), y_train=[0, 1], x_test=np.ones((1, 3)), y_test=[0])
    assert load_rows(tmp_path / "both.npz").x.shape == (2, 3)


def test_keys_differ() -> None:
    assert DeviceKey().fingerprint != DeviceKey().fingerprint
