"""A deviating server for tests of sites: it follows the protocol except where an attack says otherwise.

Only a job that names ``codedfl.testing.hostile:serve`` starts it, and it needs no change of a site. An attack runs the
server's own code and changes frames on their way, or asks for what no scheme asks for
(``codedfl.testing.hostile_attacks``). Its result is what each site answered, and what the server has learned.
"""

import dataclasses
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.deploy.protocol.carrier import Carrier, Delivered, Host, Peers
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.protocol.sums import SumOrder
from codedfl.deploy.protocol.wire import Frame, decode, encode, pack_messages
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel, Clock, SiteRequest
from codedfl.deploy.server.deployment import DeploymentOptions, deploy
from codedfl.deploy.server.sessions import SessionTerms, SiteSession
from codedfl.deploy.server.stages import StageExchange
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.errors import CodedflError, EngineError, RefusalError
from codedfl.runs.sums import sum_scenario
from codedfl.scenario import Scenario
from codedfl.schemes import Message, Work
from codedfl.schemes.contract import Stage
from codedfl.task import Shard
from codedfl.testing.in_process import any_terms

Change = Callable[[str, Frame], Frame]
"""Takes the name of a site and a frame to it; returns the frame that it gets."""

_log = logging.getLogger(__name__)


@final
@dataclasses.dataclass(frozen=True)
class Obtained:
    """What an attack has got: an ``estimate`` of the Gram matrix or of the gradient (at ``model``) of a device."""

    what: str
    device: int
    estimate: Float[np.ndarray, "..."] | None = None
    model: Float[np.ndarray, "d c"] | None = None

    def to_table(self) -> dict[str, Any]:
        """Return plain data."""
        lists = {name: getattr(self, name) for name in ("estimate", "model")}
        return {"what": self.what, "device": self.device} | {
            name: None if value is None else value.tolist() for name, value in lists.items()
        }


class _NoPeers(Peers):
    def send(self, site: str, payload: bytes) -> bytes:
        raise EngineError(f"{site} cannot be reached from an invented device; ask the server")


@final
class ChangingCarrier(Carrier):
    """Changes frames on their way to sites, and answers itself for sites that do not exist."""

    def __init__(self, inner: Carrier) -> None:
        self.change: Change = lambda site, frame: frame
        self.invented: dict[str, Host] = {}
        self._inner = inner
        self._arrived: deque[Delivered] = deque()

    def ready(self, sites: Sequence[str], timeout: float) -> None:
        """Wait for the sites that exist."""
        self._inner.ready([site for site in sites if site not in self.invented], timeout)

    def send(self, site: str, payload: bytes, tag: int) -> None:
        """Change a frame and send it."""
        changed = encode(self.change(site, decode(payload)))
        if site in self.invented:
            self._arrived.append(Delivered(site, tag, self.invented[site].handle(changed), 0.0))
        else:
            self._inner.send(site, changed, tag)

    def next(self, timeout: float | None) -> Delivered | None:
        """Return the next reply."""
        return self._arrived.popleft() if self._arrived else self._inner.next(timeout)

    def close(self) -> None:
        """Leave the network open for what follows."""


@final
class HostileServer:
    """The sites, the scenarios that they have agreed to by name, and the channels of an attack."""

    def __init__(
        self, carrier: Carrier, sites: Sequence[str], scenarios: Mapping[str, Scenario], clock: Clock, patience: float
    ) -> None:
        self.carrier = ChangingCarrier(carrier)
        self.sites = tuple(sites)
        self.scenarios = dict(scenarios)
        self._clock = clock
        self._patience = patience
        self._channels: list[Channel] = []

    def begin(
        self,
        scenario: str | Scenario,
        *,
        sites: Sequence[str] | None = None,
        run: str | None = None,
        change: Change | None = None,
        added: SumOrder | None = None,
    ) -> "HostileSession":
        """Describe and prepare sites for a scenario or sums of it, with changed frames; raise if one refuses."""
        self.carrier.change = change or (lambda site, frame: frame)
        wanted = self.scenarios[scenario] if isinstance(scenario, str) else scenario
        channel = Channel(self.carrier, sites or self.sites, patience=self._patience, clock=self._clock)
        channel.run = run or channel.run
        self._channels.append(channel)
        return HostileSession(channel, wanted, added)

    def invent(self, names: Sequence[str], cohort: Sequence[str], like: Mapping[str, Any]) -> None:
        """Invent devices with keys and data of their own: one row of zeros each."""
        d, c = int(like["features"]), int(like["outputs"])
        empty = LocalData(Shard(np.zeros((1, d)), np.zeros((1, c))), like["kind"], tuple(like["classes"]))
        for name in names:
            site = Site(name, lambda _: empty, DeviceKey(), None, any_terms(cohort))
            self.carrier.invented[name] = DeviceHost(site, _NoPeers())

    def attempt(self, attack: "Callable[[HostileServer], Obtained | None]") -> dict[str, Any]:
        """Carry out an attack; return the sentence of every site that refused, and what was learned."""
        self._channels, learned, ended = [], None, ""
        try:
            learned = attack(self)
        except CodedflError as error:
            ended = str(error)
        finally:
            self.carrier.change, self.carrier.invented = (lambda site, frame: frame), {}
        refused = {c.sites[device]: reason for c in self._channels for device, reason in c.lost.items()}
        _log.info("refused by %d sites: %s", len(refused), ended)
        return {"refused": refused, "ended": ended, "learned": None if learned is None else learned.to_table()}


@final
class HostileSession:
    """A session in which all sites are prepared; requests of any kind can be sent in it."""

    def __init__(self, channel: Channel, scenario: Scenario, added: SumOrder | None) -> None:
        self.channel = channel
        terms, board = SessionTerms(None, fresh_keys=True, time_scale=1.0), Board(channel.sites)
        wanted = scenario if added is None else sum_scenario(scenario, added.number)
        self.session = SiteSession(wanted, channel, board, terms, load=scenario, added=added)
        self.session.prepare()
        self.public, self.scheme = self.session.public, self.session.scheme
        self.server = self.scheme.server()
        self._questions: dict[int, int] = {}
        self._stages = 0

    @property
    def devices(self) -> range:
        """The numbers of all devices."""
        return range(len(self.channel.sites))

    def ask(self, requests: Mapping[int, SiteRequest]) -> dict[int, Frame]:
        """Return the answers; raise if a site refuses."""
        replies = self.channel.ask_all(requests)
        if len(replies) < len(requests):
            raise RefusalError("; ".join(self.channel.lost.values()))
        return {device: replies[device].frame for device in requests}

    def replies(self, epoch: int, requests: Mapping[int, Message]) -> dict[int, Message]:
        """Return the replies of the next round of an epoch; raise if a site refuses."""
        number = self._questions.get(epoch, 0)
        self._questions[epoch] = number + 1
        fields = {"epoch": epoch, "question": number, "standing": False, "offline": False}
        wanted = {device: SiteRequest("reply", fields, request) for device, request in requests.items()}
        return {device: frame.arrays for device, frame in self.ask(wanted).items()}

    def epoch(
        self,
        number: int,
        model: Float[np.ndarray, "d c"],
        *,
        only: Sequence[int] | None = None,
        change: Callable[[int, int, Message], Message] = lambda turn, device, request: request,
        inner: Callable[[int, Message], Message] | None = None,
    ) -> Float[np.ndarray, "d c"]:
        """Compute the sum of gradients in an epoch, of some devices only if they are named.

        ``change`` takes the number of a round in the epoch, a device and its request. ``inner`` takes a device and the
        request whose reply it masks; secure aggregation then goes on as if that were the request.
        """
        question, turn, asked = self.server.ask(number, model), 0, list(only or self.devices)
        if inner is not None:
            masked: Any = vars(self.server)["_sum"]
            masked._requests = {device: inner(device, request) for device, request in masked._requests.items()}
        while True:
            requests = {d: change(turn, d, request) for d, request in question.requests.items() if d in asked}
            replies = self.replies(number, requests)
            following = self.server.follow_up(number, replies, Work())
            if following is None:
                mean = self.server.combine(number, replies, Work())
                return mean * sum(self.public.samples[device] for device in asked)
            question, turn = following, turn + 1

    def carry(self, stage: Stage) -> None:
        """Carry out a stage; raise if a site refuses."""
        self._stages += 1
        exchange = StageExchange(self.channel, self._stages, stage, None, self.session.seal)
        if exchange.carry(self.server.receive).lost:
            raise RefusalError("; ".join(self.channel.lost.values()))

    def export(
        self, device: int, recipient: str | None, grant: Message, *, sealed: bool = True
    ) -> dict[int, SiteRequest]:
        """Make a request for one parcel."""
        self._stages += 1
        fields = {"stage": self._stages, "occasion": None, "parcels": [[0, recipient, False, None]]}
        grants = pack_messages({0: grant})
        return {device: SiteRequest("export", fields, self.session.seal(device, fields, grants) if sealed else grants)}


def serve(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Attack the sites, then train with the same processes under every scenario.

    Arguments: ``scenarios`` (TOML by name), ``attacks`` (names, in order), ``honest`` (names of scenarios), ``like``
    (inputs, features, outputs, kind and classes of the sites' data, and the fewest rows), ``runs`` (a folder). Return
    the result of every attack, and the folders of the honest runs.
    """
    from codedfl.testing.hostile_attacks import ATTACKS, LEAKS

    scenarios = {name: Scenario.from_toml(text) for name, text in arguments["scenarios"].items()}
    sites, like = tuple(arguments["sites"]), arguments["like"]
    carrier.ready(sites, float(arguments.get("ready_seconds", 60.0)))
    hostile = HostileServer(carrier, sites, scenarios, time.monotonic, float(arguments.get("patience", 60.0)))
    known = {attack.name: attack for attack in (*ATTACKS, *LEAKS)}
    results = {}
    for name in arguments["attacks"]:
        results[name] = hostile.attempt(lambda server, name=name: known[name].act(server, like))  # type: ignore[misc]
    runs = {}
    for name in arguments["honest"]:
        path = Path(arguments["runs"]) / f"{name}-{secrets.token_hex(4)}"
        options = DeploymentOptions(test=False, patience=float(arguments.get("patience", 60.0)))
        runs[name] = str(deploy(scenarios[name], carrier, sites, path, options=options).path)
    return {"results": results, "runs": runs}
