"""Who hands over to whom (section IV-B of the paper): a state machine without clock, arrays or keys.

After every epoch the server tells the policy when each active device replied. A *straggler* replied more than Delta
seconds after the fastest. Stragglers hand over what they hold and leave for good:

- one that holds at least two foreign supports (S^r) forwards without a new one;
- any other (S^nr) needs a support of its own; the slowest get one each, as long as there are any, and send in pairs
  to one recipient, which then holds two.

Recipients are the slowest devices that do not straggle and never received; when there are none left, the fastest.
``docs/sharing.md`` lists the points that the paper leaves open and how they are settled here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

Supply = Literal["once", "reissued", "unlimited"]
"""How supports are handed out: each once in a run, all again in every epoch, or without limit."""


@dataclass(frozen=True)
class Handover:
    """One device gives all it holds to another and leaves; ``support`` is the number of its fresh support, if any."""

    sender: int
    recipient: int
    support: int | None


@dataclass(frozen=True)
class Decision:
    """What happens after an epoch, in the order in which recipients take their parcels."""

    stragglers: tuple[int, ...]
    handovers: tuple[Handover, ...]
    waiting: tuple[int, ...]
    """Stragglers that stay because no support is left for them."""

    def __str__(self) -> str:
        """Say the decision in words."""
        if not self.stragglers:
            return "nobody straggles"
        lines = [f"stragglers, slowest first: {', '.join(map(str, self.stragglers))}"]
        for handover in self.handovers:
            with_support = "forwards" if handover.support is None else f"adds support {handover.support} and sends"
            lines.append(f"device {handover.sender} {with_support} to device {handover.recipient} and leaves")
        if self.waiting:
            lines.append(f"no support is left for {', '.join(map(str, self.waiting))}: they stay")
        return "\n".join(lines)


@final
class SharingPolicy:
    """The sharing policy of one run.

    >>> policy = SharingPolicy(devices=4, supports=2, delta=1.0, supply="once")
    >>> print(policy.after_epoch({0: 1.0, 1: 1.5, 2: 9.0, 3: 5.0}))
    stragglers, slowest first: 2, 3
    device 2 adds support 0 and sends to device 1 and leaves
    device 3 adds support 1 and sends to device 1 and leaves
    >>> policy.active
    (0, 1)
    """

    def __init__(self, *, devices: int, supports: int, delta: float, supply: Supply) -> None:
        if devices < 1 or supports < 0 or not delta >= 0:
            raise ValueError(f"need devices >= 1, supports >= 0, delta >= 0; got {devices}, {supports}, {delta}")
        self._delta = delta
        self._supply = supply
        self._supports = supports
        self._issued = 0
        self._held: dict[int, int] = dict.fromkeys(range(devices), 0)
        self._received: set[int] = set()

    @property
    def delta(self) -> float:
        """How many seconds after the fastest a device straggles."""
        return self._delta

    @property
    def active(self) -> tuple[int, ...]:
        """The devices that take part, in the order of their numbers."""
        return tuple(sorted(self._held))

    @property
    def issued(self) -> int:
        """How many supports have been handed out so far."""
        return self._issued

    def foreign_supports(self, device: int) -> int:
        """Return how many supports of others lie on what an active device holds."""
        return self._held[device]

    def may_forward(self, device: int) -> bool:
        """Tell whether an active device may hand over without a new support: two foreign ones hide its data."""
        return self._held[device] >= 2

    @property
    def may_grant(self) -> bool:
        """Whether there are supports left for a pair."""
        return self._available() >= 2

    def after_epoch(self, reply_seconds: Mapping[int, float]) -> Decision:
        """Decide who hands over to whom, given when each active device replied."""
        if set(reply_seconds) != set(self._held):
            raise ValueError(f"reply times of {sorted(reply_seconds)} do not fit the active devices {self.active}")
        slowest = sorted(reply_seconds, key=lambda device: (-reply_seconds[device], device))
        limit = min(reply_seconds.values()) + self._delta
        stragglers = [device for device in slowest if reply_seconds[device] > limit]
        others = [device for device in slowest if reply_seconds[device] <= limit]
        forwarding = [device for device in stragglers if self.may_forward(device)]
        wanting = [device for device in stragglers if not self.may_forward(device)]
        handovers = self._forward(forwarding, others)
        granted, others = self._grant(wanting, others)
        handovers += self._pair(granted, others)
        waiting = tuple(device for device in wanting if device not in granted)
        return Decision(tuple(stragglers), tuple(handovers), waiting)

    def resume(self, moved: Iterable[tuple[int, int, int | None]]) -> None:
        """Take over the (sender, recipient, support) of earlier epochs."""
        for sender, recipient, support in moved:
            self._move(Handover(sender, recipient, support))
            self._issued += support is not None

    def _available(self) -> int:
        if self._supply == "unlimited":
            return 2 * len(self._held)
        return self._supports if self._supply == "reissued" else self._supports - self._issued

    def _forward(self, forwarding: Sequence[int], others: Sequence[int]) -> list[Handover]:
        recipients = self._recipients(len(forwarding), others)
        pairs = zip(forwarding, recipients, strict=True)
        return [self._move(Handover(sender, recipient, None)) for sender, recipient in pairs]

    def _grant(self, wanting: Sequence[int], others: Sequence[int]) -> tuple[list[int], list[int]]:
        """Choose who gets a support: an even number where possible, so that they can send in pairs."""
        available = self._available()
        remaining = list(others)
        chosen = list(wanting[: available - available % 2])
        if len(chosen) % 2 and available > len(chosen):
            # the slowest that does not straggle and never received makes the pair, if somebody else stays to receive
            partner = next((device for device in others if device not in self._received), None)
            if partner is not None and len(others) > 1:
                chosen.append(partner)
                remaining.remove(partner)
        return chosen, remaining

    def _pair(self, granted: Sequence[int], others: Sequence[int]) -> list[Handover]:
        pairs = [granted[start : start + 2] for start in range(0, len(granted), 2)]
        recipients = self._recipients(len(pairs), others)
        first = 0 if self._supply == "reissued" else self._issued
        handovers: list[Handover] = []
        for pair, recipient in zip(pairs, recipients, strict=True):
            for sender in pair:
                handovers.append(self._move(Handover(sender, recipient, first + len(handovers))))
        self._issued += len(granted)
        return handovers

    def _recipients(self, count: int, others: Sequence[int]) -> list[int]:
        """Return recipients: slowest that never received, then the fastest; round again where there are too few."""
        fresh = [device for device in others if device not in self._received]
        used = [device for device in reversed(others) if device in self._received]
        order = fresh + used
        return [order[number % len(order)] for number in range(count)]

    def _move(self, handover: Handover) -> Handover:
        carried = self._held.pop(handover.sender) + (handover.support is not None)
        self._held[handover.recipient] += carried
        self._received.discard(handover.sender)
        self._received.add(handover.recipient)
        return handover
