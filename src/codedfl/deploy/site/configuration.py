"""The settings of a site (``site.toml``, docs/deployment.md), which its owner writes and no server can change."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.data import SOURCES, TABLES, Column, FeatureMap, Preparation, load_rows
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.envelopes import DeviceKey, check_fingerprint
from codedfl.deploy.site.agreement import Agreement
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.privacy import SitePrivacy
from codedfl.deploy.site.record import server_of
from codedfl.deploy.site.session import LocalData, Site
from codedfl.errors import DataError, ScenarioError
from codedfl.scenario import DeviceGroup, Links, Scenario
from codedfl.settings import Settings, setting
from codedfl.task import RawData, Shard, feature_map, make_shard
from codedfl.task.folds import DeviceRows
from codedfl.task.loading import declared_categories
from codedfl.task.ranges import declared_rows, ranged_preparation

_ADAPTER_KEYS = ("host", "patience", "folder")


class SiteData(Settings, table="data"):
    """A file of this site, or part ``part`` (from 1) of ``parts`` of a source that the scenario partitions.

    ``classes`` lists the labels of all sites, in the same order everywhere; without it every site must have all.
    """

    source: str = setting()
    part: int | None = setting(default=None, low=1)
    parts: int | None = setting(default=None, low=1)
    kind: str = setting(default="auto", choices=("auto", "classification", "regression"))
    target: str = setting(default="")
    test_source: str = setting(default="")
    classes: tuple[str, ...] = setting(default=())

    def check(self) -> None:
        """Refuse incomplete parts, and data known by name as a whole."""
        if (self.part is None) != (self.parts is None) or (self.part or 0) > (self.parts or 0):
            raise ScenarioError(f"data.part = {self.part}, data.parts = {self.parts}: say which part of how many")
        if self.known and self.part is None:
            raise ScenarioError(f"data.source = '{self.source}' is for all sites; set data.part and data.parts")

    @property
    def known(self) -> bool:
        """Whether the source is known by name, and no file of this site."""
        return self.source in SOURCES or self.source in TABLES


class SiteEmulation(Settings, table="emulation"):
    """Emulation of a device with these rates, or without ``mac_rate`` of the scenario's device.

    ``links = false``: only computing is emulated, because the network itself is slow.
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
    d2d_loss: float | None = setting(default=None, low=0, below=1)

    def of(self, scenario: Scenario, device: int) -> Emulation:
        """Return the emulation of a device of a scenario."""
        if self.mac_rate is None:
            return Emulation.of_scenario(scenario, device, time_scale=self.time_scale, links=self.links)
        group = DeviceGroup(mac_rate=self.mac_rate, setup_ratio=self.setup_ratio, setup_seconds=self.setup_seconds)
        names = ("down_rate", "up_rate", "d2d_rate", "overhead", "loss", "d2d_loss")
        rates = Links(**{name: getattr(self, name) for name in names})
        return Emulation.alone(group, rates, seed=self.seed, time_scale=self.time_scale, links=self.links)


class SiteSettings(Settings):
    """The settings of a site."""

    name: str = setting()
    data: SiteData = setting()
    key: str = setting(default="")
    agreement: Agreement = setting(default=Agreement())
    share_categories: bool = setting(default=False)
    """Tell the server the values of text columns whose categories the scenario does not declare."""
    share_names: bool = setting(default=False)
    """Tell the server these values and the names of classes."""
    trust_server: bool = setting(default=False)
    """Accept the keys that the server announces instead of ``peers``: no protection against the server."""
    privacy: SitePrivacy = setting(default=SitePrivacy())
    emulation: SiteEmulation | None = setting(default=None)
    peers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Refuse invalid fingerprints."""
        for name, shown in self.peers.items():
            check_fingerprint(f"peers.{name}", shown)
        if self.peers and self.trust_server:
            raise ScenarioError("trust_server = true makes peers meaningless; keep one of them")

    def site(self, folder: Path) -> Site:
        """Return the site, with its key loaded; paths are relative to ``folder``."""
        key = DeviceKey.read(folder / self.key) if self.key else None
        pins = None if self.trust_server else dict(self.peers)
        return Site(
            self.name,
            lambda scenario: _load(self.data, folder, scenario),
            key,
            pins,
            self.agreement,
            self.share_categories,
            self.share_names,
            folder,
            server_of(folder),
            self.privacy,
        )


def _load(settings: SiteData, folder: Path, scenario: Scenario) -> LocalData:
    """Load the owner's data; the server's scenario never names the file."""
    place = settings.source if settings.known else str(folder / settings.source)
    if settings.part is None:
        classes, kind = settings.classes or scenario.data.classes or (), settings.kind
        if scenario.private and kind == "auto":  # what is told of a task must not follow from the data
            kind = "classification" if classes else "regression"
        if scenario.private and kind == "classification" and not classes:
            raise DataError("noise does not hide which classes the rows have; declare all possible ones as classes")
        loaded = load_rows(
            Path(place),
            target=settings.target or None,
            kind=kind,
            classes=classes,
            dtype="float64" if scenario.prepared else scenario.precision,
            categories=declared_categories(scenario),
            missing=scenario.features.missing,
        )
        loaded, ranged = declared_rows(scenario, loaded)
        rows, features = DeviceRows(loaded.x, loaded.targets), feature_map(scenario, loaded.x.shape[1])
        return _local_data(scenario, rows, features, loaded.kind, loaded.classes, loaded.columns, ranged)
    if settings.parts != scenario.fleet.size:
        part, size = f"part {settings.part} of {settings.parts}", scenario.fleet.size
        raise DataError(f"this site has {part}, but the fleet has {size} devices; split the data into {size} parts")
    if bool(scenario.data.test_source) != bool(settings.test_source):
        raise DataError(
            f"data.test_source is '{settings.test_source}' here and '{scenario.data.test_source}' in the scenario; "
            "either both or none must have separate test samples"
        )
    test = str(folder / settings.test_source) if settings.test_source else ""
    own = {"data.source": place, "data.kind": settings.kind, "data.target": settings.target, "data.test_source": test}
    raw = RawData.load(scenario.with_settings({**own, "data.held_out": 0.0}))  # the host holds rows out
    whole, rows, ranged = raw.loaded, raw.device(settings.part - 1), ranged_preparation(scenario, raw.loaded)
    return _local_data(scenario, rows, raw.features, whole.kind, whole.class_names, whole.columns, ranged)


def _local_data(
    scenario: Scenario,
    rows: DeviceRows,
    features: FeatureMap,
    kind: str,
    classes: tuple[str, ...],
    columns: tuple[Column, ...],
    ranged: Preparation | None,
) -> LocalData:
    """Return the rows as they are where columns are to be prepared, else the shard that the device trains on."""
    shard = Shard(rows.x, rows.y) if scenario.prepared else make_shard(rows, features, ranged)
    return LocalData(shard, kind, classes, rows, features, columns)


def read_settings(table: Mapping[str, Any]) -> SiteSettings:
    """Validate a site's table without the keys of the network adapter."""
    if "schemes" in table:
        raise ScenarioError(
            "schemes is no longer a key of site.toml, because a scheme alone does not say what leaves the site; run "
            "`codedfl site agree`, or set schemes under [agreement] to allow any options of them"
        )
    return SiteSettings.from_table({name: value for name, value in table.items() if name not in _ADAPTER_KEYS})


def make_host(table: Mapping[str, Any], peers: Peers) -> Host:
    """Create the host of a site from its table, to which the adapter has added the ``folder`` of the file."""
    settings = read_settings(table)
    emulate = None if settings.emulation is None else settings.emulation.of
    return DeviceHost(settings.site(Path(table["folder"])), peers, emulate)
