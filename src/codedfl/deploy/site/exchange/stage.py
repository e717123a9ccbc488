"""A site's part in one stage of transfers: make parcels and send them, receive and absorb those of others."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.wire import Frame, pack_messages, unpack_messages
from codedfl.deploy.site.parcels import ChannelFree, Parcel, Transit, deliver
from codedfl.deploy.site.requests import channel_turns_of, event_of
from codedfl.deploy.site.session import Session
from codedfl.errors import EngineError, ParcelError
from codedfl.schemes import Work, message_bits


@final
@dataclass(frozen=True, eq=False)
class SiteWork:
    """What a site does beside computing: send to other sites, enter noisy data in the ledger, count its work."""

    peers: Peers
    charge: Callable[[Session], None]
    count: Callable[..., None]


def export_stage(site_work: SiteWork, run: Session, frame: Frame) -> Frame:
    """Export all parcels of a stage, then send them one by one; those for the server are in the reply."""
    stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
    # number of the parcel, recipient (None is the server), whether it is relayed, turn among those to the recipient
    wanted = fields.rows(frame.fields, "parcels", [(int,), (str, type(None)), (bool,), (int, type(None))])
    event, device, turns = event_of(frame.fields), run.device, channel_turns_of(frame)
    delays = run.transfer_delays(event)
    recipients = {site for _, site, _, _ in wanted}
    run.admit_parties(recipients)
    if not run.uploads and None in recipients:
        raise EngineError("devices of this scheme send parcels to each other only; check the server")
    grants = unpack_messages(run.grants(frame), [parcel for parcel, _, _, _ in wanted])
    if recipients - {None}:
        _ = run.envelopes  # refuse before anything is exported
    parcels: dict[int, Any] = {}
    owners: dict[int, tuple[int, ...]] = {}
    works = [Work() for _ in wanted]
    with run.queue.slot(number, cancellable=False):
        began = time.perf_counter()
        site_work.charge(run)
        for (parcel, _, _, _), work in zip(wanted, works, strict=True):
            owners[parcel] = tuple(sorted(device.owners(grants[parcel])))
            parcels[parcel] = device.export(grants[parcel], work)
        if delays is not None:
            bits = sum(message_bits(grant) for grant in grants.values())
            seconds = delays.prepare(bits, sum(work.macs for work in works)) - (time.perf_counter() - began)
            run.queue.sleep(seconds, number, cancellable=False)
        working = time.perf_counter() - began
    for parcel, site, relayed, turn in wanted:
        contents, transit = parcels[parcel], None
        if delays is not None and (site is None or relayed):
            run.queue.sleep(delays.upload(message_bits(contents), parcel), number, cancellable=False)
        if site is not None:
            if delays is not None and event is not None:
                transit = Transit(event, turn, relayed, delays.tries(parcel), delays.rate)
            sent = Parcel(stage, parcel, contents, transit, owners[parcel])
            receipt = send_parcel(run, site_work.peers, site, sent, turns.get(parcel))
            if isinstance(receipt, Frame):
                return receipt
    site_work.count(parcels_made=len(wanted), multiplications=sum(work.macs + work.beforehand for work in works))
    bits_sent = [message_bits(parcels[parcel]) for parcel, _, _, _ in wanted]
    uploads = {parcel: parcels[parcel] for parcel, site, _, _ in wanted if site is None}
    told = {**counted(works), "bits": bits_sent, "working_seconds": working}
    return Frame("answer", told, pack_messages(uploads))


def send_parcel(run: Session, peers: Peers, site: str, parcel: Parcel, turn: Sequence[Any] | None) -> Frame | str:
    """Send a parcel, in its turn on a shared channel, and pass the turn on.

    Return the receipt of the parcel, or the reply to the server if that is impossible.
    """
    awaits, next_site, next_parcel = turn or (False, None, None)
    if awaits:
        run.reception.await_free(parcel.stage, parcel.number)
    messages: list[tuple[str, Parcel | ChannelFree]] = [(site, parcel)]
    if next_site is not None and next_parcel is not None:
        messages.append((next_site, ChannelFree(parcel.stage, next_parcel)))
    receipts = []
    for peer, message in messages:
        try:
            receipts.append(deliver(peers, run.envelopes, run.receipts, peer, message))
        except ParcelError as error:
            return Frame("error", {"reason": f"it could not send to {peer}: {error}", "unreached": peer})
    return receipts[0]


def receive(run: Session, parcel: Parcel) -> float:
    """Wait for the emulated transmission of a parcel; return when it has arrived."""
    transit, bits = parcel.transit, message_bits(parcel.contents)
    if transit is None or run.slow is None:
        return time.monotonic()
    if transit.relayed:
        seconds = run.slow.transfers(transit.event).download(bits, parcel.number)
    else:  # the sender tells what it needs, so that nothing is drawn for all parcels that it says there are
        seconds = run.slow.parcel(bits, transit.tries, transit.rate)
    if transit.turn is None:
        return run.reception.alone(parcel.stage, seconds)
    return run.reception.in_turn(parcel.stage, transit.turn, seconds, wait=not transit.relayed)


def absorb_stage(site_work: SiteWork, run: Session, frame: Frame) -> Frame:
    """Absorb the parcels of a stage, in the server's order."""
    stage, number = fields.count(frame.fields, "stage"), fields.count(frame.fields, "number")
    wanted = fields.rows(frame.fields, "parcels", [(int,), (str,)])
    run.admit_parties(site for _, site in wanted)
    delays, works = run.transfer_delays(event_of(frame.fields)), [Work() for _ in wanted]
    with run.queue.slot(number, cancellable=False):
        parcels = run.inbox.take(stage, wanted)
        run.inbox.drop(stage)
        began = time.perf_counter()
        absorb(run, wanted, parcels, works)
        if delays is not None:  # absorbing starts with this site's last parcel
            absorbing = delays.absorb(sum(work.macs for work in works))
            seconds = run.reception.over(stage) + absorbing - time.monotonic()
            run.queue.sleep(seconds, number, cancellable=False)
        working = time.perf_counter() - began
    site_work.count(parcels_absorbed=len(wanted), multiplications=sum(work.macs + work.beforehand for work in works))
    return Frame("answer", {**counted(works), "working_seconds": working})


def absorb(run: Session, wanted: Sequence[Sequence[Any]], parcels: Sequence[Parcel], works: Sequence[Work]) -> None:
    """Let the device absorb parcels, given as pairs of number and sender."""
    for (_, site), parcel, work in zip(wanted, parcels, works, strict=True):
        run.device.absorb_from(run.number_of(site), parcel.contents, work, frozenset(parcel.owners))


def counted(works: Sequence[Work]) -> dict[str, list[int]]:
    """Return the multiplications for each parcel, and those done in advance."""
    return {"macs": [work.macs for work in works], "beforehand": [work.beforehand for work in works]}
