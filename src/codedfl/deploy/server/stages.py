"""Stages of transfers between real sites, in two steps: all senders prepare and send; then all recipients take in.

Recipients keep what has come until the server knows that every parcel of the stage has arrived, and then take it in in
the order of the transfers. So a stage that misses somebody changes nobody who receives.
"""

from collections.abc import Sequence
from typing import Any, final

from codedfl.deploy.protocol.fields import words
from codedfl.deploy.protocol.wire import gathered, scattered
from codedfl.deploy.server.correspondence import Correspondence, Question
from codedfl.deploy.site.emulation import Occasion
from codedfl.engines.contract import Placed, Receive
from codedfl.errors import EngineError, LostDevicesError
from codedfl.network import TransferCosts
from codedfl.schemes.contract import SERVER, Message, Transfer, message_bits

__all__ = ["Stages"]


@final
class Stages:
    """Carries out one stage after the other."""

    def __init__(self, letters: Correspondence) -> None:
        self._letters = letters
        self._number = 0

    def carry(
        self,
        transfers: Sequence[Transfer],
        receive: Receive,
        occasion: Occasion | None = None,
        *,
        parallel: bool = False,
    ) -> Placed:
        """Do a stage; return what it cost, or who was missing so that nothing of it was taken in.

        Without an ``occasion`` it takes no time at sites that emulate slowness; with ``parallel`` recipients take
        parcels at once there.
        """
        self._number += 1
        stage = _Stage(self._letters, self._number, transfers, occasion, parallel=parallel)
        if stage.missing or not stage.export():
            stage.forget()
            return Placed([], stage.missing)
        if not stage.absorb():
            return Placed([], stage.missing)
        for number, transfer in enumerate(transfers):
            if transfer.recipient == SERVER:
                self._receive(transfer.sender, stage.uploads[number], receive)
        return Placed([stage.costs(number) for number in range(len(transfers))])

    def _receive(self, sender: int, parcel: Message, receive: Receive) -> None:
        """Give the server a parcel; one that it cannot take in is the sender's fault."""
        try:
            receive(sender, parcel)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            self._letters.lose(sender, f"what it sent to the server cannot be taken in ({type(error).__name__})")
            raise LostDevicesError(
                f"{self._letters.sites[sender]} sent the server a parcel that it cannot take in; mend the site and "
                "begin again"
            ) from error


class _Stage:
    def __init__(
        self,
        letters: Correspondence,
        number: int,
        transfers: Sequence[Transfer],
        occasion: Occasion | None,
        *,
        parallel: bool,
    ) -> None:
        self._letters = letters
        self._fields = {"stage": number, "occasion": None if occasion is None else occasion.to_table()}
        self._transfers = transfers
        self._turns = _turns(transfers, parallel=parallel)
        self._sent: dict[int, tuple[int, int]] = {}
        self._taken: dict[int, int] = {}
        self.uploads: dict[int, dict[str, Any]] = {}
        both = {party for transfer in transfers for party in (transfer.sender, transfer.recipient)}
        self._parties = sorted(both - {SERVER})

    @property
    def missing(self) -> tuple[int, ...]:
        """Parties that are gone."""
        return tuple(device for device in self._parties if device in self._letters.lost)

    def export(self) -> bool:
        """Let all senders prepare and send; tell whether everything has arrived."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            work.setdefault(transfer.sender, []).append(number)
        # sites may wait for parcels of others in emulated time: if one fails, nobody must wait for it
        answers = self._letters.everyone(
            {device: self._outgoing(numbers) for device, numbers in work.items()},
            if_one_fails=dict.fromkeys(self._parties, self._forgetting),
        )
        failed: dict[int, str] = {}
        for device, heard in answers.items():
            if heard.frame.kind != "answer":
                failed[device] = words(heard.frame.fields.get("reason"))
                continue
            uploads = [number for number in work[device] if self._transfers[number].recipient == SERVER]
            try:
                self.uploads |= scattered(heard.frame.arrays, uploads)
            except EngineError as error:
                failed[device] = str(error)
            counts = zip(heard.frame.fields["macs"], heard.frame.fields["bits"], strict=True)
            self._sent |= dict(zip(work[device], counts, strict=True))
        if failed:
            self._blame(failed)
        return not self.missing

    def _outgoing(self, numbers: Sequence[int]) -> Question:
        chosen = {number: self._transfers[number] for number in numbers}
        sites = self._letters.sites
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
        return Question("export", {**self._fields, "parcels": parcels}, gathered(grants))

    def _blame(self, failed: dict[int, str]) -> None:
        """Find out who is gone after a parcel did not arrive: the recipient if it is silent, else the sender."""
        self.forget()
        if not self.missing:
            for device, reason in failed.items():
                self._letters.lose(device, reason)

    def absorb(self) -> bool:
        """Let all recipients take in what has come; tell whether all have."""
        work: dict[int, list[int]] = {}
        for number, transfer in enumerate(self._transfers):
            if transfer.recipient != SERVER:
                work.setdefault(transfer.recipient, []).append(number)
        answers = self._letters.everyone({device: self._incoming(numbers) for device, numbers in work.items()})
        for device, heard in answers.items():
            self._taken |= dict(zip(work[device], heard.frame.fields["macs"], strict=True))
        gone = [device for device in work if device not in answers]
        if gone and answers:
            names = ", ".join(self._letters.sites[device] for device in gone)
            raise LostDevicesError(
                f"{names} got lost while others took in their parcels, so that data are nowhere whole; let the run go "
                "on from its last state when all are back"
            )
        return not gone

    def _incoming(self, numbers: Sequence[int]) -> Question:
        parcels = [[number, self._letters.sites[self._transfers[number].sender]] for number in numbers]
        return Question("absorb", {**self._fields, "parcels": parcels})

    def forget(self) -> None:
        """Let all who are there drop what has come; who does not answer is lost."""
        self._letters.everyone(dict.fromkeys(self._parties, self._forgetting))

    @property
    def _forgetting(self) -> Question:
        return Question("forget", {"stage": self._fields["stage"]})

    def costs(self, number: int) -> TransferCosts:
        """Return what a transfer took, as its parties say."""
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
    """Return of each parcel the place among those to its recipient; none where they come at once."""
    count: dict[int, int] = {}
    turns: list[int | None] = []
    for transfer in transfers:
        turns.append(None if parallel else count.get(transfer.recipient, 0))
        count[transfer.recipient] = count.get(transfer.recipient, 0) + 1
    return turns
