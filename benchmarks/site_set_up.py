"""The set-up of ``sealed-coded`` on sites beside virtual time, with stages that overlap and stage by stage.

    python -m benchmarks.site_set_up

Eight sites as threads of one process exchange the bytes of a deployment and sleep as the devices of the scenario would
compute and send, several times slower, so that what this machine takes counts little. Times are those until the first
epoch has ended, in seconds of the scenario. Virtual time says it for stages that follow each other and that overlap.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import show
from codedfl.deploy.flare.names import site_names
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.runs import Run, execute, model_difference
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.testing.in_process import InProcessCarrier, any_terms
from codedfl.testing.small import problem, scenario

SITES, FEATURES = 8, 400
SCALE = 8.0
"""Real seconds for one of the scenario's."""
FLEET = [{"count": SITES // 2, "mac_rate": rate} for rate in (25e6, 5e6)]
LINKS = {"links.down_rate": 10e6, "links.up_rate": 5e6, "links.d2d_rate": 5e6}


def chosen(*, overlap: bool) -> Scenario:
    """The scenario: links of the paper, devices of two classes."""
    own = {"overlap": overlap, "workers": 5, "threshold": 2}
    options = {f"schemes.sealed-coded.{name}": value for name, value in own.items()}
    common = {"scheme": "sealed-coded", "fleet.devices": FLEET, "training.epochs": 2}
    task = {"task.precision": "float64", "task.ridge": 0.01}  # as those of the problem
    return scenario(common | task | LINKS | options)


def on_sites(wanted: Scenario, given: Problem, path: Path) -> Run:
    """Train on sites in this process that emulate the scenario's devices."""
    sites, carrier = site_names(len(given.shards)), InProcessCarrier()
    keys = {site: DeviceKey() for site in sites}
    pins = {site: key.fingerprint for site, key in keys.items()}
    classes = tuple(str(number) for number in range(given.shape[1]))

    def slow(scenario: Scenario, device: int) -> Emulation:
        return Emulation.of_scenario(scenario, device, time_scale=SCALE)

    for site, shard in zip(sites, given.shards, strict=True):
        local_data = LocalData(shard, given.kind, classes)
        own = Site(site, lambda scenario, own=local_data: own, keys[site], pins, any_terms(sites))
        carrier.attach(site, DeviceHost(own, carrier.peers(site), slow))
    options = DeploymentOptions(pins=pins, patience=300.0, time_scale=SCALE)
    try:
        return deploy(wanted, carrier, sites, path, options=options, check=given)
    finally:
        carrier.close()


def main() -> dict[str, Any]:
    """Predict both ways, and measure."""
    given = problem([9] * SITES, features=FEATURES, outputs=3)
    with tempfile.TemporaryDirectory(prefix="codedfl-bench-") as place, threadpool_limits(1):
        path = Path(place)
        seconds: dict[str, float] = {}
        for name, overlap in (("stage by stage", False), ("stages overlap", True)):
            wanted = chosen(overlap=overlap)
            virtual = execute(wanted, path / f"virtual {name}", problem=lambda: given)
            sites = on_sites(wanted, given, path / f"sites {name}")
            for where, run in (("virtual time", virtual), ("sites", sites)):
                seconds[f"{where}, {name}"] = taken = float(np.asarray(run.epochs["time"])[0])
                show(f"{where}, {name}", taken, unit="s")
            show(f"difference of the models, {name}", model_difference(sites, virtual), 0.0)
    return seconds


if __name__ == "__main__":
    main()
