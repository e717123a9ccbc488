"""Virtual time: devices compute for real, one by one, and the delay model says how long it would have taken."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import final

import numpy as np

from codedfl.engines.contract import Answer, Engine, Placed, Receive, Reply
from codedfl.network import DelayModel, RoundCosts, TransferCosts, VirtualClock, stage_seconds
from codedfl.schemes.contract import SERVER, Device, Message, Round, SharingDevice, Transfer, Work, message_bits

__all__ = ["VirtualEngine", "move"]


def _nobody(sender: int, parcel: Message) -> None:
    raise TypeError(f"device {sender} sends to a server that takes no parcels")


def move(devices: Sequence[Device], transfer: Transfer, receive: Receive = _nobody) -> TransferCosts:
    """Let one device export and another (or the server) take in, and count what that takes."""
    exporting, absorbing = Work(), Work()
    parcel = _sharing(devices, transfer.sender).export(transfer.grant, exporting)
    if transfer.recipient == SERVER:
        receive(transfer.sender, parcel)
    else:
        _sharing(devices, transfer.recipient).absorb(parcel, absorbing)
    return TransferCosts(
        transfer.sender,
        transfer.recipient,
        grant_bits=message_bits(transfer.grant),
        export_macs=exporting.macs,
        parcel_bits=message_bits(parcel),
        absorb_macs=absorbing.macs,
        relayed=transfer.relayed,
    )


def _sharing(devices: Sequence[Device], number: int) -> SharingDevice:
    device = devices[number]
    if not isinstance(device, SharingDevice):
        raise TypeError(f"a transfer needs sharing devices, and {type(device).__name__} is none")
    return device


@final
class VirtualEngine(Engine):
    """Runs in one process; the same seed and draw give the same times.

    A device whose reply nobody awaits any more drops that work when the next round begins, unless that one leaves
    earlier questions open. ``last_epochs`` says after which epoch a device is gone for good.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        delays: DelayModel,
        *,
        seed: int,
        draw: int,
        now: float = 0.0,
        last_epochs: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._devices = devices
        self._delays = delays
        self._seed = seed
        self._draw = draw
        self._last_epochs = last_epochs
        self._epoch = 0
        self._question = 0
        self._clock: VirtualClock[Reply] = VirtualClock(now)

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._clock.now

    def ask(self, question: Round, enough: Callable[[Sequence[int]], bool], *, offline: bool, least: int = 0) -> Answer:
        """Let every asked device compute, then hand over the replies in the order in which they would arrive."""
        self._question = self._question + 1 if question.epoch == self._epoch else 0
        self._epoch = question.epoch
        if not question.standing:
            self._clock.forget()
        present, lost = self._present(question)
        costs = self._send(present, self._question, self._clock.now, offline=offline)
        limit = math.inf if question.deadline is None else self._clock.now + question.deadline
        replies: list[Reply] = []
        arrived: list[int] = []
        while (waiting := not enough(arrived)) and len(self._clock):
            if len(arrived) >= least and self._clock.due > limit:
                break
            reply = self._clock.next()
            if not self._gone(reply.device):
                replies.append(reply)
                arrived.append(reply.device)
        if waiting and math.isfinite(limit):
            self._clock.advance(max(0.0, limit - self._clock.now))
        return Answer(tuple(replies), costs, lost)

    def reopen(self, question: Round, began: float) -> None:
        """Let the asked devices compute again, and their replies arrive when they would have arrived."""
        self._send(question, 0, began, offline=False)

    def _send(self, question: Round, number: int, began: float, *, offline: bool) -> RoundCosts:
        messages, costs = self._compute(question, offline)
        chance = self._delays.chance(self._seed, question.epoch, self._draw, 1, number)
        seconds = self._delays.reply_seconds(costs, chance)[0]
        for device, delay in zip(costs.asked, seconds, strict=True):
            reply = Reply(int(device), messages[int(device)], float(delay))
            self._clock.schedule_at(began + float(delay), reply)
        return costs

    def _gone(self, device: int) -> bool:
        return self._last_epochs.get(device, self._epoch) < self._epoch

    def _present(self, question: Round) -> tuple[Round, tuple[int, ...]]:
        lost = tuple(device for device in question.requests if self._gone(device))
        if not lost:
            return question, ()
        requests = {device: request for device, request in question.requests.items() if device not in lost}
        return dataclasses.replace(question, requests=requests), lost

    def hand_over(self, epoch: int, transfers: Sequence[Transfer], *, parallel: bool) -> list[TransferCosts]:
        """Move the data for real, and let the time pass that it would have taken."""
        costs = [move(self._devices, transfer) for transfer in transfers]
        chance = self._delays.transfer_chance(self._seed, epoch, self._draw, 1)
        steps = self._delays.transfer_steps(costs, chance, 0, parallel=parallel)
        self._clock.advance(max((step.end for step in steps), default=0.0))
        return costs

    def place(self, stage: int, transfers: Sequence[Transfer], receive: Receive = _nobody) -> Placed:
        """Move the data for real, and let the time pass that it would have taken; nothing if a device is gone."""
        parties = {device for transfer in transfers for device in (transfer.sender, transfer.recipient)}
        lost = tuple(device for device in sorted(parties) if self._last_epochs.get(device, np.inf) <= self._epoch)
        if lost:
            return Placed([], lost)
        costs = [move(self._devices, transfer, receive) for transfer in transfers]
        seconds = stage_seconds(self._delays, stage, costs, seed=self._seed, first=self._draw, draws=1)
        self._clock.advance(float(seconds[0]))
        return Placed(costs)

    def replay(self, transfers: Sequence[Transfer], receive: Receive | None = None) -> None:
        """Move the data again, as it was moved before."""
        for transfer in transfers:
            move(self._devices, transfer, receive or _nobody)

    def charge_server(self, macs: int) -> None:
        """Let the server's own computing take its time."""
        self._clock.advance(self._delays.server_seconds(macs))

    def _compute(self, question: Round, offline: bool) -> tuple[dict[int, Message], RoundCosts]:
        messages: dict[int, Message] = {}
        macs = []
        for device, request in question.requests.items():
            work = Work()
            messages[device] = self._devices[device].reply(question.epoch, request, work)
            macs.append(0 if offline else work.macs)
        asked = np.array(list(question.requests), dtype=np.int64)
        down = [0 if offline else message_bits(request) for request in question.requests.values()]
        up = [message_bits(messages[device]) for device in question.requests]
        down_bits, mac_counts, up_bits = (np.array(column, dtype=np.int64) for column in (down, macs, up))
        limit = math.inf if question.deadline is None else question.deadline
        costs = RoundCosts(
            asked,
            down_bits,
            mac_counts,
            up_bits,
            quorum=len(asked),
            server_macs=0,
            deadline=limit,
            standing=question.standing,
        )
        return messages, costs
