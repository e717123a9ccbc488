"""Stages of transfers between real sites, in two steps: all senders export and send, then all recipients absorb.

Recipients hold parcels until the server knows that all of the stage have arrived, and absorb them in the order of the
transfers. So a stage with a lost device changes no recipient. On an emulated shared channel, direct parcels go in the
order of the transfers, too: the server tells each sender whose parcel is next, and senders pass the turn on.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, final

from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.wire import pack_messages, unpack_messages
from codedfl.deploy.server.channel import Channel, SiteRequest
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.engines.contract import Receive, StageOutcome
from codedfl.errors import EngineError, LostDevicesError
from codedfl.network import TransferCosts
from codedfl.schemes.contract import SERVER, Stage
from codedfl.schemes.messages import Message, message_bits

Seal = Callable[[int, Mapping[str, Any], Message], Message]
"""Takes a device, the fields of a request and its grants; returns the grants as they are sent."""


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
        self._forgetting = SiteRequest("forget", {"stage": number})
        self._transfers = stage.transfers
        self._parcels: list[list[Any]] = []
        """Number, recipient (None is the server), whether it is relayed, and its turn among those to the recipient."""
        turns: Counter[int] = Counter()
        for index, transfer in enumerate(stage.transfers):
            site = None if transfer.recipient == SERVER else channel.sites[transfer.recipient]
            turn = None if stage.parallel else turns[transfer.recipient]
            self._parcels.append([index, site, transfer.relayed, turn])
            turns[transfer.recipient] += 1
        self._channel_turns = _channel_turns(stage, channel.sites) if one_at_a_time and event is not None else {}
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
        return tuple(device for device in self._parties if device in self._channel.lost)

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
        if failed:  # a recipient that is silent is lost, else the sender
            self._forget()
            for device, reason in failed.items() if not self._missing else ():
                self._channel.mark_lost(device, reason, silent=device in unsent)
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
        """Return the costs of a transfer as its parties report them."""
        transfer, (export_macs, export_beforehand, bits) = self._transfers[number], self._exported[number]
        absorb_macs, absorb_beforehand = self._absorbed.get(number, (0, 0))
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


def _channel_turns(stage: Stage, sites: Sequence[str]) -> dict[int, tuple[bool, str | None, int | None]]:
    """Return, by direct parcel, whether it waits for another sender, and the site and number of the one after it.

    A sender sends its own parcels one after the other anyway.
    """
    transfers = stage.transfers
    direct = [n for n, transfer in enumerate(transfers) if transfer.recipient != SERVER and not transfer.relayed]
    waits = dict.fromkeys(direct, False)
    following: dict[int, int] = {}
    for one, other in pairwise(direct):
        if transfers[one].sender != transfers[other].sender:
            waits[other], following[one] = True, other
    after = {number: (sites[transfers[other].sender], other) for number, other in following.items()}
    return {number: (waits[number], *after.get(number, (None, None))) for number in direct}
