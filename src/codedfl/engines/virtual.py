"""Virtual time: devices compute for real, one by one, and the delay model says how long it would have taken."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.engines.contract import LATE_ROUNDS, Answer, Engine, Receive, Reply, StageOutcome
from codedfl.network import (
    Clock,
    DelayModel,
    Draws,
    OverlappingStage,
    RoundCosts,
    TransferCosts,
    TransferTable,
)
from codedfl.schemes.contract import SERVER, Device, Round, Stage, Transfer
from codedfl.schemes.messages import Message, Work, message_bits, payloads


def move(devices: Sequence[Device], transfer: Transfer, receive: Receive) -> TransferCosts:
    """Let one device export and another (or the server) take in, and count what that takes."""
    exporting, absorbing = Work(), Work()
    owners = devices[transfer.sender].owners(transfer.grant)
    parcel = devices[transfer.sender].export(transfer.grant, exporting)
    if transfer.recipient == SERVER:
        receive(transfer.sender, parcel)
    else:
        devices[transfer.recipient].absorb_from(transfer.sender, parcel, absorbing, owners)
    return TransferCosts(
        transfer.sender,
        transfer.recipient,
        grant_bits=message_bits(transfer.grant),
        export_macs=exporting.macs,
        parcel_bits=message_bits(parcel),
        absorb_macs=absorbing.macs,
        relayed=transfer.relayed,
        export_beforehand=exporting.beforehand,
        absorb_beforehand=absorbing.beforehand,
    )


def _moved_together(
    devices: Sequence[Device], stages: Sequence[Stage], first: int, receive: Receive
) -> list[TransferTable]:
    """Move the parcels of stages numbered from ``first``, and return what each stage costs.

    Stages that wait for none of each other are moved sender by sender, so that no more devices than necessary hold
    parcels that are ready and not sent.
    """
    costs = [np.zeros((0, 0), np.int64)] * len(stages)
    for together in _waves(stages, first):
        if len(together) == 1:
            (number,) = together
            costs[number] = TransferTable.of(move(devices, each, receive) for each in stages[number].transfers).rows
            continue
        waiting = [(each.sender, n, i) for n in together for i, each in enumerate(stages[n].transfers)]
        order = {each: place for place, each in enumerate(sorted(waiting))}
        moved = TransferTable.of(move(devices, stages[n].transfers[i], receive) for _, n, i in order).rows
        for number in together:
            places = [order[each] for each in waiting if each[1] == number]
            costs[number] = moved[:, places]
    return [TransferTable(rows) for rows in costs]


def _waves(stages: Sequence[Stage], first: int) -> list[list[int]]:
    """Group stages by how many others, one waiting for the other, come before them."""
    depth: list[int] = []
    for stage in stages:
        before = range(len(depth)) if stage.after is None else (each - first for each in stage.after)
        depth.append(1 + max((depth[each] for each in before if each >= 0), default=-1))
    return [[n for n, each in enumerate(depth) if each == level] for level in range(max(depth, default=-1) + 1)]


@final
class VirtualEngine(Engine):
    """Runs in one process; the same seed and draw give the same times.

    The time of a round is that of devices which drop work that nobody awaits any more when the next round begins,
    unless that one leaves earlier questions open. Replies that check others are sent nevertheless: they arrive late, in
    idle time, and delay nothing. ``last_epochs`` says after which epoch a device is gone for good.
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
        self._last_epochs = last_epochs
        self._epoch = 0
        self._question = 0
        self._clock = Clock(Draws(delays, seed=seed, first=draw), now)
        self._open: dict[int, Reply] = {}
        self._late: deque[list[tuple[Round, Reply, float]]] = deque(maxlen=LATE_ROUNDS)

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return float(self._clock.now[0])

    def ask(self, question: Round, *, offline: bool) -> Answer:
        """Let every asked device compute, then return the replies in the order in which they would arrive."""
        self._question = self._question + 1 if question.epoch == self._epoch else 0
        self._epoch = question.epoch
        if not question.standing:
            self._open.clear()
        gone = [device for device, last in self._last_epochs.items() if last < self._epoch]
        if gone:
            self._clock.drop(gone)
        present = {device: request for device, request in question.requests.items() if device not in gone}
        began = self.now
        messages, counted = self._compute(question, present)
        costs = counted.uploads if offline else counted
        seconds = self._clock.ask(self._epoch, self._question, costs)
        arrived = self._clock.arrived[0].tolist()
        self._keep(messages, seconds)
        if offline:
            took = self._clock.durations(self._epoch, self._question, counted.computing)[0].tolist()
            for device, before in zip(messages, took, strict=True):
                self._open[device] = replace(self._open[device], offline_seconds=before)
        replies = tuple(map(self._open.pop, arrived))
        if question.needed is not None:
            self._late.append([(question, reply, began + reply.seconds) for reply in self._open.values()])
        return Answer(replies, costs, tuple(device for device in question.requests if device in gone))

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        """Return the late replies that would have arrived by now; with ``wait`` all of them."""
        found, until = [], math.inf if wait else self.now
        for replies in self._late:
            found += [(question, reply) for question, reply, due in replies if due <= until]
            replies[:] = [each for each in replies if each[2] > until]
        return found

    def reopen(self, question: Round, began: float) -> None:
        """Let the asked devices compute again, and their replies arrive when they would have arrived."""
        messages, costs = self._compute(question, question.requests)
        self._keep(messages, self._clock.open(question.epoch, 0, costs, np.array([began])))

    def _keep(self, messages: Mapping[int, Message], seconds: Float[np.ndarray, "1 asked"]) -> None:
        for (device, message), delay in zip(messages.items(), seconds[0].tolist(), strict=True):
            self._open[device] = Reply(device, message, delay)

    def _compute(self, question: Round, requests: Mapping[int, Message]) -> tuple[dict[int, Message], RoundCosts]:
        """Let devices reply, and count what it takes."""
        messages: dict[int, Message] = {}
        macs = []
        for device, request in requests.items():
            work = Work()
            messages[device] = self._devices[device].reply(question.epoch, request, work)
            macs.append(work.macs)
        bits = payloads([*requests.values(), *messages.values()])
        down, up = bits[: len(requests)], bits[len(requests) :]
        columns = (list(requests), down, macs, up)
        deadline = math.inf if question.deadline is None else question.deadline
        asked, down_bits, counts, up_bits = np.array(columns, dtype=np.int64)
        waiting = (question.quorum, 0, question.least, deadline, question.standing)
        return messages, RoundCosts(asked, down_bits, counts, up_bits, *waiting)

    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        """Move the data for real, and let the time pass that it would have taken."""
        if lost := self._lost(stage):
            return StageOutcome([], lost)
        (costs,) = _moved_together(self._devices, [stage], number, receive)
        if stage.retires:
            self._clock.hand_over(number, [costs], parallel=stage.parallel)
        else:
            self._clock.stages([OverlappingStage(number, costs)])
        return StageOutcome(costs)

    def carry_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> Sequence[StageOutcome]:
        """Move the data for real, and let the time pass that it would have taken."""
        missing = [self._lost(stage) for stage in stages]
        whole = next((number for number, lost in enumerate(missing) if lost), len(stages))
        outcomes = [StageOutcome(table) for table in _moved_together(self._devices, stages[:whole], first, receive)]
        if whole < len(stages):
            return [*outcomes, StageOutcome([], missing[whole])]
        timed = enumerate(zip(stages, outcomes, strict=True), start=first)
        self._clock.stages([OverlappingStage(number, each.costs, stage.after or ()) for number, (stage, each) in timed])
        return outcomes

    def _lost(self, stage: Stage) -> tuple[int, ...]:
        """Return the devices of a stage of set-up or repair that are gone."""
        gone = {device for device, last in self._last_epochs.items() if last <= self._epoch}
        if not gone or stage.retires:
            return ()
        return tuple(
            sorted(gone & {each for transfer in stage.transfers for each in (transfer.sender, transfer.recipient)})
        )

    def replay(self, stage: Stage, receive: Receive) -> None:
        """Move the data again, as it was moved before."""
        self.replay_overlapping([stage], 0, receive)

    def replay_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> None:
        """Move the data again, as it was moved before."""
        _moved_together(self._devices, stages, first, receive)

    def charge_server(self, macs: int) -> None:
        """Let the server's own computing take its time."""
        self._clock.charge(macs)
