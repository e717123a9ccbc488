"""A session with all sites: they describe their data, learn what is public, and make the devices of a scheme.

Sites that come back after a loss get a session with all others, from where the training stands.
"""

import logging
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, final

import numpy as np

from codedfl import schemes
from codedfl.deploy.protocol.carrier import Carrier
from codedfl.deploy.protocol.envelopes import NONCE_BYTES, Member, close_grants, fingerprint, run_name
from codedfl.deploy.protocol.fields import count, one_line, real, text
from codedfl.deploy.protocol.receipts import Receipts
from codedfl.deploy.protocol.sums import SumOrder
from codedfl.deploy.protocol.task_facts import TaskFacts
from codedfl.deploy.protocol.wire import Frame, encode
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel, SiteRequest
from codedfl.errors import (
    DataError,
    EngineError,
    LostDevicesError,
    LyingDeviceError,
    ReturnedDevicesError,
    UsageError,
)
from codedfl.scenario import Scenario
from codedfl.schemes import Facts, Message
from codedfl.storage import package_version
from codedfl.task.folds import RowChoice
from codedfl.task.preparing import Prepared

_PRECISIONS = {name: np.dtype(name) for name in ("float32", "float64")}
_MOST_RETURNS = 5
"""How often a site may come back in one job; one that comes and goes would keep all others from training."""
_LOOK_SECONDS = 1.0
_ABSENT = "it was not there when the run was resumed"
_MOST_ANNOUNCED = 1 << 28
"""Bytes of announcements that are sent at the same time; bounds the server's memory."""

_log = logging.getLogger(__name__)


Described = Mapping[str, Mapping[str, Any]]
"""By site, what it has told of its data, without keys and nonces of the session."""


def describe_all(
    channel: Channel, fields: Mapping[str, Any], arrays: Message, earlier: Described = MappingProxyType({})
) -> list[Mapping[str, Any]]:
    """Begin a session in which all sites describe their data; return the fields of all replies.

    Of lost sites, what they have told ``earlier`` counts.
    """
    channel.new_session()
    common = {**fields, "run": channel.run, "sites": list(channel.sites)}
    found = {n: earlier[site] for n, site in enumerate(channel.sites) if n in channel.lost and site in earlier}
    asked = [n for n in range(len(channel.sites)) if n not in found]
    replies = ask_each(channel, {n: SiteRequest("describe", {**common, "device": n}, arrays) for n in asked})
    found |= dict(zip(asked, replies, strict=True))
    return [found[device] for device in sorted(found)]


def ask_each(channel: Channel, requests: Mapping[int, SiteRequest]) -> list[Mapping[str, Any]]:
    """Return the fields of all replies; without one of them the run cannot start."""
    replies = channel.ask_all(requests)
    if len(replies) < len(requests):
        lost = channel.lost
        reasons = "; ".join(f"{channel.sites[device]}: {lost[device]}" for device in sorted(lost))
        kind = LostDevicesError if channel.silent.issuperset(requests.keys() & lost.keys()) else EngineError
        raise kind(f"the run cannot start ({reasons}); fix it and rerun the same command")
    return [replies[device].frame.fields for device in requests]


@final
@dataclass(frozen=True)
class SessionTerms:
    """Pinned and revoked fingerprints of keys, whether the server draws fresh keys, and the time scale of emulation."""

    pins: Mapping[str, str] | None
    fresh_keys: bool
    time_scale: float
    revoked: tuple[str, ...] = ()


@final
class SiteSession:
    """Sites that are described and prepared for one scenario.

    ``load`` is the scenario that sites load their data for. They train on data (or some ``rows`` of them) that are
    ``prepared`` so, or, with ``added``, on the sums that it asks for. Lost sites are those of an ``earlier`` session.
    """

    def __init__(
        self,
        scenario: Scenario,
        channel: Channel,
        board: Board,
        terms: SessionTerms,
        *,
        load: Scenario,
        prepared: Prepared | None = None,
        rows: RowChoice | None = None,
        added: SumOrder | None = None,
        earlier: Described = MappingProxyType({}),
    ) -> None:
        self._scenario = scenario
        self._channel = channel
        self.terms = terms
        fields: dict[str, Any] = {"scenario": load.to_toml()}
        if prepared is not None:
            fields |= {"preparation": prepared.preparation.to_table(), "rows": None if rows is None else vars(rows)}
        order, arrays = ({}, {}) if added is None else added.to_message()
        replies = describe_all(channel, fields | order, arrays, earlier)
        blank = {"member": None, "nonce": bytes(NONCE_BYTES).hex()}
        pairs = zip(channel.sites, replies, strict=True)
        self.described = {
            site: {name: reply[name] for name in reply if name not in ("session", "number")} | blank
            for site, reply in pairs
        }
        """What sites have told that holds for later sessions, too."""
        self.descriptions = [
            SiteDescription.read(site, reply) for site, reply in zip(channel.sites, replies, strict=True)
        ]
        _check_keys(channel, self.descriptions, terms)
        _check_alike(channel.sites, self.descriptions)
        self.facts = [each.facts for each in self.descriptions]
        for device, each in enumerate(self.facts):
            board.samples(device, each.samples)
        if added is not None:
            _check_sums(channel.sites, self.facts, added)
        kind = self.descriptions[0].task.kind
        schemes.refuse_claims(scenario, self.facts, channel.sites, kind, prepared)
        agreed = schemes.agree(scenario, self.facts, prepared, channel.sites)
        self.public = replace(
            agreed,
            fresh_keys=terms.fresh_keys,
            nonces=tuple(each.nonce for each in self.descriptions),
            signed=all(self.descriptions[device].member is not None for device in self._present),
        )
        self.scheme = schemes.build(scenario, self.public)
        if self.scheme.unfit_for_sites is not None:
            raise UsageError(self.scheme.unfit_for_sites)

    @property
    def _present(self) -> list[int]:
        return [device for device in range(len(self._channel.sites)) if device not in self._channel.lost]

    def prepare(self) -> None:
        """Tell all sites what is public, so that they make their devices."""
        sites, public, announced = self._channel.sites, self.public, self.scheme.announcement()
        run = f"{self._scenario.id()} {secrets.token_hex(8)}"
        pairs = zip(sites, self.descriptions, strict=True)
        members = {site: each.member for site, each in pairs if each.member is not None}
        bounds = ("largest_feature", "largest_target", "accuracy", "feature_energy", "target_energy")
        shared = {name: getattr(public, name) for name in ("features", "outputs", *bounds)}
        common = {
            "run": run,
            "sites": list(sites),
            "samples": list(public.samples),
            "dtype": public.dtype.name,
            **shared,
            "feature_claims": [feature for feature, _ in public.claims],
            "target_claims": [target for _, target in public.claims],
            "nonces": [nonce.hex() for nonce in public.nonces],
            "marks": [each.mark for each in self.descriptions],
            "members": {site: member.to_hex() for site, member in members.items()},
        }
        self._run_name, self._members = run_name(run, announced), members
        self.announced_bytes = sum(array.nbytes for array in announced.values())
        step, replies = max(1, _MOST_ANNOUNCED // max(1, self.announced_bytes)), []
        present = self._present
        for first in range(0, len(present), step):
            described = {device: {**common, "index": device} for device in present[first : first + step]}
            requests = {device: SiteRequest("prepare", each, announced) for device, each in described.items()}
            replies += ask_each(self._channel, requests)
        self.emulated_links = all(reply.get("emulated_links") is True for reply in replies)

    @property
    def keys(self) -> dict[str, str]:
        """The fingerprints of the sites' keys."""
        pairs = zip(self._channel.sites, self.descriptions, strict=True)
        return {site: fingerprint(each.member.public) for site, each in pairs if each.member is not None}

    def has_accepted(self, sender: str, recipient: str, stage: int, number: int, shown: object) -> bool:
        """Return whether what is shown is the recipient's receipt of a parcel of this session."""
        receipts = Receipts(self._channel.session, members=self._members)
        return receipts.check(sender, recipient, stage, number, shown)

    def seal(self, device: int, fields: Mapping[str, Any], grants: Message) -> Message:
        """Encrypt grants under the device's key; one without a key gets them as they are."""
        site = self._channel.sites[device]
        if site not in self._members:
            return grants
        closed = close_grants(site, self._members[site], self._run_name, fields, encode(Frame("grants", {}, grants)))
        return {"sealed": np.frombuffer(closed, np.uint8)}


@dataclass(frozen=True)
class SiteDescription:
    """What a site reports about its data and key."""

    facts: Facts
    task: TaskFacts
    member: Member | None
    nonce: bytes
    """Fresh randomness of the site in this session."""
    mark: str
    """The mark of the seed of its noise; empty without noise."""

    @classmethod
    def read(cls, site: str, fields: Mapping[str, Any]) -> "SiteDescription":
        """Validate the fields of a reply."""
        own = package_version()
        if fields.get("version") != own:
            other = one_line(fields.get("version"))
            raise EngineError(f"{site} has version {other} of codedfl and the server {own}; install one everywhere")
        try:
            samples, features, outputs = (count(fields, name) for name in ("samples", "features", "outputs"))
            bounds = [real(fields, name) for name in ("largest_feature", "largest_target")]
            facts = Facts(samples, features, outputs, _PRECISIONS[text(fields, "dtype")], *bounds)
            shown, nonce, mark = fields["member"], bytes.fromhex(text(fields, "nonce")), text(fields, "mark")
            member = None if shown is None else Member.from_hex(*shown)
            task = TaskFacts.read(fields)
            sound = min(samples, features, outputs) >= 1 and len(nonce) == NONCE_BYTES
            sound &= re.fullmatch("[0-9a-f]*", mark) is not None
        except (KeyError, TypeError, ValueError, EngineError):
            sound = False
        if not sound:
            raise EngineError(f"{site} sent an invalid description of its data; restart it")
        return cls(facts, task, member, nonce, mark)


def _check_keys(channel: Channel, descriptions: Sequence[SiteDescription], terms: SessionTerms) -> None:
    """Refuse sites with revoked keys, or others than the pinned ones, and session keys that those have not signed."""
    pins = terms.pins
    for device, (site, each) in enumerate(zip(channel.sites, descriptions, strict=True)):
        if device in channel.lost:
            continue
        key = "none" if each.member is None else fingerprint(each.member.public)
        if pins is not None and key != (pinned := pins.get(site, "none")):
            raise EngineError(f"{site} has the key {key}, but the server has pinned {pinned}; check which one is right")
        if key in terms.revoked:
            raise EngineError(f"the key {key} of {site} is revoked; leave the site out, or give it a new key")
        if each.member is not None:
            each.member.check(channel.session, site)


def _check_alike(sites: Sequence[str], descriptions: Sequence[SiteDescription]) -> None:
    """Refuse sites with another task than the first one."""
    first = descriptions[0].task
    for site, each in zip(sites, descriptions, strict=True):
        if not each.task.alike(first):
            tasks = one_line(f"{each.task}; {first}")
            raise DataError(f"{site} and {sites[0]} differ in their task ({tasks}); set the same kind and data.classes")


def _check_sums(sites: Sequence[str], facts: Sequence[Facts], added: SumOrder) -> None:
    """Refuse sums of other sizes than those asked for: each is one row, divided by scales that bound it by 1."""
    sums = 0 if added.scales is None else len(added.scales)
    for site, each in zip(sites, facts, strict=True):
        sizes = each.samples, each.features, each.outputs, each.largest_feature
        if sizes != (1, 2, sums, 1.0) or each.largest_target > 1:
            raise DataError(f"{site} announces other sums than it was asked for; check that site, or run without it")


@final
class Returns:
    """Lost sites that come back: a training goes on with them, in another session of all that are there."""

    def __init__(self, channel: Channel, carrier: Carrier, board: Board, seconds: float) -> None:
        """A training that cannot go on waits ``seconds`` for them."""
        self._channel = channel
        self._carrier = carrier
        self._board = board
        self._seconds = seconds
        self._looked = -math.inf
        self._back: set[int] = set()
        self._times = dict.fromkeys(range(len(channel.sites)), _MOST_RETURNS)

    def find_sites(self, seconds: float, resumed: float | None) -> None:
        """Wait for all sites; a run that is resumed waits so many seconds, and those that are not there are lost."""
        channel = self._channel
        sites = [site for device, site in enumerate(channel.sites) if device not in channel.lost]
        there = () if resumed is None else self._carrier.present(sites, resumed)
        if not there:
            self._carrier.ready(sites, seconds)
            return
        for site in set(sites) - set(there):
            channel.mark_lost(channel.sites.index(site), _ABSENT, silent=True)
        self._board.lost(channel.lost)

    def seen(self) -> Sequence[int]:
        """Return the lost devices that can be asked again; look from time to time only."""
        now = self._channel.clock()
        if not self._channel.silent or now - self._looked < _LOOK_SECONDS:
            return ()
        self._looked = now
        silent = {self._channel.sites[device]: device for device in self._channel.silent if self._times[device]}
        self._back |= {silent[site] for site in self._carrier.returned([*silent])}
        return sorted(self._back)

    def awaited(self, error: LostDevicesError) -> bool:
        """Readmit devices that are back, and wait for them if a training has stopped; tell whether there are any."""
        if isinstance(error, LyingDeviceError):
            return False
        until = self._channel.clock() + (0.0 if isinstance(error, ReturnedDevicesError) else self._seconds)
        while True:
            self._looked = -math.inf
            back = self.seen()
            if len(back) >= len(self._channel.lost) or self._channel.clock() >= until:
                break
            time.sleep(_LOOK_SECONDS)
        for device in back:
            self._back.discard(device)
            self._times[device] -= 1
            self._channel.readmit(device)
            self._board.back(device)
            _log.warning("%s is back; the run goes on with it", self._channel.sites[device])
        return bool(back)
