"""Virtual time: devices compute for real, one by one, and the delay model says how long it would have taken."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import final

import numpy as np

from codedfl.delays import DelayModel, RoundCosts, TransferCosts, VirtualClock, stage_seconds
from codedfl.engines.contract import Answer, Engine, Placed, Reply
from codedfl.schemes.contract import Device, Message, Round, SharingDevice, Transfer, Work, message_bits

__all__ = ["VirtualEngine", "move"]


def move(devices: Sequence[Device], transfer: Transfer) -> TransferCosts:
    """Let one device export and another absorb, and count what that takes."""
    sender, recipient = devices[transfer.sender], devices[transfer.recipient]
    if not isinstance(sender, SharingDevice) or not isinstance(recipient, SharingDevice):
        raise TypeError(f"a transfer from {type(sender).__name__} to {type(recipient).__name__} needs sharing devices")
    exporting, absorbing = Work(), Work()
    parcel = sender.export(transfer.grant, exporting)
    recipient.absorb(parcel, absorbing)
    return TransferCosts(
        transfer.sender,
        transfer.recipient,
        grant_bits=message_bits(transfer.grant),
        export_macs=exporting.macs,
        parcel_bits=message_bits(parcel),
        absorb_macs=absorbing.macs,
    )


@final
class VirtualEngine(Engine):
    """Runs in one process; the same seed and draw give the same times.

    A device whose reply nobody awaits any more drops that work when the next round begins. ``last_epochs`` says after
    which epoch a device is gone for good.
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
        self._clock: VirtualClock[Reply] = VirtualClock(now)

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._clock.now

    def ask(self, question: Round, enough: Callable[[Sequence[int]], bool], *, offline: bool) -> Answer:
        """Let every asked device compute, then hand over the replies in the order in which they would arrive."""
        self._epoch = question.epoch
        present, lost = self._present(question)
        messages, costs = self._compute(present, offline)
        chance = self._delays.chance(self._seed, question.epoch, self._draw, 1)
        seconds = self._delays.reply_seconds(costs, chance)[0]
        for device, delay in zip(costs.asked, seconds, strict=True):
            self._clock.schedule(float(delay), Reply(int(device), messages[int(device)], float(delay)))
        replies: list[Reply] = []
        arrived: list[int] = []
        while len(self._clock) and not enough(arrived):
            replies.append(self._clock.next())
            arrived.append(replies[-1].device)
        self._clock.forget()
        return Answer(tuple(replies), costs, lost)

    def _present(self, question: Round) -> tuple[Round, tuple[int, ...]]:
        lost = tuple(
            device for device in question.requests if self._last_epochs.get(device, question.epoch) < question.epoch
        )
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

    def place(self, stage: int, transfers: Sequence[Transfer]) -> Placed:
        """Move the data for real, and let the time pass that it would have taken; nothing if a device is gone."""
        parties = {device for transfer in transfers for device in (transfer.sender, transfer.recipient)}
        lost = tuple(device for device in sorted(parties) if self._last_epochs.get(device, np.inf) <= self._epoch)
        if lost:
            return Placed([], lost)
        costs = [move(self._devices, transfer) for transfer in transfers]
        seconds = stage_seconds(self._delays, stage, costs, seed=self._seed, first=self._draw, draws=1)
        self._clock.advance(float(seconds[0]))
        return Placed(costs)

    def replay(self, transfers: Sequence[Transfer]) -> None:
        """Move the data again, as it was moved before."""
        for transfer in transfers:
            move(self._devices, transfer)

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
        return messages, RoundCosts(asked, down_bits, mac_counts, up_bits, quorum=len(asked), server_macs=0)
