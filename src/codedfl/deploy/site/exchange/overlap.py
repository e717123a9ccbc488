"""A site's part in stages of transfers that overlap: it sends on what is complete while the rest arrives.

The server tells each site at once what to send to whom, what comes from whom, and which stages each stage comes after.
From then on the site waits for parcels only: when all that a stage brings it have arrived, it absorbs them; when it has
absorbed all that a stage comes after, and exported its own parcels of these, it exports those of that stage; and it
sends one parcel at a time. If that takes long, the server asks who has sent what and who misses what (``progress``), so
that nobody waits for a parcel that is gone. What the device refuses, it refuses here, too, whatever the server says
about the order.

One thread does all of this. Parcels arrive in others, at any time, also before the request of the server, and are held
in the inbox. In emulated time work ends later than it is computed here, so every step has the time at which it would
have happened (``codedfl.network.pipeline``), and what was due while a parcel was being sent happens after that.
"""

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.wire import Frame, unpack_messages
from codedfl.deploy.site.emulation import MOST_EMULATED, TransferEvent
from codedfl.deploy.site.exchange.stage import SiteWork, absorb, counted, send_parcel
from codedfl.deploy.site.parcels import CarriedParcels, Parcel, Transit
from codedfl.deploy.site.requests import channel_turns_of, event_of
from codedfl.deploy.site.session import Session
from codedfl.errors import EngineError
from codedfl.schemes import Message, Work, message_bits

_PREPARED, _ABSORBED, _ARRIVED = 0, 1, 2
"""What happens at one time happens in this order."""
_MOST_STAGES = 1 << 12
"""Upper bound of stages; protects against memory exhaustion."""
_RELEASED = {"reason": "the stages were given up", "unreached": None}


def carry_stages(site_work: SiteWork, run: Session, frame: Frame) -> Frame:
    """Export, send and absorb the parcels of stages that overlap."""
    stages = _stages_of(frame)
    run.admit_parties({site for each in stages for _, site, *_ in (*each.exports, *each.absorbs)})
    grants = unpack_messages(run.grants(frame), [number for each in stages for number, _, _ in each.exports])
    _ = run.envelopes  # refuse before anything is exported
    with run.queue.slot(fields.count(frame.fields, "number"), cancellable=False):
        return _Carrying(site_work, run, frame, stages, grants).carry()


def report_progress(site_work: SiteWork, run: Session, frame: Frame) -> Frame:
    """Tell which parcels others have accepted, and which of theirs have not arrived; or show the receipt of one."""
    stage, carried = fields.count(frame.fields, "stage"), run.carried
    if "receipt" in frame.fields:
        shown = carried.receipts.get(fields.count(frame.fields, "receipt")) if stage == carried.stage else None
        return Frame("answer", {"receipt": shown})
    if stage != carried.stage:  # the request to carry them out is still on its way
        return Frame("answer", {"sent": [], "missing": []})
    return Frame("answer", {"sent": [*carried.receipts], "missing": run.inbox.missing(stage, carried.wanted)})


@final
@dataclass(frozen=True)
class _SiteStage:
    """What this site does in a stage: rows of number, recipient and turn, and of number and sender.

    ``first`` is the number of the stage's first parcel, ``after`` the places of stages before it.
    """

    event: TransferEvent | None
    first: int
    after: tuple[int, ...]
    exports: list[list[Any]]
    absorbs: list[list[Any]]


def _stages_of(frame: Frame) -> list[_SiteStage]:
    """Read the stages of a request; refuse parcels that come twice and stages that await themselves or later ones."""
    told = frame.fields.get("stages")
    if not isinstance(told, list) or not 0 < len(told) <= _MOST_STAGES or not all(type(each) is dict for each in told):
        raise EngineError("the message does not name the stages to carry out; check that versions agree")
    found: list[_SiteStage] = []
    numbers: set[int] = set()
    emulated = 0
    for place, each in enumerate(told):
        exports = fields.rows(each, "export", [(int,), (str,), (int, type(None))])
        absorbs = fields.rows(each, "absorb", [(int,), (str,)])
        first, after = fields.count(each, "first"), tuple(fields.counts(each, "after"))
        own = [row[0] for row in (*exports, *absorbs)]
        twice = len({*own}) < len(own) or numbers & {*own} or min(own, default=first) < first
        if twice or max(after, default=-1) >= place:
            raise EngineError(f"stage {place} of a request has improper parcels or awaits itself; check the server")
        numbers |= {*own}
        event = event_of(each)
        emulated += 0 if event is None else event.parcels
        uncounted = event is not None and max(own, default=-1) >= first + event.parcels
        if uncounted or emulated > MOST_EMULATED:  # each counted parcel takes memory
            raise EngineError(f"stage {place} of a request does not say how many parcels it has; check the server")
        found.append(_SiteStage(event, first, after, exports, absorbs))
    return found


@final
class _Carrying:
    """The state of overlapping stages at a site."""

    def __init__(
        self,
        site_work: SiteWork,
        run: Session,
        frame: Frame,
        stages: list[_SiteStage],
        grants: Mapping[int, Message],
    ) -> None:
        self._site_work = site_work
        self._run = run
        self._stage = fields.count(frame.fields, "stage")
        self._stages = stages
        self._grants = grants
        self._turns = channel_turns_of(frame)
        self._order = fields.counts(frame.fields, "order") if "order" in frame.fields else None
        """In which order parcels are sent; None: the first that is ready."""
        exported = [number for each in stages for number, _, _ in each.exports]
        if self._order is not None and sorted(self._order) != sorted(exported):
            raise EngineError("the order of parcels in a request is not that of its stages; check the server")
        self._works = {row[0]: Work() for each in stages for row in (*each.exports, *each.absorbs)}
        self._bits: dict[int, int] = {}
        self._delays = [run.transfer_delays(each.event) for each in stages]
        self._events: list[tuple[float, int, int]] = []
        """When, what, and the place of the stage; a heap."""
        self._awaits = [set(each.after) for each in stages]
        """Of each stage, the stages that are not absorbed yet."""
        self._unprepared = set(range(len(stages)))
        self._arriving = set(range(len(stages)))
        """Stages whose parcels have not all arrived."""
        self._steps = 2 * len(stages)
        """How often a stage has still to be prepared or absorbed."""
        self._taken: dict[int, list[Parcel]] = {}
        self._made: dict[int, dict[int, tuple[str, Parcel]]] = {}
        self._ready: dict[int, tuple[str, Parcel]] = {}
        self._unsent = len(exported)
        self._working = 0.0
        run.carried = CarriedParcels(self._stage, [row for each in stages for row in each.absorbs])

    def carry(self) -> Frame:
        """Do all steps; return the answer to the server."""
        run, reception = self._run, self._run.reception
        self._begin()
        while self._steps or self._unsent:
            seen = reception.changes
            if reception.released(self._stage):
                return Frame("error", _RELEASED)
            self._note_arrivals()
            while self._events and self._events[0][0] <= time.monotonic():
                self._happen(*heapq.heappop(self._events))
            if (number := self._next()) is not None:
                site, parcel = self._ready.pop(number)
                receipt = send_parcel(run, self._site_work.peers, site, parcel, self._turns.get(number))
                if isinstance(receipt, Frame):  # where the others were released meanwhile, it may be for that reason
                    return Frame("error", _RELEASED) if reception.released(self._stage) else receipt
                run.carried.receipts[number] = receipt
                self._unsent -= 1
            elif self._steps or self._unsent:
                awaited = self._stage, seen, self._events[0][0] if self._events else None
                with self._site_work.peers.waiting(partial(reception.waits, *awaited)):
                    reception.wait(*awaited)
        run.inbox.drop(self._stage)
        return self._answer()

    def _begin(self) -> None:
        """Let begin what waits for nothing; in emulated time all grants arrive first."""
        self._began = self._granted = time.monotonic()
        if (delays := self._delays[0]) is not None:
            self._granted += delays.grants(sum(message_bits(grant) for grant in self._grants.values()))
        self._computing = self._granted
        self._prepare_all(self._granted)
        for place, stage in enumerate(self._stages):
            if not stage.absorbs:
                self._arriving.remove(place)
                heapq.heappush(self._events, (self._began, _ABSORBED, place))

    def _note_arrivals(self) -> None:
        for place in sorted(self._arriving):
            # taken at once: when the stages are given up, the inbox drops what is still there
            found = self._run.inbox.take_complete(self._stage, self._stages[place].absorbs)
            if found is not None:
                self._arriving.remove(place)
                self._taken[place], arrived = found
                heapq.heappush(self._events, (max(arrived, self._began), _ARRIVED, place))

    def _happen(self, at: float, what: int, place: int) -> None:
        if what == _ARRIVED:
            self._absorb(place, at)
            return
        self._steps -= 1
        if what == _PREPARED:
            self._ready |= self._made.pop(place)
            return
        for awaited in self._awaits:
            awaited.discard(place)
        self._prepare_all(max(at, self._granted))

    def _prepare_all(self, at: float) -> None:
        """Export the parcels of all stages that wait for nothing any more; what its own sums lack comes first."""
        for place in sorted(self._unprepared):
            if not self._awaits[place] and not self._unprepared & set(self._stages[place].after):
                self._unprepared.remove(place)
                self._prepare(place, at)

    def _prepare(self, place: int, at: float) -> None:
        """Export all parcels of a stage that this site sends."""
        run, stage, delays, began = self._run, self._stages[place], self._delays[place], time.perf_counter()
        made: dict[int, tuple[str, Parcel]] = {}
        if stage.exports:
            self._site_work.charge(run)
        for number, site, turn in stage.exports:
            grant = self._grants[number]
            owners = tuple(sorted(run.device.owners(grant)))
            contents = run.device.export(grant, self._works[number])
            self._bits[number], transit = message_bits(contents), None
            if delays is not None and stage.event is not None:
                transit = Transit(stage.event, turn, False, delays.tries(number - stage.first), delays.rate)
            made[number] = site, Parcel(self._stage, number, contents, transit, owners)
        self._made[place] = made
        macs = sum(self._works[number].macs for number in made)
        self._then(_PREPARED, place, at, 0.0 if delays is None else delays.export(macs), began)

    def _absorb(self, place: int, at: float) -> None:
        """Absorb all parcels that a stage brings."""
        run, wanted, delays, began = self._run, self._stages[place].absorbs, self._delays[place], time.perf_counter()
        works = [self._works[number] for number, _ in wanted]
        absorb(run, wanted, self._taken.pop(place), works)
        seconds = 0.0 if delays is None else delays.absorb(sum(work.macs for work in works))
        self._then(_ABSORBED, place, at, seconds, began)

    def _then(self, what: int, place: int, at: float, seconds: float, began: float) -> None:
        """Note when work is done that could begin at a time: after what the device computes already, if it is any."""
        if seconds > 0:
            at = self._computing = max(self._computing, at) + seconds
        self._working += max(seconds, time.perf_counter() - began)
        heapq.heappush(self._events, (at, what, place))

    def _next(self) -> int | None:
        """Return the number of the parcel to send now, if there is any."""
        if self._order is None:
            return min(self._ready, default=None)
        number = self._order[len(self._order) - self._unsent] if self._unsent else None
        return number if number in self._ready else None

    def _answer(self) -> Frame:
        exported = [number for each in self._stages for number, _, _ in each.exports]
        absorbed = [number for each in self._stages for number, _ in each.absorbs]
        done = sum(work.macs + work.beforehand for work in self._works.values())
        self._site_work.count(parcels_made=len(exported), parcels_absorbed=len(absorbed), multiplications=done)
        told = {**counted([self._works[number] for number in exported]), "bits": [self._bits[n] for n in exported]}
        taken = counted([self._works[number] for number in absorbed])
        told |= {f"absorb_{name}": values for name, values in taken.items()}
        return Frame("answer", {**told, "working_seconds": self._working})
