"""Real sites behind a carrier, the engine of deployments: it carries messages and keeps the time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Shaped

from codedfl.deploy.server.board import Board
from codedfl.deploy.server.correspondence import Correspondence, Heard, Question
from codedfl.deploy.server.stages import Stages
from codedfl.deploy.site.emulation import Occasion
from codedfl.engines.contract import Answer, Engine, Placed, Receive, Reply
from codedfl.errors import LostDevicesError
from codedfl.network import RoundCosts, TransferCosts
from codedfl.schemes.contract import Message, Round, Transfer, message_bits

__all__ = ["RECORDS", "RemoteEngine"]

RECORDS = {
    "epoch": np.int64,
    "question": np.int64,
    "device": np.int64,
    "seconds": np.float64,
    "working_seconds": np.float64,
    "down_bits": np.int64,
    "up_bits": np.int64,
    "macs": np.int64,
}
"""What is noted of every question to every device: bits as they were carried, seconds NaN where no answer counted."""

_LOOK = 1.0
"""Seconds after which the board is shown anew while nothing comes in."""


@final
class RemoteEngine(Engine):
    """Asks sites through a correspondence; seconds are real ones, divided by ``time_scale`` where sites emulate.

    ``now`` is where a resumed run stands, and ``records`` what had been noted of it.
    """

    def __init__(
        self,
        letters: Correspondence,
        *,
        now: float = 0.0,
        time_scale: float = 1.0,
        records: Mapping[str, Shaped[np.ndarray, "..."]] | None = None,
        board: Board | None = None,
    ) -> None:
        self._letters = letters
        self._board = board or Board(letters.sites)
        self._stages = Stages(letters)
        self._scale = time_scale
        self._began = self._letters.clock() - now * time_scale
        self._epoch, self._question = 0, 0
        self._asked: dict[int, tuple[int, float]] = {}
        self._records: dict[str, list[float]] = {name: [] for name in RECORDS}
        if records:
            self._records = {name: np.asarray(records[name]).tolist() for name in RECORDS}

    @property
    def now(self) -> float:
        """Seconds since the run began, without those between an interruption and going on."""
        return (self._letters.clock() - self._began) / self._scale

    @property
    def records(self) -> dict[str, Shaped[np.ndarray, "rows"]]:
        """What was noted of every question, column by column."""
        return {name: np.array(self._records[name], dtype) for name, dtype in RECORDS.items()}

    def ask(self, question: Round, enough: Callable[[Sequence[int]], bool], *, offline: bool, least: int = 0) -> Answer:
        """Ask all who are there and take proper replies until they are enough, or no more will come in time."""
        letters = self._letters
        self._question = self._question + 1 if question.epoch == self._epoch else 0
        self._epoch = question.epoch
        if not question.standing:
            letters.give_up()
            self._asked.clear()
        limit = None if question.deadline is None else self._letters.clock() + question.deadline * self._scale
        costs = {device: [bits, 0, 0] for device, bits in self._send(question, self._question, 0.0, offline).items()}
        replies: dict[int, Reply] = {}
        while not enough(list(replies)):
            overdue = limit is not None and self._letters.clock() >= limit
            if overdue and len(replies) >= least:
                break
            heard = letters.hear(_soon(letters.clock(), None if overdue else limit))
            self._board.lost(letters.lost)
            self._board.show()
            if heard is not None:
                replies[heard.device] = self._reply(heard)
                if heard.device in costs:
                    costs[heard.device][1:] = heard.frame.fields["macs"], message_bits(heard.frame.arrays)
            elif not letters.open:
                break
        letters.look_after()
        self._board.lost(letters.lost)
        lost = tuple(device for device in question.requests if device in letters.lost)
        return Answer(tuple(replies.values()), _round_costs(question, costs), lost)

    def reopen(self, question: Round, began: float) -> None:
        """Put a question again that was open when the run was interrupted."""
        self._send(question, 0, self.now - began, offline=False)

    def _send(self, question: Round, number: int, earlier: float, offline: bool) -> dict[int, int]:
        """Ask everyone who is there; return what each is sent, in bits."""
        sent: dict[int, int] = {}
        fields = {"epoch": question.epoch, "question": number, "standing": question.standing, "offline": offline}
        for device, request in question.requests.items():
            if device in self._letters.lost:
                continue
            expected = None if question.expected is None else question.expected[device]
            tag, bits = self._letters.ask(device, Question("reply", fields, request, expected))
            self._asked[tag] = len(self._records["epoch"]), earlier
            row = (question.epoch, number, device, math.nan, math.nan, bits, 0, 0)
            for column, value in zip(self._records.values(), row, strict=True):
                column.append(value)
            sent[device] = message_bits(request)
        self._board.asked(sent)
        return sent

    def _reply(self, heard: Heard) -> Reply:
        row, earlier = self._asked.pop(heard.tag)
        fields, seconds = heard.frame.fields, heard.seconds / self._scale + earlier
        values = {"seconds": seconds, "working_seconds": fields["working_seconds"] / self._scale}
        for name, value in {**values, "up_bits": heard.bits, "macs": fields["macs"]}.items():
            self._records[name][row] = value
        self._board.replied(heard.device, int(self._records["epoch"][row]), *values.values())
        return Reply(heard.device, heard.frame.arrays, seconds)

    def hand_over(self, epoch: int, transfers: Sequence[Transfer], *, parallel: bool) -> list[TransferCosts]:
        """Let devices hand over; if one of them is gone, so are data, and the run cannot go on."""
        occasion = Occasion(epoch=epoch, parcels=len(transfers))
        placed = self._stages.carry(transfers, _nobody, occasion, parallel=parallel)
        if placed.lost:
            raise LostDevicesError(
                f"{self._names(placed.lost)} got lost in a hand-over after epoch {epoch}; let the run go on from its "
                "last state when all are back"
            )
        self._note(transfers, handed_over=True)
        return placed.costs

    def place(self, stage: int, transfers: Sequence[Transfer], receive: Receive) -> Placed:
        """Let devices send to each other; if one of them is gone, nothing is taken in."""
        placed = self._stages.carry(transfers, receive, Occasion(stage=stage, parcels=len(transfers)))
        self._note(() if placed.lost else transfers, handed_over=False)
        return placed

    def replay(self, transfers: Sequence[Transfer], receive: Receive | None = None) -> None:
        """Let devices send again what they had sent."""
        placed = self._stages.carry(transfers, receive or _nobody)
        if placed.lost:
            raise LostDevicesError(
                f"{self._names(placed.lost)} cannot be reached, and a run that goes on needs again what they had sent; "
                "start them and give the same command again"
            )
        self._note(transfers, handed_over=receive is None)

    def _note(self, transfers: Sequence[Transfer], *, handed_over: bool) -> None:
        """Show on the board what was sent."""
        self._board.lost(self._letters.lost)
        note = self._board.handed_over if handed_over else self._board.sent
        for transfer in transfers:
            note(transfer.sender, transfer.recipient)

    def charge_server(self, macs: int) -> None:
        """Nothing: the server's own computing takes its time by itself."""

    def _names(self, devices: Sequence[int]) -> str:
        return ", ".join(self._letters.sites[device] for device in devices)


def _soon(now: float, limit: float | None) -> float:
    """Return until when to listen before the board is looked after."""
    return now + _LOOK if limit is None else min(now + _LOOK, limit)


def _nobody(sender: int, parcel: Message) -> None:
    raise TypeError(f"device {sender} sends to a server that takes no parcels")


def _round_costs(question: Round, costs: Mapping[int, Sequence[int]]) -> RoundCosts:
    """Put together what a question cost: work and bits of those whose replies counted, as they say and as was sent."""
    rows = np.array([[device, *each] for device, each in costs.items()], dtype=np.int64).reshape(len(costs), 4)
    asked, down, macs, up = (np.ascontiguousarray(column) for column in rows.T)
    limit = math.inf if question.deadline is None else question.deadline
    return RoundCosts(asked, down, macs, up, len(costs), 0, deadline=limit, standing=question.standing)
