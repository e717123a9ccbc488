"""Stages of transfers between real sites, in two steps: all senders export and send, then all recipients absorb.

Recipients hold parcels until the server knows that all of the stage have arrived, and absorb them in the order of the
transfers. So a stage with a lost device changes no recipient. On an emulated shared channel, direct parcels go in the
order of the transfers, too: the server tells each sender whose parcel is next, and senders pass the turn on.

Stages of a set-up that overlap are one request to each site, which goes on by itself
(``codedfl.deploy.site.exchange.overlap``). If one fails, all are released, and nothing of the set-up is used. While no
site answers, the server asks how far they are: if a parcel is missing that its sender says was accepted, the signed
receipt tells who of the two is wrong; and who lacks nothing and does not go on holds up the others.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice, pairwise
from typing import Any, final

from codedfl.deploy.protocol.fields import counts, one_line
from codedfl.deploy.protocol.wire import pack_messages, unpack_messages
from codedfl.deploy.server.channel import Channel, SiteReply, SiteRequest
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.engines.contract import Receive, StageOutcome
from codedfl.errors import EngineError, LostDevicesError
from codedfl.network import TransferCosts
from codedfl.schemes.contract import SERVER, Stage, Transfer
from codedfl.schemes.messages import Message, message_bits

Seal = Callable[[int, Mapping[str, Any], Message], Message]
"""Takes a device, the fields of a request and its grants; returns the grants as they are sent."""
HasAccepted = Callable[[str, str, int, int, object], bool]
"""Takes sender, recipient, stage and number of a parcel, and what is shown; returns whether it is the receipt."""


@final
class StageExchange:
    """The transfers of one stage; without an ``event`` sites emulate no delays.

    With ``one_at_a_time`` direct parcels take turns on one emulated channel.
    """

    def __init__(
        self,
        channel: Channel,
        number: int,
        stage: Stage,
        event: TransferEvent | None,
        seal: Seal,
        *,
        one_at_a_time: bool = False,
    ) -> None:
        self._channel = channel
        self._seal = seal
        self._fields = {"stage": number, "occasion": None if event is None else event.to_table()}
        self._forgetting = SiteRequest("forget", {"stage": number}, steps=0)
        self._transfers = stage.transfers
        self._parcels: list[list[Any]] = []
        """Number, recipient (None is the server), whether it is relayed, and its turn among those to the recipient."""
        turns: Counter[int] = Counter()
        for index, transfer in enumerate(stage.transfers):
            site = None if transfer.recipient == SERVER else channel.sites[transfer.recipient]
            turn = None if stage.parallel else turns[transfer.recipient]
            self._parcels.append([index, site, transfer.relayed, turn])
            turns[transfer.recipient] += 1
        self._channel_turns = {}
        if one_at_a_time and event is not None:
            direct = [n for n, each in enumerate(stage.transfers) if each.recipient != SERVER and not each.relayed]
            self._channel_turns = _channel_turns(stage.transfers, direct, channel.sites)
        self._exported: dict[int, tuple[int, int, int]] = {}
        self._absorbed: dict[int, tuple[int, int]] = {}
        self._uploads: dict[int, dict[str, Any]] = {}
        self._parties = sorted({*turns, *(transfer.sender for transfer in stage.transfers)} - {SERVER})

    def carry(self, receive: Receive) -> StageOutcome:
        """Carry out the stage; return its costs, or the lost devices if nothing was absorbed."""
        if self._missing or not self._export():
            self._forget()
            return StageOutcome([], self._missing)
        if not self._absorb():
            return StageOutcome([], self._missing)
        for number, parcel in sorted(self._uploads.items()):
            sender = self._transfers[number].sender
            try:
                receive(sender, parcel)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                self._channel.mark_lost(sender, f"the server cannot absorb its parcel ({type(error).__name__})")
                site = self._channel.sites[sender]
                raise LostDevicesError(f"{site} sent a parcel that the server cannot absorb; fix it") from error
        return StageOutcome([self._costs(number) for number in range(len(self._transfers))])

    @property
    def _missing(self) -> tuple[int, ...]:
        """Senders and recipients that are lost."""
        return _lost_of(self._parties, self._channel)

    def _export(self) -> bool:
        """Let all senders export and send; return whether all parcels arrived."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            work.setdefault(transfer.sender, []).append(number)
        requests = {}
        for device, numbers in work.items():
            fields = {**self._fields, "parcels": [self._parcels[number] for number in numbers]}
            if self._channel_turns:
                turns = self._channel_turns
                fields["channel_turns"] = [[number, *turns[number]] for number in numbers if number in turns]
            grants = pack_messages({number: self._transfers[number].grant for number in numbers})
            requests[device] = SiteRequest("export", fields, self._seal(device, fields, grants))
        # in emulated time sites wait for each other's parcels: if one fails, release the others
        answers = self._channel.ask_all(requests, if_one_fails=dict.fromkeys(self._parties, self._forgetting))
        failed: dict[int, str] = {}
        unsent: set[int] = set()
        for device, reply in answers.items():
            if reply.frame.kind != "answer":
                failed[device] = one_line(reply.frame.fields.get("reason"))
                unsent.add(device)  # its link may be the reason
                continue
            uploads = [number for number in work[device] if self._transfers[number].recipient == SERVER]
            try:
                self._uploads |= unpack_messages(reply.frame.arrays, uploads)
            except EngineError as error:
                failed[device] = str(error)
            counts = zip(*(reply.frame.fields[name] for name in ("macs", "beforehand", "bits")), strict=True)
            self._exported |= dict(zip(work[device], counts, strict=True))
        if failed:
            self._forget()
            _blame(self._parties, self._channel, failed, unsent)
        return not self._missing

    def _absorb(self) -> bool:
        """Let all recipients absorb their parcels; return whether all have."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            if transfer.recipient != SERVER:
                work.setdefault(transfer.recipient, []).append(number)
        requests = {}
        for device, numbers in work.items():
            parcels = [[number, self._channel.sites[self._transfers[number].sender]] for number in numbers]
            requests[device] = SiteRequest("absorb", {**self._fields, "parcels": parcels})
        answers = self._channel.ask_all(requests)
        for device, reply in answers.items():
            counts = zip(*(reply.frame.fields[name] for name in ("macs", "beforehand")), strict=True)
            self._absorbed |= dict(zip(work[device], counts, strict=True))
        gone = [device for device in work if device not in answers]
        if gone and answers:
            names = ", ".join(self._channel.sites[device] for device in gone)
            raise LostDevicesError(f"{names} got lost while others absorbed parcels; resume when all sites are back")
        return not gone

    def _forget(self) -> None:
        """Let all parties drop the parcels of the stage; a silent one is lost."""
        self._channel.ask_all(dict.fromkeys(self._parties, self._forgetting))

    def _costs(self, number: int) -> TransferCosts:
        return _costs_of(self._transfers[number], self._exported[number], self._absorbed.get(number, (0, 0)))


@final
class OverlappingExchange:
    """The transfers of stages that overlap, numbered from ``first`` in the set-up, all from device to device.

    ``number`` counts all of them as one stage at sites, and parcels are numbered through. Without ``emulated`` sites
    emulate no delays. ``order`` is that in which parcels begin on emulated links, all one after the other if
    ``one_at_a_time``; without it each sender begins with the first parcel that is ready.
    """

    def __init__(
        self,
        channel: Channel,
        number: int,
        stages: Sequence[Stage],
        first: int,
        seal: Seal,
        has_accepted: HasAccepted,
        *,
        emulated: bool,
        order: Sequence[int] | None = None,
        one_at_a_time: bool = False,
    ) -> None:
        self._channel = channel
        self._seal = seal
        self._has_accepted = has_accepted
        self._number = number
        self._stages = stages
        self._transfers = [transfer for stage in stages for transfer in stage.transfers]
        self._sizes = [len(stage.transfers) for stage in stages]
        self._parties = sorted({each for one in self._transfers for each in (one.sender, one.recipient)})
        self._order = order
        self._accepted: set[int] = set()
        """Parcels that others had accepted when the server last asked."""
        self._holding: dict[int, tuple[int, float]] = {}
        """Devices that hold up others: how far they were, and since when."""
        self._turns: dict[int, int] = {}
        received: Counter[int] = Counter()
        for parcel in () if order is None else order:
            recipient = self._transfers[parcel].recipient
            self._turns[parcel] = received[recipient]
            received[recipient] += 1
        shared = one_at_a_time and order is not None
        self._channel_turns = _channel_turns(self._transfers, order or (), channel.sites) if shared else {}
        events = [TransferEvent(stage=first + place, parcels=size) for place, size in enumerate(self._sizes)]
        self._plan: list[dict[str, Any]] = [
            {
                "occasion": event.to_table() if emulated else None,
                "first": sum(self._sizes[:place]),
                "after": [each - first for each in stage.after or () if each >= first],
            }
            for place, (stage, event) in enumerate(zip(stages, events, strict=True))
        ]
        self._places = [place for place, size in enumerate(self._sizes) for _ in range(size)]
        """The place of each parcel's stage."""
        self._before: list[set[int]] = []
        """Of each stage, all stages that it comes after, however far."""
        for plan in self._plan:
            self._before.append({*plan["after"]}.union(*(self._before[each] for each in plan["after"])))

    def carry(self) -> list[StageOutcome]:
        """Carry out the stages; return their costs, or the lost devices for the first of them."""
        forgetting = dict.fromkeys(self._parties, SiteRequest("forget", {"stage": self._number}, steps=0))
        if missing := _lost_of(self._parties, self._channel):
            return [StageOutcome([], missing)]
        requests = {device: self._request(device) for device in self._parties}
        # sites wait for each other's parcels: if one fails, release the others
        self._began = self._channel.clock()
        answers = self._channel.ask_all(requests, if_one_fails=forgetting, if_quiet=self._look)
        failed = {device: reply.frame for device, reply in answers.items() if reply.frame.kind != "answer"}
        if failed or _lost_of(self._parties, self._channel):
            self._channel.ask_all(forgetting)
            # in the order of arrival: who failed first had no reason, others may have failed because of it
            reasons = {each: one_line(failed[each].fields.get("reason")) for each in [*failed][:1]}
            _blame(self._parties, self._channel, reasons, set(reasons))
            return [StageOutcome([], _lost_of(self._parties, self._channel))]
        return self._outcomes(requests, answers)

    def _look(self) -> None:
        """Ask sites how far they are, and mark as lost who tells a falsehood or holds up the others for too long."""
        channel, transfers = self._channel, self._transfers
        waiting = [device for device in self._parties if channel.awaited(device)]
        question = SiteRequest("progress", {"stage": self._number}, steps=0)
        missing: set[int] = set()
        accepted = {n for n, each in enumerate(transfers) if each.sender not in waiting}  # they have answered
        for device, reply in channel.ask_all(dict.fromkeys(waiting, question)).items():
            try:
                sent, absent = (counts(reply.frame.fields, name) for name in ("sent", "missing"))
            except EngineError as error:
                channel.mark_lost(device, str(error))
                continue
            accepted |= {n for n in sent if n < len(transfers) and transfers[n].sender == device}
            missing |= {n for n in absent if n < len(transfers) and transfers[n].recipient == device}
        # a receipt is sent when a parcel is stored: what was accepted before a recipient is asked has arrived
        if vanished := missing & self._accepted:
            self._judge(min(vanished))
        self._accepted = accepted
        self._find_stalled(waiting, accepted, missing)

    def _judge(self, number: int) -> None:
        """Mark the recipient of a parcel as lost if it denies its own receipt, else the sender, which has none."""
        channel, transfer = self._channel, self._transfers[number]
        sender, recipient = (channel.sites[device] for device in (transfer.sender, transfer.recipient))
        request = SiteRequest("progress", {"stage": self._number, "receipt": number}, steps=0)
        for reply in channel.ask_all({transfer.sender: request}).values():
            if self._has_accepted(sender, recipient, self._number, number, reply.frame.fields.get("receipt")):
                reason = f"it says that parcel {number} of {sender} has not arrived, and has signed that it has"
                channel.mark_lost(transfer.recipient, reason)
            else:
                reason = f"it says that {recipient} has accepted parcel {number}, and shows no receipt of it"
                channel.mark_lost(transfer.sender, reason)

    def _find_stalled(self, waiting: Sequence[int], accepted: Set[int], missing: Set[int]) -> None:
        """Mark devices as lost that lack nothing and have not gone on for as long as a step may take.

        Those that hold up the others when the time of all steps is over are lost, too, and nobody else.
        """
        channel, now, holding = self._channel, self._channel.clock(), {}
        sent = Counter(self._transfers[n].sender for n in accepted)
        lacking = Counter(self._transfers[n].recipient for n in missing)
        for device in self._holding_up(waiting, accepted, missing):
            done = sent[device] - lacking[device]
            before, since = self._holding.get(device, (done, now))
            holding[device] = (before, since) if done <= before else (done, now)
            for reached, longest in ((holding[device][1], 1), (self._began, len(self._stages))):
                if now - reached > longest * channel.longest:
                    channel.mark_lost(device, f"no progress for {longest * channel.longest:g} s", silent=True)
        self._holding = holding

    def _holding_up(self, waiting: Sequence[int], accepted: Set[int], missing: Set[int]) -> set[int]:
        """Return the devices that lack nothing for what they send next, or for their answer if they have sent all.

        There is always one while parcels are missing, because stages come after earlier ones only.
        """
        transfers, queues = self._transfers, self._queues
        lacks = {(transfers[n].recipient, self._places[n]) for n in missing}
        unsent = [n for n in self._order or range(len(transfers)) if n not in accepted]
        first = {queue: n for n in reversed(unsent) for queue in queues(n)}
        found = {*waiting} - {transfers[n].sender for n in unsent} - {device for device, _ in lacks}
        for n in unsent:
            sender, before = transfers[n].sender, self._before[self._places[n]]
            if all(first[queue] == n for queue in queues(n)) and not any((sender, each) in lacks for each in before):
                found.add(sender)
        return found & {*waiting}

    def _queues(self, number: int) -> list[tuple[str, int]]:
        """Return in which queues of emulated links a parcel waits for its predecessors."""
        transfer, shared = self._transfers[number], [("channel", 0)] if self._channel_turns else []
        return [] if self._order is None else [("from", transfer.sender), ("to", transfer.recipient), *shared]

    def _request(self, device: int) -> SiteRequest:
        """Return all that a site does: parcels by stage, in which order, and when the shared channel is its own."""
        sites, transfers, stages = self._channel.sites, self._transfers, []
        own: list[int] = []
        for plan, size in zip(self._plan, self._sizes, strict=True):
            numbers = range(plan["first"], plan["first"] + size)
            sent = [n for n in numbers if transfers[n].sender == device]
            export = [[n, sites[transfers[n].recipient], self._turns.get(n)] for n in sent]
            absorb = [[n, sites[transfers[n].sender]] for n in numbers if transfers[n].recipient == device]
            stages.append({**plan, "export": export, "absorb": absorb})
            own += sent
        fields: dict[str, Any] = {"stage": self._number, "stages": stages}
        if self._order is not None:
            fields["order"] = [n for n in self._order if transfers[n].sender == device]
        if self._channel_turns:
            fields["channel_turns"] = [[n, *self._channel_turns[n]] for n in own]
        grants = pack_messages({n: transfers[n].grant for n in own})
        return SiteRequest("carry", fields, self._seal(device, fields, grants), steps=len(self._stages) + 1)

    def _outcomes(self, requests: Mapping[int, SiteRequest], answers: Mapping[int, SiteReply]) -> list[StageOutcome]:
        """Return the costs of all transfers as their parties report them."""
        exported: dict[int, tuple[int, int, int]] = {}
        absorbed: dict[int, tuple[int, int]] = {}
        for device, reply in answers.items():
            told, stages = reply.frame.fields, requests[device].fields["stages"]
            sent, taken = ([row[0] for each in stages for row in each[name]] for name in ("export", "absorb"))
            counts = zip(*(told[name] for name in ("macs", "beforehand", "bits")), strict=True)
            exported |= dict(zip(sent, counts, strict=True))
            counts = zip(*(told[name] for name in ("absorb_macs", "absorb_beforehand")), strict=True)
            absorbed |= dict(zip(taken, counts, strict=True))
        found = iter([_costs_of(each, exported[n], absorbed[n]) for n, each in enumerate(self._transfers)])
        return [StageOutcome(list(islice(found, size))) for size in self._sizes]


def _lost_of(parties: Sequence[int], channel: Channel) -> tuple[int, ...]:
    """Return the senders and recipients that are lost."""
    return tuple(device for device in parties if device in channel.lost)


def _blame(parties: Sequence[int], channel: Channel, failed: Mapping[int, str], unsent: Set[int]) -> None:
    """Mark senders that failed as lost, unless a party is silent: then that one is the reason."""
    for device, reason in failed.items() if not _lost_of(parties, channel) else ():
        channel.mark_lost(device, reason, silent=device in unsent)


def _costs_of(transfer: Transfer, exported: tuple[int, int, int], absorbed: tuple[int, int]) -> TransferCosts:
    """Return the costs of a transfer as its parties report them."""
    (export_macs, export_beforehand, bits), (absorb_macs, absorb_beforehand) = exported, absorbed
    return TransferCosts(
        transfer.sender,
        transfer.recipient,
        grant_bits=message_bits(transfer.grant),
        export_macs=export_macs,
        parcel_bits=bits,
        absorb_macs=absorb_macs,
        relayed=transfer.relayed,
        export_beforehand=export_beforehand,
        absorb_beforehand=absorb_beforehand,
    )


def _channel_turns(
    transfers: Sequence[Transfer], direct: Sequence[int], sites: Sequence[str]
) -> dict[int, tuple[bool, str | None, int | None]]:
    """Return, by direct parcel, whether it waits for another sender, and the site and number of the one after it.

    A sender sends its own parcels one after the other anyway.
    """
    waits = dict.fromkeys(direct, False)
    following: dict[int, int] = {}
    for one, other in pairwise(direct):
        if transfers[one].sender != transfers[other].sender:
            waits[other], following[one] = True, other
    after = {number: (sites[transfers[other].sender], other) for number, other in following.items()}
    return {number: (waits[number], *after.get(number, (None, None))) for number in direct}
