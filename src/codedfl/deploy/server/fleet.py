"""Fleets of real processes: start-up kits with data, keys and fingerprints filled in, and training on them.

    kits = make_fleet(folder, scenario)              kits for the server, each device and the admin
    with running(kits_of(kits)):                     all of them on this machine
        train(kits, scenario, run=Path("run").resolve())

A kit of a real host is the same folder, copied there. Whoever makes the kits could copy the device keys in
them; with ``own_keys`` every owner makes the key at the device.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.data import resolve
from codedfl.deploy.flare.jobs import Admin, Job, run_job
from codedfl.deploy.flare.kits import Kits, load_kits, make_kits
from codedfl.deploy.flare.names import site_names
from codedfl.deploy.flare.namespaces import Link, need_namespaces, remove_stale, shaped
from codedfl.deploy.flare.processes import kits_of, reviver, running, stop
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.server.membership import KEY
from codedfl.deploy.site.agreement import LEAST, write_terms
from codedfl.errors import UsageError
from codedfl.network import DelayModel
from codedfl.runs import Run, load
from codedfl.scenario import Scenario
from codedfl.schemes import check

WAIT, WAIT_EACH = 60.0, 6.0
"""Seconds to wait for sites to connect, and additional ones per site: they may all share one machine."""

PATIENCE, PATIENCE_EACH = 30.0, 4.0
"""Seconds without an answer after which a site is lost, and additional ones per site that share one machine."""

RETURN_SECONDS = 60.0
"""Seconds that a training which cannot go on waits for lost sites to come back."""

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
    keep_authority: bool = False,
    time_scale: float | None = None,
    slow_links: bool = True,
    least: int = LEAST,
    schemes: Sequence[str] = (),
) -> Kits:
    """Make the start-up kits of a scenario's fleet; with ``time_scale`` sites emulate its devices.

    Without ``slow_links`` they emulate computing only. Sites agree to the terms of the scenario, with at least
    ``least`` devices, and to any run under ``schemes``.
    """
    check(scenario)  # what no site could be prepared for needs no kits
    names = site_names(scenario.fleet.size) if sites is None else tuple(sites)
    if len(names) != scenario.fleet.size:
        raise UsageError(f"{len(names)} sites were named for the {scenario.fleet.size} devices; name one for each")
    keys = {} if own_keys else {name: DeviceKey() for name in names}
    pins = {name: key.fingerprint for name, key in keys.items()}
    terms = terms_of(scenario)
    agreement = {"cohort": list(names), "least": least, "terms": [terms.digest], "schemes": list(schemes)}
    settings: dict[str, dict[str, Any]] = {"server": {"fingerprints": pins} if pins else {}}
    for part, name in enumerate(names, start=1):
        others = {other: pin for other, pin in pins.items() if other != name}
        settings[name] = device_settings(scenario, part, len(names)) | {"peers": others, "agreement": agreement}
        if time_scale is not None:
            settings[name]["emulation"] = {"time_scale": time_scale, "links": slow_links}
    kits = make_kits(folder, names, host=host, port=port, settings=settings, keep_authority=keep_authority)
    for name, key in keys.items():
        key.write(kits.device(name) / KEY)
    for name in names:
        write_terms(kits.device(name), terms)
    return kits


def device_settings(scenario: Scenario, part: int, parts: int) -> dict[str, Any]:
    """Return the settings in the kit of a device; its owner enters the keys of others."""
    return {"host": HOST, "key": KEY, "data": _data(scenario, part, parts), "peers": {}}


def _data(scenario: Scenario, part: int, parts: int) -> dict[str, Any]:
    """Return the data settings of a site: its part of the scenario's data, or a file that the owner provides."""
    data, share = scenario.data, {"part": part, "parts": parts}
    target = {"target": data.target} if data.target else {}
    if data.elsewhere:
        return {"source": "data.csv"} | target
    if data.named:
        return {"source": data.source} | share
    test = {"test_source": str(Path(data.test_source).resolve())} if data.test_source else {}
    # every host fetches a table known by name into a cache of its own
    source = data.source if data.tabular else str(resolve(data.source).resolve())
    return {"source": source, "kind": data.kind} | share | test | target


def submit(
    kits: Kits,
    scenario: Scenario,
    *,
    run: Path | None = None,
    time_scale: float = 1.0,
    patience: float = PATIENCE,
    tries: int = 3,
    return_seconds: float = RETURN_SECONDS,
    revive: Callable[[], None] = lambda: None,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train on the server of kits and wait; return the path of the run on the server and its summary.

    ``run`` is relative to the server's kit; without it the server chooses a folder. A lost job is submitted again and
    resumes from its checkpoint, after ``revive`` has restarted dead processes. A training that cannot go on without
    lost sites waits ``return_seconds`` for them first.
    """
    wait = WAIT + WAIT_EACH * len(kits.sites)
    arguments = {"scenario": scenario.to_toml(), "time_scale": time_scale, "patience": patience, "ready_seconds": wait}
    arguments |= {"return_seconds": return_seconds} | ({} if run is None else {"run": str(run)})
    job = Job("train", ENTRY, kits.sites, arguments)
    with Admin(kits, revive=revive, patience=wait) as admin:  # all may share one machine, which is then slow
        return dict(run_job(admin, job, tries=tries, wait=wait, report=report))


def train(kits: Kits, scenario: Scenario, *, run: Path, **options: Any) -> Run:
    """Train on kits whose processes run on this machine, and restart dead ones."""
    options.setdefault("patience", PATIENCE + PATIENCE_EACH * len(kits.sites))
    submit(kits, scenario, run=run.resolve(), revive=reviver(kits_of(kits)), **options)
    return load(run)


def fleet_folder(run: Path) -> Path:
    """Return the folder of the kits of a run on this machine."""
    return run.with_name(f"{run.name}.fleet")


def links_of(scenario: Scenario, time_scale: float) -> list[Link]:
    """Return the links of a scenario's devices with the real rates that remain after losses."""
    delays = DelayModel.create(scenario.fleet, scenario.links)
    rates = np.stack([delays.down_rate, delays.up_rate]) * (1 - delays.loss) / time_scale
    return [Link(float(down), float(up)) for down, up in rates.T]


@contextlib.contextmanager
def local_fleet(
    scenario: Scenario, run: Path, *, time_scale: float | None = None, kernel_links: bool = False
) -> Iterator[Kits]:
    """Run a scenario's fleet on this machine, with its kits beside a run directory; remove them without an error.

    With ``time_scale`` sites emulate the scenario's devices; with ``kernel_links`` the kernel slows the links. An
    earlier fleet in the same place is stopped and removed first.
    """
    if kernel_links and time_scale is None:
        raise UsageError("links are slowed by the kernel in emulated fleets only; give a time scale, too")
    if kernel_links:
        need_namespaces()
    folder = fleet_folder(run)
    clear(folder)
    with contextlib.ExitStack() as stack:
        network = None
        if kernel_links and time_scale is not None:
            links = links_of(scenario, time_scale)
            network = stack.enter_context(shaped(site_names(scenario.fleet.size), links))
        host = "localhost" if network is None else network.server
        # all sites have one owner, so any number of them may take part
        kits = make_fleet(folder, scenario, host=host, time_scale=time_scale, slow_links=network is None, least=1)
        stack.enter_context(running(kits_of(kits), {} if network is None else network.prefixes(kits)))
        yield kits
    clear(folder)


def clear(folder: Path) -> None:
    """Stop the processes of kits and remove the folder; refuse one without kits."""
    if folder.exists():
        end(kits_of(load_kits(folder)))
        shutil.rmtree(folder)


def end(kits: Sequence[Path]) -> None:
    """Stop the processes of kits on this machine, and remove their networks."""
    stop(kits)
    remove_stale()
