"""A real deployment on this machine: bytes to and from devices, a parcel between them, and who listens where.

Devices that are killed: test_faults.py.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")

import psutil
from benchmarks.lab import Lab

from codedfl.deploy.flare.jobs import Admin, Job, run_job, write_job
from codedfl.deploy.flare.kits import Kits, write_site
from codedfl.deploy.flare.processes import kits_of, status

pytestmark = [
    pytest.mark.xdist_group("flare"),  # one fleet for all
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""FLARE's session leaves sockets to the garbage collector."""

PARCEL = 1_000_000
SITES = ("device-1", "device-2", "device-3", "device-4")
"""The first sends a parcel to the last."""


@pytest.fixture(scope="module")
def kits(lab: Lab) -> Iterator[Kits]:
    for site in SITES:
        write_site(lab.kits.device(site), {"name": site, "host": "codedfl.testing.echo:host"})
    yield lab.kits
    lab.put_right()


@pytest.fixture(scope="module")
def admin(kits: Kits) -> Iterator[Admin]:
    with Admin(kits) as session:
        yield session


def listening(kits: Kits) -> set[str]:
    ours = [pid for one in status(kits_of(kits)) for pid in (one.pid, *one.jobs) if pid]
    connections = [link for pid in ours for link in psutil.Process(pid).net_connections("inet")]
    return {link.laddr.ip for link in connections if link.status == psutil.CONN_LISTEN}


def logs(kits: Kits) -> set[Path]:
    return set(kits.server.glob("*-*/log.txt"))


def test_bytes_come_and_go_on_loopback_alone(kits: Kits, admin: Admin) -> None:
    seen: set[str] = set()
    before = logs(kits)

    def look() -> None:
        while not any("all sites are ready" in log.read_text() for log in logs(kits) - before):
            time.sleep(0.1)
        seen.update(listening(kits))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    settings = {"rounds": 30, "pause": 0.1, "down": 1000, "up": 1000, "forward": PARCEL}
    result = run_job(admin, Job("echo", "codedfl.testing.echo:rounds", SITES, settings), tries=1)
    watcher.join()
    assert result["forwarded"] == f"device-1 sent {PARCEL}"
    assert (result["lost"], result["sites"]) == ([], list(SITES))
    assert min(result["seconds"]) >= 0.1
    assert seen == {"127.0.0.1"}
    assert not any(one.died for one in status(kits_of(kits)))


def test_a_job_that_brings_code_is_refused(kits: Kits, admin: Admin, tmp_path: Path) -> None:
    folder = write_job(tmp_path, Job("echo", "codedfl.testing.echo:rounds", ("device-1", "device-2")))
    (folder / "for_devices" / "custom").mkdir()
    (folder / "for_devices" / "custom" / "mine.py").write_text("print('here')")
    number = admin._ask("submit_job", str(folder))
    while not admin.status(number).startswith("FINISHED:"):
        time.sleep(0.2)
    assert admin.status(number) == "FINISHED:FAILED_TO_RUN"
    for site in ("device-1", "device-2"):
        assert any(line.startswith(f"{site}: ") and "BYOC" in line for line in admin.refusals(number))
    assert json.loads((kits.folder / "kits.json").read_text())["sites"] == list(kits.sites)
