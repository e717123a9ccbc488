"""Slow links in the kernel: rates as told, everybody reaches the server, and nothing is left behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("psutil", reason="the processes of a deployment need psutil, of the extra 'flare'")

from codedfl.deploy.flare import namespaces
from codedfl.deploy.flare.namespaces import Link, Network, need_namespaces, shaped
from codedfl.errors import EngineError, UsageError
from tiny import is_one_sentence

SITES = ("device-1", "device-2")
LINKS = (Link(down=2e6, up=1e6), Link(down=400e3, up=300e3))


def possible() -> bool:
    try:
        need_namespaces()
        with shaped(SITES, LINKS):
            return True
    except EngineError:
        return False


ALLOWED = pytest.mark.skipif(not possible(), reason="this machine does not allow network namespaces")


def command(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def ours() -> list[str]:
    """All namespaces and interfaces of this process."""
    own = str(os.getpid())
    links = [link["ifname"] for link in json.loads(command("ip", "-j", "link", "show"))]
    return [name for name in namespaces._namespaces() + links if own in name]


@pytest.fixture
def clean() -> Iterator[None]:
    yield
    assert ours() == []


def rate(*words: str) -> float:
    (found,) = json.loads(command(*words))
    assert found["kind"] == "tbf"
    return 8 * float(found["options"]["rate"])


@ALLOWED
@pytest.mark.usefixtures("clean")
def test_every_site_has_its_rates_and_reaches_the_server_through_them() -> None:
    with shaped(SITES, LINKS) as network:
        for site, link in zip(SITES, LINKS, strict=True):
            port = namespaces_port(network.namespaces[site])
            assert rate(*network.prefix(site), "tc", "-j", "qdisc", "show", "dev", "eth0") == link.up
            assert rate("tc", "-j", "qdisc", "show", "dev", port) == link.down
            assert exchanged(network, site) == "hello"
        assert len(set(network.namespaces.values())) == 3


def namespaces_port(namespace: str) -> str:
    own, number = namespace.removeprefix(namespaces.PREFIX).split("-")
    return f"cf{own}n{number}"


LISTEN = """
import socket
with socket.create_server(("", 4711)) as door:
    print("up", flush=True)
    print(door.accept()[0].recv(5).decode())
"""
SEND = "import socket, sys; socket.create_connection((sys.argv[1], 4711)).sendall(b'hello')"


def exchanged(network: Network, site: str) -> str:
    """What a process at the server hears from one at a site."""
    listening = [*network.prefix("server"), sys.executable, "-u", "-c", LISTEN]
    with subprocess.Popen(listening, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        subprocess.run([*network.prefix(site), sys.executable, "-c", SEND, network.server], check=True, timeout=60)
        return server.stdout.read().decode().strip()


@ALLOWED
@pytest.mark.usefixtures("clean")
def test_all_is_removed_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), shaped(SITES, LINKS):
        assert len(ours()) == 3 + 1 + 3, "namespaces, a bridge and its ports"
        raise KeyboardInterrupt


@ALLOWED
@pytest.mark.usefixtures("clean")
def test_all_is_removed_if_it_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "BURST", -1)
    with pytest.raises(EngineError, match="cannot be slowed on this machine") as error, shaped(SITES, LINKS):
        pass
    assert is_one_sentence(str(error.value))


@ALLOWED
def test_what_a_killed_process_left_is_removed_by_the_next() -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = f"{namespaces.PREFIX}{int(dead.stdout)}-0"
    command("ip", "netns", "add", left)
    alive = f"{namespaces.PREFIX}{os.getppid()}-0"
    command("ip", "netns", "add", alive)
    try:
        with shaped(SITES[:1], LINKS[:1]):
            assert left not in namespaces._namespaces()
            assert alive in namespaces._namespaces()
    finally:
        command("ip", "netns", "del", alive)


@pytest.mark.parametrize("reason", ["ip", "tc", "root"])
def test_a_machine_that_does_not_allow_it_says_so(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == reason else name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if reason == "root" else 0)
    with pytest.raises(EngineError, match=reason) as error:
        need_namespaces()
    assert is_one_sentence(str(error.value))


def test_a_link_for_each_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "need_namespaces", lambda: None)
    for sites, links in ((SITES, LINKS[:1]), ((), ())):
        with pytest.raises(UsageError, match="one for each"), shaped(sites, links):
            pass
