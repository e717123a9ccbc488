"""Rows of the table of faults about who takes part: keys and certificates that are refused, and sites that change.

A server and three devices run as processes of this machine. In each row somebody is refused, or the cohort changes by
the organiser's commands; then the fleet trains, and the model must be that of virtual time.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np

from codedfl.deploy.flare.kits import write_site
from codedfl.deploy.flare.processes import start, stop
from codedfl.deploy.flare.sites import edit_site, read_site
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server.fleet import device_settings, make_fleet, submit
from codedfl.deploy.server.membership import KEY, add, bar, device_key, pin, revoke, substitute
from codedfl.deploy.site.agreement import LEAST, agree
from codedfl.errors import CodedflError
from codedfl.runs import execute, load
from codedfl.scenario import Scenario

__all__ = ["ROWS", "Cohort"]

PATIENCE = 8.0


@final
class Cohort:
    """A fleet on this machine whose members change."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.scenario = scenario
        self.kits = make_fleet(folder / "kits", scenario.with_devices(3), keep_authority=True)
        self._started: list[Path] = []
        self._runs = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end it whatever happens."""
        try:
            for kit in (self.kits.server, *map(self.kits.device, self.kits.sites)):
                self.start(kit)
            yield
        finally:
            stop(self._started)

    def start(self, kit: Path) -> None:
        """Start a kit, again if it runs."""
        stop([kit])
        self._started.append(kit)
        start(kit, 1)

    def train(self) -> Path:
        """Train on the sites as they are, and return the run."""
        self._runs += 1
        run = self.folder / "runs" / str(self._runs)
        size = len(self.kits.sites)
        scenario = self.scenario.with_devices(size)
        for part, site in enumerate(self.kits.sites, start=1):
            edit_site(self.kits.device(site), "data", {"part": part, "parts": size})
            agree(self.kits.device(site), scenario, self.kits.sites)
        submit(self.kits, scenario, run=run, patience=PATIENCE, tries=1)
        return run

    def refusal(self) -> str:
        """Train in vain, and return the sentence."""
        try:
            self.train()
        except CodedflError as error:
            return f"refused: {error}"
        raise RuntimeError("nobody was refused")

    def is_exact(self, run: Path) -> bool:
        """Whether a run has the model of virtual time, to the last bit."""
        virtual = self.folder / "virtual" / run.name
        models = [_model(run), _model(execute(load(run).scenario, virtual).path)]
        return bool(np.array_equal(*models))

    def wait_for(self, words: str, seen: int) -> str:
        """Wait until the server's log, read from a place on, has a line with these words; return its end."""
        for _ in range(600):
            with (self.kits.server / "log.txt").open(encoding="utf-8") as log:
                log.seek(seen)
                if found := [line for line in log if words in line]:
                    return " - ".join(found[0].strip().split(" - ")[3:])
            time.sleep(0.1)
        raise RuntimeError(f"the server's log has no line with '{words}'")

    @property
    def log_size(self) -> int:
        """How long the server's log is."""
        return (self.kits.server / "log.txt").stat().st_size

    def exchange(self, site: str, *, change: bool) -> None:
        """Make the key of a new kit, and let all pin each other's."""
        prints = {name: device_key(self.kits.device(name))[0].fingerprint for name in self.kits.sites}
        for name in self.kits.sites:
            pin(self.kits.device(name), prints if name == site else {site: prints[site]}, change=change)
        pin(self.kits.server, {site: prints[site]}, change=change)


def other_terms(cohort: Cohort) -> list[str]:
    """An owner has agreed to fewer epochs than the server asks for, then to no cohort as small; then to this one."""
    scenario, said = cohort.scenario.with_devices(len(cohort.kits.sites)), []
    fewer = scenario.with_settings({"training.epochs": 1})
    for wanted, least in ((fewer, LEAST), (scenario, len(cohort.kits.sites) + 1)):
        for site in cohort.kits.sites:
            agree(cohort.kits.device(site), scenario, cohort.kits.sites)
        agree(cohort.kits.device("device-2"), wanted, cohort.kits.sites, least)
        try:
            submit(cohort.kits, scenario, run=cohort.folder / "runs" / "refused", patience=PATIENCE, tries=1)
        except CodedflError as error:
            said.append(f"refused: {error}")
    agree(cohort.kits.device("device-2"), scenario, cohort.kits.sites, LEAST)
    if len(said) < 2:
        raise RuntimeError("nobody was refused")
    return said


def other_key(cohort: Cohort) -> list[str]:
    """Another key than the pinned one: the server refuses; then the right one is back."""
    path = cohort.kits.device("device-1") / KEY
    before = path.rename(path.with_suffix(".before"))
    DeviceKey().write(path)
    said = cohort.refusal()
    before.replace(path)
    return [said]


def other_key_unpinned(cohort: Cohort) -> list[str]:
    """The same, with a server that has pinned nothing: the other devices refuse."""
    own = cohort.kits.server / "site.toml"
    before = own.read_bytes()
    write_site(cohort.kits.server, {"name": "server"})
    said = other_key(cohort)
    own.write_bytes(before)
    return said


def revoked_key(cohort: Cohort) -> list[str]:
    """The key of a site is revoked; then the server's owner takes it back."""
    own = cohort.kits.server / "site.toml"
    before = own.read_bytes()
    bar(cohort.kits.server, [device_key(cohort.kits.device("device-2"))[0].fingerprint])
    said = cohort.refusal()
    own.write_bytes(before)
    return [said]


def stolen_certificate(cohort: Cohort) -> list[str]:
    """A process with device-1's certificate calls itself device-2, and the other way round."""
    said = []
    for certified, name in (("device-1", "device-2"), ("device-2", "device-1")):
        kit, seen = cohort.folder / f"posing-as-{name}", cohort.log_size
        shutil.copytree(cohort.kits.device(certified) / "startup", kit / "startup")
        (kit / "local").mkdir()
        write_site(kit, {"name": name})
        cohort.start(kit)
        said.append(cohort.wait_for(f"authenticated as '{certified}' but claimed endpoint '{name}'", seen))
        stop([kit])
    return said


def added(cohort: Cohort) -> list[str]:
    """One site more, before and after all have pinned its key."""
    cohort.kits = add(cohort.kits.folder, "device-4", device_settings(cohort.scenario, 4, 4))
    device_key(cohort.kits.device("device-4"))
    cohort.start(cohort.kits.device("device-4"))
    unpinned = cohort.refusal()
    cohort.exchange("device-4", change=False)
    return [unpinned]


def replaced(cohort: Cohort) -> list[str]:
    """Another kit for device-2; the old one, which was stolen, is started as well."""
    kit, stolen = cohort.kits.device("device-2"), cohort.folder / "stolen"
    stop([kit])
    kit.rename(stolen)
    table = {name: value for name, value in read_site(stolen).items() if name not in ("folder", "name", "peers")}
    cohort.kits, _ = substitute(cohort.kits.folder, "device-2", table)
    seen = cohort.log_size
    cohort.start(stolen)
    said = cohort.wait_for("device-2 with the certificate", seen)
    stop([stolen])
    cohort.start(kit)
    cohort.exchange("device-2", change=True)
    return [said]


def revoked(cohort: Cohort) -> list[str]:
    """One site less; the server is asked to train with it nevertheless."""
    before = cohort.kits
    cohort.kits, _ = revoke(cohort.kits.folder, "device-3")
    left = cohort.kits
    cohort.kits = replace(before)
    said = cohort.refusal()
    seen = cohort.log_size
    cohort.start(before.device("device-3"))
    said = [said, cohort.wait_for("device-3 with the certificate", seen)]
    cohort.kits = left
    return said


ROWS: dict[str, Callable[[Cohort], list[str]]] = {
    "device whose owner has agreed to other terms": other_terms,
    "device with another key than the server has pinned": other_key,
    "device with another key than the others have pinned": other_key_unpinned,
    "device with a revoked key": revoked_key,
    "stolen certificates": stolen_certificate,
    "site added": added,
    "site replaced, the old one stolen": replaced,
    "site revoked": revoked,
}
"""What happens, before the fleet trains."""


def _model(run: Path) -> Any:
    with np.load(run / "model.npz") as arrays:
        return arrays["theta"]
