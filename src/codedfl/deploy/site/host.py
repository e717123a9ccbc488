"""A site of a deployment: holds a device's data and answers the server's requests.

Requests are frames (``deploy.protocol.wire``) with a session and a number, which replies repeat. A new session replaces
the previous one. Operations: ``ping``; ``describe`` (facts of the data), ``prepare`` (create the device), ``reply`` (a
round), ``export`` (make parcels and send them), ``absorb`` (received parcels), ``carry`` (both, in stages that
overlap), ``progress`` (of these), ``forget`` (a stage, or the session).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, final

from codedfl import schemes
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.carrier import Host, Peers
from codedfl.deploy.protocol.envelopes import told_digest
from codedfl.deploy.protocol.keeping import carry_out
from codedfl.deploy.protocol.sums import SumOrder, read_rows
from codedfl.deploy.protocol.terms import Terms
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.site.emulation import Emulation
from codedfl.deploy.site.exchange.overlap import carry_stages, report_progress
from codedfl.deploy.site.exchange.stage import SiteWork, absorb_stage, export_stage, receive
from codedfl.deploy.site.locks import Cancelled, DuplicateRequest
from codedfl.deploy.site.parcels import ChannelFree, accepted, read_peer_message, refused
from codedfl.deploy.site.privacy import PrivacyLedger
from codedfl.deploy.site.record import FINISHED, CountingPeers, RunRecord
from codedfl.deploy.site.requests import (
    LEAVING,
    admit_libraries,
    admit_order,
    admit_preparation,
    admit_rows,
    echo_of,
    needs_study,
    part_of,
    run_of,
    told,
)
from codedfl.deploy.site.session import Emulate, LocalData, Session, Site
from codedfl.errors import HEAVY, CodedflError, DataError, EngineError, NoSessionError, RefusalError
from codedfl.runs.sums import sum_scenario
from codedfl.scenario import Scenario
from codedfl.schemes import Work, message_bits
from codedfl.storage import package_version

_MOST_SESSIONS = 1024
"""Number of earlier sessions that are remembered, so that none can be replayed."""

_GRAIN = 0.25
"""Seconds; a site with noise answers when it is prepared after a multiple of them."""

_log = logging.getLogger(__name__)


@final
class DeviceHost(Host):
    """Answers the requests that an adapter of a network passes on."""

    def __init__(self, site: Site, peers: Peers, emulation: Emulate | Emulation | None = None) -> None:
        """``emulation`` slows the site down, independent of the scenario or by its device."""
        self._site = site
        self._record: RunRecord | None = None
        self._ledger = PrivacyLedger(site.name, site.folder, site.privacy)
        self._peers = CountingPeers(peers, lambda: self._record)
        self._emulate = (lambda scenario, device: emulation) if isinstance(emulation, Emulation) else emulation
        self._lock = threading.Lock()
        self._run: Session | None = None
        self._sessions: deque[str] = deque(maxlen=_MOST_SESSIONS)
        self._loaded: tuple[object, LocalData] | None = None
        self._operations: dict[str, Callable[[Session, Frame], Frame]] = {
            "prepare": self._prepare,
            "reply": self._reply,
        }
        site_work = SiteWork(self._peers, self._charge, self._count)
        moved = {"export": export_stage, "absorb": absorb_stage, "carry": carry_stages, "progress": report_progress}
        self._operations |= {kind: partial(operation, site_work) for kind, operation in moved.items()}
        self._operations |= {"forget": self._forget, "keep": self._keep}

    def handle(self, payload: bytes) -> bytes:
        """Answer a request of the server."""
        echo: dict[str, Any] = {}
        kind = "message"
        try:
            frame = decode(payload)
            echo, kind = echo_of(frame), frame.kind
            answer = self._answer(frame)
            kind = kind if answer.kind == "answer" else answer.kind
            reply = encode(Frame(answer.kind, {**answer.fields, **echo}, answer.arrays))
        except (Cancelled, DuplicateRequest, Exception) as error:
            answer = self._failed(error)
            kind = answer.kind
            reply = encode(Frame(answer.kind, {**answer.fields, **echo}))
        if self._record is not None:
            self._record.left("server", LEAVING.get(kind, kind), len(reply))
        return reply

    def _failed(self, error: BaseException) -> Frame:
        """Return the answer to a request that was not carried out; the sentence of an error stays in the log."""
        if isinstance(error, (Cancelled, DuplicateRequest)):
            return Frame("superseded" if isinstance(error, Cancelled) else "repeated")
        if isinstance(error, CodedflError):
            _log.warning("%s cannot answer: %s", self._site.name, error)
            reason = fields.one_line(told(self._site.name, error))
        elif isinstance(error, ModuleNotFoundError) and error.name in HEAVY:  # of a scheme that does not declare it
            reason = f"{self._site.name} cannot go on: {needs_study(error.name)}"
            _log.warning("%s", reason)
        else:
            _log.error("%s cannot answer", self._site.name, exc_info=error)
            reason = f"{type(error).__name__} while it was working on the request"
        if self._record is not None:
            self._record.refused(reason)
        return Frame("error", {"reason": reason, "no_session": isinstance(error, NoSessionError)})

    def handle_peer(self, sender: str, payload: bytes) -> bytes:
        """Open another site's parcel and hold it until it is absorbed, as the server tells."""
        run: Session | None = None
        try:
            run = self._current()
            run.inbox.check_size(sender, len(payload))
            parcel = read_peer_message(run.envelopes.open(sender, payload))
            if isinstance(parcel, ChannelFree):
                run.reception.set_free(parcel.stage, parcel.number)
                return accepted(run.receipts.sign(sender, parcel.stage, parcel.number))
            with run.inbox.arriving(sender, parcel) as new:
                arrived = receive(run, parcel) if new else 0.0
                if new and not run.reception.released(parcel.stage):  # ignore parcels of abandoned stages
                    run.inbox.put(sender, parcel, arrived)
            return accepted(run.receipts.sign(sender, parcel.stage, parcel.number))
        except Cancelled:
            return refused("the session has ended")
        except CodedflError as error:
            return refused(fields.one_line(told(self._site.name, error)))
        except Exception as error:
            _log.exception("%s cannot take a parcel from %s", self._site.name, sender)
            return refused(f"{type(error).__name__} while it was received")
        finally:
            if run is not None:
                run.reception.changed()

    def close(self) -> None:
        """Cancel all work and forget the session."""
        with self._lock:
            run, self._run, self._loaded = self._run, None, None
        if run is not None:
            run.close()
        if self._record is not None:
            self._record.end("this site was stopped before the server ended the run")

    def _current(self) -> Session:
        with self._lock:
            if self._run is None:
                raise NoSessionError("this site takes part in no run; describe and prepare it first")
            return self._run

    def _answer(self, frame: Frame) -> Frame:
        if frame.kind == "ping":
            return Frame("answer")
        session, number = fields.text(frame.fields, "session"), fields.count(frame.fields, "number")
        if frame.kind == "describe":
            return self._describe(session, frame)
        if frame.kind not in self._operations:
            raise EngineError(
                f"this site knows no operation '{fields.one_line(frame.kind)}'; check that versions agree"
            )
        run = self._current()
        if session != run.name:
            raise NoSessionError("this site has been prepared for another session since; prepare it again")
        run.queue.claim(number)
        return self._operations[frame.kind](run, frame)

    def _describe(self, session: str, frame: Frame) -> Frame:
        """Load the data, start a session, and report public facts; no session starts twice or after a later one."""
        with self._lock:
            if session in self._sessions:
                raise DuplicateRequest
            self._sessions.append(session)
        scenario = Scenario.from_toml(fields.text(frame.fields, "scenario"), "the server's scenario")
        device = self._place(frame)
        admit_libraries(self._site.name, scenario)
        terms = self._site.agreement.admit(self._site.name, scenario, collected=self._site.shares_categories)
        self._ledger.admit_run(scenario)
        record = self._begin_record(session, frame, scenario, terms)
        local_data, order = self._load(scenario, device), None
        if "sums" in frame.fields:
            rows, features = local_data.raw
            shape = rows.x.shape[1], features.dimension, rows.y.shape[1]
            order = SumOrder.read(frame.fields["sums"], frame.arrays, *shape)
            admit_order(self._site.name, scenario, order)
            if order.scales is None:
                return Frame("answer", local_data.measured(order, scenario, device, self._site).to_fields())
            scenario, local_data = sum_scenario(scenario, order.number), local_data.added(order, device)
            self._site.agreement.admit_sums(self._site.name, terms, scenario.scheme)
        elif scenario.prepared or "preparation" in frame.fields:
            rows_of = read_rows(frame.fields.get("rows"))
            admit_preparation(self._site.name, scenario)
            admit_rows(self._site.name, scenario, rows_of)
            local_data = local_data.prepared(frame.fields.get("preparation", {}), rows_of, device)
        local_data.check(self._site.name)
        facts = schemes.describe(scenario, local_data.shard)
        digest = told_digest(frame.fields, frame.arrays)
        run = Session(session, self._site, scenario, local_data, record.noise, part_of(frame), digest)
        with self._lock:
            if self._sessions[-1] != session:
                raise Cancelled
            before, self._run = self._run, run
        if before is not None:
            before.close()
        member = None if run.own is None else run.own.to_hex()
        shown: dict[str, Any] = {"member": member, "nonce": run.nonce.hex(), "mark": run.mark}
        told = {**vars(facts), "dtype": facts.dtype.name}
        told |= local_data.task(scenario, share_names=self._site.share_names).to_fields()
        return Frame("answer", {**told, "version": package_version(), **shown})

    def _begin_record(self, session: str, frame: Frame, scenario: Scenario, terms: Terms) -> RunRecord:
        """Note the session in the record of its run; only admitted runs have one."""
        name, sums = run_of(frame), "sums" in frame.fields
        with self._lock:
            if self._record is None or self._record.run != name:
                if self._record is not None:
                    self._record.end("the server began another run")
                self._record = RunRecord(self._site, name, scenario, terms, self._ledger)
            self._record.session(session, "sums of columns" if sums else "training", noise=scenario.private)
            return self._record

    def _place(self, frame: Frame) -> int:
        """Return this site's place in the agreed cohort; refuse any other cohort."""
        own, device = self._site.name, fields.count(frame.fields, "device")
        sites = fields.names(frame.fields, "sites")
        self._site.agreement.admit_cohort(own, sites)
        if device >= len(sites) or sites[device] != own:
            raise RefusalError(f"the server takes {own} for another site; check the list of sites")
        return device

    def _load(self, scenario: Scenario, device: int) -> LocalData:
        """Load the data and hold rows out, or reuse those of the previous session if they are the same."""
        table = scenario.to_table()
        key = [table[name] for name in ("data", "partition", "features", "task")], scenario.fleet.size, device
        if self._loaded is None or self._loaded[0] != key:
            try:
                self._loaded = key, self._site.load(scenario).divided(scenario, device)
            except CodedflError as error:  # its sentence may name files, columns and cells
                raise DataError(str(error)) from error
        return self._loaded[1]

    def _prepare(self, run: Session, frame: Frame) -> Frame:
        """Create the device of the scheme from public facts and local data."""
        make_device = run.announce(frame.fields, frame.arrays, self._emulate)
        number = fields.count(frame.fields, "number")
        with run.queue.slot(number, cancellable=False):
            began = time.perf_counter()
            make_device()
            if run.release is not None:  # how long it takes to draw noise depends on the noise
                run.queue.sleep(-(time.perf_counter() - began) % _GRAIN, number, cancellable=False)
            emulated = run.slow is not None and run.slow.links
            return Frame("answer", {"working_seconds": time.perf_counter() - began, "emulated_links": emulated})

    def _reply(self, run: Session, frame: Frame) -> Frame:
        """Answer the request of a round; one that is not standing cancels older ones."""
        epoch, question, number = (fields.count(frame.fields, name) for name in ("epoch", "question", "number"))
        offline, device, slow, work = fields.flag(frame.fields, "offline"), run.device, run.slow, Work()
        beforehand = 0.0
        if not fields.flag(frame.fields, "standing"):
            run.queue.cancel_below(number)
        down_bits = 0 if offline else message_bits(frame.arrays)
        if slow is not None:
            run.queue.sleep(slow.reply(epoch, question, down_bits=down_bits)[0], number, cancellable=True)
        with run.queue.slot(number, cancellable=True):
            began = time.perf_counter()
            run.admit(epoch, question, frame.arrays)
            members, noted = device.opens(frame.arrays), 1 if run.one_sum else epoch
            if members is not None:
                run.admit_sum(members)
            if members is not None and self._record is not None:
                self._record.sums.admit(self._site.name, run.part, noted, members)
            self._charge(run)
            message = device.reply(epoch, frame.arrays, work)
            if members is not None and self._record is not None:
                self._record.sums.opened(run.part, noted, members)
            run.rounds.answered(epoch, question)
            self._count(replies=1, epoch=epoch, multiplications=work.macs)
            if slow is not None:
                worked = slow.reply(epoch, question, macs=work.macs)[1]
                if offline:
                    worked, beforehand = 0.0, worked
                run.queue.sleep(worked - (time.perf_counter() - began), number, cancellable=True)
            working = time.perf_counter() - began
        if slow is not None:
            sending = slow.reply(epoch, question, up_bits=message_bits(message))[2]
            run.queue.sleep(sending, number, cancellable=True)
        told = {"macs": work.macs, "working_seconds": working, "offline_seconds": beforehand}
        return Frame("answer", {"epoch": epoch, **told}, message)

    def _forget(self, run: Session, frame: Frame) -> Frame:
        """Drop the parcels of an abandoned stage, or end the session."""
        if frame.fields.get("stage", 0) is not None:
            stage = fields.count(frame.fields, "stage")
            run.reception.release(stage)
            run.inbox.drop(stage)
            return Frame("answer")
        with self._lock:
            if self._run is run:
                self._run, self._loaded = None, None
        run.close()
        record = None if self._record is None else self._record.end(FINISHED)
        return Frame("answer", {"record": record})

    def _keep(self, run: Session, frame: Frame) -> Frame:
        """Keep what the device holds for a resumed run, or take it again."""
        verb, grant, record = fields.text(frame.fields, "verb"), run.grants(frame), self._record
        with run.queue.slot(fields.count(frame.fields, "number"), cancellable=False):
            done = record is not None and carry_out(verb, run.device, record.parcels, grant)
        return Frame("answer", {"done": done})

    def _charge(self, run: Session) -> None:
        """Enter the noisy data that leave in the ledger."""
        if run.release is not None and self._record is not None:
            self._record.charge(run.release)

    def _count(self, **done: int) -> None:
        if self._record is not None:
            self._record.computed(**done)
