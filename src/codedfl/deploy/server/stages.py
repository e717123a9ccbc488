"""Stages of transfers between real sites, in two steps: all senders export and send, then all recipients absorb.

Recipients hold parcels until the server knows that all of the stage have arrived, and absorb them in the order of the
transfers. So a stage with a lost device changes no recipient.
"""

from collections.abc import Sequence
from typing import Any, final

from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.wire import pack_messages, unpack_messages
from codedfl.deploy.server.channel import Channel, SiteRequest
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.engines.contract import Receive, StageOutcome
from codedfl.errors import EngineError, LostDevicesError
from codedfl.network import TransferCosts
from codedfl.schemes.contract import SERVER, Stage, Transfer
from codedfl.schemes.messages import Message, message_bits


@final
class Stages:
    """Carries out stages of transfers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number = 0

    def carry(self, stage: Stage, receive: Receive, event: TransferEvent | None = None) -> StageOutcome:
        """Carry out a stage; return its costs, or the lost devices if nothing was absorbed.

        Without an ``event`` sites emulate no delays.
        """
        self._number += 1
        transfers = stage.transfers
        under_way = _Stage(self._channel, self._number, transfers, event, parallel=stage.parallel)
        if under_way.missing or not under_way.export():
            under_way.forget()
            return StageOutcome([], under_way.missing)
        if not under_way.absorb():
            return StageOutcome([], under_way.missing)
        for number, transfer in enumerate(transfers):
            if transfer.recipient == SERVER:
                self._receive(transfer.sender, under_way.uploads[number], receive)
        return StageOutcome([under_way.costs(number) for number in range(len(transfers))])

    def _receive(self, sender: int, parcel: Message, receive: Receive) -> None:
        """Pass a parcel to the server; if it is malformed, its sender is lost."""
        try:
            receive(sender, parcel)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            self._channel.mark_lost(sender, f"the server cannot absorb its parcel ({type(error).__name__})")
            raise LostDevicesError(
                f"{self._channel.sites[sender]} sent a parcel that the server cannot absorb; fix the site and restart"
            ) from error


class _Stage:
    def __init__(
        self,
        channel: Channel,
        number: int,
        transfers: Sequence[Transfer],
        event: TransferEvent | None,
        *,
        parallel: bool,
    ) -> None:
        self._channel = channel
        self._fields = {"stage": number, "occasion": None if event is None else event.to_table()}
        self._transfers = transfers
        self._turns = _turns(transfers, parallel=parallel)
        self._sent: dict[int, tuple[int, int]] = {}
        self._taken: dict[int, int] = {}
        self.uploads: dict[int, dict[str, Any]] = {}
        both = {party for transfer in transfers for party in (transfer.sender, transfer.recipient)}
        self._parties = sorted(both - {SERVER})

    @property
    def missing(self) -> tuple[int, ...]:
        """Senders and recipients that are lost."""
        return tuple(device for device in self._parties if device in self._channel.lost)

    def export(self) -> bool:
        """Let all senders export and send; return whether all parcels arrived."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            work.setdefault(transfer.sender, []).append(number)
        # in emulated time sites wait for each other's parcels: if one fails, release the others
        answers = self._channel.ask_all(
            {device: self._outgoing(numbers) for device, numbers in work.items()},
            if_one_fails=dict.fromkeys(self._parties, self._forgetting),
        )
        failed: dict[int, str] = {}
        for device, reply in answers.items():
            if reply.frame.kind != "answer":
                failed[device] = one_line(reply.frame.fields.get("reason"))
                continue
            uploads = [number for number in work[device] if self._transfers[number].recipient == SERVER]
            try:
                self.uploads |= unpack_messages(reply.frame.arrays, uploads)
            except EngineError as error:
                failed[device] = str(error)
            counts = zip(reply.frame.fields["macs"], reply.frame.fields["bits"], strict=True)
            self._sent |= dict(zip(work[device], counts, strict=True))
        if failed:
            self._blame(failed)
        return not self.missing

    def _outgoing(self, numbers: Sequence[int]) -> SiteRequest:
        chosen = {number: self._transfers[number] for number in numbers}
        sites = self._channel.sites
        parcels = [
            [
                number,
                None if transfer.recipient == SERVER else sites[transfer.recipient],
                transfer.relayed,
                self._turns[number],
            ]
            for number, transfer in chosen.items()
        ]
        grants = {number: transfer.grant for number, transfer in chosen.items()}
        return SiteRequest("export", {**self._fields, "parcels": parcels}, pack_messages(grants))

    def _blame(self, failed: dict[int, str]) -> None:
        """Decide who is lost after a failed delivery: the recipient if it is silent, else the sender."""
        self.forget()
        if not self.missing:
            for device, reason in failed.items():
                self._channel.mark_lost(device, reason)

    def absorb(self) -> bool:
        """Let all recipients absorb their parcels; return whether all have."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            if transfer.recipient != SERVER:
                work.setdefault(transfer.recipient, []).append(number)
        answers = self._channel.ask_all({device: self._incoming(numbers) for device, numbers in work.items()})
        for device, reply in answers.items():
            self._taken |= dict(zip(work[device], reply.frame.fields["macs"], strict=True))
        gone = [device for device in work if device not in answers]
        if gone and answers:
            names = ", ".join(self._channel.sites[device] for device in gone)
            raise LostDevicesError(
                f"{names} got lost while others absorbed their parcels, so the data are incomplete; resume the run "
                "when all sites are back"
            )
        return not gone

    def _incoming(self, numbers: Sequence[int]) -> SiteRequest:
        parcels = [[number, self._channel.sites[self._transfers[number].sender]] for number in numbers]
        return SiteRequest("absorb", {**self._fields, "parcels": parcels})

    def forget(self) -> None:
        """Let all parties drop the parcels of the stage; a silent one is lost."""
        self._channel.ask_all(dict.fromkeys(self._parties, self._forgetting))

    @property
    def _forgetting(self) -> SiteRequest:
        return SiteRequest("forget", {"stage": self._fields["stage"]})

    def costs(self, number: int) -> TransferCosts:
        """Return the costs of a transfer as its parties report them."""
        transfer, (export_macs, bits) = self._transfers[number], self._sent[number]
        return TransferCosts(
            transfer.sender,
            transfer.recipient,
            grant_bits=message_bits(transfer.grant),
            export_macs=export_macs,
            parcel_bits=bits,
            absorb_macs=self._taken.get(number, 0),
            relayed=transfer.relayed,
        )


def _turns(transfers: Sequence[Transfer], *, parallel: bool) -> list[int | None]:
    """Return the position of each parcel among those to its recipient; None if received in parallel."""
    count: dict[int, int] = {}
    turns: list[int | None] = []
    for transfer in transfers:
        turns.append(None if parallel else count.get(transfer.recipient, 0))
        count[transfer.recipient] = count.get(transfer.recipient, 0) + 1
    return turns
