"""The engine of deployments: real sites behind a carrier, real time."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import final

import numpy as np
from jaxtyping import Shaped

from codedfl.deploy.protocol.keeping import HOLDS, KEEP, RECALL, SessionSecret
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel, SiteReply, SiteRequest
from codedfl.deploy.server.stages import HasAccepted, OverlappingExchange, Seal, StageExchange
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.engines.contract import LATE_ROUNDS, Answer, Engine, Receive, Reply, StageOutcome
from codedfl.errors import LostDevicesError, ReturnedDevicesError
from codedfl.network import RoundCosts
from codedfl.schemes.contract import SERVER, Round, Stage
from codedfl.schemes.messages import Message, message_bits

_COLUMNS = ("epoch", "question", "device", "seconds", "working_seconds", "down_bits", "up_bits", "macs")
RECORDS = {name: np.dtype("float64" if name.endswith("seconds") else "int64") for name in _COLUMNS}
"""Columns, one row per request and device: bits as transmitted, seconds NaN without an accepted reply."""

Order = Callable[[Sequence[Stage], int], Sequence[int] | None]
"""Takes stages that overlap and the number of the first; returns the order of their parcels, numbered through."""

SET_UP = "setting up"
"""What the board shows while the parcels before the first round are on their way."""

_BOARD_SECONDS = 1.0
"""Seconds between updates of the board while no reply arrives."""


@final
class RemoteEngine(Engine):
    """Asks sites over a channel; seconds are real ones divided by ``time_scale``.

    With ``one_at_a_time`` sites emulate one channel for all direct parcels. ``now`` and ``records`` are those
    of a resumed run. ``seal`` encrypts grants; without it they are sent as they are. ``has_accepted`` checks receipts
    of parcels. ``secret`` opens what sites keep across sessions. ``returned`` tells which lost devices are back, for
    another session with them. ``order`` is that of parcels on emulated links, if stages overlap.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        now: float = 0.0,
        time_scale: float = 1.0,
        one_at_a_time: bool = False,
        records: Mapping[str, Shaped[np.ndarray, "..."]] | None = None,
        board: Board | None = None,
        seal: Seal = lambda device, fields, grants: grants,
        has_accepted: HasAccepted = lambda *told: False,
        secret: SessionSecret | None = None,
        returned: Callable[[], Sequence[int]] = lambda: (),
        order: Order = lambda stages, first: None,
    ) -> None:
        self._channel = channel
        self._secret = secret
        self._returned = returned
        self._order = order
        self._seal = seal
        self._has_accepted = has_accepted
        self._board = board or Board(channel.sites)
        self._stages = 0
        """Stages so far, those that were repeated included."""
        self._scale = time_scale
        self._one_at_a_time = one_at_a_time
        self._began = self._channel.clock() - now * time_scale
        self._epoch, self._question = 0, 0
        self._asked: dict[int, tuple[int, float, bool]] = {}
        self._checkable: dict[int, Round] = {}
        """By request: rounds whose late replies check others."""
        self._waiting: list[tuple[Round, Reply]] = []
        self._records = {name: array("d", np.asarray(records[name]).tolist() if records else ()) for name in RECORDS}
        """Eight bytes a value, because a run of many epochs has many: whole numbers below 2^53 are exact."""

    @property
    def now(self) -> float:
        """Seconds since the start of the run, without interruptions."""
        return (self._channel.clock() - self._began) / self._scale

    @property
    def records(self) -> dict[str, Shaped[np.ndarray, "rows"]]:
        """The columns of ``RECORDS``."""
        return {name: np.array(self._records[name], dtype) for name, dtype in RECORDS.items()}

    def ask(self, question: Round, *, offline: bool) -> Answer:
        """Ask all reachable devices and collect valid replies until they are enough or the deadline passes."""
        channel = self._channel
        if question.epoch > self._epoch > 0 and (back := self._returned()):
            names = ", ".join(channel.sites[device] for device in back)
            raise ReturnedDevicesError(f"{names} can be asked again from epoch {question.epoch} on; resume the run")
        # sites refuse rounds of earlier epochs: an epoch that is computed again is a further round of the newest
        self._question = self._question + 1 if question.epoch <= self._epoch else 0
        self._epoch = max(self._epoch, question.epoch)
        if not question.standing:
            self._stop_waiting()
            self._asked.clear()
        limit = None if question.deadline is None else channel.clock() + question.deadline * self._scale
        costs = {device: [bits, 0, 0] for device, bits in self._send(question, self._question, 0.0, offline).items()}
        replies: dict[int, Reply] = {}
        while len(replies) < question.quorum:
            overdue = limit is not None and channel.clock() >= limit
            if overdue and len(replies) >= question.least:
                break
            soon = channel.clock() + _BOARD_SECONDS
            reply = channel.receive(soon if overdue or limit is None else min(soon, limit))
            self._returned()  # what is lost is brought back from now on, and let in before the next epoch
            self._board.lost(channel.lost)
            self._board.show()
            if reply is not None:
                replies[reply.device] = self._reply(reply)
                if reply.device in costs:
                    costs[reply.device][1:] = reply.frame.fields["macs"], message_bits(reply.frame.arrays)
            elif not channel.open:
                break
        channel.poll()
        self._board.lost(channel.lost)
        lost = tuple(device for device in question.requests if device in channel.lost)
        found = _round_costs(question, costs)
        return Answer(tuple(replies.values()), found.uploads if offline else found, lost)

    def _stop_waiting(self) -> None:
        """Await no more replies to earlier rounds; keep those that check others."""
        channel = self._channel
        if not self._checkable:
            channel.discard_open()
            return
        self._waiting += self._late()
        channel.stop_waiting(LATE_ROUNDS * len(channel.sites))
        recent = list(dict.fromkeys(map(id, self._checkable.values())))[-LATE_ROUNDS:]
        self._checkable = {tag: question for tag, question in self._checkable.items() if id(question) in recent}

    def late(self, *, wait: bool = False) -> Sequence[tuple[Round, Reply]]:
        """Return late replies that have arrived; with ``wait``, await one more to the last round."""
        if not self._checkable:
            return ()
        found, self._waiting = [*self._waiting, *self._late()], []
        last = next(reversed(self._checkable.values()))
        if wait and not any(question is last for question, _ in found):
            reply = self._channel.receive(None)
            self._board.lost(self._channel.lost)
            if reply is not None and reply.tag in self._checkable:
                found.append((self._checkable[reply.tag], self._reply(reply)))
        return found

    def _late(self) -> list[tuple[Round, Reply]]:
        found = [(self._checkable.get(reply.tag), reply) for reply in self._channel.late()]
        return [
            (question, Reply(reply.device, reply.frame.arrays, reply.seconds / self._scale))
            for question, reply in found
            if question is not None
        ]

    def drop(self, device: int, reason: str) -> None:
        """Ask a device nothing more."""
        self._channel.mark_lost(device, reason)
        self._board.lost(self._channel.lost)

    def reopen(self, question: Round, began: float) -> None:
        """Repeat a request that was open when the run was interrupted."""
        self._send(question, 0, self.now - began, offline=False)

    def _send(self, question: Round, number: int, earlier: float, offline: bool) -> dict[int, int]:
        """Ask all devices that are not lost; return the bits sent to each."""
        sent: dict[int, int] = {}
        epoch = max(question.epoch, self._epoch)
        fields = {"epoch": epoch, "question": number, "standing": question.standing, "offline": offline}
        for device, request in question.requests.items():
            if device in self._channel.lost:
                continue
            expected = None if question.expected is None else question.expected[device]
            tag, bits = self._channel.ask(device, SiteRequest("reply", fields, request, expected))
            self._asked[tag] = len(self._records["epoch"]), earlier, offline
            if question.needed is not None:
                self._checkable[tag] = question
            row = (question.epoch, number, device, math.nan, math.nan, bits, 0, 0)
            for column, value in zip(self._records.values(), row, strict=True):
                column.append(value)
            sent[device] = message_bits(request)
        self._board.asked(sent)
        return sent

    def _reply(self, reply: SiteReply) -> Reply:
        row, earlier, offline = self._asked.pop(reply.tag)
        fields, seconds = reply.frame.fields, reply.seconds / self._scale + earlier
        values = {"seconds": seconds, "working_seconds": fields["working_seconds"] / self._scale}
        for name, value in {**values, "up_bits": reply.bits, "macs": fields["macs"]}.items():
            self._records[name][row] = value
        self._board.replied(reply.device, int(self._records["epoch"][row]), *values.values())
        beforehand = fields.get("offline_seconds", 0) / self._scale if offline else 0.0
        return Reply(reply.device, reply.frame.arrays, seconds, beforehand)

    def carry(self, stage: Stage, number: int, receive: Receive) -> StageOutcome:
        """Carry out a stage; a device lost in a hand-over loses data, so the run stops."""
        which = {"epoch": number} if stage.retires else {"stage": number}
        outcome = self._carry(stage, receive, TransferEvent(**which, parcels=len(stage.transfers)))
        if outcome.lost and stage.retires:
            names = ", ".join(self._channel.sites[device] for device in outcome.lost)
            raise LostDevicesError(f"{names} got lost in a hand-over after epoch {number}; resume when all are back")
        return outcome

    def carry_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> Sequence[StageOutcome]:
        """Carry out stages that may overlap; if a device gets lost, none counts."""
        if not _direct(stages):
            return super().carry_overlapping(stages, first, receive)
        return self._overlap(stages, first, emulated=True)

    def replay(self, stage: Stage, receive: Receive) -> None:
        """Repeat a stage of an interrupted run."""
        self._check_replayed(self._carry(stage, receive, None))

    def replay_overlapping(self, stages: Sequence[Stage], first: int, receive: Receive) -> None:
        """Repeat stages of an interrupted run that may overlap."""
        if len(stages) == 1 or not _direct(stages):
            super().replay_overlapping(stages, first, receive)
            return
        for outcome in self._overlap(stages, first, emulated=False):
            self._check_replayed(outcome)

    def _check_replayed(self, outcome: StageOutcome) -> None:
        if outcome.lost:
            names = ", ".join(self._channel.sites[device] for device in outcome.lost)
            raise LostDevicesError(f"{names} cannot be reached, and a resumed run needs their parcels; start them")

    @property
    def lost(self) -> Set[int]:
        """Devices that are asked nothing."""
        return set(self._channel.lost)

    def keep(self, own: Message, devices: Iterable[int], *, anew: bool) -> None:
        """Let sites keep what they hold, under a key that only the server stores."""
        if self._secret is None or not own:
            return
        if anew:
            self._secret.draw(own)
        if self._secret.drawn:
            self._ask_kept(KEEP, devices)

    def kept(self) -> tuple[Message, Sequence[int]]:
        """Read what the server has kept, and ask sites whether they have."""
        own = {} if self._secret is None else self._secret.read()
        return own, self._ask_kept(HOLDS, range(len(self._channel.sites))) if own else ()

    def recall(self, devices: Sequence[int]) -> None:
        """Let sites take again what they have kept."""
        failed = set(devices) - set(self._ask_kept(RECALL, devices))
        if failed:
            names = ", ".join(self._channel.sites[device] for device in sorted(failed))
            raise LostDevicesError(f"{names} cannot use the parcels that they have kept; resume again")

    def _ask_kept(self, verb: str, devices: Iterable[int]) -> list[int]:
        """Send sites the key of what they keep, and ask for something; return which have done it."""
        if self._secret is None:
            return []
        self._stages += 1
        fields, requests = {"stage": self._stages, "verb": verb}, {}
        for device in set(devices) - self.lost:
            key = self._secret.key_of(self._channel.sites[device])
            requests[device] = SiteRequest("keep", fields, self._seal(device, fields, key))
        answers = self._channel.ask_all(requests)
        self._board.lost(self._channel.lost)
        return sorted(device for device, reply in answers.items() if reply.frame.fields.get("done") is True)

    def _carry(self, stage: Stage, receive: Receive, event: TransferEvent | None) -> StageOutcome:
        """Carry out a stage and show its transfers on the board."""
        self._begin_stages()
        exchange = StageExchange(
            self._channel, self._stages, stage, event, self._seal, one_at_a_time=self._one_at_a_time
        )
        outcome = exchange.carry(receive)
        self._show(stage, outcome)
        return outcome

    def _overlap(self, stages: Sequence[Stage], first: int, *, emulated: bool) -> Sequence[StageOutcome]:
        """Carry out stages that overlap and show their transfers on the board."""
        self._begin_stages()
        exchange = OverlappingExchange(
            self._channel,
            self._stages,
            stages,
            first,
            self._seal,
            self._has_accepted,
            emulated=emulated,
            order=self._order(stages, first) if emulated else None,
            one_at_a_time=self._one_at_a_time,
        )
        outcomes = exchange.carry()
        for stage, outcome in zip(stages, outcomes, strict=False):
            self._show(stage, outcome)
        return outcomes

    def _begin_stages(self) -> None:
        """Count a stage, and show that sites are being set up if none was asked in a round yet."""
        self._stages += 1
        if not self._epoch:
            self._board.progress(SET_UP, 0, 0)

    def _show(self, stage: Stage, outcome: StageOutcome) -> None:
        """Show a stage on the board."""
        self._board.lost(self._channel.lost)
        note = self._board.handed_over if stage.retires else self._board.sent
        for transfer in () if outcome.lost else stage.transfers:
            note(transfer.sender, transfer.recipient)

    def charge_server(self, macs: int) -> None:
        """Do nothing: the server's computing takes real time."""


def _direct(stages: Sequence[Stage]) -> bool:
    """Return whether all parcels go from device to device."""
    return not any(each.relayed or each.recipient == SERVER for stage in stages for each in stage.transfers)


def _round_costs(question: Round, costs: Mapping[int, Sequence[int]]) -> RoundCosts:
    """Return the costs of a round: work and bits of the devices whose replies counted."""
    rows = np.array([[device, *each] for device, each in costs.items()], dtype=np.int64).reshape(len(costs), 4)
    asked, down, macs, up = (np.ascontiguousarray(column) for column in rows.T)
    limit = math.inf if question.deadline is None else question.deadline
    return RoundCosts(asked, down, macs, up, len(costs), 0, deadline=limit, standing=question.standing)
