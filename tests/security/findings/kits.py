"""Sites in this process, made from start-up kits as they are, with tables of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.deploy.flare.kits import Kits
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.server.fleet import make_fleet
from codedfl.deploy.site.configuration import make_host
from codedfl.runs import Run
from codedfl.scenario import Scenario
from codedfl.testing.in_process import InProcessCarrier, Recording, StillClock

ROWS, COLUMNS = 12, ("viral_load", "birthyear", "income", "weight")
LABELS = ("positive", "negative")


@dataclass
class KitSites:
    """What a server needs to reach the sites of kits."""

    carrier: InProcessCarrier
    clock: StillClock
    sites: tuple[str, ...]
    kits: Kits
    recording: Recording

    def restart(self, site: str) -> None:
        """Let a site read its settings again."""
        self.carrier.attach(site, make_host(read_site(self.kits.device(site)), self.carrier.peers(site)))

    def deploy(self, scenario: Scenario, path: Path) -> Run:
        options = DeploymentOptions(clock=self.clock, test=False)
        return deploy(scenario, self.carrier, self.sites, path, options=options)


def table(device: int) -> tuple[np.ndarray, list[str]]:
    """Rows and labels of a device; both labels occur."""
    x = np.random.default_rng(device).normal(size=(ROWS, len(COLUMNS))).round(3)
    return x, [LABELS[row % 2] for row in range(ROWS)]


def write_table(kit: Path, device: int) -> None:
    x, labels = table(device)
    lines = [",".join([*map(str, row), label]) for row, label in zip(x.tolist(), labels, strict=True)]
    (kit / "data.csv").write_text("\n".join([",".join((*COLUMNS, "diagnosis")), *lines]) + "\n", encoding="utf-8")


def scenario(devices: int = 3, **changes: Any) -> Scenario:
    """Sealed and coded, behind random features: what owners are asked to agree to."""
    made = Scenario.from_table(
        {
            "scheme": "sealed-coded",
            "data": {"source": "sites", "target": "diagnosis"},
            "features": {"kind": "rbf", "dimension": 16, "scale": "none", "intercept": False},
            "task": {"precision": "float64", "ridge": 1e-3},
            "training": {"epochs": 4, "solver": "gradient-descent", "learning_rate": 0.1, "targets": []},
            "fleet": {"devices": [{"count": devices, "mac_rate": 1e6}]},
        }
    )
    return made.with_settings(changes)


@contextmanager
def kit_sites(folder: Path, given: Scenario) -> Iterator[KitSites]:
    """Make kits of a scenario, put a table into each, and let hosts answer for them."""
    kits, clock, recording = make_fleet(folder / "kits", given), StillClock(), Recording()
    carrier = InProcessCarrier(clock=clock, recording=recording)
    found = KitSites(carrier, clock, kits.sites, kits, recording)
    for device, site in enumerate(kits.sites):
        write_table(kits.device(site), device)
        found.restart(site)
    try:
        yield found
    finally:
        carrier.close()
