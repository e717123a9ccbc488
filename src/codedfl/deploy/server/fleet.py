"""Fleets of real processes: start-up kits with data, keys and pins filled in, and trainings on them.

    kits = make_fleet(folder, scenario)              a kit for the server, one for each device, one to submit jobs with
    with running(kits_of(kits)):                     all of them on this machine
        train(kits, scenario, run=Path("run").resolve())

A kit of a real host is the same folder, taken there. Keys for parcels between devices are made with the kits, and then
whoever makes the kits could keep copies; with ``own_keys`` every owner makes his own on his own machine.
"""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.deploy.flare import (
    Admin,
    Job,
    Kits,
    kits_of,
    load_kits,
    make_kits,
    reviver,
    run_job,
    running,
    site_names,
    stop,
)
from codedfl.deploy.flare.namespaces import Link, need_namespaces, remove_stale, shaped
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.errors import UsageError
from codedfl.network import DelayModel
from codedfl.runs import Run, load
from codedfl.scenario import Scenario

__all__ = [
    "KEY",
    "clear",
    "end",
    "fleet_folder",
    "links_of",
    "local_fleet",
    "make_fleet",
    "submit",
    "train",
]

KEY = "device.key"
"""In a device's kit: what its parcels are sealed with."""

WAIT, WAIT_EACH = 60.0, 6.0
"""Seconds that sites have to appear, and more for each of them: they may all share one machine."""

PATIENCE, PATIENCE_EACH = 30.0, 4.0
"""Seconds without a sign of life after which a site is lost, and more for each where they share a machine: while all of
them compute, each gets its turn late."""

HOST = "codedfl.deploy.site.configuration:make_host"
ENTRY = "codedfl.deploy.server.deployment:serve"


def make_fleet(
    folder: Path,
    scenario: Scenario,
    *,
    sites: Sequence[str] | None = None,
    host: str = "localhost",
    port: int | None = None,
    own_keys: bool = False,
    time_scale: float | None = None,
    slow_links: bool = True,
) -> Kits:
    """Make the start-up kits of a scenario's fleet; with ``time_scale`` sites are as slow as the scenario says.

    Without ``slow_links`` only their computing is.
    """
    names = site_names(scenario.fleet.size) if sites is None else tuple(sites)
    if len(names) != scenario.fleet.size:
        raise UsageError(
            f"{len(names)} sites were named for the {scenario.fleet.size} devices of the fleet; name one for each"
        )
    keys = {} if own_keys else {name: DeviceKey() for name in names}
    prints = {name: key.fingerprint for name, key in keys.items()}
    settings: dict[str, dict[str, Any]] = {"server": {"fingerprints": prints} if prints else {}}
    for part, name in enumerate(names, start=1):
        others = {other: shown for other, shown in prints.items() if other != name}
        settings[name] = {"host": HOST, "key": KEY, "data": _data(scenario, part, len(names)), "peers": others}
        if time_scale is not None:
            settings[name]["emulation"] = {"time_scale": time_scale, "links": slow_links}
    kits = make_kits(folder, names, host=host, port=port, settings=settings)
    for name, key in keys.items():
        key.write(kits.device(name) / KEY)
    return kits


def _data(scenario: Scenario, part: int, parts: int) -> dict[str, Any]:
    """Return what a site says of its data: its part of those of the scenario, or a file that the owner puts there."""
    data = scenario.data
    if data.elsewhere:
        return {"source": "data.csv"} | ({"target": data.target} if data.target else {})
    if data.named:
        return {"source": data.source, "part": part, "parts": parts}
    found = {"source": str(Path(data.source).resolve()), "part": part, "parts": parts, "kind": data.kind}
    paths = {"test_source": str(Path(data.test_source).resolve())} if data.test_source else {}
    return found | paths | ({"target": data.target} if data.target else {})


def submit(
    kits: Kits,
    scenario: Scenario,
    *,
    run: Path | None = None,
    time_scale: float = 1.0,
    patience: float = PATIENCE,
    beat: float = 5.0,
    misses: int | None = None,
    tries: int = 3,
    revive: Callable[[], None] = lambda: None,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Have the server of some kits train, and wait; return the place of the run on the server, and its summary.

    Without ``run``, a folder that is relative to the server's kit, the server chooses one. A job that was lost is
    submitted again and goes on from its checkpoint; ``revive`` may start again what has died meanwhile. ``patience`` is
    that of the deployment, ``beat`` and ``misses`` are those of the job: half of the patience unless told otherwise.
    """
    misses = math.ceil(patience / 2 / beat) if misses is None else misses
    wait = WAIT + WAIT_EACH * len(kits.sites)
    arguments = {"scenario": scenario.to_toml(), "time_scale": time_scale, "patience": patience, "ready_seconds": wait}
    arguments |= {} if run is None else {"run": str(run)}
    with Admin(kits, revive=revive) as admin:
        job = Job("train", ENTRY, kits.sites, arguments, beat, misses)
        result: dict[str, Any] = run_job(admin, job, tries=tries, wait=wait, report=report)
        return result


def train(kits: Kits, scenario: Scenario, *, run: Path, **options: Any) -> Run:
    """Train on kits whose processes run on this machine; what has died is started again."""
    options.setdefault("patience", PATIENCE + PATIENCE_EACH * len(kits.sites))
    submit(kits, scenario, run=run.resolve(), revive=reviver(kits_of(kits)), **options)
    return load(run)


def fleet_folder(run: Path) -> Path:
    """Return where the kits of a run on this machine are while it runs."""
    return run.with_name(f"{run.name}.fleet")


def links_of(scenario: Scenario, time_scale: float) -> list[Link]:
    """Return the links of a scenario's devices in real bit/s; of what is lost and sent again, what gets through."""
    delays = DelayModel.create(scenario.fleet, scenario.links)
    rates = np.stack([delays.down_rate, delays.up_rate]) * (1 - delays.loss) / time_scale
    return [Link(float(down), float(up)) for down, up in rates.T]


@contextlib.contextmanager
def local_fleet(
    scenario: Scenario, run: Path, *, time_scale: float | None = None, kernel_links: bool = False
) -> Iterator[Kits]:
    """Let a scenario's fleet run on this machine beside a run directory; it is removed when all went well.

    With ``time_scale`` sites are as slow as the scenario says, and with ``kernel_links`` it is the kernel that slows
    their links. What an earlier fleet in this place has left is ended and removed first.
    """
    if kernel_links:
        need_namespaces()
        if time_scale is None:
            raise UsageError("links are slowed by the kernel in emulated fleets only; give a time scale, too")
    folder = fleet_folder(run)
    clear(folder)
    with contextlib.ExitStack() as stack:
        if kernel_links and time_scale is not None:
            sites = site_names(scenario.fleet.size)
            network = stack.enter_context(shaped(sites, links_of(scenario, time_scale)))
            kits = make_fleet(
                folder, scenario, sites=sites, host=network.server, time_scale=time_scale, slow_links=False
            )
            prefixes = network.prefixes(kits)
        else:
            kits, prefixes = make_fleet(folder, scenario, time_scale=time_scale), {}
        stack.enter_context(running(kits_of(kits), prefixes))
        yield kits
    clear(folder)


def clear(folder: Path) -> None:
    """End the processes of kits and remove them, with their keys; refuse a folder that holds anything else."""
    if folder.exists():
        end(kits_of(load_kits(folder)))
        shutil.rmtree(folder)


def end(kits: Sequence[Path]) -> None:
    """End the processes of kits on this machine, and remove the networks that they leave."""
    stop(kits)
    remove_stale()
