"""A site of a deployment as its owner sets it up: one small TOML file that no server can change.

    name = "device-3"
    key = "device-3.key"                    # made by make_key; nobody else may read it
    schemes = ["sealed-coded"]              # what the owner agrees to; left out: any

    [data]
    source = "mine.csv"                     # a file, or a named data set of which this is part 3 of 25:
    part = 3
    parts = 25

    [peers]                                 # fingerprints of the other sites' keys
    device-1 = "sha256:..."

    [emulation]                             # be as slow as the scenario says of this device, a hundred times faster
    time_scale = 0.01

Paths are relative to the file.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.data import SOURCES, load_rows
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.host import DeviceHost, Holding, Site
from codedfl.errors import DataError, ScenarioError
from codedfl.scenario import DeviceGroup, Links, Scenario
from codedfl.settings import Settings, setting
from codedfl.task import Shard, feature_map, load_data, load_shard, partition_rows

__all__ = ["SiteData", "SiteEmulation", "SiteSettings", "load_site", "make_host", "make_key", "site_name"]

_FOR_THE_ADAPTER = ("host", "patience", "folder")


def site_name(device: int) -> str:
    """Return the usual name of a device's site."""
    return f"device-{device + 1}"


def make_key(path: Path) -> str:
    """Make a key file for a site; return the fingerprint that the others pin."""
    key = DeviceKey()
    key.write(path)
    return key.fingerprint


class SiteData(Settings, table="data"):
    """A file of this site, or part ``part`` (counted from 1) of ``parts`` of a source that the scenario cuts up.

    ``classes`` are the labels of all sites, in an order that all agree on; left out, every site must have all of them.
    """

    source: str = setting()
    part: int | None = setting(default=None, low=1)
    parts: int | None = setting(default=None, low=1)
    kind: str = setting(default="auto", choices=("auto", "classification", "regression"))
    target: str = setting(default="")
    test_source: str = setting(default="")
    classes: tuple[str, ...] = setting(default=())

    def check(self) -> None:
        """Refuse half of a part, and a named data set as a whole."""
        if (self.part is None) != (self.parts is None) or (self.part or 0) > (self.parts or 0):
            raise ScenarioError(
                f"data.part = {self.part} and data.parts = {self.parts} must say which part of how many"
            )
        if self.source in SOURCES and self.part is None:
            raise ScenarioError(f"data.source = '{self.source}' is for all sites; set data.part and data.parts")


class SiteEmulation(Settings, table="emulation"):
    """Slowness: with ``mac_rate`` that of a device of these rates, without it that which the scenario declares.

    ``links = false``: only computing is slowed, because the network is slow by itself.
    """

    time_scale: float = setting(default=1.0, above=0)
    links: bool = setting(default=True)
    seed: int = setting(default=0, low=0)
    mac_rate: float | None = setting(default=None, low=1)
    setup_ratio: float = setting(default=0.5, low=0)
    setup_seconds: float = setting(default=0.0, low=0)
    down_rate: float = setting(default=10e6, low=1)
    up_rate: float = setting(default=5e6, low=1)
    d2d_rate: float = setting(default=5e6, low=1)
    overhead: float = setting(default=0.1, low=0)
    loss: float = setting(default=0.1, low=0, below=1)

    def of(self, scenario: Scenario, device: int) -> Emulation:
        """Return the emulation of a device of a scenario."""
        if self.mac_rate is None:
            return Emulation.of_scenario(scenario, device, time_scale=self.time_scale, links=self.links)
        group = DeviceGroup(mac_rate=self.mac_rate, setup_ratio=self.setup_ratio, setup_seconds=self.setup_seconds)
        names = ("down_rate", "up_rate", "d2d_rate", "overhead", "loss")
        rates = Links(**{name: getattr(self, name) for name in names})
        return Emulation.alone(group, rates, seed=self.seed, time_scale=self.time_scale, links=self.links)


class SiteSettings(Settings):
    """The whole file."""

    name: str = setting()
    data: SiteData = setting()
    key: str = setting(default="")
    schemes: tuple[str, ...] = setting(default=())
    trust_server: bool = setting(default=False)
    """Take the server's word for the others' keys instead of fingerprints: no protection against the server."""
    emulation: SiteEmulation | None = setting(default=None)
    peers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Refuse peers that are no fingerprints."""
        for name, shown in self.peers.items():
            if not (isinstance(shown, str) and re.fullmatch("sha256:[0-9a-f]{64}", shown)):
                raise ScenarioError(
                    f"peers.{name} = {shown!r} must be a fingerprint: sha256: and 64 hexadecimal digits"
                )
        if self.peers and self.trust_server:
            raise ScenarioError("trust_server = true makes peers meaningless; keep one of them")

    def site(self, folder: Path) -> Site:
        """Return the site, its key read; paths are relative to ``folder``."""
        key = DeviceKey.read(folder / self.key) if self.key else None
        pins = None if self.trust_server else dict(self.peers)
        return Site(self.name, lambda scenario: _load(self.data, folder, scenario), key, pins, self.schemes)


def _load(settings: SiteData, folder: Path, scenario: Scenario) -> Holding:
    """Load what the owner offers; where it lies is the owner's matter, never the server's."""
    named = settings.source in SOURCES
    place = settings.source if named else str(folder / settings.source)
    if settings.part is None:
        dtype = scenario.task.precision
        rows = load_rows(
            Path(place), target=settings.target or None, kind=settings.kind, classes=settings.classes, dtype=dtype
        )
        shard = Shard(feature_map(scenario, rows.x.shape[1]).transform(rows.x), rows.targets.astype(np.dtype(dtype)))
        return Holding(shard, rows.kind, rows.classes)
    if settings.parts != scenario.fleet.size:
        raise DataError(
            f"this site has part {settings.part} of {settings.parts}, but the fleet has {scenario.fleet.size} devices; "
            "cut the data into as many parts"
        )
    loaded = load_data(scenario.with_settings(_own_data(settings, folder, scenario) | {"data.source": place}))
    rows_of = partition_rows(scenario, loaded.y_train, loaded.samples)
    features = feature_map(scenario, loaded.inputs)
    return Holding(load_shard(scenario, loaded, rows_of[settings.part - 1], features), loaded.kind, loaded.class_names)


def _own_data(settings: SiteData, folder: Path, scenario: Scenario) -> dict[str, str]:
    """Return what takes the place of the server's paths."""
    if bool(scenario.data.test_source) != bool(settings.test_source):
        raise DataError(
            f"data.test_source is '{settings.test_source}' here and '{scenario.data.test_source}' in the scenario; "
            "either both or none must have test samples apart"
        )
    test = str(folder / settings.test_source) if settings.test_source else ""
    return {"data.kind": settings.kind, "data.target": settings.target, "data.test_source": test}


def read_settings(table: Mapping[str, Any]) -> SiteSettings:
    """Read a site's table; what is for the adapter of a network is left aside."""
    own = {name: value for name, value in table.items() if name not in _FOR_THE_ADAPTER}
    return SiteSettings.from_table(own)


def load_site(path: Path) -> tuple[Site, SiteSettings]:
    """Read a site's file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"cannot read the site '{path}' ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"the site '{path}' is not valid TOML: {error}") from None
    settings = read_settings(table)
    return settings.site(path.parent), settings


def make_host(table: Mapping[str, Any], peers: Peers) -> Host:
    """Make the host of a site from its table, in which the adapter has put the ``folder`` of the file."""
    settings = read_settings(table)
    slow = settings.emulation
    return DeviceHost(settings.site(Path(table["folder"])), peers, None if slow is None else slow.of)
