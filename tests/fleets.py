"""Deployments in one process: the sites of a problem as threads, behind bytes."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl.deploy.flare.names import site_names
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.privacy import SitePrivacy
from codedfl.deploy.site.session import LocalData, Site
from codedfl.runs import Run
from codedfl.scenario import Scenario
from codedfl.task import Problem
from codedfl.testing.in_process import Faults, InProcessCarrier, Recording, StillClock, any_terms

CLASSES = tuple("abcdefghij")


@dataclass
class InProcessFleet:
    """A carrier, and what its hosts are made of."""

    carrier: InProcessCarrier
    clock: Callable[[], float]
    sites: tuple[str, ...]
    keys: dict[str, DeviceKey]
    faults: Faults
    recording: Recording
    given: Problem
    owned: dict[str, Site]

    def restart(self) -> None:
        """Let another process take the place of every site; files stay."""
        for site, own in self.owned.items():
            self.carrier.host(site).close()
            self.carrier.attach(site, DeviceHost(own, self.carrier.peers(site)))

    def deploy(self, scenario: Scenario, path: Path, *, check: bool = True, **options: Any) -> Run:
        """Run a scenario on these sites; with ``check`` the loss and the errors of gradients are known."""
        terms = DeploymentOptions(**{"test": False, "clock": self.clock, **options})
        return deploy(scenario, self.carrier, self.sites, path, options=terms, check=self.given if check else None)


@contextmanager
def fleet(
    given: Problem,
    *,
    slow: Callable[[Scenario, int], Emulation] | None = None,
    pins: Callable[[str, dict[str, str]], dict[str, str] | None] = lambda site, all_pins: all_pins,
    clock: Callable[[], float] | None = None,
    folder: Path | None = None,
    privacy: SitePrivacy | None = None,
) -> Iterator[InProcessFleet]:
    """One site for each shard, with keys that all have pinned unless told otherwise.

    Patience runs out on a clock that stands still while anybody works, so that a slow machine loses no site; or on a
    ``clock`` on which the sites sleep. Each site has a folder of its own in ``folder``.
    """
    sites = site_names(len(given.shards))
    keys = {site: DeviceKey() for site in sites}
    known = {site: key.fingerprint for site, key in keys.items()}
    faults, recording, still = Faults(), Recording(), StillClock()
    carrier = InProcessCarrier(faults, recording, still if clock is None else None)
    owned: dict[str, Site] = {}
    for site, shard in zip(sites, given.shards, strict=True):
        local_data = LocalData(shard, given.kind, CLASSES[: given.shape[1]] if given.kind == "classification" else ())
        load, agreed = (lambda scenario, local_data=local_data: local_data), any_terms(sites)
        own = Site(site, load, keys[site], pins(site, known), agreed, privacy=privacy or SitePrivacy())
        if folder is not None:
            (folder / site).mkdir(parents=True)
            own = dataclasses.replace(own, folder=folder / site)
        owned[site] = own
        carrier.attach(site, DeviceHost(own, carrier.peers(site), slow))
    try:
        yield InProcessFleet(carrier, clock or still, sites, keys, faults, recording, given, owned)
    finally:
        carrier.close()
