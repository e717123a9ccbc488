"""Links that are really slow: the sites of a fleet on this machine in network namespaces, behind token buckets.

    with shaped(kits_sites, links) as network:
        kits = make_fleet(folder, scenario, host=network.server, ...)
        with running(kits_of(kits), network.prefixes(kits)):
            ...

Every site and the server have a namespace of their own, joined by a bridge: the server listens where only they and
this machine reach it. A site's way up is slowed at its own end, its way down at the bridge's; the server's is not. This
needs Linux, the commands ``ip`` and ``tc``, and the rights of root. Names hold the number of the process that made
them: what a process that was killed has left is removed by the next.
"""

import contextlib
import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from codedfl.deploy.flare.kits import Kits
from codedfl.deploy.flare.names import SERVER
from codedfl.errors import EngineError, UsageError

__all__ = ["Link", "Network", "need_namespaces", "shaped"]

PREFIX = "codedfl-"
RANGE = ipaddress.IPv4Network("198.18.0.0/15")
"""Set aside for tests of networks (RFC 2544), so that nobody's addresses are in it."""
MOST = 250
BURST = 4000
"""Bytes that pass unslowed after a rest: little beside a message, and more than a packet."""
QUEUE = 32_000_000
"""Bytes that may wait for a slow link; what does not fit would be lost and sent again."""


@final
@dataclass(frozen=True)
class Link:
    """What a site receives and sends at most, in bit/s of this machine's clock."""

    down: float
    up: float


@final
@dataclass(frozen=True)
class Network:
    """A server and sites in namespaces."""

    server: str
    """The server's address."""
    namespaces: Mapping[str, str]
    """By the name of the site; the server's is that of FLARE."""

    def prefix(self, site: str) -> tuple[str, ...]:
        """Return what a command begins with so that it runs at a site."""
        return ("ip", "netns", "exec", self.namespaces[site])

    def prefixes(self, kits: Kits) -> dict[Path, tuple[str, ...]]:
        """Return the same for the kits of all sites and of the server."""
        return {kits.server: self.prefix(SERVER)} | {kits.device(site): self.prefix(site) for site in kits.sites}


def need_namespaces() -> None:
    """Say why this machine has no namespaces for us, if it has none."""
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing or os.geteuid() != 0:
        why = f"the command '{missing[0]}' is missing" if missing else "only root may make network namespaces"
        raise EngineError(f"links cannot be slowed on this machine: {why}; emulate them instead")


@contextlib.contextmanager
def shaped(sites: Sequence[str], links: Sequence[Link]) -> Iterator[Network]:
    """Make namespaces for a server and sites behind links, and remove them whatever happens."""
    need_namespaces()
    if not 1 <= len(sites) == len(links) <= MOST:
        raise UsageError(f"{len(links)} links for {len(sites)} sites: give one for each, and at most {MOST}")
    remove_stale()
    own = f"{os.getpid()}"
    try:
        yield _make(own, sites, links)
    finally:
        _remove(own)


def remove_stale() -> None:
    """Remove what processes that are no more have left, where this machine can have any."""
    try:
        need_namespaces()
    except EngineError:
        return
    for number in {number for number in map(_owner, _namespaces() + _interfaces()) if number is not None}:
        if not Path(f"/proc/{number}").exists():
            with contextlib.suppress(EngineError):  # another process may be removing it, too
                _remove(number)


def _make(own: str, sites: Sequence[str], links: Sequence[Link]) -> Network:
    hosts = [str(host) for host in _free_subnet().hosts()]
    bridge, here = f"cf{own}b", hosts[-1]
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "addr", "add", f"{here}/24", "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    for number in range(len(sites) + 1):
        _join(bridge, f"{PREFIX}{own}-{number}", f"cf{own}n{number}", hosts[number])
    for number, link in enumerate(links, start=1):
        inside = ("ip", "netns", "exec", f"{PREFIX}{own}-{number}")
        _slow((*inside, "tc"), "eth0", link.up)
        _slow(("tc",), f"cf{own}n{number}", link.down)
    names = {site: f"{PREFIX}{own}-{number}" for number, site in enumerate((SERVER, *sites))}
    return Network(hosts[0], names)


def _join(bridge: str, namespace: str, port: str, address: str) -> None:
    """Make a namespace with one interface, whose other end is a port of the bridge."""
    _run("ip", "netns", "add", namespace)
    _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _run("ip", "link", "set", port, "master", bridge, "up")
    _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _run("ip", "-n", namespace, "link", "set", device, "up")


def _slow(command: Sequence[str], device: str, rate: float) -> None:
    bucket = ("tbf", "rate", f"{round(rate)}bit", "burst", str(BURST), "limit", str(QUEUE))
    _run(*command, "qdisc", "add", "dev", device, "root", *bucket)


def _remove(own: str) -> None:
    """Remove all that has this number, as far as it is there: interfaces first, since namespaces lose theirs later."""
    for interface in _interfaces():
        if _owner(interface) == own:
            _run("ip", "link", "del", interface)
    for namespace in _namespaces():
        if _owner(namespace) == own:
            _run("ip", "netns", "del", namespace)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.startswith(PREFIX)]


def _interfaces() -> list[str]:
    return [line.split(":")[1].split("@")[0].strip() for line in _run("ip", "-o", "link", "show").splitlines()]


def _owner(name: str) -> str | None:
    found = re.fullmatch(rf"{PREFIX}(\d+)-\d+|cf(\d+)(?:b|n\d+)", name)
    return None if found is None else found[1] or found[2]


def _free_subnet() -> ipaddress.IPv4Network:
    taken = _run("ip", "-o", "-4", "addr", "show")
    used = [ipaddress.ip_interface(text).network for text in re.findall(r"inet (\S+)", taken)]
    for subnet in RANGE.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used if isinstance(other, ipaddress.IPv4Network)):
            return subnet
    raise EngineError(f"all addresses of {RANGE} are taken on this machine; remove what uses them")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"code {done.returncode}"
        raise EngineError(f"links cannot be slowed on this machine: '{' '.join(command[:4])}' says: {reason}")
    return done.stdout
