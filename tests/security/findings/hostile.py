"""A server that asks what it likes of sites that run the program as it is."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel, SiteRequest
from codedfl.deploy.server.sessions import SessionTerms, SiteSession
from codedfl.deploy.server.stages import StageExchange
from codedfl.errors import EngineError
from codedfl.scenario import Scenario
from codedfl.schemes import Message, Server, Stage, Transfer, Work
from fleets import InProcessFleet
from tiny import is_one_sentence, scenario


class HostileServer:
    """A session with sites, without the rules of a training."""

    def __init__(self, sites: InProcessFleet, wanted: Scenario, names: tuple[str, ...] = ()) -> None:
        """Describe and prepare the sites, or those with other ``names``."""
        names = names or sites.sites
        self.channel = Channel(sites.carrier, names, clock=sites.clock)
        terms = SessionTerms(None, fresh_keys=True, time_scale=1.0)
        self.session = SiteSession(wanted, self.channel, Board(names), terms, load=wanted)
        self.scheme: Any = self.session.scheme
        self.session.prepare()
        self._stages, self._questions = 0, 0

    def ask(self, epoch: int, requests: Mapping[int, Message]) -> dict[int, Message]:
        """The replies to requests of any kind; an error with the site's own words if one refuses."""
        self._questions += 1  # sites refuse rounds that do not follow each other
        fields = {"epoch": epoch, "question": self._questions, "standing": False, "offline": False}
        sent = {device: SiteRequest("reply", fields, request) for device, request in requests.items()}
        replies = self.channel.ask_all(sent)
        self._check()
        return {device: reply.frame.arrays for device, reply in replies.items()}

    def carry(self, transfers: Iterable[Transfer]) -> None:
        """Let sites send parcels."""
        self._stages += 1
        StageExchange(self.channel, self._stages, Stage(list(transfers)), None, self.session.seal).carry(_nobody)
        self._check()

    def sum_over(self, server: Server, epoch: int, model: np.ndarray, members: Collection[int]) -> np.ndarray:
        """The gradient that a server of the scheme computes if it asks only these devices, times their points."""
        question, work = server.ask(epoch, model), Work()
        replies: dict[int, Message] = {}
        while question is not None and question.requests:
            asked = {device: request for device, request in question.requests.items() if device in members}
            replies = self.ask(epoch, asked)
            question = server.follow_up(epoch, replies, work)  # type: ignore[assignment]
        points = sum(self.session.public.samples[device] for device in members)
        return server.combine(epoch, replies, work) * points

    def _check(self) -> None:
        if self.channel.lost:
            raise EngineError("; ".join(self.channel.lost.values()))


def _nobody(sender: int, parcel: Message) -> None:
    raise AssertionError("nothing is sent to the server")


def attempt(attack: Callable[[], np.ndarray], truth: np.ndarray) -> tuple[float, str]:
    """How far what an attack reads is from the truth, relative to it (infinite if refused), and the refusal."""
    try:
        found = attack()
    except EngineError as error:
        assert is_one_sentence(str(error))
        return np.inf, str(error)
    return relative(found, truth), ""


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def wanted(scheme: str, devices: int, **changes: Any) -> Scenario:
    """A scenario of so many equal devices."""
    group = {"count": devices, "mac_rate": 25e6}
    return scenario({"scheme": scheme, "fleet.devices": [group], **changes})
