"""Nothing but the carrying: a host that returns as many bytes as it is asked for, and an entry point that times it."""

import struct
import time
from collections.abc import Mapping
from typing import Any, final

from codedfl.engines.carrier import Carrier, Host, Peers
from codedfl.errors import EngineError

__all__ = ["EchoHost", "host", "rounds"]

HEAD = struct.Struct("<IQd")
"""Which operation, how many bytes are wanted, and after how many seconds."""

RETURN, FORWARD = 0, 1


@final
class EchoHost(Host):
    """Returns bytes, or has another site return them."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def handle(self, payload: bytes) -> bytes:
        """Do what the first bytes say."""
        operation, wanted, seconds = HEAD.unpack_from(payload)
        if operation == FORWARD:
            site, parcel = payload[HEAD.size :].split(b"\n", 1)
            return self._peers.send(site.decode(), parcel)
        time.sleep(seconds)
        return bytes(wanted)

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Return who sent how much."""
        return f"{sender} sent {len(payload)}".encode()

    def close(self) -> None:
        """Nothing is to be let go."""


def host(site: Mapping[str, Any], peers: Peers) -> Host:
    """Make the host of a site."""
    return EchoHost(peers)


def rounds(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Ask all ``sites`` for ``up`` bytes with ``down`` bytes, ``rounds`` times, each as soon as all have replied.

    ``pause`` is how long each site waits before it replies. A site that fails to reply is left out from then on.
    With ``forward`` bytes, the first site then sends a parcel of that size to the last.
    """
    sites = list(arguments["sites"])
    carrier.ready(sites, float(arguments.get("ready", 60.0)))
    question = HEAD.pack(RETURN, int(arguments.get("up", 0)), float(arguments.get("pause", 0.0)))
    question += bytes(max(0, int(arguments.get("down", 0)) - len(question)))
    seconds, lost = [], []
    for epoch in range(int(arguments.get("rounds", 1))):
        began = time.monotonic()
        failed = _round(carrier, sites, question, epoch)
        lost += failed
        sites = [site for site in sites if site not in failed]
        if not sites:
            raise EngineError("no site is left")
        seconds.append(time.monotonic() - began)
    result: dict[str, Any] = {"seconds": seconds, "lost": lost, "sites": sites}
    if size := int(arguments.get("forward", 0)):
        began = time.monotonic()
        carrier.send(sites[0], HEAD.pack(FORWARD, 0, 0.0) + sites[-1].encode() + b"\n" + bytes(size), -1)
        delivered = carrier.next(None)
        result["forwarded"] = delivered.payload.decode() if delivered and delivered.payload else None
        result["forward_seconds"] = time.monotonic() - began
    return result


def _round(carrier: Carrier, sites: list[str], question: bytes, epoch: int) -> list[str]:
    for site in sites:
        carrier.send(site, question, epoch)
    delivered = [carrier.next(None) for _ in sites]
    return [one.site for one in delivered if one is not None and one.payload is None]
