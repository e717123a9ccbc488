"""A real deployment on this machine: bytes to and from devices, a parcel between them, who listens, who is admitted.

Devices that are killed: test_faults.py.
"""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")

import psutil
from benchmarks.lab import Lab
from cryptography.x509 import load_pem_x509_certificate

from codedfl.deploy.flare.jobs import Admin, Job, run_job, write_job
from codedfl.deploy.flare.kits import Kits, certificate_print, write_site
from codedfl.deploy.flare.processes import kits_of, start, status, stop
from codedfl.deploy.server.membership import add, bar

pytestmark = [
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


def test_a_stolen_certificate_admits_nobody_else_and_a_revoked_one_nobody(lab: Lab, tmp_path: Path) -> None:
    """Device-1's certificate under device-2's name, one's own under device-1's, an added site, and the same revoked."""
    log, own = lab.kits.server / "log.txt", lab.kits.server / "site.toml"
    for _ in range(600):  # a fleet that has just begun
        if log.exists() and log.read_text().count("joined") >= len(lab.kits.sites):
            break
        time.sleep(0.1)
    seen, before = log.stat().st_size, own.read_bytes()
    add(lab.kits.folder, "dora", {})
    dora, stealing, posing = lab.kits.device("dora"), tmp_path / "stealing", tmp_path / "posing"
    shown = certificate_print(load_pem_x509_certificate((dora / "startup" / "client.crt").read_bytes()))
    for kit, certified, name in ((stealing, "device-1", "device-2"), (posing, "dora", "device-1")):
        shutil.copytree(lab.kits.device(certified) / "startup", kit / "startup")
        (kit / "local").mkdir()
        write_site(kit, {"name": name})

    def until(*words: str) -> str:
        while not all(one in log.read_text()[seen:] for one in words):
            assert not any(one.died for one in status([lab.kits.server]))
            time.sleep(0.1)
        return log.read_text()[seen:]

    try:
        for kit in (stealing, posing, dora):
            start(kit, 1)
        claimed = "authenticated as '{}' but claimed endpoint '{}'"
        said = until(claimed.format("device-1", "device-2"), claimed.format("dora", "device-1"), "client dora@")
        stop([stealing, posing, dora])
        bar(lab.kits.server, [shown])
        start(dora, 1)
        said = until(f"dora with the certificate {shown} is revoked")
        assert said.count("joined") == said.count("client dora@") == 1, "nobody else was admitted, and dora once"
    finally:
        stop([stealing, posing, dora])
        own.write_bytes(before)
        lab.kits.write_manifest()
