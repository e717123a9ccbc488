"""Many timing draws of a training that shares data: who leaves when differs from draw to draw, the model does not.

What a reply and a hand-over cost was measured on the arrays of the real run; a draw replays the sharing policy on
random delays, for all draws side by side.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from codedfl.engines.virtual import move
from codedfl.network import Chance, DelayModel, RoundCosts, TransferChance, TransferCosts, stage_seconds
from codedfl.schemes import (
    Device,
    Handover,
    Message,
    PlacingServer,
    Round,
    SharingPolicy,
    SharingScheme,
    SharingServer,
    Work,
    message_bits,
)
from codedfl.task import Problem

__all__ = ["SharedCosts", "Variant", "measure", "shared_seconds"]


@dataclass(frozen=True, eq=False)
class SharedCosts:
    """What the first epoch, any other epoch, a fresh hand-over and a forwarding cost.

    Where an epoch has several questions, or costs depend on how many devices are active, ``by_active`` tells them.
    """

    first: RoundCosts
    other: RoundCosts
    granted: TransferCosts
    forwarded: TransferCosts
    by_active: Callable[[int], Sequence[RoundCosts]] | None = None

    def questions(self, active: int) -> Sequence[RoundCosts]:
        """Return the costs of the questions of an epoch after the first, each told for all devices."""
        return (self.other,) if self.by_active is None else self.by_active(active)

    def of(self, handover: Handover) -> TransferCosts:
        """Return the costs of a hand-over."""
        kind = self.forwarded if handover.support is None else self.granted
        return dataclasses.replace(kind, sender=handover.sender, recipient=handover.recipient)


def measure(scheme: SharingScheme[Any], problem: Problem, *, first_offline: bool) -> SharedCosts:
    """Let three devices of their own reply and hand over for real, and count what it takes."""
    shard = problem.shards[0]
    # a fleet of three of its own: the real one may be smaller, and must not be touched
    probe = type(scheme)(dataclasses.replace(scheme.public, samples=(shard.samples,) * 3), scheme.options)
    devices = [probe.device(number, shard) for number in range(3)]
    server = probe.server()
    if not isinstance(server, SharingServer):
        raise TypeError(f"{type(server).__name__} does not share")
    if isinstance(server, PlacingServer):
        for transfer in chain.from_iterable(server.stages()):
            move(devices, transfer, server.receive)
    first, _ = _round_costs(scheme, devices, server, server.broadcast(1, np.ones(problem.shape)), 0)
    granted, forwarded = (move(devices, transfer) for transfer in server.resume([(1, 0, 0), (0, 2, None)], {}))
    # the server's work may grow with the first hand-over; the few operations before it are charged as after it
    other, reply = _round_costs(scheme, devices, server, server.broadcast(2, np.ones(problem.shape)), 2)
    questions = partial(scheme.questions, alone=other, reply=reply)
    return SharedCosts(_offline(first) if first_offline else first, other, granted, forwarded, questions)


def _round_costs(
    scheme: SharingScheme[Any], devices: Sequence[Device], server: SharingServer, question: Round, device: int
) -> tuple[RoundCosts, Message]:
    work, combining = Work(), Work()
    request = question.requests[device]
    reply = devices[device].reply(question.epoch, request, work)
    server.combine(question.epoch, {device: reply}, combining)
    everyone = question.epoch > 1 or len(question.requests) == len(devices)
    each = np.ones(scheme.public.devices if everyone else 1, dtype=np.int64)
    costs = (message_bits(request) * each, work.macs * each, message_bits(reply) * each)
    return RoundCosts(np.arange(len(each)), *costs, quorum=len(each), server_macs=combining.macs), reply


def _offline(costs: RoundCosts) -> RoundCosts:
    return dataclasses.replace(costs, down_bits=0 * costs.down_bits, macs=0 * costs.macs)


@dataclass(frozen=True, eq=False)
class Variant:
    """A way to share: what it costs, and the policy at its beginning."""

    costs: SharedCosts
    policy: Callable[[], SharingPolicy]
    parallel: bool = False
    set_up: Sequence[Sequence[TransferCosts]] = ()
    """What was sent before the first epoch, stage by stage."""


class _Fleet:
    """All draws of one variant, side by side."""

    def __init__(self, variant: Variant, delays: DelayModel, draws: int) -> None:
        self._variant = variant
        self._delays = delays
        self._policies = [variant.policy() for _ in range(draws)]
        self._active = np.ones((draws, delays.devices), bool)
        self._forwards = np.zeros((draws, delays.devices), bool)
        self._grants = np.array([policy.may_grant for policy in self._policies])
        self.now = np.zeros(draws)

    def groups(self) -> list[tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]]:
        """Return the questions that an epoch has, and in which draws it has them."""
        counts = self._active.sum(axis=1)
        found: dict[Any, tuple[Sequence[RoundCosts], Bool[np.ndarray, "draws"]]] = {}
        for count in np.unique(counts):
            questions = self._variant.costs.questions(int(count))
            key = tuple(costs.key() for costs in questions)
            before = found[key][1] if key in found else False
            found[key] = questions, before | (counts == count)
        return list(found.values())

    def finish(
        self, replies: Float[np.ndarray, "draws n"], costs: RoundCosts, rows: Bool[np.ndarray, "draws"] | bool = True
    ) -> None:
        """Let a question end with the last active device's reply; where not all are asked, with the last asked one's.

        ``rows`` are the draws that have this question.
        """
        awaited = self._active if replies.shape[1] == self._active.shape[1] else True
        last = np.max(replies, axis=1, initial=0, where=awaited)
        self.now = np.where(rows, self.now + last + self._delays.server_seconds(costs.server_macs), self.now)

    def share(self, replies: Float[np.ndarray, "draws n"], chance: Callable[[], TransferChance]) -> None:
        """Let stragglers hand over; draws in which the policy cannot move anything are passed over."""
        fastest = np.min(replies, axis=1, initial=np.inf, where=self._active)
        straggling = self._active & (replies > (fastest + self._policies[0].delta)[:, None])
        acting = straggling.any(axis=1) & (self._grants | (straggling & self._forwards).any(axis=1))
        for draw in np.flatnonzero(acting):
            self._share(int(draw), replies[draw], chance())

    def _share(self, draw: int, replies: Float[np.ndarray, "n"], chance: TransferChance) -> None:
        policy = self._policies[draw]
        decision = policy.after_epoch({device: float(replies[device]) for device in policy.active})
        transfers = [self._variant.costs.of(handover) for handover in decision.handovers]
        steps = self._delays.transfer_steps(transfers, chance, draw, parallel=self._variant.parallel)
        self.now[draw] += max((step.end for step in steps), default=0.0)
        self._active[draw] = False
        self._active[draw, list(policy.active)] = True
        self._forwards[draw] = False
        self._forwards[draw, [device for device in policy.active if policy.may_forward(device)]] = True
        self._grants[draw] = policy.may_grant


class _Replies:
    """When replies come in one epoch; variants whose questions cost the same share what was computed."""

    def __init__(self, delays: DelayModel, chance: Callable[[int], Chance]) -> None:
        self._delays = delays
        self._chance = cache(chance)
        self._known: dict[Any, Float[np.ndarray, "draws asked"]] = {}

    def of(self, costs: RoundCosts, question: int) -> Float[np.ndarray, "draws asked"]:
        """Return when each asked device has replied in each draw, counted from the question."""
        key = question, costs.key()
        if key not in self._known:
            self._known[key] = self._delays.reply_seconds(costs, self._chance(question))
        return self._known[key]


def shared_seconds(
    variants: Sequence[Variant],
    delays: DelayModel,
    *,
    epochs: int,
    seed: int,
    draws: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Float[np.ndarray, "variants draws epochs"]:
    """Return when each epoch ends in each draw of each variant; all variants meet the same random delays.

    Hand-overs after an epoch delay the next one.
    """
    fleets = [_Fleet(variant, delays, draws) for variant in variants]
    for fleet, variant in zip(fleets, variants, strict=True):
        for stage, transfers in enumerate(variant.set_up):
            fleet.now = fleet.now + stage_seconds(delays, stage, transfers, seed=seed, first=0, draws=draws)
    ends = np.empty((len(variants), draws, epochs))
    for epoch in range(1, epochs + 1):
        seconds = _Replies(delays, partial(delays.chance, seed, epoch, 0, draws))
        transfer_chance = cache(partial(delays.transfer_chance, seed, epoch, 0, draws))
        for number, (variant, fleet) in enumerate(zip(variants, fleets, strict=True)):
            if epoch == 1:
                fleet.finish(seconds.of(variant.costs.first, 0), variant.costs.first)
                ends[number, :, 0] = fleet.now
                continue
            taken = np.zeros((draws, delays.devices))
            for questions, rows in fleet.groups():
                for place, costs in enumerate(questions):
                    replies = seconds.of(costs, place)
                    fleet.finish(replies, costs, rows)
                    taken += np.where(rows[:, None], replies, 0.0)
            ends[number, :, epoch - 1] = fleet.now
            fleet.share(taken, transfer_chance)
        progress(epoch, epochs)
    return ends
