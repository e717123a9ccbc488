"""Slow links by the kernel: the sites of a fleet on this machine in network namespaces, behind token buckets.

Every site and the server have a namespace, joined by a bridge. A site's uplink is limited at its own end, its downlink
at the bridge. This needs Linux, the commands ``ip`` and ``tc``, and root. Names contain the id of the process that
made them, so leftovers of a killed process can be removed.
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

PREFIX = "codedfl-"
RANGE = ipaddress.IPv4Network("198.18.0.0/15")
"""Reserved for tests of networks (RFC 2544)."""
MOST = 250
BURST = 4000
"""Bytes that pass at once after a pause: more than a packet, and little beside a message."""
QUEUE = 32_000_000
"""Bytes that may queue for a slow link; more would be dropped and retransmitted."""


@final
@dataclass(frozen=True)
class Link:
    """Rates of a site's link in real bit/s."""

    down: float
    up: float


@final
@dataclass(frozen=True)
class Network:
    """A server and sites in namespaces."""

    server: str
    """The server's address."""
    namespaces: Mapping[str, str]

    def prefix(self, site: str) -> tuple[str, ...]:
        """Return the prefix of a command that runs at a site."""
        return ("ip", "netns", "exec", self.namespaces[site])

    def prefixes(self, kits: Kits) -> dict[Path, tuple[str, ...]]:
        """Return the prefixes of all kits."""
        return {kits.server: self.prefix(SERVER)} | {kits.device(site): self.prefix(site) for site in kits.sites}


def need_namespaces() -> None:
    """Raise if this machine does not allow network namespaces."""
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing or os.geteuid() != 0:
        why = f"the command '{missing[0]}' is missing" if missing else "only root may create network namespaces"
        raise EngineError(f"links cannot be slowed on this machine: {why}; emulate them instead")


@contextlib.contextmanager
def shaped(sites: Sequence[str], links: Sequence[Link]) -> Iterator[Network]:
    """Create namespaces for a server and sites behind links, and remove them in any case."""
    need_namespaces()
    if not 1 <= len(sites) == len(links) <= MOST:
        raise UsageError(f"{len(links)} links for {len(sites)} sites: give one for each, and at most {MOST}")
    remove_stale()
    own = str(os.getpid())
    try:
        yield _make(own, sites, links)
    finally:
        remove(own)


def remove_stale() -> None:
    """Remove leftovers of processes that have ended."""
    try:
        need_namespaces()
    except EngineError:
        return
    for number in set(map(_owner, _namespaces() + _interfaces())) - {""}:
        if not Path(f"/proc/{number}").exists():
            with contextlib.suppress(EngineError):  # another process may be removing it
                remove(number)


def _make(own: str, sites: Sequence[str], links: Sequence[Link]) -> Network:
    hosts = [str(host) for host in _free_subnet().hosts()]
    bridge = f"cf{own}b"
    run("ip", "link", "add", bridge, "type", "bridge")
    run("ip", "addr", "add", f"{hosts[-1]}/24", "dev", bridge)
    run("ip", "link", "set", bridge, "up")
    network = Network(hosts[0], {site: f"{PREFIX}{own}-{number}" for number, site in enumerate((SERVER, *sites))})
    for number, namespace in enumerate(network.namespaces.values()):
        port = f"cf{own}n{number}"
        add_namespace(namespace, port, f"{hosts[number]}/24")
        run("ip", "link", "set", port, "master", bridge, "up")
    for number, (site, link) in enumerate(zip(sites, links, strict=True), start=1):
        _limit((*network.prefix(site), "tc"), "eth0", link.up)
        _limit(("tc",), f"cf{own}n{number}", link.down)
    return network


def add_namespace(namespace: str, port: str, address: str) -> None:
    """Create a namespace with one interface, ``eth0``, whose other end is ``port`` of this machine."""
    run("ip", "netns", "add", namespace)
    run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    run("ip", "-n", namespace, "addr", "add", address, "dev", "eth0")
    for device in ("lo", "eth0"):
        run("ip", "-n", namespace, "link", "set", device, "up")


def _limit(command: Sequence[str], device: str, rate: float) -> None:
    bucket = ("tbf", "rate", f"{round(rate)}bit", "burst", str(BURST), "limit", str(QUEUE))
    run(*command, "qdisc", "add", "dev", device, "root", *bucket)


def remove(own: str) -> None:
    """Remove everything of the process with this id, interfaces first: namespaces lose theirs later."""
    for listed, kind in ((_interfaces, "link"), (_namespaces, "netns")):
        for name in listed():
            if _owner(name) == own:
                run("ip", kind, "del", name)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.startswith(PREFIX)]


def _interfaces() -> list[str]:
    return [line.split(":")[1].split("@")[0].strip() for line in run("ip", "-o", "link", "show").splitlines()]


def _owner(name: str) -> str:
    """Return the id of the process that made an interface or a namespace; empty for those of others."""
    found = re.fullmatch(rf"{PREFIX}(\d+)-\d+|cf(\d+)(?:b|n\d+)", name)
    return "" if found is None else found[1] or found[2]


def _free_subnet() -> ipaddress.IPv4Network:
    taken = run("ip", "-o", "-4", "addr", "show")
    used = [ipaddress.ip_interface(text).network for text in re.findall(r"inet (\S+)", taken)]
    for subnet in RANGE.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used if isinstance(other, ipaddress.IPv4Network)):
            return subnet
    raise EngineError(f"all addresses of {RANGE} are in use on this machine; free some")


def run(*command: str) -> str:
    """Run a command and return what it prints; raise if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"code {done.returncode}"
        raise EngineError(f"links cannot be slowed on this machine: '{' '.join(command[:4])}' says: {reason}")
    return done.stdout
