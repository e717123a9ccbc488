"""A real deployment on this machine: server and devices, a parcel between devices, and devices that are killed."""

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")

import psutil

from codedfl.engines.flare.jobs import Admin, Job, run_job, write_job
from codedfl.engines.flare.kits import Kits, make_kits
from codedfl.engines.flare.names import site_names
from codedfl.engines.flare.processes import kits_of, running, status

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""FLARE's session leaves sockets to the garbage collector."""

PARCEL = 1_000_000


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kits]:
    made = make_kits(tmp_path_factory.mktemp("deploy") / "kits", site_names(3))
    with running(kits_of(made)):
        yield made
    assert [(one.pid, one.jobs) for one in status(kits_of(made))] == [(None, ())] * 4
    assert processes_that_name(made.folder) == []


@pytest.fixture(scope="module")
def admin(kits: Kits) -> Iterator[Admin]:
    with Admin(kits) as session:
        yield session
    gc.collect()


def processes_that_name(folder: Path) -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or [])]


def listening(kits: Kits) -> set[str]:
    ours = [pid for one in status(kits_of(kits)) for pid in (one.pid, *one.jobs) if pid]
    connections = [link for pid in ours for link in psutil.Process(pid).net_connections("inet")]
    return {link.laddr.ip for link in connections if link.status == psutil.CONN_LISTEN}


def logs(kits: Kits) -> set[Path]:
    return set(kits.server.glob("*-*/log.txt"))


def run_and_kill(kits: Kits, admin: Admin, site: str, *, parent: bool, **arguments: Any) -> tuple[Any, set[str]]:
    """Run rounds until a device is lost; it is killed as soon as all sites were ready."""
    seen: set[str] = set()
    before = logs(kits)

    def kill() -> None:
        while not any("all sites are ready" in log.read_text() for log in logs(kits) - before):
            time.sleep(0.1)
        seen.update(listening(kits))
        (device,) = status([kits.device(site)])
        for pid in (*([device.pid] if parent and device.pid else []), *device.jobs):
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    settings = {"rounds": 10_000, "losses": 1, "pause": 0.1, "down": 1000, "up": 1000, **arguments}
    job = Job("echo", "codedfl.engines.flare.echo:rounds", kits.sites, settings, beat=0.5, misses=2)
    result = run_job(admin, job, tries=1)
    killer.join()
    return result, seen


def test_a_killed_job_process_takes_nobody_with_it(kits: Kits, admin: Admin) -> None:
    result, seen = run_and_kill(kits, admin, "device-2", parent=False, forward=PARCEL)
    assert result["forwarded"] == f"device-1 sent {PARCEL}"
    assert (result["lost"], result["sites"]) == (["device-2"], ["device-1", "device-3"])
    assert seen == {"127.0.0.1"}
    assert not any(one.died for one in status(kits_of(kits)))


def test_a_job_that_brings_code_is_refused(kits: Kits, admin: Admin, tmp_path: Path) -> None:
    folder = write_job(tmp_path, Job("echo", "codedfl.engines.flare.echo:rounds", kits.sites))
    (folder / "for_devices" / "custom").mkdir()
    (folder / "for_devices" / "custom" / "mine.py").write_text("print('here')")
    number = admin._ask("submit_job", str(folder))
    while not admin.status(number).startswith("FINISHED:"):
        time.sleep(0.2)
    assert admin.status(number) == "FINISHED:FAILED_TO_RUN"
    for site in kits.sites:
        assert any(line.startswith(f"{site}: ") and "BYOC" in line for line in admin.refusals(number))


def test_a_killed_device_is_lost_and_the_others_go_on(kits: Kits, admin: Admin) -> None:
    result, _ = run_and_kill(kits, admin, "device-3", parent=True)
    assert (result["lost"], result["sites"]) == (["device-3"], ["device-1", "device-2"])
    assert [one.died for one in status(kits_of(kits))] == [False, False, False, True]
    assert json.loads((kits.folder / "kits.json").read_text())["sites"] == list(kits.sites)
