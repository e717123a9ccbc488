"""One site of a deployment: it holds a device's data and answers the server, over whatever carries the bytes.

Questions are frames (``deploy.protocol.wire``) that name the session of a server and their number in it; answers repeat
both. A new session replaces the one before. Operations: ``ping``; ``describe`` (facts of the data), ``prepare`` (the
device of the scheme), ``reply`` (a round), ``export`` (prepare parcels; send them to other sites or return them),
``absorb`` (take in what has come), ``forget`` (parcels of a stage, or the whole run).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

from codedfl import schemes
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.wire import Frame, decode, encode, gathered, scattered
from codedfl.deploy.site.emulation import Emulation, Errand, Occasion
from codedfl.deploy.site.locks import Repeated, Superseded
from codedfl.deploy.site.parcels import Parcel, Travel, deliver, refusal, taken
from codedfl.deploy.site.session import Emulate, Holding, Session, Site
from codedfl.errors import CodedflError, EngineError, UsageError
from codedfl.scenario import Scenario
from codedfl.schemes import Work, message_bits

__all__ = ["DeviceHost", "Holding", "Site"]

_MOST_SESSIONS = 1024
"""So many earlier sessions are remembered, so that none of them can be begun again."""

_LONGEST = 64
"""So long is the name of a session at most."""

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class _Wanted:
    """A parcel that the server wants sent: to a site or to itself, and which of those to that site it is."""

    number: int
    site: str | None
    relayed: bool
    turn: int | None

    def travel(self, occasion: Occasion, errand: Errand) -> Travel:
        return Travel(occasion, self.turn, self.relayed, errand.tries(self.number), errand.rate)


@final
class DeviceHost(Host):
    """A site's side of a deployment: the adapter of a network asks it, and gives it a way to the other sites."""

    def __init__(self, site: Site, peers: Peers, emulation: Emulate | Emulation | None = None) -> None:
        """``emulation`` makes the site slow: as it says, or as it says of a device of a scenario."""
        self._site = site
        self._peers = peers
        self._emulate = (lambda scenario, device: emulation) if isinstance(emulation, Emulation) else emulation
        self._lock = threading.Lock()
        self._run: Session | None = None
        self._sessions: deque[str] = deque(maxlen=_MOST_SESSIONS)
        self._loaded: tuple[object, Holding] | None = None
        self._operations: dict[str, Callable[[Session, Frame], Frame]] = {
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
            echo = _echo(frame)
            answer = self._answer(frame)
            return encode(Frame(answer.kind, {**answer.fields, **echo}, answer.arrays))
        except Superseded:
            answer = Frame("superseded")
        except Repeated:
            answer = Frame("repeated")
        except CodedflError as error:
            _log.warning("%s cannot answer: %s", self._site.name, error)
            answer = Frame("error", {"reason": fields.words(error)})
        except Exception as error:
            _log.exception("%s cannot answer", self._site.name)
            answer = Frame("error", {"reason": f"{type(error).__name__} while it was working on the question"})
        return encode(Frame(answer.kind, {**answer.fields, **echo}))

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Open another site's parcel and keep it until the server says that it is to be taken in."""
        try:
            run = self._current()
            parcel = Parcel.from_bytes(run.envelopes.open(sender, payload))
            self._receive(run, parcel)
            if not run.reception.released(
                parcel.stage
            ):  # else nobody needs it any more, which is not its sender's fault
                run.inbox.put(sender, parcel)
        except Superseded:
            return refusal("the run is over")
        except CodedflError as error:
            return refusal(fields.words(error))
        except Exception as error:
            _log.exception("%s cannot take a parcel from %s", self._site.name, sender)
            return refusal(f"{type(error).__name__} while it was taken")
        return taken()

    def close(self) -> None:
        """Drop what is going on, and forget the run."""
        with self._lock:
            run, self._run, self._loaded = self._run, None, None
        if run is not None:
            run.close()

    def _current(self) -> Session:
        with self._lock:
            if self._run is None:
                raise EngineError("this site takes part in no run; describe and prepare it first")
            return self._run

    def _answer(self, frame: Frame) -> Frame:
        if frame.kind == "ping":
            return Frame("answer")
        session, number = fields.text(frame.fields, "session"), fields.count(frame.fields, "number")
        if frame.kind == "describe":
            return self._describe(session, frame)
        if frame.kind not in self._operations:
            raise EngineError(f"this site knows no operation '{fields.words(frame.kind)}'; check that versions agree")
        run = self._current()
        if session != run.name:
            raise EngineError("this site has been prepared for another run since; prepare it again")
        run.turns.claim(number)
        return self._operations[frame.kind](run, frame)

    def _describe(self, session: str, frame: Frame) -> Frame:
        """Load the data, begin a new session, and tell what everybody may know.

        No session begins twice, or after one that came later.
        """
        with self._lock:
            if session in self._sessions:
                raise Repeated
            self._sessions.append(session)
        scenario = Scenario.from_toml(fields.text(frame.fields, "scenario"), "the server's scenario")
        if self._site.schemes and scenario.scheme not in self._site.schemes:
            raise UsageError(
                f"{self._site.name} takes part in {', '.join(self._site.schemes)} only and was asked for "
                f"'{scenario.scheme}'; choose another scheme, or ask its owner"
            )
        holding = self._load(scenario)
        holding.check(self._site.name)
        facts = schemes.describe(scenario, holding.shard)
        run = Session(session, self._site, scenario, holding)
        with self._lock:
            if self._sessions[-1] != session:
                raise Superseded
            before, self._run = self._run, run
        if before is not None:
            before.close()
        own = run.own
        shown = {"public": own.public.hex(), "nonce": own.nonce.hex()} if own else {"public": None, "nonce": None}
        told = {**vars(facts), "dtype": facts.dtype.name, "kind": holding.kind, "classes": list(holding.classes)}
        return Frame("answer", {**told, "version": version("codedfl"), **shown})

    def _load(self, scenario: Scenario) -> Holding:
        """Load the data, or take those of the run before if they are the same."""
        table = scenario.to_table()
        key = [table[name] for name in ("data", "partition", "features", "task")], scenario.fleet.size
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = key, self._site.load(scenario)
        return self._loaded[1]

    def _prepare(self, run: Session, frame: Frame) -> Frame:
        """Make the device of the scheme from what everybody knows and from the own data."""
        scheme, index = run.announce(frame.fields, self._emulate)
        with run.turns.turn(fields.count(frame.fields, "number"), droppable=False):
            began = time.perf_counter()
            run.take_up(scheme.device(index, run.holding.shard))
            return Frame("answer", {"working_seconds": time.perf_counter() - began})

    def _reply(self, run: Session, frame: Frame) -> Frame:
        """Answer the question of a round; a newer one that leaves none open takes its place."""
        epoch, question, number = (fields.count(frame.fields, name) for name in ("epoch", "question", "number"))
        offline, device, slow, work = fields.flag(frame.fields, "offline"), run.device, run.slow, Work()
        if not fields.flag(frame.fields, "standing"):
            run.turns.drop_below(number)
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

    def _export(self, run: Session, frame: Frame) -> Frame:
        """Prepare all parcels of a stage, then send them one after the other; those for the server go back to it."""
        stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
        rows = fields.rows(frame.fields, "parcels", [(int,), (str, type(None)), (bool,), (int, type(None))])
        wanted = [_Wanted(*row) for row in rows]
        occasion, device = _occasion(frame), run.sharing
        errand = run.errand(occasion)
        if not run.uploads and any(each.site is None for each in wanted):
            raise EngineError("devices of this scheme send parcels to each other only; check what the server does")
        grants = scattered(frame.arrays, [each.number for each in wanted])
        closing = run.envelopes if any(each.site is not None for each in wanted) else None
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
                travel = None if errand is None or occasion is None else each.travel(occasion, errand)
                reason = deliver(self._peers, closing, each.site, Parcel(stage, each.number, contents, travel))
                if reason is not None:
                    return Frame(
                        "error", {"reason": f"it could not send to {each.site}: {reason}", "unreached": each.site}
                    )
        bits_sent = [message_bits(parcels[each.number]) for each in wanted]
        uploads = {each.number: parcels[each.number] for each in wanted if each.site is None}
        return Frame("answer", {"macs": macs, "bits": bits_sent, "working_seconds": working}, gathered(uploads))

    def _receive(self, run: Session, parcel: Parcel) -> None:
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

    def _absorb(self, run: Session, frame: Frame) -> Frame:
        """Take in the parcels of a stage, in the order that the server says."""
        stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
        wanted = [(which, sender) for which, sender in fields.rows(frame.fields, "parcels", [(int,), (str,)])]
        errand = run.errand(_occasion(frame))
        macs: list[int] = []
        with run.turns.turn(number, droppable=False):
            messages = run.inbox.take(stage, wanted)
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

    def _forget(self, run: Session, frame: Frame) -> Frame:
        """Forget the parcels of a stage that will not be finished, or the whole run."""
        if frame.fields.get("stage", 0) is not None:
            stage = fields.count(frame.fields, "stage")
            run.reception.release(stage)
            run.inbox.drop(stage)
            return Frame("answer")
        with self._lock:
            if self._run is run:
                self._run, self._loaded = None, None
        run.close()
        return Frame("answer")


def _occasion(frame: Frame) -> Occasion | None:
    """Return when parcels are sent, where that is to take emulated time."""
    table = frame.fields.get("occasion")
    return None if table is None else Occasion.from_table(table)


def _echo(frame: Frame) -> dict[str, Any]:
    """Return what tells one question from another; what cannot is not repeated."""
    found = {name: frame.fields.get(name) for name in ("session", "number")}
    return {name: value for name, value in found.items() if type(value) in (str, int) and len(str(value)) <= _LONGEST}
