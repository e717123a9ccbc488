"""One site of a deployment: it holds a device's data and answers the server, over whatever carries the bytes.

Questions are frames (``codedfl.engines.wire``) that name the session of a server and their number in it; answers repeat
both. A new session replaces the one before. Operations: ``ping``; ``describe`` (facts of the data), ``prepare`` (the
device of the scheme), ``reply`` (a round), ``export`` (prepare parcels; send them to other sites or return them),
``absorb`` (take in what has come), ``forget`` (parcels of a stage, or the whole run).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, final

import numpy as np

from codedfl import schemes
from codedfl.engines.carrier import Host, Peers
from codedfl.engines.emulation import Emulation, Errand, Occasion
from codedfl.engines.envelopes import DeviceKey, Envelopes, Member
from codedfl.engines.parcels import Inbox, Parcel, Travel, deliver, refusal, taken
from codedfl.engines.reception import Reception
from codedfl.engines.turns import Superseded, Turns
from codedfl.engines.wire import Frame, decode, encode, gathered, scattered
from codedfl.errors import CodedflError, DataError, EngineError, UsageError
from codedfl.scenario import Scenario
from codedfl.schemes import Device, Public, SharingDevice, Work, message_bits
from codedfl.task import Shard

__all__ = ["DeviceHost", "Holding", "Site"]

Emulate = Callable[[Scenario, int], Emulation]
"""Says for a scenario and the number of a device how slow it is."""

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, eq=False)
class Holding:
    """What a site holds for a scenario: its data, and of a classification the names of all classes."""

    shard: Shard
    kind: str
    classes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site as its owner set it up.

    ``load`` brings the data for a scenario: the server never says where data lie. Without a ``key`` no parcels can be
    exchanged; ``pins`` are the fingerprints of the others' keys (``codedfl.engines.envelopes``). ``schemes`` are those
    that the owner agrees to; none means any.
    """

    name: str
    load: Callable[[Scenario], Holding] = field(repr=False)
    key: DeviceKey | None = None
    pins: Mapping[str, str] | None = None
    schemes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Wanted:
    """A parcel that the server wants sent: to a site or to itself, and which of those to that site it is."""

    number: int
    site: str | None
    relayed: bool
    turn: int | None

    def travel(self, occasion: dict[str, Any], errand: Errand) -> Travel:
        return Travel(Occasion.from_table(occasion), self.turn, self.relayed, errand.tries(self.number), errand.rate)


class _Run:
    """What a site knows of the session it is in."""

    def __init__(self, session: str, scenario: Scenario, holding: Holding, own: Member | None) -> None:
        self.session = session
        self.scenario = scenario
        self.holding = holding
        self.own = own
        self.turns = Turns()
        self.inbox = Inbox()
        self.reception = Reception()
        self.device: Device | None = None
        self.slow: Emulation | None = None
        self.envelopes: Envelopes | None = None

    def close(self) -> None:
        """Drop what is going on."""
        self.turns.close()
        self.reception.close()

    def errand(self, occasion: dict[str, Any] | None) -> Errand | None:
        """Return the emulated part in an exchange of parcels, if one is told and if any is emulated."""
        if self.slow is None or occasion is None:
            return None
        return self.slow.errand(Occasion.from_table(occasion))

    @property
    def prepared(self) -> Device:
        if self.device is None:
            raise EngineError("this site is not prepared for the run; prepare it first")
        return self.device

    @property
    def sharing(self) -> SharingDevice:
        if not isinstance(self.prepared, SharingDevice):
            raise EngineError("the devices of this scheme exchange no parcels; choose another scheme")
        return self.prepared

    @property
    def closing(self) -> Envelopes:
        if self.envelopes is None:
            raise EngineError(
                "this site has no key, so that it can exchange no parcels; make one and name it in the site"
            )
        return self.envelopes


@final
class DeviceHost(Host):
    """A site's side of a deployment: the adapter of a network asks it, and gives it a way to the other sites."""

    def __init__(self, site: Site, peers: Peers, emulation: Emulate | Emulation | None = None) -> None:
        """``emulation`` makes the site slow: as it says, or as it says of a device of a scenario."""
        self._site = site
        self._peers = peers
        self._emulate = (lambda scenario, device: emulation) if isinstance(emulation, Emulation) else emulation
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._loaded: tuple[object, Holding] | None = None
        self._operations: dict[str, Callable[[_Run, Frame], Frame]] = {
            "prepare": self._prepare,
            "reply": self._reply,
            "export": self._export,
            "absorb": self._absorb,
            "forget": self._forget,
        }

    def handle(self, payload: bytes) -> bytes:
        """Answer a question of the server."""
        echo: dict[str, Any] = {}
        try:
            frame = decode(payload)
            echo = {name: frame.fields[name] for name in ("session", "number") if name in frame.fields}
            answer = self._answer(frame)
        except Superseded:
            answer = Frame("superseded")
        except CodedflError as error:
            _log.warning("%s cannot answer: %s", self._site.name, error)
            answer = Frame("error", {"reason": str(error)})
        except Exception as error:
            _log.exception("%s cannot answer", self._site.name)
            answer = Frame("error", {"reason": f"{type(error).__name__} while it was working on the question"})
        return encode(Frame(answer.kind, {**answer.fields, **echo}, answer.arrays))

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Open another site's parcel and keep it until the server says that it is to be taken in."""
        try:
            run = self._current()
            parcel = Parcel.from_bytes(run.closing.open(sender, payload))
            self._receive(run, parcel)
            run.inbox.put(sender, parcel)
        except (CodedflError, Superseded) as error:
            return refusal(str(error) or "the run is over")
        return taken()

    def close(self) -> None:
        """Drop what is going on, and forget the run."""
        with self._lock:
            run, self._run, self._loaded = self._run, None, None
        if run is not None:
            run.close()

    def _current(self) -> _Run:
        with self._lock:
            if self._run is None:
                raise EngineError("this site takes part in no run; describe and prepare it first")
            return self._run

    def _answer(self, frame: Frame) -> Frame:
        if frame.kind == "ping":
            return Frame("answer")
        if frame.kind == "describe":
            return self._describe(frame)
        if frame.kind not in self._operations:
            raise EngineError(f"this site knows no operation '{frame.kind}'; check that versions agree")
        run = self._current()
        if frame.fields["session"] != run.session:
            raise EngineError("this site has been prepared for another run since; prepare it again")
        return self._operations[frame.kind](run, frame)

    def _describe(self, frame: Frame) -> Frame:
        """Load the data, begin a new session, and tell what everybody may know."""
        scenario = Scenario.from_toml(frame.fields["scenario"], "the server's scenario")
        if self._site.schemes and scenario.scheme not in self._site.schemes:
            raise UsageError(
                f"{self._site.name} takes part in {', '.join(self._site.schemes)} only and was asked for "
                f"'{scenario.scheme}'; choose another scheme, or ask its owner"
            )
        holding = self._load(scenario)
        own = None if self._site.key is None else Member.of(self._site.key)
        run = _Run(frame.fields["session"], scenario, holding, own)
        with self._lock:
            before, self._run = self._run, run
        if before is not None:
            before.close()
        facts = schemes.describe(scenario, holding.shard)
        shown = {"public": own.public.hex(), "nonce": own.nonce.hex()} if own else {"public": None, "nonce": None}
        return Frame(
            "answer",
            {
                **vars(facts),
                "dtype": facts.dtype.name,
                "kind": holding.kind,
                "classes": list(holding.classes),
                "version": version("codedfl"),
                **shown,
            },
        )

    def _load(self, scenario: Scenario) -> Holding:
        """Load the data, or take those of the run before if they are the same."""
        table = scenario.to_table()
        key = [table[name] for name in ("data", "partition", "features", "task")], scenario.fleet.size
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = key, self._site.load(scenario)
        return self._loaded[1]

    def _prepare(self, run: _Run, frame: Frame) -> Frame:
        """Make the device of the scheme from what everybody knows and from the own data."""
        fields, own = frame.fields, run.holding.shard
        index, sites = int(fields["index"]), list(fields["sites"])
        public = Public(
            tuple(int(count) for count in fields["samples"]),
            int(fields["features"]),
            int(fields["outputs"]),
            np.dtype(fields["dtype"]),
            largest_feature=float(fields["largest_feature"]),
            largest_target=float(fields["largest_target"]),
            delays=schemes.known_delays(run.scenario),
        )
        if sites[index] != self._site.name or public.samples[index] != own.samples:
            raise DataError(f"the server takes {self._site.name} for another site; check the list of sites")
        if run.own is not None:
            members = {
                site: Member(bytes.fromhex(public_key), bytes.fromhex(nonce))
                for site, (public_key, nonce) in fields["members"].items()
            }
            assert self._site.key is not None  # noqa: S101 - it has shown one
            run.envelopes = Envelopes(self._site.name, self._site.key, run.own, members, fields["run"], self._site.pins)
        run.slow = None if self._emulate is None else self._emulate(run.scenario, index)
        with run.turns.turn(int(fields["number"]), droppable=False):
            began = time.perf_counter()
            run.device = schemes.build(run.scenario, public).device(index, own)
            return Frame("answer", {"working_seconds": time.perf_counter() - began})

    def _reply(self, run: _Run, frame: Frame) -> Frame:
        """Answer the question of a round; a newer one that leaves none open takes its place."""
        fields, number = frame.fields, int(frame.fields["number"])
        epoch, question, offline = int(fields["epoch"]), int(fields["question"]), bool(fields["offline"])
        if not fields["standing"]:
            run.turns.drop_below(number)
        device, slow, work = run.prepared, run.slow, Work()
        down_bits = 0 if offline else message_bits(frame.arrays)
        if slow is not None:
            received, _, _ = slow.reply(epoch, question, down_bits=down_bits, macs=0, up_bits=0)
            run.turns.sleep(received, number, droppable=True)
        with run.turns.turn(number, droppable=True):
            began = time.perf_counter()
            message = device.reply(epoch, frame.arrays, work)
            if slow is not None:
                macs = 0 if offline else work.macs
                _, worked, _ = slow.reply(epoch, question, down_bits=0, macs=macs, up_bits=0)
                run.turns.sleep(worked - (time.perf_counter() - began), number, droppable=True)
            working = time.perf_counter() - began
        if slow is not None:
            _, _, sent = slow.reply(epoch, question, down_bits=0, macs=0, up_bits=message_bits(message))
            run.turns.sleep(sent, number, droppable=True)
        return Frame("answer", {"epoch": epoch, "macs": work.macs, "working_seconds": working}, message)

    def _export(self, run: _Run, frame: Frame) -> Frame:
        """Prepare all parcels of a stage, then send them one after the other; those for the server go back to it."""
        stage, number = int(frame.fields["stage"]), int(frame.fields["number"])
        wanted = [_Wanted(*entry) for entry in frame.fields["parcels"]]
        grants = scattered(frame.arrays, [each.number for each in wanted])
        errand, device = run.errand(frame.fields["occasion"]), run.sharing
        closing = run.closing if any(each.site is not None for each in wanted) else None
        parcels: dict[int, Any] = {}
        macs: list[int] = []
        with run.turns.turn(number, droppable=False):
            began = time.perf_counter()
            for each in wanted:
                work = Work()
                parcels[each.number] = device.export(grants[each.number], work)
                macs.append(work.macs)
            if errand is not None:
                bits = sum(message_bits(grant) for grant in grants.values())
                seconds = errand.prepare(bits, sum(macs)) - (time.perf_counter() - began)
                run.turns.sleep(seconds, number, droppable=False)
            working = time.perf_counter() - began
        for each in wanted:
            contents = parcels[each.number]
            if errand is not None and (each.site is None or each.relayed):
                run.turns.sleep(errand.upload(message_bits(contents), each.number), number, droppable=False)
            if each.site is not None and closing is not None:
                travel = None if errand is None else each.travel(frame.fields["occasion"], errand)
                reason = deliver(self._peers, closing, each.site, Parcel(stage, each.number, contents, travel))
                if reason is not None:
                    return Frame(
                        "error", {"reason": f"it could not send to {each.site}: {reason}", "unreached": each.site}
                    )
        bits_sent = [message_bits(parcels[each.number]) for each in wanted]
        uploads = {each.number: parcels[each.number] for each in wanted if each.site is None}
        return Frame("answer", {"macs": macs, "bits": bits_sent, "working_seconds": working}, gathered(uploads))

    def _receive(self, run: _Run, parcel: Parcel) -> None:
        """Let a parcel take its time on the link, where that is emulated."""
        travel, bits = parcel.travel, message_bits(parcel.contents)
        if travel is None or run.slow is None:
            return
        errand = run.slow.errand(travel.occasion)
        if travel.relayed:
            seconds = errand.download(bits, parcel.number)
        else:
            seconds = errand.parcel(bits, travel.tries, travel.rate)
        if travel.turn is None:
            run.reception.alone(parcel.stage, seconds)
        else:
            run.reception.in_turn(parcel.stage, travel.turn, seconds, wait=not travel.relayed)

    def _absorb(self, run: _Run, frame: Frame) -> Frame:
        """Take in the parcels of a stage, in the order that the server says."""
        stage, number, errand = (
            int(frame.fields["stage"]),
            int(frame.fields["number"]),
            run.errand(frame.fields["occasion"]),
        )
        macs: list[int] = []
        with run.turns.turn(number, droppable=False):
            messages = run.inbox.take(stage, [(int(which), str(sender)) for which, sender in frame.fields["parcels"]])
            began = time.perf_counter()
            for message in messages:
                work = Work()
                run.sharing.absorb(message, work)
                macs.append(work.macs)
            if errand is not None:  # it began with the last parcel, not when all others had theirs, too
                seconds = run.reception.over(stage) + errand.absorb(sum(macs)) - time.monotonic()
                run.turns.sleep(seconds, number, droppable=False)
            working = time.perf_counter() - began
        return Frame("answer", {"macs": macs, "working_seconds": working})

    def _forget(self, run: _Run, frame: Frame) -> Frame:
        """Forget the parcels of a stage that will not be finished, or the whole run."""
        stage = frame.fields["stage"]
        if stage is not None:
            run.reception.release(int(stage))
            run.inbox.drop(int(stage))
            return Frame("answer")
        with self._lock:
            if self._run is run:
                self._run, self._loaded = None, None
        run.close()
        return Frame("answer")
