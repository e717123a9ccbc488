"""Transport without training: a host that returns as many bytes as requested, and entry points that time it."""

import logging
import statistics
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from codedfl.deploy.flare.carrier import FlarePeers
from codedfl.deploy.flare.cells import CellRoute
from codedfl.deploy.protocol.carrier import Carrier, Host, Peers
from codedfl.errors import EngineError

HEAD = struct.Struct("<IQd")
"""The operation, the number of bytes to return, and the delay in seconds."""

RETURN, FORWARD = 0, 1

BARE = "codedfl.bare"
"""Topic of FLARE's auxiliary messages, the baseline of the comparison."""

logger = logging.getLogger(__name__)


@final
class EchoHost(Host):
    """Returns bytes, or forwards a parcel to another site."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def handle(self, payload: bytes) -> bytes:
        """Carry out the operation in the first bytes."""
        operation, wanted, seconds = HEAD.unpack_from(payload)
        if operation == FORWARD:
            site, parcel = payload[HEAD.size :].split(b"\n", 1)
            began = time.monotonic()
            answer = self._peers.send(site.decode(), parcel)
            return struct.pack("<d", time.monotonic() - began) + answer
        time.sleep(seconds)
        return bytes(wanted)

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Return the sender and the size of a parcel."""
        return f"{sender} sent {len(payload)}".encode()

    def close(self) -> None:
        """Do nothing."""


def host(site: Mapping[str, Any], peers: Peers) -> Host:
    """Create the host of a site; with ``bare`` it answers FLARE's auxiliary messages, too."""
    if site.get("bare") is True and isinstance(peers, FlarePeers) and isinstance(peers.route, CellRoute):
        peers.route.engine.register_aux_message_handler(BARE, _answer_bare)
    return EchoHost(peers)


def rounds(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Send ``down`` bytes to all ``sites`` and wait for ``up`` bytes from each, ``rounds`` times.

    Sites reply after ``pause`` seconds; one that is unreachable is left out from then on. With ``forward`` bytes, the
    first site first sends a parcel of that size to the last.
    """
    sites, question = list(arguments["sites"]), _question(arguments)
    carrier.ready(sites, float(arguments.get("ready", 60.0)))
    logger.info("all sites are ready")
    forwarded = _forward(carrier, sites, size) if (size := int(arguments.get("forward", 0))) else {}
    seconds: list[float] = []
    lost: list[str] = []
    for epoch in range(int(arguments.get("rounds", 1))):
        began = time.monotonic()
        lost += (failed := _round(carrier, sites, question, epoch))
        sites = [site for site in sites if site not in failed]
        if not sites:
            raise EngineError("no site is left")
        seconds.append(time.monotonic() - began)
    return {"seconds": seconds, "lost": lost, "sites": sites} | forwarded


def against_bare(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Time ``rounds`` rounds of a carrier on FLARE and as many of FLARE's auxiliary messages, alternating.

    ``grown_bytes`` is the growth of the server process's memory.
    """
    import psutil

    route = getattr(carrier, "route", None)
    if not isinstance(route, CellRoute):
        raise EngineError("only FLARE has auxiliary messages to compare with")
    sites, question = list(arguments["sites"]), _question(arguments)
    carrier.ready(sites, float(arguments.get("ready", 60.0)))
    tasks: dict[str, Callable[[], object]] = {
        "carrier": lambda: _round(carrier, sites, question, 0),
        "bare": _bare_round(route.engine, sites, question, int(arguments["up"])),
    }
    times: dict[str, list[float]] = {name: [] for name in tasks}
    before = psutil.Process().memory_info().rss
    for _ in range(int(arguments["rounds"])):
        for name, task in tasks.items():
            began = time.monotonic()
            task()
            times[name].append(time.monotonic() - began)
    result: dict[str, Any] = {f"{name}_seconds": statistics.median(taken) for name, taken in times.items()}
    result |= {f"{name}_best_seconds": min(taken) for name, taken in times.items()}
    result["grown_bytes"] = psutil.Process().memory_info().rss - before
    return result | (_forward(carrier, sites, size) if (size := int(arguments.get("forward", 0))) else {})


def _answer_bare(topic: str, request: Any, fl_ctx: Any) -> Any:
    from nvflare.apis.shareable import Shareable

    reply = Shareable()
    reply["payload"] = bytes(HEAD.unpack_from(request["payload"])[1])
    return reply


def _question(arguments: Mapping[str, Any]) -> bytes:
    head = HEAD.pack(RETURN, int(arguments.get("up", 0)), float(arguments.get("pause", 0.0)))
    return head + bytes(max(0, int(arguments.get("down", 0)) - len(head)))


def _round(carrier: Carrier, sites: list[str], question: bytes, epoch: int) -> list[str]:
    for site in sites:
        carrier.send(site, question, epoch)
    delivered = [carrier.next(None) for _ in sites]
    return [one.site for one in delivered if one is not None and one.payload is None]


def _bare_round(engine: Any, sites: list[str], question: bytes, up: int) -> Callable[[], None]:
    from nvflare.apis.shareable import Shareable

    def bare() -> None:
        request = Shareable()
        request["payload"] = question
        with engine.new_context() as context:
            replies = engine.send_aux_request(sites, BARE, request, 60.0, context)
        if any(len(replies[site].get("payload", b"")) != up for site in sites):
            raise EngineError("a bare message was not answered; its site.toml needs bare = true")

    return bare


def _forward(carrier: Carrier, sites: list[str], size: int) -> dict[str, Any]:
    carrier.send(sites[0], HEAD.pack(FORWARD, 0, 0.0) + sites[-1].encode() + b"\n" + bytes(size), -1)
    delivered = carrier.next(None)
    if delivered is None or delivered.payload is None:
        raise EngineError(f"{sites[0]} did not answer")
    return {
        "forwarded": delivered.payload[8:].decode(),
        "forward_seconds": struct.unpack_from("<d", delivered.payload)[0],
    }
